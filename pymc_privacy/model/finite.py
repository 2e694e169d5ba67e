"""Data that are not numbers are refused, and named, where they reach a density or a release.

Not the data alone: what a model masks harms nobody. Every density and every contribution that is
computed from such data is evaluated at a point of the model, and has to be finite there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy._compat import (
    AS_WRITTEN,
    Constant,
    Model,
    SharedVariable,
    TensorVariable,
    Variable,
    ancestors,
    compile_graph,
    config,
    rvs_in_graph,
)
from pymc_privacy.errors import RecordError
from pymc_privacy.model.factors import log_densities
from pymc_privacy.model.points import Point, points_near_the_start


class _Datum(NamedTuple):
    """Data of which some are not finite."""

    name: str
    value: np.ndarray

    @property
    def is_nan(self) -> bool:
        return bool(np.isnan(self.value).any())

    def __str__(self) -> str:
        where = np.argwhere(~np.isfinite(self.value))
        places = ", ".join(str(tuple(map(int, index))) for index in where[:3])
        more = f" and {len(where) - 3} more places" if len(where) > 3 else ""
        found = self.value[tuple(where[0])]
        if not self.value.ndim:
            return f"{self.name}, which is {found}"
        return f"{self.name} of shape {self.value.shape}, which is {found} at {places}{more}"


def refuse_single_precision() -> None:
    """Raise an error where PyTensor would compute with seven digits."""
    if config.floatX != "float64":
        raise RecordError(
            "pytensor.config.floatX must be 'float64', because sums over many records and "
            "densities far out lose too many digits otherwise, and draws would not be from the "
            f"posterior; got {config.floatX!r}."
        )


def refuse_random_data(model: Model) -> None:
    """Raise an error where observed values are drawn anew at every look, as minibatches are."""
    for rv in model.observed_RVs:
        if rvs_in_graph([model.rvs_to_values[rv]]):
            raise RecordError(
                f"The observed values of {rv.name!r} must stay the same, because draws are from "
                "the posterior given all of them; got a minibatch, of which every evaluation of "
                "the density sees another part. Give all data as observed=."
            )


def refuse_data_that_are_not_numbers(
    model: Model, graphs: Mapping[str, TensorVariable], factors: Iterable[TensorVariable]
) -> None:
    """Raise an error where a graph, or the density of a factor, is not finite for its data.

    Parameters
    ----------
    model : pm.Model
    graphs
        Contributions by what they are called in a sentence.
    factors
        Random variables and potentials of the model.
    """
    suspects: dict[str, list[_Datum]] = {}
    terms: dict[str, Any] = {}
    for label, graph in graphs.items():
        if found := _not_finite(model, [graph]):
            suspects[label], terms[label] = found, graph
    for factor in factors:
        label = f"the density of {factor.name!r}"
        if found := _not_finite(model, _inputs_of(model, factor)):
            suspects[label], terms[label] = found, factor
    if not terms:
        return
    densities = [label for label in terms if label not in graphs]
    for label, value in _evaluated(model, terms, densities):
        if not _is_finite(value, suspects[label], is_density=label in densities):
            raise RecordError(_sentence(label, value, suspects[label]))


def refuse_contributions_that_are_not_numbers(
    model: Model, start: Point, contributions: Mapping[str, TensorVariable]
) -> None:
    """Raise an error where records of a point contribute what nobody could have released."""
    if not contributions:
        return
    function = compile_graph(
        model.value_vars,
        model.replace_rvs_by_values(list(contributions.values())),
        on_unused_input="ignore",
        mode=AS_WRITTEN,
    )
    with np.errstate(all="ignore"):
        values = function(*start.values())
    for name, value in zip(contributions, values, strict=True):
        value = np.atleast_1d(value)
        rows = np.flatnonzero(~np.isfinite(value).reshape(len(value), -1).all(axis=1))
        if rows.size:
            raise RecordError(
                f"The contributions to {name!r} must be finite numbers for all records that the "
                "model allows, because nobody can release the sum otherwise; of records drawn "
                f"from the model, {rows.size} of {len(value)} contribute {value[rows[0]]}."
            )


def _inputs_of(model: Model, factor: TensorVariable) -> list[Variable]:
    """Return what the density of a factor is computed from, its observed value included."""
    if factor in model.potentials:
        return [factor]
    # A release knows by itself which values it can have.
    known = factor in model.observed_RVs and not hasattr(factor.owner.op, "mechanism")
    return [*factor.owner.inputs, *([model.rvs_to_values[factor]] if known else [])]


def _not_finite(model: Model, graphs: Sequence[Variable]) -> list[_Datum]:
    """Return the data that graphs are computed from, and that are not finite."""
    above = ancestors(list(graphs), blockers=[rv for rv in model.basic_RVs if rv not in graphs])
    names = {variable: name for name, variable in model.named_vars.items()}
    found = []
    for variable in dict.fromkeys(above):
        value = _value(variable)
        if value is not None and not np.isfinite(value).all():
            name = names.get(variable, variable.name)
            found.append(_Datum(repr(name) if name else "a constant", value))
    return found


def _value(variable: Variable) -> np.ndarray | None:
    """Return data as floats; what is masked is not a number."""
    if isinstance(variable, Constant):
        value = variable.data
    elif isinstance(variable, SharedVariable):
        value = variable.get_value(borrow=True)
    else:
        return None
    if (
        not isinstance(value, np.ndarray | np.generic | float)
        or np.asarray(value).dtype.kind != "f"
    ):
        return None
    return np.ma.filled(np.ma.asarray(value), np.nan)


def _evaluated(
    model: Model, terms: Mapping[str, Any], densities: Sequence[str]
) -> Iterator[tuple[str, np.ndarray | None]]:
    """Yield every term at points of the model; None where it cannot be computed at all.

    At one point alone, the sign of a coefficient could hide what an infinite covariate does.
    """
    factors = [terms[label] for label in densities]
    logps = dict(zip(densities, log_densities(model, factors), strict=True))
    others = {label: graph for label, graph in terms.items() if label not in logps}
    replaced = dict(zip(others, model.replace_rvs_by_values(list(others.values())), strict=True))
    graphs = replaced | logps
    try:
        function = compile_graph(
            model.value_vars, list(graphs.values()), on_unused_input="ignore", mode=AS_WRITTEN
        )
        with np.errstate(all="ignore"):
            found = [function(*point.values()) for point in points_near_the_start(model)]
    except (ValueError, ArithmeticError):
        # Laws refuse to be drawn from where a parameter is not a number.
        yield from dict.fromkeys(graphs).items()
        return
    for values in found:
        for label, value in zip(graphs, values, strict=True):
            yield label, np.ma.filled(np.ma.asarray(value), np.nan)


def _is_finite(value: np.ndarray | None, suspects: Sequence[_Datum], *, is_density: bool) -> bool:
    if value is None:
        return not any(datum.is_nan for datum in suspects)
    if not is_density:
        return bool(np.isfinite(value).all())
    if np.isnan(value).any():
        return False
    # A single infinity is a bound, or the density of what cannot be; a column of data is neither.
    return bool(np.isfinite(value).all()) or all(datum.value.ndim == 0 for datum in suspects)


def _sentence(label: str, value: np.ndarray | None, suspects: Sequence[_Datum]) -> str:
    came = "no number" if value is None else str(value[~np.isfinite(value)].ravel()[0])
    return (
        f"Data must be finite numbers wherever a model uses them, because no draw is possible "
        f"otherwise: {label} is {came}, and is computed from "
        f"{'; and from '.join(map(str, suspects))}. Leave out what is missing, or write a model "
        "of it."
    )
