"""Find the confidential records of a model, and whether they may be updated one by one.

A record variable has one row per record, and nothing that depends on it mixes rows:
not the contributions, not its own density, not the density of any other variable. This is
found out numerically, by redrawing some rows and looking at which others move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import Mode, TensorVariable, ancestors, compile_graph
from pymc_privacy.distributions.records import sizes_of
from pymc_privacy.errors import RecordError
from pymc_privacy.graph.generators import given_others, in_value_coordinates, with_generator

_PROBE_MODE = Mode(linker="py", optimizer="fast_compile")

Point = dict[str, np.ndarray]


def parents(graph: TensorVariable, model) -> list[TensorVariable]:
    """Return the random variables a graph is computed from, not counting *their* parents."""
    above = set(ancestors([graph], blockers=model.basic_RVs))
    return [variable for variable in model.basic_RVs if variable in above]


def probing_point(model) -> Point:
    """Return a point of the model where no parameter has a special value.

    A coefficient that starts at zero would hide whatever it multiplies. Steps are
    small, so that a bounded parameter stays inside its support.
    """
    rng = np.random.default_rng(0)
    start = model.initial_point(random_seed=0)
    steps = {name: rng.uniform(0.02, 0.1, np.shape(value)) for name, value in start.items()}
    # Rows can be compared with each other only where all of them exist.
    full = {model.rvs_to_values[n].name: capacity for n, capacity in sizes_of(model).items()}
    start |= {name: np.asarray(capacity, start[name].dtype) for name, capacity in full.items()}
    return {
        name: value + steps[name] * (1 + abs(value)) if value.dtype.kind == "f" else value
        for name, value in start.items()
    }


def find_records(name: str, contributions: TensorVariable, model) -> list[TensorVariable]:
    """Return the record variables behind a release, or refuse it in a sentence.

    Parameters
    ----------
    name
        The release, for messages.
    contributions
        One row per record; a scalar has no records.
    model
        The PyMC model under construction.
    """
    direct = parents(contributions, model)
    free = [rv for rv in direct if rv in model.free_RVs]
    if contributions.ndim == 0:
        _refuse_early_sum(name, free)
        return []
    start = probing_point(model)
    size = _length(model, contributions, 0, start)
    if size == 0:
        raise RecordError(
            f"The release {name!r} must come from at least one record; "
            "got contributions of length 0, an empty database."
        )
    candidates = _with_rows(model, contributions, size, start)
    mixed = Probe(model, start, candidates, {"its contributions": contributions}).mixed()
    records = [rv for rv in candidates if not mixed[rv]]
    for rv in free:
        if mixed.get(rv):
            raise RecordError(not_local(rv.name, mixed[rv]))
    if not set(records) & set(free):
        _refuse_without_records(name, size, direct, model)
    stray = [rv.name for rv in free if rv not in records]
    if stray:
        raise RecordError(
            f"The contributions to {name!r} must be computed from records alone, because a "
            "curator does not know the parameters; "
            f"they also depend on {', '.join(map(repr, stray))}."
        )
    return records


def not_local(name: str, mixed: Iterable[str]) -> str:
    """Say that a variable's rows are mixed, and by what."""
    return (
        f"The records {name!r} must be local: row i of whatever depends on them may depend on "
        "record i alone, so that records can be updated one by one; but redrawing some rows "
        f"changed other rows of {', '.join(mixed)}."
    )


class Probe:
    """Numerical answers to the question which rows depend on which.

    Parameters
    ----------
    model
    start
        A point of the model: the parameters stay there.
    candidates
        Variables that may be records, all with the same number of rows.
    graphs
        Labelled graphs with one row per record, besides the candidates' own densities.
    """

    def __init__(
        self,
        model,
        start: Point,
        candidates: Sequence[TensorVariable],
        graphs: dict[str, TensorVariable],
    ):
        self._candidates = list(candidates)
        if not self._candidates:
            return
        self._names = [model.rvs_to_values[rv].name for rv in self._candidates]
        densities = model.logp(vars=self._candidates, sum=False, jacobian=False)
        labels = (f"the density of {rv.name!r}" for rv in self._candidates)
        terms = dict(zip(labels, densities, strict=True)) | graphs
        self._labels = list(terms)
        self._terms = compile_graph(
            model.value_vars,
            model.replace_rvs_by_values(list(terms.values())),
            on_unused_input="ignore",
            mode=_PROBE_MODE,
        )
        rng = np.random.default_rng(0)
        sampler = _sampler(model, self._candidates)
        # Compiled without in-place updates, the sampler leaves its generator where it was,
        # so that each draw needs a generator of its own.
        draws = (
            dict(zip(self._names, sampler(child, start), strict=True)) for child in rng.spawn(12)
        )
        first = next(draws)
        self._point = start | first
        self._other = _elsewhere(first, draws)
        self._size = len(self._point[self._names[0]])
        self._halves = _halves(rng, self._size)
        # Rows that agree with their neighbours all along the cycle agree with all others.
        self._permutation = np.roll(np.arange(self._size), 1)
        self._before = self._evaluate(self._point)

    def mixed(self) -> dict[TensorVariable, list[str]]:
        """Tell, for each candidate, in what its rows are mixed: an empty list for a record."""
        return {
            rv: self._changed_elsewhere(name)
            for rv, name in zip(self._candidates, getattr(self, "_names", ()), strict=True)
        }

    def exchangeable(self) -> bool:
        """Tell whether permuting all candidates permutes every term and changes nothing else."""
        permuted = {name: self._point[name][self._permutation] for name in self._names}
        after = self._evaluate(self._point | permuted)
        return all(
            np.allclose(b[self._permutation], a, equal_nan=True)
            for b, a in zip(self._before, after, strict=True)
        )

    def _changed_elsewhere(self, name: str) -> list[str]:
        changed: set[str] = set()
        for rows in self._halves:
            value = self._point[name].copy()
            value[rows] = self._other[name][rows]
            after = self._evaluate(self._point | {name: value})
            for label, b, a in zip(self._labels, self._before, after, strict=True):
                if not self._same_in(~rows, b, a):
                    changed.add(label)
        return [label for label in self._labels if label in changed]

    def _same_in(self, kept: np.ndarray, before: np.ndarray, after: np.ndarray) -> bool:
        if before.ndim == 0 or len(before) != self._size:
            return False
        return np.allclose(before[kept], after[kept], rtol=1e-9, atol=1e-9, equal_nan=True)

    def _evaluate(self, point: Point) -> list[np.ndarray]:
        return self._terms(*point.values())


def _halves(rng: np.random.Generator, size: int) -> list[np.ndarray]:
    """Return sets of rows such that, for any two rows, one set has the first and not the second.

    They are the rows whose label has a given bit, or has it not. Beyond 64 rows labels
    repeat, and only a dependence within one label would be missed; of very many rows a
    random half and the other half tell as much, and sooner.
    """
    labels = rng.permutation(size) % 64
    bits = (labels >> np.arange(6 if size <= 4096 else 1)[:, None]) & 1
    return [*(bits == 0), *(bits == 1)]


def _elsewhere(point: Point, draws: Iterable[Point]) -> Point:
    """Return a point that differs in every row, as far as several draws allow.

    A coin falls on the same side every other time, and a row that did not change
    tells nothing.
    """
    moved = {name: value.copy() for name, value in point.items()}
    for draw in draws:
        same = {name: _rows_alike(value, point[name]) for name, value in moved.items()}
        if not any(rows.any() for rows in same.values()):
            break
        for name, rows in same.items():
            moved[name][rows] = draw[name][rows]
    return moved


def _rows_alike(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a == b).reshape(len(a), -1).all(axis=1)


def _sampler(model, variables: Sequence[TensorVariable]):
    """Compile a function of a generator and a point that draws the variables afresh."""
    fresh = [in_value_coordinates(model, rv) for rv in variables]
    rng, fresh = with_generator(given_others(model, fresh, variables))
    draw = compile_graph(
        [rng, *model.value_vars], fresh, on_unused_input="ignore", mode=_PROBE_MODE
    )
    return lambda generator, point: [np.array(v) for v in draw(generator, *point.values())]


def with_known_width(contributions: TensorVariable, model) -> TensorVariable:
    """Fix the number of columns, one per coordinate of the release, where PyTensor forgot it."""
    if contributions.ndim < 2 or contributions.type.shape[1] is not None:
        return contributions
    width = _length(model, contributions, 1, model.initial_point(random_seed=0))
    return pt.specify_shape(contributions, (None, width))


def _length(model, contributions: TensorVariable, axis: int, start: Point) -> int:
    length = contributions.type.shape[axis]
    if length is None:
        [graph] = model.replace_rvs_by_values([contributions.shape[axis]])
        function = compile_graph(
            model.value_vars, graph, on_unused_input="ignore", mode=_PROBE_MODE
        )
        length = int(function(*start.values()))
    return length


def _with_rows(model, graph: TensorVariable, size: int, start) -> list[TensorVariable]:
    """Return the free variables behind a graph that have one independent row per record."""
    above = set(ancestors([graph]))
    return [
        rv
        for rv in model.free_RVs
        if rv in above
        and rv.type.ndim > rv.owner.op.ndim_supp
        and len(start[model.rvs_to_values[rv].name]) == size
    ]


def _refuse_early_sum(name: str, free: Sequence[TensorVariable]) -> None:
    """Refuse a single number that is a sum taken too early; a latent number passes."""
    for rv in free:
        if rv.ndim:
            raise RecordError(
                f"The contributions to {name!r} must have one row per record, and are added up "
                f"by the release itself; got a single number computed from {rv.name!r} of shape "
                f"{rv.type.shape}. Pass what each record contributes, without the sum."
            )


def _refuse_without_records(name: str, size: int, direct: Sequence[TensorVariable], model) -> None:
    observed = [rv.name for rv in direct if rv in model.observed_RVs]
    if observed:
        raise RecordError(
            f"The records behind {name!r} must be latent, because the release is all that is "
            f"known of them; got {', '.join(map(repr, observed))} with observed data. "
            "Leave out observed=, or drop the release."
        )
    came = ", ".join(f"{rv.name!r} of shape {rv.type.shape}" for rv in direct)
    other_axis = bool(came) and all(rv.type.shape[:1] != (size,) for rv in direct)
    hint = (
        " Records are on axis 0: stack several contributions of a record with axis=1, and do not "
        "add them up."
    )
    raise RecordError(
        f"The contributions to {name!r} must have one row per record, computed from variables "
        f"with as many independent rows; got contributions of length {size} computed from "
        f"{came or 'no random variable at all'}.{hint if other_axis else ''}"
    )
