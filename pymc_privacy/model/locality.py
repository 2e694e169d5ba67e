"""Find the confidential records of a model, and whether they may be updated one by one.

A record variable has one row per record, and nothing that depends on it mixes rows:
not the contributions, not its own density, not the density of any other variable. This is read
from the graph where every operation in it is known (`pymc_privacy.model.alignment`), and else
found out by changing some rows, at many points, and looking at which others move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import islice, product

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import AS_WRITTEN, Model, TensorVariable, ancestors, compile_graph
from pymc_privacy.errors import RecordError
from pymc_privacy.model.alignment import Aligned, Mixed, State, Unknown, alignment
from pymc_privacy.model.factors import log_densities
from pymc_privacy.model.points import (
    Point,
    Sampler,
    conditional_sampler,
    prior_points,
    probing_point,
)

# Where rows cannot be told apart by reading: this many draws from the prior, besides the start.
_POINTS = 3
# What a density may raise far away.
_UNCOMPUTABLE = (ArithmeticError, ValueError, IndexError, np.linalg.LinAlgError)


def parents(graph: TensorVariable, model: Model) -> list[TensorVariable]:
    """Return the random variables a graph is computed from, not counting *their* parents."""
    above = set(ancestors([graph], blockers=model.basic_RVs))
    return [variable for variable in model.basic_RVs if variable in above]


def find_records(name: str, contributions: TensorVariable, model: Model) -> list[TensorVariable]:
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
        "record i alone, so that records can be updated one by one; but several records enter "
        f"single rows of {', '.join(mixed)}."
    )


class Probe:
    """Answers to the question which rows depend on which.

    Parameters
    ----------
    model
    start
        A point of the model, where to look first.
    candidates
        Variables that may be records, all with the same number of rows.
    graphs
        Labelled graphs with one row per record, besides the candidates' own densities.
    """

    def __init__(
        self,
        model: Model,
        start: Point,
        candidates: Sequence[TensorVariable],
        graphs: dict[str, TensorVariable],
    ):
        self._model, self._start = model, start
        self._candidates = list(candidates)
        self._values = [model.rvs_to_values[rv] for rv in self._candidates]
        densities = log_densities(model, self._candidates, jacobian=False)
        labels = (f"the density of {rv.name!r}" for rv in self._candidates)
        terms = dict(zip(labels, densities, strict=True)) | graphs
        self._terms = dict(
            zip(terms, model.replace_rvs_by_values(list(terms.values())), strict=True)
        )

    def mixed(self) -> dict[TensorVariable, list[str]]:
        """Tell, for each candidate, in what its rows are mixed: an empty list for a record."""
        return {
            rv: self._mixed_in(value)
            for rv, value in zip(self._candidates, self._values, strict=True)
        }

    def is_proven(self) -> bool:
        """Tell whether that rows are local was read from the graph, and holds everywhere."""
        return all(
            _is_local(self._read(label, value)) for label in self._terms for value in self._values
        )

    def exchangeable(self) -> bool:
        """Tell whether permuting all candidates permutes every term and changes nothing else."""
        states = self._together.values()
        if all(isinstance(s, Aligned) and s.axis == 0 and s.alike for s in states):
            return True
        return all(trial.is_symmetric() for trial in self._trials)

    def _mixed_in(self, value: TensorVariable) -> list[str]:
        states = {label: self._read(label, value) for label in self._terms}
        found = [
            f"{label} ({state.reason})"
            for label, state in states.items()
            if isinstance(state, Mixed)
        ]
        unread = [
            label
            for label, state in states.items()
            if not _is_local(state) and not isinstance(state, Mixed)
        ]
        moved = {label for t in self._trials for label in t.moved_by(value)} if unread else set()
        return [*found, *(label for label in unread if label in moved)]

    def _read(self, label: str, value: TensorVariable) -> State:
        alone = alignment(self._terms[label], [value])
        if not isinstance(alone, Unknown):
            return alone
        together = self._together[label]
        return together if isinstance(together, Mixed) else alone

    @cached_property
    def _together(self) -> dict[str, State]:
        """What is read of each term when all candidates change at once."""
        return {label: alignment(term, self._values) for label, term in self._terms.items()}

    @cached_property
    def _trials(self) -> list[Trial]:
        evaluate = compile_graph(
            self._model.value_vars,
            list(self._terms.values()),
            on_unused_input="ignore",
            mode=AS_WRITTEN,
        )
        draw = conditional_sampler(self._model, self._candidates)
        points = [self._start, *islice(prior_points(self._model, seed=1), _POINTS)]
        names = [value.name for value in self._values]
        trials = []
        for point, rng in zip(points, np.random.default_rng(0).spawn(len(points)), strict=True):
            try:
                trials.append(Trial(rng, point, names, list(self._terms), draw, evaluate))
            except _UNCOMPUTABLE as error:
                if not trials and point is points[-1]:
                    raise RecordError(
                        "The contributions and the density of records must be computable at draws "
                        f"from the prior; got the error {str(error)!r}."
                    ) from error
        return trials


def _is_local(state: State) -> bool:
    return state is None or (isinstance(state, Aligned) and state.axis == 0)


class Trial:
    """Change some rows of records at one point, and see which rows of what else move.

    Parameters
    ----------
    rng
    point
        The parameters stay there, and the records that do not change.
    names
        The values of the candidates.
    labels
        The names of the terms that ``evaluate`` returns.
    draw, evaluate
        Functions of a generator and a point, and of the values of a point.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        point: Point,
        names: Sequence[str],
        labels: Sequence[str],
        draw: Sampler,
        evaluate: Callable[..., list[np.ndarray]],
    ):
        draws = (dict(zip(names, draw(child, point), strict=True)) for child in rng.spawn(12))
        # At the records of the point: where a chain has come to, others may be rare.
        self._point, self._names, self._labels = point, list(names), list(labels)
        self._evaluate = evaluate
        other = _elsewhere({name: point[name] for name in self._names}, draws)
        self._others = [other, _far_away(rng, other)]
        # A record may read others only where it is far out itself.
        further = point | _far_away(rng, other)
        self._size = len(point[self._names[0]])
        self._halves = _halves(rng, self._size)
        # Rows that agree with their neighbours all along the cycle agree with all others.
        self._permutation = np.roll(np.arange(self._size), 1)
        self._before = evaluate(*self._point.values())
        self._starts = [(point, self._before)]
        if (terms := self._at(further)) is not None:
            self._starts.append((further, terms))

    def is_symmetric(self) -> bool:
        """Tell whether permuting the records permutes every term."""
        permuted = {name: self._point[name][self._permutation] for name in self._names}
        after = self._evaluate(*(self._point | permuted).values())
        return all(
            self._has_rows(b) and np.allclose(b[self._permutation], a, equal_nan=True)
            for b, a in zip(self._before, after, strict=True)
        )

    def moved_by(self, value: TensorVariable) -> set[str]:
        """Return the terms in which a row moved whose own record did not."""
        name, changed = value.name, set()
        for (point, before), rows, other in product(self._starts, self._halves, self._others):
            moved = point[name].copy()
            moved[rows] = other[name][rows]
            after = self._at(point | {name: moved})
            if after is None:
                continue
            for label, b, a in zip(self._labels, before, after, strict=True):
                if not self._same_in(~rows, b, a):
                    changed.add(label)
        return changed

    def _at(self, point: Point) -> list[np.ndarray] | None:
        """Return the terms at a point; far away there may be none."""
        try:
            return self._evaluate(*point.values())
        except _UNCOMPUTABLE:
            return None

    def _has_rows(self, term: np.ndarray) -> bool:
        return term.ndim > 0 and len(term) == self._size

    def _same_in(self, kept: np.ndarray, before: np.ndarray, after: np.ndarray) -> bool:
        return self._has_rows(before) and np.allclose(
            before[kept], after[kept], rtol=1e-9, atol=1e-9, equal_nan=True
        )


def _far_away(rng: np.random.Generator, point: Point) -> Point:
    """Return values of every size and sign: what mixes records may do so only far out."""
    far = {}
    for name, value in point.items():
        if value.dtype.kind == "f":
            size = 10.0 ** rng.uniform(0, 5, value.shape)
            far[name] = np.where(rng.random(value.shape) < 0.5, -size, size).astype(value.dtype)
        else:
            far[name] = value[rng.permutation(len(value))]
    return far


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


def with_known_width(contributions: TensorVariable, model: Model) -> TensorVariable:
    """Fix the number of columns, one per coordinate of the release, where PyTensor forgot it."""
    if contributions.ndim < 2 or contributions.type.shape[1] is not None:
        return contributions
    width = _length(model, contributions, 1, probing_point(model))
    return pt.specify_shape(contributions, (None, width))


def number_of_rows(contributions: TensorVariable, model: Model) -> int:
    """Return how many records contribute."""
    return _length(model, contributions, 0, probing_point(model))


def _length(model: Model, contributions: TensorVariable, axis: int, start: Point) -> int:
    length = contributions.type.shape[axis]
    if length is None:
        [graph] = model.replace_rvs_by_values([contributions.shape[axis]])
        function = compile_graph(model.value_vars, graph, on_unused_input="ignore", mode=AS_WRITTEN)
        length = int(function(*start.values()))
    return length


def _with_rows(
    model: Model, graph: TensorVariable, size: int, start: Point
) -> list[TensorVariable]:
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


def _refuse_without_records(
    name: str, size: int, direct: Sequence[TensorVariable], model: Model
) -> None:
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
