"""`Study`: the same experiment in many settings and many times, on any executor."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, as_completed
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pymc_privacy.errors import StudyError
from pymc_privacy.studies.journal import Journal
from pymc_privacy.studies.replicates import (
    RESERVED,
    Outcome,
    Replicate,
    failure,
    run_replicate,
)


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
        self.function = function
        self.settings = _settings(grid)
        self.replicates = replicates
        self.seed = seed
        if not isinstance(replicates, int) or replicates < 1:
            raise StudyError(f"replicates must be an integer >= 1; got {replicates!r}.")
        if not isinstance(seed, int) or seed < 0:
            raise StudyError(
                "seed must be an integer >= 0, so that a study can be run again and gives the "
                f"same results; got {seed!r}."
            )
        # Not the module, which is called __main__ when a study is run as a script.
        name = getattr(function, "__qualname__", type(function).__name__)
        self._journal = Journal(path, {"study": name, "seed": seed})

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
        progressbar : bool, default True

        Raises
        ------
        StudyError
            When the executor could not take the function, or broke down before all was done. What
            had finished is on file.
        """
        with self._journal.writing() as writer:
            done = self._journal.read()
            again = {key for key, line in done.items() if retry_failed and "error" in line}
            todo = [r for r in self.all() if r.key not in done or r.key in again]
            total = len(self.settings) * self.replicates
            with _bar(total, total - len(todo), progressbar) as advance:

                def finish(outcome: Outcome) -> None:
                    writer.append(outcome.line)
                    advance(outcome.failed)

                if executor is None:
                    for replicate in todo:
                        finish(run_replicate(self.function, replicate, self.seed))
                else:
                    self._run_on(executor, todo, finish)
        return self.rows()

    def _run_on(
        self, executor: Executor, todo: list[Replicate], finish: Callable[[Outcome], None]
    ) -> None:
        for replicate, _ in self._submit(executor, todo, finish):
            # Dask blames every replicate that a dead worker had been given. Run alone, the one
            # that is blamed again has done it.
            for guilty, error in self._submit(executor, [replicate], finish):
                finish(failure(guilty, error))

    def _submit(
        self, executor: Executor, todo: list[Replicate], finish: Callable[[Outcome], None]
    ) -> list[tuple[Replicate, Exception]]:
        """Run replicates side by side, and return those that are blamed for dead workers."""
        futures: dict[Future, Replicate] = {}
        suspects: list[tuple[Replicate, Exception]] = []
        broken: BaseException | None = None
        try:
            for replicate in todo:
                ticket = uuid.uuid4().hex
                future = executor.submit(run_replicate, self.function, replicate, self.seed, ticket)
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


def _settings(grid: Any) -> list[dict[str, Any]]:
    if isinstance(grid, Mapping):
        names = list(grid)
        settings = [dict(zip(names, v, strict=True)) for v in itertools.product(*grid.values())]
    else:
        settings = [dict(setting) for setting in grid]
    if not settings:
        raise StudyError(f"A grid must have at least one setting; got {grid!r}.")
    clash = {name for setting in settings for name in setting} & set(RESERVED)
    if clash:
        raise StudyError(
            f"The names {', '.join(RESERVED)} belong to the rows of a study; got a setting named "
            f"{', '.join(sorted(clash))}."
        )
    try:
        keys = [Replicate(setting, 0).key for setting in settings]
    except TypeError as error:
        raise StudyError(
            "Settings must be numbers, strings, or lists of them, since they are written to a "
            f"file; got one that is not ({error})."
        ) from None
    if len(set(keys)) < len(keys):
        raise StudyError("The settings of a grid must differ; got one of them twice.")
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
