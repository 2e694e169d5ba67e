"""Variables with one entry per record that are parameters all the same.

A latent effect of each person has as many rows as there are records, and may be updated with the
records, row by row, where nothing else of the model looks at several of its rows at once. Where
something does (a potential, repeated outcomes, a spatial prior), it is a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence

from pymc_privacy._compat import Model, TensorVariable, ancestors
from pymc_privacy.model.drawable import can_be_drawn
from pymc_privacy.model.factors import factors_of, log_densities
from pymc_privacy.model.locality import Point, Probe, parents, probing_point


def shared_effects(
    model: Model, records: Sequence[TensorVariable], contributions: Sequence[TensorVariable]
) -> list[TensorVariable]:
    """Return those of the records that no release sees itself, and whose rows the model mixes.

    Nor is one a record that cannot be drawn, or that such an effect is computed from.
    """
    released = {rv for graph in contributions for rv in parents(graph, model)}
    effects = [rv for rv in records if rv not in released]
    if not effects:
        return []
    start = probing_point(model)
    others = [rv for rv in effects if _is_mixed(model, start, rv) or not can_be_drawn(model, rv)]
    above = set(ancestors(others))
    return [rv for rv in effects if rv in above]


def _is_mixed(model: Model, start: Point, effect: TensorVariable) -> bool:
    factors = [f for f in factors_of(model) if _sees(model, f, effect)]
    if not factors:
        return False
    densities = log_densities(model, factors)
    graphs = {repr(f.name): density for f, density in zip(factors, densities, strict=True)}
    return bool(Probe(model, start, [effect], graphs).mixed()[effect])


def _sees(model: Model, factor: TensorVariable, effect: TensorVariable) -> bool:
    if factor is effect:
        return False
    graphs = [factor] if factor in model.potentials else factor.owner.inputs
    return any(effect in parents(graph, model) for graph in graphs)
