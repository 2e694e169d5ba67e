"""Which query a stream asks next: Thompson sampling, then the most informative query there.

Parameters are drawn from the posterior so far; the query is the best one if they were true. Where
little is known draws are far apart, and so are queries: early ones explore.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pymc_privacy._compat import MvNormalRV, TensorVariable, ancestors
from pymc_privacy.algorithms.ibis import State, covariance_of, mean_of, weights_of
from pymc_privacy.algorithms.query_design import (
    DrawnLaw,
    best_bins,
    best_clip,
    remembering_clip,
    search_bins,
    search_clip,
)
from pymc_privacy.arguments import shown
from pymc_privacy.errors import StreamError
from pymc_privacy.sanitize.queries import BinnedQuery, ClippedQuery, Query
from pymc_privacy.targets.ibis import ParticleTarget

Rule = Callable[[np.random.Generator, dict[str, np.ndarray]], Query]

_TRIES = 20  # of draws whose law is no law
_STEP = 1e-3  # of a difference quotient, in posterior standard deviations
_NARROWEST = 1e-9  # of an interval, relative to where it is
_HALVINGS = 60
_RIDGE, _LEAST = 1e-9, 1e-100  # on the diagonal of covariances, that they have an inverse


class Designer:
    """Make queries for the law of a record.

    Parameters
    ----------
    target : ParticleTarget
    kind : "binned", "clipped" or a function
        A function of a generator and of drawn parameters by name, which returns a query.
    epsilon, score
    memory : bool
        Whether what is already known counts, where the score can tell.
    thompson : bool
        Whether parameters are drawn; else they are their posterior means.
    """

    def __init__(
        self,
        target: ParticleTarget,
        kind: str | Rule,
        *,
        epsilon: float,
        score: str,
        memory: bool,
        thompson: bool,
    ):
        self._target, self._kind = target, kind
        self._epsilon, self._score = epsilon, score
        self._thompson = thompson
        self._free = _unknown(target) if target.family is not None else ()
        self._memory = memory and score.endswith("optimal")
        if target.family is not None and not callable(kind) and not self._memory:
            self._best()

    def __call__(
        self,
        rng: np.random.Generator,
        clouds: Sequence[State],
        coordinate: int | None,
        covariates: Mapping[str, Any],
    ) -> Query:
        """Return the next query."""
        public: dict[str, Any] = {"coordinate": coordinate, "covariates": covariates}
        user = np.array([self._target.user(coordinate, covariates)], dtype=float)
        cloud = clouds[int(rng.integers(len(clouds)))]
        if callable(self._kind):
            made = self._kind(rng, self._named(self._draw(rng, cloud)))
            if not isinstance(made, Query):
                raise StreamError(
                    "queries must be a function of a generator and of parameters by name which "
                    f"returns a ClippedQuery or a BinnedQuery; it returned {shown(made)}."
                )
            return made
        if self._target.family is not None:
            ends = self._scaled(rng, cloud, user.reshape(1, -1))
        else:
            ends = self._searched(rng, cloud, user.reshape(1, -1))
        if self._kind == "binned":
            return BinnedQuery(edges=ends, epsilon=self._epsilon, **public)
        return ClippedQuery(lower=ends[0], upper=ends[1], epsilon=self._epsilon, **public)

    def _named(self, point: np.ndarray) -> dict[str, np.ndarray]:
        return {name: value[0] for name, value in self._target.natural(point[None]).items()}

    def _draw(self, rng: np.random.Generator, cloud: State) -> np.ndarray:
        """Return parameters from the posterior so far, or their mean."""
        if not self._thompson:
            return mean_of(cloud)
        return cloud.particles[self._index(rng, cloud)]

    def _index(self, rng: np.random.Generator, cloud: State) -> int:
        places = np.cumsum(weights_of(cloud))
        chosen = int(np.searchsorted(places, rng.random()))
        return min(chosen, len(places) - 1)

    # -- location and scale ---------------------------------------------------------------------

    def _best(self) -> tuple[float, ...]:
        find = best_bins if self._kind == "binned" else best_clip
        return find(str(self._target.family), self._epsilon, self._score, self._free)

    def _scaled(
        self, rng: np.random.Generator, cloud: State, user: np.ndarray
    ) -> tuple[float, ...]:
        """Return m + c times the best ends of a law with location 0 and scale 1."""
        for _ in range(_TRIES):
            m, c = self._drawn_location(rng, cloud, user)
            if np.isfinite(m) and np.isfinite(c) and c > 0 and abs(m) + c < 1e100:
                break
        else:
            raise StreamError(
                "The prior must have parameters at which records have a law, to choose a query by; "
                f"got none in {_TRIES} draws, the last with location {m} and scale {c}."
            )
        c = max(c, _NARROWEST * abs(m))
        if self._kind == "clipped" and self._memory:
            memory = self._precision(cloud, user) * c**2
            family, known = str(self._target.family), (memory, self._free)
            ends: tuple[float, ...] = remembering_clip(family, self._epsilon, self._score, *known)
        else:
            ends = self._best()
        return tuple(m + c * end for end in ends)

    def _drawn_location(
        self, rng: np.random.Generator, cloud: State, user: np.ndarray
    ) -> tuple[float, float]:
        """Return location and scale at parameters from the posterior so far, or at their mean."""
        if not self._thompson:
            found, k = self._target.location_scale(self._draw(rng, cloud)[None], user), 0
        else:
            found, k = self._of_cloud(cloud, user), self._index(rng, cloud)
        return float(found[0][k]), float(found[1][k])

    def _of_cloud(self, cloud: State, user: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        users = np.broadcast_to(user, (len(cloud.particles), user.shape[1]))
        return self._target.location_scale(cloud.particles, users)

    def _precision(self, cloud: State, user: np.ndarray) -> np.ndarray:
        """Return what is known of location and scale: the inverse of their covariance."""
        both = np.column_stack(self._of_cloud(cloud, user))
        known = cloud._replace(particles=both)
        covariance = covariance_of(known)
        precision = np.zeros((2, 2))
        free = np.ix_(self._free, self._free)
        part = covariance[free]
        ridge = np.diag(_RIDGE * np.diag(part) + _LEAST)
        precision[free] = np.linalg.inv(part + ridge)
        return precision

    # -- any other law --------------------------------------------------------------------------

    def _searched(
        self, rng: np.random.Generator, cloud: State, user: np.ndarray
    ) -> tuple[float, ...]:
        point = self._draw(rng, cloud)
        covariance = covariance_of(cloud)
        covariance += np.diag(_RIDGE * np.diag(covariance) + _LEAST)
        steps = np.diag(_STEP * np.sqrt(np.diag(covariance)))
        around = np.concatenate([point[None], point + steps, point - steps])
        users = np.broadcast_to(user, (len(around), user.shape[1]))

        def slopes_at(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            wide = np.broadcast_to(values.ravel(), (len(around), values.size))
            cdf = np.exp(self._target.log_cdf(around, users, wide))
            up, down = cdf[1 : 1 + len(steps)], cdf[1 + len(steps) :]
            slopes = (up - down) / (2 * np.diag(steps))[:, None]
            return (
                np.nan_to_num(cdf[0]).reshape(values.shape),
                np.nan_to_num(np.moveaxis(slopes, 0, -1)).reshape(*values.shape, -1),
            )

        law = DrawnLaw(slopes_at, covariance, self._target.discrete)
        search = search_bins if self._kind == "binned" else search_clip
        return search(law, lambda p: self._quantiles(point, user, p), self._epsilon, self._score)

    def _quantiles(self, point: np.ndarray, user: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Return quantiles of the law at drawn parameters, by halving an interval."""

        def cdf(values: np.ndarray) -> np.ndarray:
            return np.nan_to_num(np.exp(self._target.log_cdf(point[None], user, values[None])[0]))

        ends = 2.0 ** np.arange(-10, 60)
        both = np.concatenate([-ends[::-1], [0.0], ends])
        at = cdf(both)
        high = both[np.minimum(np.searchsorted(at, levels), both.size - 1)]
        low = both[np.maximum(np.searchsorted(at, levels) - 1, 0)]
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            below = cdf(middle) < levels
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return high


def _unknown(target: ParticleTarget) -> tuple[int, ...]:
    """Return which of location and scale depend on parameters."""
    op = target.record.owner.op
    both: list[TensorVariable] = list(op.dist_params(target.record.owner))
    parameters = set(target.parameters)
    free = tuple(k for k in range(2) if parameters & set(ancestors([both[k]])))
    if not free:
        raise StreamError(
            f"The law of the record {target.record.name} must depend on a parameter; got none "
            f"that does{', of a Normal vector' if isinstance(op, MvNormalRV) else ''}."
        )
    return free
