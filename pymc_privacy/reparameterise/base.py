"""Write a record as x = T(parameters, u), where the law of u knows no parameter.

A family is one dispatched function; a user's own distribution is one more:

    @reparameterise.register(MyRV)
    def _(op, mu, sigma):
        return Reparameterisation(
            forward=lambda u, mu, sigma: mu + sigma * u,
            inverse=lambda x, w, mu, sigma: (x - mu) / sigma,
        )
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any, NamedTuple

from pymc_privacy._compat import TensorVariable, law_parameters, rvs_in_graph


class Reparameterisation(NamedTuple):
    """The two directions of x = T(parameters, u).

    ``forward(u, *parameters)`` must have the variable's law when u has a law that depends on
    no parameter, or that of ``log_weight``, and ``inverse(x, w, *parameters)`` must give back such
    a u given x: the only one when T is one-to-one, otherwise a draw of it, made from the uniform w.
    """

    forward: Callable[..., TensorVariable]
    inverse: Callable[..., TensorVariable]
    needs_uniform: bool = False
    """Whether several u give the same x, as for discrete records."""
    base_width: int | None = None
    """How many columns u has for each number of the record, if it is not one number itself.

    ``forward`` then takes, and ``inverse`` returns, a u of shape (*record shape, base_width),
    and the w that ``inverse`` takes has that shape as well.
    """
    log_weight: Callable[..., TensorVariable] | None = None
    """The log density of u, up to a constant, where it does depend on the parameters.

    ``log_weight(u, *parameters)`` has the shape of the record, or one number for each record. A
    T that nearly takes the parameters out of u will do, if this says what it leaves in.
    """
    draw: Callable[..., TensorVariable] | None = None
    """Draws u itself, where that costs less than a draw of the record and its inverse.

    ``draw(like, *parameters)`` has the shape of ``like``, with `base_width` as one more axis.
    """


UNMOVED = Reparameterisation(
    forward=lambda u, *parameters: u,
    inverse=lambda x, w, *parameters: x,
)


@singledispatch
def reparameterise(op: Any, *parameters: TensorVariable) -> Reparameterisation | None:
    """Return how a variable with this operation is written, or None when it is not known."""
    return None


def reparameterisation_of(variable: TensorVariable) -> Reparameterisation | None:
    """Return how a random variable of a model is written, or None when it is not known."""
    op = variable.owner.op
    if not hasattr(op, "dist_params"):
        return None
    parameters = law_parameters(variable)
    form = reparameterise(op, *parameters)
    # A law without random parameters knows none: x is its own u, whatever the family.
    return UNMOVED if form is None and not any(map(is_random, parameters)) else form


def is_random(parameter: TensorVariable) -> bool:
    """Tell whether a parameter of a distribution depends on random variables."""
    return bool(rvs_in_graph([parameter]))


SCALED = Reparameterisation(
    forward=lambda u, shape, scale: scale * u,
    inverse=lambda x, w, shape, scale: x / scale,
)
"""Of laws (shape, scale) whose shape is fixed: u is standardised."""
