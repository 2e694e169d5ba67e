"""A model compiled to weigh draws, here or in another process."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import cloudpickle
import numpy as np

from pymc_privacy._compat import Model, ancestors
from pymc_privacy.algorithms.importance import Batch, Landscape, Proposal
from pymc_privacy.certificate.base import Reference, certified, prior_pairs
from pymc_privacy.certificate.certifier import LEVELS
from pymc_privacy.certificate.importance import compare_importance
from pymc_privacy.functions.calls import CompiledCall
from pymc_privacy.model.database import Database, find_databases
from pymc_privacy.model.factors import factors_of
from pymc_privacy.model.kept import KeptOnce, digest_of_data
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.points import Point, prior_points
from pymc_privacy.model.start import start_of
from pymc_privacy.targets.ascent import parameters_of
from pymc_privacy.targets.base import ParameterProgram
from pymc_privacy.targets.by_address import ProposalsByAddress
from pymc_privacy.targets.importance import compile_importance

# Draws of the prior that a search starts from.
STARTS = 60


class Weighing:
    """What is compiled from a model to draw and weigh; another process compiles its own.

    Parameters
    ----------
    model : pm.Model
    databases : sequence of Database
        Those of the model.
    """

    def __init__(self, model: Model, databases: Sequence[Database]):
        self.model = model
        self.program = certified_program(model, databases)
        self.point = start_of(model)
        held = self.program.held_at(self.point)
        self._held = held
        self._proposals = ProposalsByAddress(self.program, self._first(), held)
        functions = self.program.functions
        self._fresh = CompiledCall(functions["fresh"])
        self._misfit = CompiledCall(functions["released"])
        self._forward = CompiledCall(functions["forward"])
        # Base variates stand in one place: two threads would draw into it at once.
        self._lock = threading.Lock()
        self._written: bytes = b""

    def __getstate__(self) -> dict[str, Any]:
        return {"_written": self._written or cloudpickle.dumps(self.model)}

    def write_down(self) -> None:
        """Make ready what other processes read, once for all of them."""
        self._written = cloudpickle.dumps(self.model)

    def _first(self) -> np.ndarray:
        return self.program.flatten(self.point)

    def landscape(self, *, seed: int) -> Landscape:
        """Return what a search looks at, from draws of the prior."""
        points = islice(prior_points(self.model, seed=seed), STARTS)
        prior = np.array([self.program.flatten(point) for point in points])
        held = self._held

        def fresh(rng: np.random.Generator, q: np.ndarray) -> tuple[np.ndarray, ...]:
            return tuple(np.array(part) for part in self._fresh(rng, q, *held))

        def misfit(q: np.ndarray, u: tuple[np.ndarray, ...]) -> np.ndarray:
            return np.array(self._misfit(q, *held, *u)[0])

        return Landscape(fresh, misfit, self.program.noise_precision, prior)

    def draw(self, rng: np.random.Generator, proposal: Proposal, number: int) -> Batch:
        """Draw and weigh."""
        with self._lock:
            return self._proposals(rng, proposal, number)

    def draw_with_records(
        self, rng: np.random.Generator, proposal: Proposal, number: int, wanted: set[int]
    ) -> dict[int, list[np.ndarray]]:
        """Make the same draws again, and return the records of some of them."""
        found = {}
        with self._lock:
            for k in range(number):
                batch = self._proposals(rng, proposal, 1)
                if k in wanted:
                    made = self._forward(batch.q[0], *self._held, *self._proposals.base)
                    found[k] = [np.array(part) for part in made]
        return found

    def stored_names(self, keep_records: bool) -> list[str]:
        """Return the variables to store: without records, none that is computed from them."""
        model = self.model
        records = {rv for rv in model.free_RVs if is_record(rv)}
        return [
            rv.name
            for rv in model.unobserved_RVs
            if keep_records or not records & {rv, *ancestors([rv])}
        ]

    def points(
        self, q: np.ndarray, records: Sequence[Sequence[np.ndarray]] | None
    ) -> Iterator[Point]:
        """Yield points of the model for parameters as vectors."""
        for k, vector in enumerate(q):
            point = self.point | self.program.unflatten(vector)
            if records is not None:
                point |= dict(zip(self.program.records, records[k], strict=True))
            yield point


def certified_program(model: Model, databases: Sequence[Database]) -> ParameterProgram:
    """Return the fastest functions that agree with the model."""
    draws = prior_points(model, seed=11)
    names = [model.rvs_to_values[rv].name for rv in parameters_of(model)]
    pairs, reference = prior_pairs(model, names, draws), Reference(model)
    return certified(
        [
            lambda detail=detail: compile_importance(model, databases, detail=detail)  # type: ignore[misc]
            for detail, carry in LEVELS
            if carry
        ],
        lambda program: compare_importance(program, databases, reference, pairs, draws),
        what="weights of independent draws",
    )


# Of the model that was weighed last: weighed again, it is not compiled again.
_last: KeptOnce[Weighing] = KeptOnce()


@contextmanager
def weighing_of(model: Model, databases: Sequence[Database]) -> Iterator[Weighing]:
    """Compile a model, or find it compiled."""
    graphs = [*factors_of(model), *model.rvs_to_values.values()]
    parts = [model, *graphs, *model.rvs_to_transforms.values(), digest_of_data(graphs)]
    weighing = _last.take(parts)
    if weighing is None:
        weighing = Weighing(model, databases)
    yield weighing
    _last.keep(parts, weighing)


_made: dict[str, Weighing] = {}


def _here(weighing: Weighing) -> Weighing:
    """Return what is compiled in this process: as it is, or for what another one has sent."""
    if "program" in vars(weighing):
        return weighing
    key = hashlib.sha256(weighing._written).hexdigest()
    if key not in _made:
        model = cloudpickle.loads(weighing._written)
        _made[key] = Weighing(model, find_databases(model))
    return _made[key]


def chunk_of(
    weighing: Weighing, proposal: Proposal, seed: np.random.SeedSequence, size: int
) -> Batch:
    """Draw and weigh a part of all proposals, in any process."""
    return _here(weighing).draw(np.random.default_rng(seed), proposal, size)


def records_behind(weighing: Weighing, found: Any, taken: np.ndarray) -> list[list[np.ndarray]]:
    """Return the records of the draws that were taken, made again from their seeds."""
    first = 0
    made: dict[int, list[np.ndarray]] = {}
    for seed, size in zip(found.seeds, found.sizes, strict=True):
        wanted = {int(k) - first for k in taken if first <= k < first + size}
        if wanted:
            rng = np.random.default_rng(seed)
            ours = weighing.draw_with_records(rng, found.proposal, max(wanted) + 1, wanted)
            made |= {first + k: records for k, records in ours.items()}
        first += size
    return [made[int(k)] for k in taken]
