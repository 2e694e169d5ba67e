"""Where chains start: draws from the prior that the model does not rule out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_privacy._compat import (
    INTERPRETED,
    FlatRV,
    HalfFlatRV,
    Model,
    TensorVariable,
    get_seeds_per_chain,
    make_initial_point_fn,
)
from pymc_privacy.distributions.measured_totals import LatticeCounts
from pymc_privacy.distributions.starts import starts_of_sizes
from pymc_privacy.model.factors import factors_of, joint_log_density
from pymc_privacy.model.locality import Point

MOST_TRIES = 100


def starting_points(
    model: Model,
    initvals: Any,
    *,
    chains: int,
    random_seed: Any,
    quiet: bool = False,
    factors: Sequence[TensorVariable] | None = None,
) -> list[Point]:
    """Return the values of all free variables where each chain starts.

    They are the user's own, where given, and else draws from the prior. Factors other than those
    given, all by default, may be impossible there.

    A prior that cannot be drawn from starts where PyMC starts it. Draws at which the model's
    density is not finite are drawn again; if none of many will do, PyMC's own start is taken, and
    its error says which factor rules that out.
    """
    seeds = [int(seed) for seed in get_seeds_per_chain(random_seed, chains)]
    said: dict[str, None] = {}
    if initvals is None or isinstance(initvals, dict):
        points = _points(model, initvals or {}, seeds, said, factors)
    else:
        points = [
            _points(model, chain or {}, [seed], said, factors)[0]
            for chain, seed in zip(initvals, seeds, strict=True)
        ]
    for sentence in () if quiet else said:
        logging.getLogger("pymc").info(sentence)
    return points


def _strategy(model: Model, given: dict[Any, Any], said: dict[str, None]) -> dict[Any, Any]:
    """Start from the prior wherever the user did not say, and the prior can be drawn from."""
    names = {key if isinstance(key, str) else key.name for key in given}
    sizes = {name: start for name, start in starts_of_sizes(model).items() if name not in names}
    names |= set(sizes)
    left = [
        rv
        for rv in model.free_RVs
        # Counts start where their exact totals are.
        if not isinstance(rv.owner.op, LatticeCounts)
        # A start may be named after the variable or after its transformed value.
        and not names & {rv.name, model.rvs_to_values[rv].name}
    ]
    fixed = given | sizes
    refused = _not_drawable(model, fixed, [rv.name for rv in left if not _is_flat(rv)])
    refused |= {rv.name for rv in left if _is_flat(rv)}
    if refused:
        said[
            f"A start was not drawn for {', '.join(sorted(refused))}, whose prior cannot be drawn "
            "from: all chains start there at PyMC's own initial point."
        ] = None
    return fixed | {rv.name: "prior" for rv in left if rv.name not in refused}


def _is_flat(rv: Any) -> bool:
    return isinstance(rv.owner.op, FlatRV | HalfFlatRV)


def _not_drawable(model: Model, fixed: dict[Any, Any], names: list[str]) -> set[str]:
    """Return the variables whose law has no draws, given where the others start."""
    if _draws(model, fixed | dict.fromkeys(names, "prior")):
        return set()
    return {name for name in names if not _draws(model, fixed | {name: "prior"})}


def _draws(model: Model, strategy: dict[Any, Any]) -> bool:
    try:
        _start(model, strategy)(0)
    except NotImplementedError:
        return False
    except (ValueError, ArithmeticError):
        # Parameters that the law does not allow, which other draws do not have.
        return True
    return True


def _start(model: Model, strategy: dict[Any, Any]) -> Callable[[int], Point]:
    """Return a function of a seed that makes a point of the model."""
    return make_initial_point_fn(model=model, overrides=strategy)


class _Judge:
    """The log density of a model and the natural values of its free variables, at a point."""

    def __init__(self, model: Model, factors: Sequence[TensorVariable] | None):
        factors = factors_of(model) if factors is None else factors
        self._names = [rv.name for rv in model.free_RVs]
        self._function = model.compile_fn(
            [
                joint_log_density(model, factors),
                *model.replace_rvs_by_values(model.free_RVs),
            ],
            inputs=model.value_vars,
            mode=INTERPRETED,
            on_unused_input="ignore",
        )

    def __call__(self, point: Point) -> Point | None:
        """Return the values by name, or None where the density is not finite."""
        with np.errstate(all="ignore"):
            log_density, *values = self._function(point)
        if not np.isfinite(log_density):
            return None
        return dict(zip(self._names, map(np.asarray, values), strict=True))


def _points(
    model: Model,
    given: dict[Any, Any],
    seeds: Sequence[int],
    said: dict[str, None],
    factors: Sequence[TensorVariable] | None,
) -> list[Point]:
    strategy = _strategy(model, given, said)
    start, judge = _start(model, strategy), _Judge(model, factors)
    points = [_possible(start, judge, seed) for seed in seeds]
    if None in points:
        own = _start(model, {k: v for k, v in strategy.items() if not _is_prior(v)})(seeds[0])
        if judge(own) is None:
            model.check_start_vals(own, mode=INTERPRETED)
        said[
            f"None of {MOST_TRIES} draws from the prior is possible given the rest of the model: "
            "chains start at PyMC's own initial point."
        ] = None
        points = [judge(own) if point is None else point for point in points]
    return [point for point in points if point is not None]


def _is_prior(value: Any) -> bool:
    return isinstance(value, str) and value == "prior"


def _possible(
    start: Callable[[int], Point], judge: Callable[[Point], Point | None], seed: int
) -> Point | None:
    """Return the first of many starts whose density is finite."""
    rng = np.random.default_rng(seed)
    for _ in range(MOST_TRIES):
        try:
            point = judge(start(seed))
        except (ValueError, ArithmeticError):
            # Parameters that some law does not allow.
            point = None
        if point is not None:
            return point
        seed = int(rng.integers(2**30))
    return None
