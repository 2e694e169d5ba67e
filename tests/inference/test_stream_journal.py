"""A release cannot be asked for again: none is lost, and a stream goes on bit for bit."""

import contextlib
import itertools
import json
import os
import signal
import time

import numpy as np
import pymc as pm
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import StreamError

with pm.Model() as MODEL:
    mu = pm.Normal("mu", 0, 20)
    x = pm.Normal("x", mu, pm.HalfNormal("sigma", 5))
RECORDS = np.random.default_rng(1).normal(4.0, 2.0, 400)


def opened(path=None, **kwargs):
    given = {"epsilon": 2.0, "draws": 60, "chains": 2, "random_seed": 5, "path": path} | kwargs
    return pmp.online(MODEL["x"], **given)


def go_on(stream, until, pause=0.0):
    """Ask and take in, as users would have answered: each with noise of its own."""
    while stream.size < until:
        k = stream.size
        query = stream.query()
        stream.update(query, query.simulate(np.random.default_rng([9, k]), RECORDS[k]))
        time.sleep(pause)


def everything(stream):
    """Return all that a stream knows, to the last bit."""
    clouds = [[np.asarray(part) for part in cloud] for cloud in stream._clouds]
    result = stream.result()
    statistics = [v.values for v in result.sample_stats.data_vars.values()]
    draws = [v.values for v in result.posterior.data_vars.values()]
    return [*itertools.chain(*clouds), *statistics, *draws, result.constant_data["query"].values]


def assert_the_same(stream, other):
    for one, two in zip(everything(stream), everything(other), strict=True):
        assert np.array_equal(one, two, equal_nan=one.dtype.kind == "f")


def test_a_stream_on_disk_is_the_one_in_memory(tmp_path):
    plain = opened()
    go_on(plain, 80)
    with opened(tmp_path / "stream") as kept:
        go_on(kept, 80)
        assert_the_same(kept, plain)


@pytest.mark.parametrize("sizes", [(0, 1), (1, 2), (17, 80), (80, 80)])
def test_a_stream_goes_on_where_it_was(tmp_path, sizes):
    plain = opened()
    for size in sizes:
        with opened(tmp_path) as stream:
            go_on(stream, size)
    go_on(plain, sizes[-1])
    with opened(tmp_path, random_seed=None) as stream:
        assert_the_same(stream, plain)
        go_on(stream, 90)
        go_on(plain, 90)
        assert_the_same(stream, plain)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_stream_that_is_killed_goes_on_bit_for_bit(tmp_path):
    """By kill -9, again and again, wherever it happens to be."""
    rng = np.random.default_rng(3)
    opened(tmp_path).close()
    lines, killed = tmp_path / "releases.jsonl", 0
    for _ in range(40):
        before = len(lines.read_bytes().splitlines()) - 1
        if before >= 300:
            break
        child = os.fork()
        if child == 0:
            go_on(opened(tmp_path), 300)
            os._exit(0)
        wanted = before + int(rng.integers(1, 60))
        while len(lines.read_bytes().splitlines()) - 1 < min(wanted, 300):
            if os.waitpid(child, os.WNOHANG)[0]:
                break
        else:
            time.sleep(rng.uniform(0, 3e-3))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            killed += 1
    assert killed >= 3
    plain = opened()
    with opened(tmp_path) as stream:
        size = stream.size
        assert size >= 250
        go_on(plain, size)
        assert_the_same(stream, plain)


QUERY = pmp.BinnedQuery(edges=[0.0, 4.0], epsilon=2.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_stream_that_dies_at_any_call_to_the_disk_goes_on_bit_for_bit(tmp_path, monkeypatch):
    """At each write, sync, truncation and replacement in turn: before it, or halfway through it."""
    plain = opened()
    go_on(plain, 9)
    calls = {name: getattr(os, name) for name in ("write", "fsync", "replace", "ftruncate")}

    def dying(countdown):
        def call(name, *given):
            countdown[0] -= 1
            if countdown[0] == 0:
                if name == "write" and countdown[1]:
                    calls["write"](given[0], given[1][: len(given[1]) // 2])
                os._exit(9)
            return calls[name](*given)

        for name in calls:
            monkeypatch.setattr(os, name, lambda *given, name=name: call(name, *given))

    died, at = True, 0
    while died:
        at, folder = at + 1, tmp_path / str(at)
        child = os.fork()
        if child == 0:
            dying([at, at % 2])
            go_on(opened(folder), 9)
            os._exit(0)
        died = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        with opened(folder) as stream:
            go_on(stream, 9)
            assert_the_same(stream, plain)
    assert at > 20


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("where", ["_take_in", "_keep"])
@pytest.mark.parametrize("kept", [True, False])
def test_an_update_that_is_interrupted_is_made_up_for(tmp_path, monkeypatch, where, kept):
    """The particles take in the release later, in its place, and files and memory agree."""
    plain, path = opened(), tmp_path if kept else None
    stream = opened(path)
    for k in range(40):
        plain.update(QUERY, k % 3)
        if k % 4 == 0:
            made = getattr(type(stream), where)

            def interrupted(self, *given, made=made, late=k % 8 == 0):
                if late:
                    made(self, *given)
                raise Interrupted

            monkeypatch.setattr(type(stream), where, interrupted)
            # Particles that were not moved are not kept.
            with contextlib.suppress(Interrupted):
                stream.update(QUERY, k % 3)
            monkeypatch.undo()
        else:
            stream.update(QUERY, k % 3)
        assert stream.size == k + 1
    assert_the_same(stream, plain)
    if kept:
        stream.close()
        with opened(path) as stream:
            assert_the_same(stream, plain)


def test_a_release_that_cannot_be_written_is_refused_until_the_stream_is_opened_again(
    tmp_path, monkeypatch
):
    stream = opened(tmp_path)
    stream.update(QUERY, 1)

    def full(descriptor, data, write=os.write):
        write(descriptor, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StreamError, match="No space left"):
        stream.update(QUERY, 2)
    monkeypatch.undo()
    with pytest.raises(StreamError, match="opened again"):
        stream.update(QUERY, 0)
    assert stream.size == 1
    stream.close()
    with opened(tmp_path) as stream:
        assert stream.size == 1


def test_a_stream_that_is_closed_takes_in_nothing(tmp_path):
    stream = opened(tmp_path)
    stream.update(QUERY, 1)
    stream.close()
    stream.close()
    with pytest.raises(StreamError, match="opened again"):
        stream.update(QUERY, 1)
    assert stream.result().sample_stats.sizes["release"] == stream.size == 1


def test_particles_that_are_lost_are_computed_again(tmp_path):
    with opened(tmp_path) as stream:
        go_on(stream, 60)
        before = everything(stream)
    (tmp_path / "particles.npz").unlink()
    with opened(tmp_path) as stream:
        after = everything(stream)
    for one, two in zip(before, after, strict=True):
        assert np.array_equal(one, two, equal_nan=one.dtype.kind == "f")


def test_a_torn_last_line_is_cut_off(tmp_path):
    with opened(tmp_path) as stream:
        go_on(stream, 12)
    lines = tmp_path / "releases.jsonl"
    whole = lines.read_bytes()
    lines.write_bytes(whole + b'{"query": {"query": "bin')
    with opened(tmp_path) as stream:
        assert stream.size == 12
    assert lines.read_bytes() == whole


def test_every_release_is_on_disk_before_it_is_used(tmp_path, monkeypatch):
    """The particles fail; the release is there, and taken in when the stream is opened again."""
    stream = opened(tmp_path)
    query = stream.query()
    monkeypatch.setattr(type(stream), "_take_in", lambda self, answer: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        stream.update(query, 1)
    monkeypatch.undo()
    stream._journal.close()
    with opened(tmp_path) as stream:
        assert stream.size == 1
        assert stream._given[0].query == query


def test_a_sync_comes_before_use(tmp_path, monkeypatch):
    events = []
    stream = opened(tmp_path)
    real_sync, real_step = os.fsync, type(stream)._take_in
    monkeypatch.setattr(os, "fsync", lambda fd: events.append("sync") or real_sync(fd))
    monkeypatch.setattr(
        type(stream), "_take_in", lambda self, one: events.append("use") or real_step(self, one)
    )
    stream.update(pmp.BinnedQuery(edges=[0.0], epsilon=1.0), [0, 1])
    assert events[:3] == ["sync", "use", "use"]
    stream.close()


OTHERS = [{"epsilon": 1.0}, {"draws": 61}, {"chains": 1}, {"random_seed": 6}]


@pytest.mark.parametrize("given", OTHERS, ids=str)
def test_a_stream_is_not_opened_with_other_arguments(tmp_path, given):
    opened(tmp_path).close()
    with pytest.raises(StreamError, match="must be opened again with"):
        opened(tmp_path, **given)
    opened(tmp_path).close()


@pytest.mark.parametrize(
    "law",
    [
        lambda mu, sigma: pm.Normal("x", mu, sigma),
        lambda mu, sigma: pm.Normal("x", 1e6 + mu, 1.0 + sigma),
        lambda mu, sigma: pm.Normal("x", 1e6 + mu, 2.0 + sigma),
    ],
    ids=["prior", "far", "far and wide"],
)
def test_a_stream_is_not_opened_with_another_model(tmp_path, law):
    """Nor with one that differs only where records are."""
    given = {"epsilon": 2.0, "draws": 60, "chains": 2, "random_seed": 5, "path": tmp_path}
    with pm.Model():
        far = pm.Normal("x", 1e6 + pm.Normal("mu", 0, 20), 1.5 + pm.HalfNormal("sigma", 5))
    pmp.online(far, **given).close()
    with pm.Model():
        other = law(pm.Normal("mu", 0, 20), pm.HalfNormal("sigma", 5))
    with pytest.raises(StreamError, match="model="):
        pmp.online(other, **given)


def test_a_folder_is_written_by_one_stream_at_a_time(tmp_path):
    with opened(tmp_path), pytest.raises(StreamError, match="in use by another"):
        opened(tmp_path)
    opened(tmp_path).close()


@pytest.mark.parametrize("line", ["no json", "[]", "{}", '{"query": {}, "release": 1}'])
def test_a_line_that_no_stream_has_written_is_refused(tmp_path, line):
    with opened(tmp_path) as stream:
        go_on(stream, 2)
    with open(tmp_path / "releases.jsonl", "a") as file:
        file.write(line + "\n")
    with pytest.raises(StreamError, match=r"[Ee]very"):
        opened(tmp_path)


def test_particles_that_know_more_than_is_on_file_are_refused(tmp_path):
    with opened(tmp_path) as stream:
        go_on(stream, 9)
    lines = tmp_path / "releases.jsonl"
    lines.write_bytes(b"".join(lines.read_bytes().splitlines(keepends=True)[:5]))
    with pytest.raises(StreamError, match="must not know more"):
        opened(tmp_path)


def test_particles_that_are_damaged_are_refused(tmp_path):
    opened(tmp_path).close()
    (tmp_path / "particles.npz").write_bytes(b"what is this")
    with pytest.raises(StreamError, match="move it away"):
        opened(tmp_path)


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StreamError, match="must be a folder"):
        opened(tmp_path / "file")


def test_what_is_on_disk_is_plain(tmp_path):
    query = pmp.BinnedQuery(edges=[0.0], epsilon=1.0)
    with opened(tmp_path) as stream:
        stream.update(query, 1)
    first, line = map(json.loads, (tmp_path / "releases.jsonl").read_text().splitlines())
    assert first["parameters"] == ["mu", "sigma"]
    assert first["stream"] == "x"
    assert line == {"query": json.loads(query.to_json()), "release": 1}
