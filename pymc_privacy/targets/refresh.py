"""Fresh databases for `Interweave`: draws of records given parameters, and what they weigh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from pymc_privacy._compat import Model
from pymc_privacy.algorithms import refresh
from pymc_privacy.algorithms.adaptation import refresh as adaptation
from pymc_privacy.algorithms.adaptation.interweave import Learnt
from pymc_privacy.algorithms.proposals.students import Mixture
from pymc_privacy.functions.plain import plain_function
from pymc_privacy.model.factors import factors_of, log_densities
from pymc_privacy.model.points import Point, prior_points
from pymc_privacy.model.releases import groups_of
from pymc_privacy.targets.base import ParameterProgram
from pymc_privacy.targets.record_sweep import RecordTarget

PRIOR_DRAWS = 60


class FreshDatabases:
    """Draws all records of a model given its parameters, by the programs of its record sweeps.

    Parameters
    ----------
    model : pm.Model
    program : ParameterProgram
        That of the parameters.
    targets : sequence of RecordTarget
        One of each database.
    """

    def __init__(self, model: Model, program: ParameterProgram, targets: Sequence[RecordTarget]):
        self._model, self._program, self._targets = model, program, targets
        self._others: Any = None

    def __getstate__(self) -> dict:
        # Another process evaluates the model by functions of its own.
        return self.__dict__ | {"_others": None}

    @property
    def are_possible(self) -> bool:
        """Whether central releases are all that is known of the records, and all are drawn.

        And the parameters are few enough for a mixture. Effects of groups would have to be drawn
        with them: these move by themselves.
        """
        drawn = [name for target in self._targets for name in target.records]
        is_whole = self._program.is_guided and len(drawn) == len(self._program.records)
        is_whole &= self._program.size <= adaptation.MOST_PARAMETERS
        return is_whole and all(
            target.rows is None and not target.database.record_factors for target in self._targets
        )

    def prior(self) -> np.ndarray:
        """Return draws of the parameters from their prior."""
        points = islice(prior_points(self._model, seed=3), PRIOR_DRAWS)
        return np.array([self._program.flatten(point) for point in points])

    def iterate(
        self, rng: np.random.Generator, point: Point, learnt: Learnt, is_tuning: bool
    ) -> tuple[Learnt, float]:
        """Offer fresh databases where leaps do not do; return what is learnt, and the acceptance.

        That is nan where none are offered. What is learnt changes in tuning only.
        """
        iteration, tune_steps = learnt.noncentred.iteration, learnt.tune_steps
        begins = adaptation.begins(iteration, tune_steps, learnt.proposal.accept)
        if is_tuning and self.are_possible and begins:
            learnt = learnt._replace(refreshing=adaptation.begin(self.prior()))
        mixture = learnt.refreshing.mixture
        if mixture is None:
            return learnt, math.nan
        offers = adaptation.number_of_offers(learnt.refreshing)
        info = self.move(rng, point, mixture, offers)
        if is_tuning:
            known = adaptation.learn(learnt.refreshing, info, iteration, tune_steps)
            learnt = learnt._replace(refreshing=known)
        return learnt, info.accept

    def move(
        self, rng: np.random.Generator, point: Point, mixture: Mixture, offers: int
    ) -> refresh.Info:
        """Offer fresh databases to a point, which is changed in place where one is taken."""
        totals = [t.noise.totals(t.state_at(point).contributions) for t in self._targets]
        here = self._log_density(point, totals)
        state = refresh.State(self._program.flatten(point), here, None)

        def offer(q: np.ndarray) -> refresh.State:
            there = point | self._program.unflatten(q)
            return self._drawn(rng, there)

        state, info = refresh.step(rng, state, mixture=mixture, offers=offers, offer=offer)
        if state.records is not None:
            point |= self._program.unflatten(state.q)
            point |= state.records
        return info

    def _drawn(self, rng: np.random.Generator, point: Point) -> refresh.State:
        """Draw records at a point."""
        records, totals = {}, []
        for target in self._targets:
            _, fresh, ratio = target.draw(rng, point)
            for name, drawn in zip(target.records, fresh, strict=True):
                records[name] = np.array(drawn)
            # What is not all finite numbers is never taken.
            finite = ratio is None
            totals.append(target.noise.totals(target.proposed) if finite else np.full(1, math.nan))
        q = self._program.flatten(point)
        return refresh.State(q, self._log_density(point, totals), records)

    def _log_density(self, point: Point, totals: Sequence[np.ndarray]) -> float:
        """Return the log density of all but the records, from their totals."""
        value = 0.0
        for target, total in zip(self._targets, totals, strict=True):
            if not np.isfinite(total).all():
                return -math.inf
            value += _log_noise(target, total)
        parts = self._others_at(point)
        with np.errstate(invalid="ignore"):
            return value + float(sum(np.sum(part) for part in parts))

    def _others_at(self, point: Point) -> Sequence[np.ndarray]:
        model = self._model
        if self._others is None:
            ours = {v for t in self._targets for v in (*t.database.records, *t.database.releases)}
            factors = [factor for factor in factors_of(model) if factor not in ours]
            self._others = plain_function(model.value_vars, log_densities(model, factors))
        with np.errstate(all="ignore"):
            return self._others(*(point[value.name] for value in model.value_vars))


def _log_noise(target: RecordTarget, total: np.ndarray) -> float:
    """Return the log density of the releases of one database."""
    offsets, value = target.noise.offsets, 0.0
    releases, mechanisms = target.database.releases, target.database.mechanisms
    for k, mechanism in enumerate(mechanisms):
        release = target.noise.release[offsets[k, 0] : offsets[k + 1, 0]]
        statistic = total[offsets[k, 1] : offsets[k + 1, 1]]
        if groups_of(releases[k]) is not None:
            release, statistic = (a.reshape(releases[k].type.shape) for a in (release, statistic))
        with np.errstate(all="ignore"):
            value += float(np.sum(mechanism.log_density(release, statistic)))
    return value
