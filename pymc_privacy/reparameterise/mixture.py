"""Mixtures: u is a uniform that chooses the component, and a base variate of each component.

Given x, the component is drawn from p(k | x) ∝ weight_k f_k(x), the uniform inside that
component's cell of the weights, and the base variate of that component from its own inverse.
The other components had no part in x: their base variates are fresh draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pymc as pm
import pytensor.tensor as pt

from pymc_privacy._compat import DiracDeltaRV, MixtureRV, TensorVariable
from pymc_privacy.reparameterise.base import (
    Reparameterisation,
    reparameterisation_of,
    reparameterise,
)


@reparameterise.register(DiracDeltaRV)
def _point(op: Any, point: TensorVariable) -> Reparameterisation:
    """Take any u: here zero."""
    return Reparameterisation(
        forward=lambda u, point: point + pt.zeros_like(u),
        inverse=lambda x, w, point: pt.zeros_like(x, dtype="float64"),
    )


class Component(NamedTuple):
    """One law of a mixture: its columns are the last axis of what its functions return."""

    forward: Callable[..., TensorVariable]
    inverse: Callable[..., TensorVariable]
    log_density: Callable[..., TensorVariable]
    width: int


@reparameterise.register(MixtureRV)
def _mixture(op: Any, weights: TensorVariable, *laws: TensorVariable) -> Reparameterisation | None:
    made = [_component(law, batched=len(laws) == 1) for law in laws]
    components = [component for component in made if component is not None]
    if len(components) < len(laws):
        return None
    number = sum(component.width for component in components)

    def forward(
        u: TensorVariable, weights: TensorVariable, *laws: TensorVariable
    ) -> TensorVariable:
        label = _label(u[..., 0], _edges(weights, number))
        columns = _split(u[..., 1:], components)
        values = [c.forward(u, law) for c, u, law in zip(components, columns, laws, strict=True)]
        return _choose(label, pt.concatenate(values, axis=-1), number)

    def inverse(
        x: TensorVariable, w: TensorVariable, weights: TensorVariable, *laws: TensorVariable
    ) -> TensorVariable:
        densities = [c.log_density(x, law) for c, law in zip(components, laws, strict=True)]
        scores = pt.log(weights) + pt.concatenate(densities, axis=-1)
        label, place = _draw_label(w[..., 0], pt.special.softmax(scores, axis=-1), number)
        columns = [
            c.inverse(x, label - first, w, law)
            for c, first, w, law in zip(
                components, _firsts(components), _split(w[..., 1:], components), laws, strict=True
            )
        ]
        uniform = _inside(label, place, weights, number)
        return pt.concatenate([uniform[..., None], *columns], axis=-1)

    return Reparameterisation(
        forward=forward, inverse=inverse, needs_uniform=True, base_width=1 + number
    )


def _component(law: TensorVariable, *, batched: bool) -> Component | None:
    """Return the parts of one law, or of a batch of laws along the last axis."""
    form = reparameterisation_of(law)
    width = law.type.shape[-1] if batched else 1
    if form is None or form.base_width is not None or width is None or law.owner.op.ndim_supp:
        return None

    def parameters(law: TensorVariable) -> Sequence[TensorVariable]:
        given = law.owner.op.dist_params(law.owner)
        # The axis of components comes last, also where it is only one.
        return given if batched else [p[..., None] if p.ndim else p for p in given]

    def forward(u: TensorVariable, law: TensorVariable) -> TensorVariable:
        return form.forward(u, *parameters(law)).astype("float64")

    def inverse(
        x: TensorVariable, label: TensorVariable, w: TensorVariable, law: TensorVariable
    ) -> TensorVariable:
        fresh = law if batched else law[..., None]
        own = pt.eq(label[..., None], pt.arange(width))
        value = pt.where(own, x[..., None], fresh).astype(law.dtype)
        return form.inverse(value, w, *parameters(law)).astype("float64")

    def log_density(x: TensorVariable, law: TensorVariable) -> TensorVariable:
        density = pm.logp(law, x[..., None] if batched else x, warn_rvs=False)
        return density if batched else density[..., None]

    return Component(forward, inverse, log_density, width)


def _firsts(components: list[Component]) -> list[int]:
    return [sum(c.width for c in components[:k]) for k in range(len(components))]


def _split(columns: TensorVariable, components: list[Component]) -> list[TensorVariable]:
    firsts = _firsts(components)
    return [columns[..., f : f + c.width] for f, c in zip(firsts, components, strict=True)]


def _edges(weights: TensorVariable, number: int) -> list[TensorVariable]:
    """Return the upper edges of the cells of the weights, the last one apart."""
    total = pt.cumsum(weights, axis=-1)
    return [total[..., k] for k in range(number - 1)]


def _label(u: TensorVariable, edges: list[TensorVariable]) -> TensorVariable:
    return sum(((u >= edge).astype("int64") for edge in edges), start=pt.zeros_like(u, "int64"))


def _choose(label: TensorVariable, columns: TensorVariable, number: int) -> TensorVariable:
    """Return the column of each row's label, whatever the other columns hold."""
    chosen = columns[..., 0]
    for k in range(1, number):
        chosen = pt.where(pt.eq(label, k), columns[..., k], chosen)
    return chosen


def _draw_label(
    w: TensorVariable, probabilities: TensorVariable, number: int
) -> tuple[TensorVariable, TensorVariable]:
    """Return a label drawn by the uniform w, and where in its cell w fell: uniform again."""
    label = _label(w, _edges(probabilities, number))
    upper = _choose(label, pt.cumsum(probabilities, axis=-1), number)
    mass = _choose(label, probabilities, number)
    return label, pt.clip((w - upper + mass) / mass, 0, 1)


def _inside(
    label: TensorVariable, place: TensorVariable, weights: TensorVariable, number: int
) -> TensorVariable:
    """Return the point of a label's cell at this place, never on its upper edge."""
    weights = weights + pt.zeros_like(place)[..., None]
    edges = pt.cumsum(weights, axis=-1)
    upper, mass = _choose(label, edges, number), _choose(label, weights, number)
    lower = pt.where(label > 0, _choose(label - 1, edges, number), 0.0)
    return pt.clip(lower + place * mass, lower, upper * (1 - 2**-52))
