"""Draws of variables given all others, and which laws have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pymc_privacy._compat import AS_WRITTEN, Model, TensorVariable, compile_graph
from pymc_privacy.functions.generators import given_others, in_value_coordinates, with_generator
from pymc_privacy.model.start import start_of

Draw = Callable[[int], dict[str, np.ndarray]]


def can_be_drawn(model: Model, variable: TensorVariable) -> bool:
    """Tell whether a law has draws, given where PyMC starts the other variables."""
    try:
        drawing(model, [variable])(0)
    except NotImplementedError:
        return False
    except (ValueError, ArithmeticError):
        # Parameters that the law does not allow; others have draws.
        return True
    return True


def drawing_where_possible(model: Model, variables: Sequence[TensorVariable]) -> Draw:
    """Return a function of a seed that draws a point, but for variables that have no draws."""
    draw = drawing(model, variables)
    try:
        draw(0)
    except NotImplementedError:
        return drawing(model, [rv for rv in variables if can_be_drawn(model, rv)])
    return draw


def drawing(model: Model, variables: Sequence[TensorVariable]) -> Draw:
    """Return a function of a seed that draws a point; other variables stay where PyMC starts."""
    fresh = [in_value_coordinates(model, rv) for rv in variables]
    rng, fresh = with_generator(given_others(model, fresh, variables))
    draw = compile_graph([rng, *model.value_vars], fresh, on_unused_input="ignore", mode=AS_WRITTEN)
    start = start_of(model)
    names = [model.rvs_to_values[rv].name for rv in variables]

    def drawn(seed: int) -> dict[str, np.ndarray]:
        values = draw(np.random.default_rng(seed), *start.values())
        return start | dict(zip(names, map(np.asarray, values), strict=True))

    return drawn
