"""A study gives the same rows on any executor, and loses or repeats nothing when it is killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import StudyError
from pymc_privacy.studies import journal
from pymc_privacy.studies.replicates import Replicate
from tests.studies import experiments
from tests.studies.experiments import calls

ROOT = Path(__file__).parents[2]


def study_of_means(folder, sizes=(3, 5), replicates=4, seed=7):
    grid = {"size": sizes, "folder": [str(folder)]}
    return pmp.Study(
        experiments.noisy_mean, grid, replicates=replicates, seed=seed, path=folder / "rows.jsonl"
    )


def study_of(function, path, indices=6, **setting):
    grid = [{"index": index, **setting} for index in range(indices)]
    return pmp.Study(function, grid, replicates=1, seed=1, path=path)


def results(rows):
    """What does not depend on the clock or on the folder."""
    return [{k: v for k, v in row.items() if k not in ("seconds", "folder")} for row in rows]


def processes():
    # Forking a process that runs threads is what Python warns of.
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))


def test_rows_come_in_the_order_of_the_grid_with_everything_in_them(tmp_path):
    rows = study_of_means(tmp_path).run(progressbar=False)
    assert [(row["size"], row["replicate"]) for row in rows] == [
        (size, number) for size in (3, 5) for number in range(4)
    ]
    assert all(row["error"] is None and row["seconds"] >= 0 for row in rows)
    assert all(row["positive"] is (row["mean"] > 0) for row in rows)
    assert len({row["mean"] for row in rows}) == 8, "each replicate has a generator of its own"


@pytest.mark.parametrize(
    "make",
    [lambda: ThreadPoolExecutor(3), pytest.param(processes, marks=pytest.mark.slow)],
    ids=["threads", "processes"],
)
def test_results_do_not_depend_on_the_executor(tmp_path, make):
    def without_traceback(rows):
        return [{k: v for k, v in row.items() if k != "traceback"} for row in results(rows)]

    here = study_of(experiments.fails_sometimes, tmp_path / "here.jsonl").run(progressbar=False)
    with make() as executor:
        study = study_of(experiments.fails_sometimes, tmp_path / "pool.jsonl")
        there = study.run(executor, progressbar=False)
        assert executor.submit(int).result() == 0, "the executor belongs to the caller"
    assert without_traceback(there) == without_traceback(here)
    assert [row["error"] is None for row in there] == [True, False, False] * 2


def test_a_larger_grid_and_more_replicates_add_to_what_is_there(tmp_path):
    first = study_of_means(tmp_path).run(progressbar=False)
    assert len(calls(tmp_path)) == 8
    larger = study_of_means(tmp_path, sizes=(2, 3, 5.0), replicates=5)
    assert len(larger.missing()) == 7
    rows = larger.run(progressbar=False)
    assert len(calls(tmp_path)) == len(rows) == 15
    kept = [row for row in rows if row["size"] in (3, 5) and row["replicate"] < 4]
    assert results(kept) == results(first)
    # The smaller study is still there, and there is nothing to do for it.
    again = study_of_means(tmp_path)
    assert again.missing() == []
    assert results(again.run(progressbar=False)) == results(first)
    assert len(calls(tmp_path)) == 15


def test_the_generator_depends_on_seed_setting_and_number_and_on_nothing_else():
    def first(seed, setting, number):
        return Replicate(setting, number).generator(seed).random()

    base = first(1, {"a": 1, "b": "x"}, 0)
    assert base == first(1, {"b": "x", "a": 1.0}, 0)
    assert base == first(1, {"b": "x", "a": np.int64(1)}, 0)
    others = [(2, {"a": 1, "b": "x"}, 0), (1, {"a": 2, "b": "x"}, 0), (1, {"a": 1, "b": "x"}, 1)]
    assert base not in [first(*other) for other in others]


def test_a_failed_replicate_is_a_row_with_its_error_and_is_run_again_on_request(tmp_path):
    path = tmp_path / "rows.jsonl"
    study = study_of(experiments.fails_sometimes, path)
    rows = study.run(progressbar=False)
    assert [row["error"] for row in rows[:3]] == [
        None,
        "ValueError: index 1 does not work",
        "SystemExit: 2",
    ]
    assert "fails_sometimes" in rows[1]["traceback"]
    assert "value" not in rows[1]
    lines = path.read_text()
    study.run(progressbar=False)
    assert path.read_text() == lines, "failed replicates are finished, too"

    def repaired(rng, index):
        return {"value": float(rng.random())}

    repaired.__qualname__ = "fails_sometimes"
    again = study_of(repaired, path).run(retry_failed=True, progressbar=False)
    assert [row["error"] for row in again] == [None] * 6
    assert again[0] == rows[0]


@pytest.mark.parametrize("kind", ["object", "list"])
def test_a_result_that_cannot_be_written_is_a_failure_of_its_replicate(tmp_path, kind):
    function, path = experiments.returns_what_json_cannot_hold, tmp_path / "rows.jsonl"
    study = pmp.Study(function, {"kind": [kind]}, replicates=1, seed=1, path=path)
    [row] = study.run(progressbar=False)
    assert {"object": "not JSON serializable", "list": "must return a mapping"}[kind] in row[
        "error"
    ]


def test_a_result_may_not_hide_the_setting(tmp_path):
    [row] = study_of(experiments.returns_a_reserved_name, tmp_path / "rows.jsonl", indices=1).run(
        progressbar=False
    )
    assert "names of their own" in row["error"]


# ---------------------------------------------------------------- killed in the middle

RUN = """
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from tests.studies import experiments
from tests.studies.test_study import study_of

if __name__ == "__main__":
    folder, kind = sys.argv[1:]
    pool = {"threads": ThreadPoolExecutor, "processes": ProcessPoolExecutor}[kind]
    with pool(2) as executor:
        study = study_of(experiments.slow, folder + "/rows.jsonl", indices=60, folder=folder)
        study.run(executor, progressbar=False)
"""


def run_until_killed(folder, kind, rows_before):
    """Start a run, kill -9 all of it once it has written some rows, and return these."""
    script = folder / "run.py"
    script.write_text(RUN)
    path = folder / "rows.jsonl"
    before = path.read_bytes().count(b"\n") if path.exists() else 0
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder), kind],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not path.exists() or path.read_bytes().count(b"\n") < before + rows_before:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)  # a session of its own: nothing else is in the group
    process.wait()
    return path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_killed_run_goes_on_with_nothing_lost_and_nothing_repeated(tmp_path, kind):
    first = run_until_killed(tmp_path, kind, rows_before=8)
    second = run_until_killed(tmp_path, kind, rows_before=8)
    assert second.startswith(first[: first.rfind(b"\n") + 1]), "what was written was changed"
    study = study_of(experiments.slow, tmp_path / "rows.jsonl", indices=60, folder=str(tmp_path))
    finished = 60 - len(study.missing())
    assert 7 + 8 <= finished < 60, "the first line of the file names the study"
    before = len(calls(tmp_path))
    # Each kill may cost what was in flight: at most two, and two that were being handed over.
    assert before - finished <= 2 * 4
    with ThreadPoolExecutor(2) as executor:
        rows = study.run(executor, progressbar=False)
    assert len(calls(tmp_path)) - before == 60 - finished, "a finished replicate was run again"
    assert [row["index"] for row in rows] == list(range(60))
    keys = [
        json.loads(line)["key"] for line in (tmp_path / "rows.jsonl").read_text().splitlines()[1:]
    ]
    assert len(keys) == len(set(keys)) == 60
    # An interrupted replicate gives, when run again, what it would have given.
    by_index = {}
    for call in calls(tmp_path):
        by_index.setdefault(call.split()[0], set()).add(call.split()[1])
    assert all(len(values) == 1 for values in by_index.values())


def test_a_line_torn_at_any_byte_is_run_again_and_no_other(tmp_path):
    whole = study_of_means(tmp_path, sizes=(3,), replicates=3)
    expected = results(whole.run(progressbar=False))
    path = tmp_path / "rows.jsonl"
    content = path.read_bytes()
    last = content[:-1].rfind(b"\n") + 1
    for cut in range(last, len(content)):
        path.write_bytes(content[:cut])
        study = study_of_means(tmp_path, sizes=(3,), replicates=3)
        assert [replicate.number for replicate in study.missing()] == [2]
        assert results(study.run(progressbar=False)) == expected
        assert path.read_bytes()[:last] == content[:last]
    for cut in range(content.index(b"\n") + 1):  # the line that names the study
        path.write_bytes(content[:cut])
        assert (
            results(study_of_means(tmp_path, sizes=(3,), replicates=3).run(progressbar=False))
            == expected
        )


@pytest.mark.slow
def test_an_executor_that_dies_keeps_what_had_finished(tmp_path):
    study = study_of(experiments.kills_its_worker_once, tmp_path / "r.jsonl", folder=str(tmp_path))
    with processes() as executor, pytest.raises(StudyError, match="goes on from there"):
        study.run(executor, progressbar=False)
    before = results(study.rows())
    assert len(before) < 6
    with processes() as executor:
        rows = study.run(executor, progressbar=False)
    assert len(rows) == 6
    assert all(row in results(rows) for row in before)
    assert all(row["error"] is None for row in rows), "nobody's fault is nobody's row"


def forked():
    # What forking inherits of threads does not matter to experiments that use none.
    return ProcessPoolExecutor(2, mp_context=get_context("fork"))


def test_a_replicate_that_kills_its_worker_is_a_row_and_stops_no_other(tmp_path):
    study = study_of(experiments.kills_every_worker, tmp_path / "r.jsonl")
    with forked() as executor:
        rows = study.run(executor, progressbar=False)
    assert [row["index"] for row in rows] == list(range(6))
    assert [row["error"] is None for row in rows] == [True, False, True, True, True, True]
    assert "exit code -9" in rows[1]["error"]
    assert study.missing() == []


@pytest.mark.parametrize("make", [nullcontext, forked])
def test_a_replicate_that_hangs_is_stopped_at_the_time_limit(tmp_path, make):
    study = study_of(experiments.hangs, tmp_path / "r.jsonl", indices=3)
    with make() as executor:
        rows = study.run(executor, time_limit=2.0, progressbar=False)
    assert [row["error"] is None for row in rows] == [True, False, True]
    assert "time limit" in rows[1]["error"]
    assert rows[1]["seconds"] >= 2.0
    whole = study_of(experiments.hangs, tmp_path / "w.jsonl", indices=1).run(progressbar=False)
    assert rows[0]["value"] == whole[0]["value"], "the results are those of any executor"


def test_a_replicate_that_ends_its_own_process_is_a_row(tmp_path):
    study = study_of(experiments.kills_every_worker, tmp_path / "r.jsonl", indices=3)
    rows = study.run(time_limit=60, progressbar=False)
    assert [row["error"] is None for row in rows] == [True, False, True]


@pytest.mark.parametrize("limit", [0, -1, "1", True, np.nan])
def test_a_time_limit_is_a_number_of_seconds(tmp_path, limit):
    with pytest.raises(StudyError, match="time_limit must be a finite number > 0"):
        study_of(experiments.hangs, tmp_path / "r.jsonl").run(time_limit=limit)
    with (
        ThreadPoolExecutor(1) as executor,
        pytest.raises(StudyError, match="needs processes that can be stopped"),
    ):
        study_of(experiments.hangs, tmp_path / "r.jsonl").run(executor, time_limit=1.0)
    with pytest.raises(StudyError, match=r"executor must be a concurrent\.futures\.Executor"):
        study_of(experiments.hangs, tmp_path / "r.jsonl").run("processes")


def test_an_error_that_cannot_be_printed_is_a_row_like_others(tmp_path):
    study = study_of(experiments.raises_what_cannot_be_printed, tmp_path / "r.jsonl", indices=4)
    rows = study.run(progressbar=False)
    assert [row["error"] is None for row in rows] == [True, False, False, True]
    assert rows[1]["error"].startswith("Unspeakable: (")
    assert "raise Unspeakable" in rows[1]["traceback"]
    assert rows[2]["error"] == "BaseException: not even an Exception"


def test_names_that_would_collapse_are_refused(tmp_path):
    study = study_of(experiments.returns_names_that_collapse, tmp_path / "r.jsonl", indices=4)
    rows = study.run(progressbar=False)
    assert "must be strings; got 1" in rows[0]["error"]
    assert "must differ when they are written" in rows[1]["error"]
    assert "must be strings; got 1" in rows[2]["error"]
    assert rows[3]["error"] is None
    for grid in ({1: [2], "1": [3]}, [{1: 2, "1": 3}], {"not a name": [1]}):
        with pytest.raises(StudyError, match="names of a setting"):
            pmp.Study(dict, grid, replicates=1, seed=1, path=tmp_path / "r.jsonl")
    with pytest.raises(StudyError, match="must differ when they are written"):
        pmp.Study(dict, {"a": [{1: 2, "1": 3}]}, replicates=1, seed=1, path=tmp_path / "r.jsonl")


def test_a_folder_that_cannot_be_written_is_called_that(tmp_path, monkeypatch):
    def denied(*args):
        raise PermissionError(13, "Permission denied")

    study = study_of(experiments.hangs, tmp_path / "deep" / "r.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr(journal.os, "open", denied)
        with pytest.raises(StudyError, match=r"folder that can be written.*Permission denied"):
            study.run(progressbar=False)
    os.mkfifo(tmp_path / "pipe")
    for wrong in (tmp_path, tmp_path / "pipe", "/dev/null/rows"):
        with pytest.raises(StudyError, match="can be read and written"):
            study_of(experiments.hangs, wrong).run(progressbar=False)


@pytest.mark.parametrize(
    "line", ["3", "[]", '{"key": 3}', '{"key": "a"}', "[" * 5000, '{"key": "a", "seconds": "b"}']
)
def test_a_line_that_no_study_has_written_is_refused(tmp_path, line):
    study = study_of(experiments.fails_sometimes, tmp_path / "r.jsonl", indices=1)
    study.run(progressbar=False)
    with (tmp_path / "r.jsonl").open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(StudyError, match="must be"):
        study.rows()


def test_an_executor_that_was_shut_down_is_an_error_and_no_row(tmp_path):
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    study = study_of(experiments.fails_sometimes, tmp_path / "r.jsonl")
    with pytest.raises(StudyError, match="cannot schedule new futures"):
        study.run(executor, progressbar=False)
    assert study.rows() == []


@pytest.mark.slow
def test_a_function_that_cannot_be_sent_is_an_error_and_no_row(tmp_path):
    study = study_of(lambda rng, index: {}, tmp_path / "r.jsonl")
    with processes() as executor, pytest.raises(StudyError, match="must take the function"):
        study.run(executor, progressbar=False)
    assert study.rows() == []


class Interrupted:
    """An executor during whose second replicate somebody presses Ctrl-C."""

    def __init__(self):
        self.futures = []

    def submit(self, function, *args):
        future = Future()
        if len(self.futures) == 0:
            future.set_result(function(*args))
        elif len(self.futures) == 1:
            future.set_exception(KeyboardInterrupt())
        self.futures.append(future)
        return future


def test_an_interrupt_cancels_the_rest_and_keeps_what_had_finished(tmp_path):
    study, executor = study_of(experiments.fails_sometimes, tmp_path / "r.jsonl"), Interrupted()
    with pytest.raises(KeyboardInterrupt):
        study.run(executor, progressbar=False)
    assert len(study.rows()) <= 1
    assert all(future.cancelled() for future in executor.futures[2:])


# ---------------------------------------------------------------- refusals


def test_one_run_at_a_time(tmp_path):
    study = study_of_means(tmp_path)
    with study._journal.writing(), pytest.raises(StudyError, match="One run at a time"):
        study_of_means(tmp_path).run(progressbar=False)
    assert len(study.run(progressbar=False)) == 8, "the lock must be gone"


@pytest.mark.slow
def test_another_process_is_kept_out_as_well(tmp_path):
    code = (
        "import sys, pathlib; from tests.studies.test_study import study_of_means\n"
        "study_of_means(pathlib.Path(sys.argv[1])).run(progressbar=False)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with study_of_means(tmp_path)._journal.writing():
        found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode != 0
    assert "One run at a time" in found.stderr
    assert calls(tmp_path) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 8}, "noisy_mean with seed 7; got noisy_mean with seed 8"),
        ({"function": experiments.slow}, "got slow with seed 7"),
    ],
)
def test_results_of_another_study_are_not_mixed_in(tmp_path, changed, message):
    study_of_means(tmp_path).run(progressbar=False)
    options = {"function": experiments.noisy_mean, "seed": 7} | changed
    other = pmp.Study(
        options["function"],
        [{"index": 1}],
        replicates=1,
        seed=options["seed"],
        path=tmp_path / "rows.jsonl",
    )
    for use in (other.rows, other.missing, lambda: other.run(progressbar=False)):
        with pytest.raises(StudyError, match=message):
            use()


def test_a_file_that_is_something_else_is_left_alone(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("size,mean\n3,0.1\n")
    with pytest.raises(StudyError, match="must be JSON"):
        study_of_means(tmp_path).run(progressbar=False)
    assert path.read_text() == "size,mean\n3,0.1\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": {}}, None),
        ({"grid": {"a": []}}, "at least one setting"),
        ({"grid": []}, "at least one setting"),
        ({"grid": {"a": [1, 1.0]}}, "one of them twice"),
        ({"grid": {"error": [1]}}, "setting named error"),
        ({"grid": {"a": [object()]}}, "written to a file"),
        ({"replicates": 0}, "replicates must be an integer >= 1; got 0"),
        ({"replicates": 2.0}, "replicates must be an integer >= 1; got 2.0"),
        ({"seed": None}, "seed must be an integer >= 0"),
        ({"seed": -1}, "seed must be an integer >= 0"),
    ],
)
def test_a_study_that_cannot_be_run_is_refused(tmp_path, change, message):
    options = {"grid": {"a": [1]}, "replicates": 1, "seed": 1} | change
    options["path"] = tmp_path / "rows.jsonl"
    if message is None:  # no names at all: one setting, the empty one
        assert len(pmp.Study(dict, **options).all()) == 1
        return
    with pytest.raises(StudyError, match=message):
        pmp.Study(dict, **options)


def test_rows_can_be_read_while_they_are_written(tmp_path):
    study = study_of(experiments.slow, tmp_path / "r.jsonl", indices=6, folder=str(tmp_path))
    thread = threading.Thread(target=study.run, kwargs={"progressbar": False})
    thread.start()
    seen = []
    while thread.is_alive():
        seen.append(len(study.rows()))
    thread.join()
    assert seen == sorted(seen)
    assert len(study.rows()) == 6


def test_the_bar_counts_failures(tmp_path, capsys):
    study_of(experiments.fails_sometimes, tmp_path / "r.jsonl").run()
    shown = capsys.readouterr().err
    assert "6/6" in shown
    assert "4 failed" in shown
