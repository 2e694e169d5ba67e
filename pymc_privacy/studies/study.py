"""`Study`: the same experiment in many settings and many times, on any executor."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import multiprocessing
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pymc_privacy.arguments import flag, integer, positive, refusal, shown
from pymc_privacy.arguments import function as checked_function
from pymc_privacy.arguments import path as checked_path
from pymc_privacy.errors import StudyError
from pymc_privacy.studies.isolation import Workers, run_isolated
from pymc_privacy.studies.journal import Journal
from pymc_privacy.studies.replicates import (
    RESERVED,
    Outcome,
    Replicate,
    failure,
    run_replicate,
)

_MOST = 10**6  # settings of a grid


class Study:
    """Run an experiment for every setting of a grid, many times, and lose nothing.

    Each replicate has a generator of its own, which depends on the seed, on its setting and on its
    number alone: results do not depend on the executor, on the order, or on what else is run. A
    finished replicate is on disk before it counts as finished. A run that is killed goes on where
    it stopped; finished replicates are never run again, and a larger grid or more replicates add
    to what is there. A replicate that fails is a row with its error, and stops no other. That the
    function is still the same when a study is resumed is not checked.

    Parameters
    ----------
    function : callable
        ``function(rng, **setting)``: simulate, release, fit, and return a mapping of names to
        numbers, strings, or lists of them. For processes it must be importable, so not a lambda;
        inside it, sample with ``cores=1``: workers may not start processes of their own.
    grid : mapping or sequence of mappings
        Values by name, of which all combinations are run; or the settings themselves.
    replicates : int
        How many of each setting.
    seed : int
        Of the whole study.
    path : path_like
        Where results go: JSON lines. One file for each study.

    Raises
    ------
    StudyError
        By the constructor, if an argument is not what it must be or two settings are the same; and
        by `run`, `rows` and `missing`, if the file is not one of this study, or is in use.

    See Also
    --------
    simulate_release : Simulate a release in the function.
    sample : Fit a model in the function.
    audit : Put the privacy of a mechanism to the test.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pymc_privacy as pmp
    >>> def covers(rng, epsilon):
    ...     mechanism = pmp.Laplace(epsilon=epsilon, sensitivity=1.0)
    ...     noise = float(mechanism.simulate(rng, 0.0))
    ...     return {"error_of_count": abs(noise), "covered": abs(noise) < 3 / epsilon}
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "counts.jsonl"
    >>> study = pmp.studies.Study(
    ...     covers, {"epsilon": [0.1, 1.0]}, replicates=100, seed=1, path=path
    ... )
    >>> rows = study.run(progressbar=False)
    >>> len(rows), sorted(rows[0])
    (200, ['covered', 'epsilon', 'error', 'error_of_count', 'replicate', 'seconds'])
    >>> 0.9 < sum(row["covered"] for row in rows) / 200 < 1.0
    True
    >>> study.missing()
    []
    """

    def __init__(
        self,
        function: Callable[..., Mapping[str, Any]],
        grid: Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]],
        *,
        replicates: int,
        seed: int,
        path: str | os.PathLike[str],
    ):
        self.function = checked_function("function", function, error=StudyError)
        self.settings = _settings(grid)
        self.replicates = integer("replicates", replicates, least=1, error=StudyError)
        why = "so that a study can be run again and gives the same results"
        self.seed = integer("seed", seed, least=0, meaning=why, error=StudyError)
        path = checked_path("path", path, error=StudyError)
        # Not the module, which is called __main__ when a study is run as a script.
        name = getattr(function, "__qualname__", type(function).__name__)
        self._journal = Journal(path, {"study": name, "seed": self.seed})

    def __repr__(self) -> str:
        return (
            f"<Study of {len(self.settings)} settings by {self.replicates} replicates in "
            f"{self._journal.path}>"
        )

    def all(self) -> list[Replicate]:
        """Return every replicate, in the order of the grid."""
        return [Replicate(s, number) for s in self.settings for number in range(self.replicates)]

    def missing(self) -> list[Replicate]:
        """Return the replicates that are not on file yet."""
        done = self._journal.read()
        return [replicate for replicate in self.all() if replicate.key not in done]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each finished replicate, in the order of the grid.

        A row has the setting, ``replicate``, the results, ``seconds``, and ``error``, which is
        None unless the replicate failed.
        """
        done = self._journal.read()
        lines = [(replicate, done.get(replicate.key)) for replicate in self.all()]
        return [_row(replicate, line) for replicate, line in lines if line is not None]

    def run(
        self,
        executor: Executor | None = None,
        *,
        retry_failed: bool = False,
        time_limit: float | None = None,
        progressbar: bool = True,
    ) -> list[dict[str, Any]]:
        """Run what is missing, and return all rows.

        Parameters
        ----------
        executor : concurrent.futures.Executor, optional
            A ``ProcessPoolExecutor``, a ``ThreadPoolExecutor`` (for functions that are safe in
            threads, which compiling a model is not promised to be), Dask's
            ``client.get_executor()``, or any other. In this process, one after the other, by
            default. It is not shut down.
        retry_failed : bool, default False
            Run those again whose row is an error.
        time_limit : float, optional
            Seconds, for each replicate. Then they run in processes of the study's own, as many as
            a ``ProcessPoolExecutor`` has, or one; what is not done in time is killed, and its row
            is an error.
        progressbar : bool, default True

        Raises
        ------
        StudyError
            When the executor could not take the function, or broke down before all was done. What
            had finished is on file.

        Notes
        -----
        When a process of a ``ProcessPoolExecutor`` dies, the replicates that had been started are
        run again, each in a process of its own. One that ends that, too, is a row with an error,
        and the others go on in another pool, without the initializer of the first. Without an
        executor, and in threads, a replicate that ends its process ends the study: give a time
        limit.
        """
        flag("retry_failed", retry_failed, error=StudyError)
        flag("progressbar", progressbar, error=StudyError)
        workers = _workers(executor, time_limit)
        with self._journal.writing() as writer:
            done = self._journal.read()
            again = {key for key, line in done.items() if retry_failed and "error" in line}
            todo = [r for r in self.all() if r.key not in done or r.key in again]
            total = len(self.settings) * self.replicates
            with _bar(total, total - len(todo), progressbar) as advance:

                def finish(outcome: Outcome) -> None:
                    writer.append(outcome.line)
                    advance(outcome.failed)

                if workers is not None and time_limit is not None:
                    run_isolated(self.function, todo, self.seed, workers, finish)
                elif executor is None:
                    for replicate in todo:
                        finish(run_replicate(self.function, replicate, self.seed))
                else:
                    self._run_on(executor, todo, finish)
        return self.rows()

    def _run_on(
        self, executor: Executor, todo: list[Replicate], finish: Callable[[Outcome], None]
    ) -> None:
        if isinstance(executor, ProcessPoolExecutor):
            self._run_on_processes(executor, todo, finish)
            return
        for replicate, _ in self._submit(executor, todo, finish):
            # Dask blames every replicate that a dead worker had been given. Run alone, the one
            # that is blamed again has done it.
            for guilty, error in self._submit(executor, [replicate], finish):
                finish(failure(guilty, error))

    def _run_on_processes(
        self,
        executor: ProcessPoolExecutor,
        todo: list[Replicate],
        finish: Callable[[Outcome], None],
    ) -> None:
        """Run on a pool; when it breaks down, find out whose fault that was, and go on without it.

        All that is known is which replicates had been started. If none of them ends a process of
        its own, it was none of them. Else another pool takes the rest.
        """
        left = {replicate.key: replicate for replicate in todo}

        def done(outcome: Outcome) -> None:
            left.pop(json.loads(outcome.line)["key"])
            finish(outcome)

        workers = _workers(executor, None)
        assert workers is not None
        with tempfile.TemporaryDirectory() as started:
            try:
                self._submit(executor, todo, done, started)
            except StudyError as error:
                if not isinstance(error.__cause__, BrokenProcessPool):
                    raise
                keys = {path.name for path in Path(started).iterdir()}
                suspects = [r for r in left.values() if _ticket(r) in keys]
                alone = workers._replace(number=1)
                found: list[Outcome] = []
                if not run_isolated(self.function, suspects, self.seed, alone, found.append):
                    raise
                for outcome in found:
                    done(outcome)
        if left:
            with ProcessPoolExecutor(workers.number, mp_context=workers.context) as another:
                self._run_on_processes(another, list(left.values()), finish)

    def _submit(
        self,
        executor: Executor,
        todo: list[Replicate],
        finish: Callable[[Outcome], None],
        started: str = "",
    ) -> list[tuple[Replicate, Exception]]:
        """Run replicates side by side, and return those that are blamed for dead workers."""
        futures: dict[Future, Replicate] = {}
        suspects: list[tuple[Replicate, Exception]] = []
        broken: BaseException | None = None
        try:
            for replicate in todo:
                ticket = _ticket(replicate) if started else uuid.uuid4().hex
                call = (self.function, replicate, self.seed, ticket, started)
                future = executor.submit(run_replicate, *call)
                futures[future] = replicate
        except RuntimeError as error:  # shut down, or broken
            broken = error
        try:
            for future in as_completed(futures):
                # Errors of the function are outcomes: an exception is one of the executor.
                try:
                    outcome = future.result()
                except (Exception, CancelledError) as error:
                    if type(error).__name__ == "KilledWorker":
                        suspects.append((futures[future], error))
                    else:
                        broken = error
                else:
                    finish(outcome)
        finally:
            for future in futures:
                future.cancel()
        if broken is not None:
            raise StudyError(
                "The executor must take the function, and live until the study is done; it did not "
                f"({type(broken).__name__}: {broken}). What had finished is in "
                f"{self._journal.path}; run the study again and it goes on from there."
            ) from broken
        return suspects


def _ticket(replicate: Replicate) -> str:
    return hashlib.sha256(replicate.key.encode()).hexdigest()


def _workers(executor: Any, time_limit: Any) -> Workers | None:
    """Return the processes that replicates have of their own, or None where they have none."""
    if executor is not None and not callable(getattr(executor, "submit", None)):
        wanted = "a concurrent.futures.Executor, such as ProcessPoolExecutor()"
        raise refusal("executor", wanted, executor, error=StudyError)
    if time_limit is not None:
        time_limit = positive("time_limit", time_limit, meaning="seconds", error=StudyError)
    if executor is None:
        return Workers(1, multiprocessing.get_context(), time_limit)
    if isinstance(executor, ProcessPoolExecutor):
        count, context = executor._max_workers, executor._mp_context  # type: ignore[attr-defined]
        return Workers(count, context or multiprocessing.get_context(), time_limit)
    if time_limit is not None:
        raise StudyError(
            "A time limit needs processes that can be stopped: leave the executor out, or give a "
            f"ProcessPoolExecutor; got {type(executor).__name__}."
        )
    return None


def _settings(grid: Any) -> list[dict[str, Any]]:
    settings = _combinations(grid)
    for setting in settings:
        for name in setting:
            if not isinstance(name, str) or not name.isidentifier():
                raise StudyError(
                    "The names of a setting must be those of the function's arguments; got "
                    f"{shown(name)}."
                )
    clash = {name for setting in settings for name in setting} & set(RESERVED)
    if clash:
        raise StudyError(
            f"The names {', '.join(RESERVED)} belong to the rows of a study; got a setting named "
            f"{', '.join(sorted(clash))}."
        )
    try:
        keys = [Replicate(setting, 0).key for setting in settings]
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, StudyError):
            raise
        raise StudyError(
            "Settings must be numbers, strings, or lists of them, since they are written to a "
            f"file; got one that is not ({type(error).__name__}: {error})."
        ) from None
    if len(set(keys)) < len(keys):
        raise StudyError("The settings of a grid must differ; got one of them twice.")
    return settings


def _combinations(grid: Any) -> list[dict[str, Any]]:
    """Return the settings of a grid, or those that were given one by one."""
    wanted = "lists of values by name, or a list of settings, each a mapping"
    try:
        if not isinstance(grid, Mapping):
            if not isinstance(grid, Sequence) or isinstance(grid, str | bytes):
                raise TypeError
            if not all(isinstance(setting, Mapping) for setting in grid):
                raise TypeError
            settings = [dict(setting) for setting in grid]
        else:
            if any(isinstance(values, str | bytes | Mapping) for values in grid.values()):
                raise TypeError
            columns = [list(itertools.islice(values, _MOST)) for values in grid.values()]
            if math.prod(map(len, columns)) > _MOST:
                raise StudyError(f"A grid must have at most {_MOST} settings; got more.")
            names = list(grid)
            settings = [dict(zip(names, v, strict=True)) for v in itertools.product(*columns)]
    except StudyError:
        raise
    except Exception:  # of a class of the caller's, which can raise anything
        raise refusal("grid", wanted, grid, error=StudyError) from None
    if not settings:
        raise StudyError(f"A grid must have at least one setting; got {shown(grid)}.")
    return settings


def _row(replicate: Replicate, line: Mapping[str, Any]) -> dict[str, Any]:
    row = {**replicate.setting, "replicate": replicate.number, **line.get("result", {})}
    row |= {"seconds": line["seconds"], "error": line.get("error")}
    return row | ({"traceback": line["traceback"]} if "traceback" in line else {})


@contextmanager
def _bar(total: int, before: int, shown: bool) -> Iterator[Callable[[bool], None]]:
    """Show how many are done and how many failed."""
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    failures = TextColumn("{task.fields[failed]} failed")
    failed = 0
    console = Console(stderr=True)
    with Progress(*columns, failures, console=console, disable=not shown) as progress:
        bar = progress.add_task("replicates", total=total, completed=before, failed=0)

        def advance(failure: bool) -> None:
            nonlocal failed
            failed += failure
            progress.update(bar, advance=1, failed=failed)

        yield advance
