"""What a finished model says about each confidential database in it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from pymc_privacy._compat import Model, TensorVariable, Variable, ancestors
from pymc_privacy.errors import RecordError, ReleaseError
from pymc_privacy.mechanisms import Mechanism
from pymc_privacy.model.factors import factors_of, log_densities
from pymc_privacy.model.finite import (
    refuse_contributions_that_are_not_numbers,
    refuse_data_that_are_not_numbers,
    refuse_random_data,
)
from pymc_privacy.model.locality import Probe, not_local, parents
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.miscompiled import refuse_forgotten_floors
from pymc_privacy.model.points import Point, probing_point
from pymc_privacy.model.releases import (
    PrivatizedRV,
    contributions_of,
    groups_of,
    is_release,
    observed_value,
)

_LATE = (
    " If {name!r} is a parameter with one entry per record, sample with pymc_privacy.sample, or "
    "write what depends on it before the release."
)


@dataclass(frozen=True)
class Database:
    """Record variables that share rows, and every factor of the model that sees them."""

    model: Model
    records: tuple[TensorVariable, ...]
    releases: tuple[TensorVariable, ...]
    """Central releases of these records, all observed."""
    record_factors: tuple[TensorVariable, ...]
    """Other variables and potentials that depend on the records, row by row."""
    size: int
    exchangeable: bool
    """Whether the records are identically distributed, and not only independent."""

    @property
    def contributions(self) -> list[TensorVariable]:
        """Return what each record contributes to each release."""
        return [contributions_of(release) for release in self.releases]

    @property
    def mechanisms(self) -> list[Mechanism]:
        """Return the mechanism of each release."""
        return [release.owner.op.mechanism for release in self.releases]

    def constant_releases(self, parameters: Sequence[Variable]) -> list[TensorVariable]:
        """Return the releases whose density no parameter enters, once the records are given.

        All of them, unless a record's transform depends on a parameter, which then
        carries the record along.
        """
        graphs = self.model.replace_rvs_by_values(self.contributions)
        above = [set(ancestors([graph])) for graph in graphs]
        return [r for r, a in zip(self.releases, above, strict=True) if not a & set(parameters)]

    @property
    def observed(self) -> list[np.ndarray]:
        """Return the value of each release."""
        return [observed_value(self.model, release) for release in self.releases]


def find_databases(model: Model, records: Sequence[TensorVariable] | None = None) -> list[Database]:
    """Group the records of a model into databases, and check every factor that sees them.

    Parameters
    ----------
    model : pm.Model
    records : sequence of TensorVariable, optional
        The record variables to update, all of them by default. One that is left out is
        held fixed, as a parameter would be.
    """
    if records is None:
        records = [rv for rv in model.free_RVs if is_record(rv)]
    # Data can be set anew after the model was written.
    check_data(model)
    refuse_forgotten_floors(
        {repr(f.name): [f] if f in model.potentials else f.owner.inputs for f in factors_of(model)},
        model,
    )
    _check_held(model, records)
    factors = {factor: _seen_by(model, factor) for factor in factors_of(model)}
    return [_database(model, group, factors) for group in _groups(records, factors)]


def check_data(model: Model) -> None:
    """Refuse data that are not numbers, or not fixed, wherever the finished model uses them."""
    refuse_random_data(model)
    releases = [rv for rv in model.basic_RVs if is_release(rv)]
    for release in releases:
        if type(release.owner.op) is PrivatizedRV and release in model.observed_RVs:
            observed_value(model, release)
    graphs = {f"the contributions to {r.name!r}": contributions_of(r) for r in releases}
    others = [factor for factor in factors_of(model) if factor not in set(releases)]
    refuse_data_that_are_not_numbers(model, graphs, others)


def _check_held(model: Model, records: Sequence[TensorVariable]) -> None:
    """Refuse to hold a variable in coordinates that depend on the records, which move it along."""
    moving = {model.rvs_to_values[rv] for rv in records}
    for rv in model.free_RVs:
        if rv in records or model.rvs_to_transforms[rv] is None:
            continue
        [held] = model.replace_rvs_by_values([rv])
        if moving & set(ancestors([held])):
            names = ", ".join(repr(record.name) for record in records)
            raise RecordError(
                f"{rv.name!r} must be updated in the same step as the records {names}: its "
                "bounds depend on them, so that it would move with them unseen."
            )


def refuse_left_behind(model: Model, records: Sequence[TensorVariable]) -> None:
    """Refuse to carry records along without those that are drawn given them."""
    left_out = [
        rv
        for rv in model.free_RVs
        if is_record(rv) and rv not in records and set(ancestors([rv])) & set(records)
    ]
    if left_out:
        names = ", ".join(repr(rv.name) for rv in left_out)
        raise RecordError(
            "Interweave carries records along with their parameters, so it must be given all "
            f"records that depend on them; {names} would be left behind. Give them to the same "
            "Interweave, or update the records with RecordSweep and the parameters otherwise."
        )


Factors = dict[TensorVariable, set[TensorVariable]]


def factors_given_records(
    model: Model, databases: Sequence[Database], parameters: Sequence[Variable]
) -> list[TensorVariable]:
    """Return the factors of the density of parameters given all else: constant releases cancel."""
    constant = {r for database in databases for r in database.constant_releases(parameters)}
    return [factor for factor in factors_of(model) if factor not in constant]


def _seen_by(model: Model, factor: TensorVariable) -> set[TensorVariable]:
    """Return the variables that the log density of a factor is a function of."""
    if factor in model.potentials:
        return set(parents(factor, model))
    return {factor}.union(*(parents(graph, model) for graph in factor.owner.inputs))


def _groups(records: Sequence[TensorVariable], factors: Factors) -> list[list[TensorVariable]]:
    """Put records together that some factor sees together."""
    groups = [{rv} for rv in records]
    for seen in factors.values():
        apart = [group for group in groups if not group & seen]
        together = [group for group in groups if group & seen]
        groups = [*apart, set().union(*together)] if together else groups
    return [[rv for rv in records if rv in group] for group in groups]


def _database(model: Model, records: list[TensorVariable], factors: Factors) -> Database:
    seeing = [f for f, seen in factors.items() if seen & set(records) and f not in set(records)]
    releases = [f for f in seeing if is_release(f) and f.owner.op.sums]
    others = [f for f in seeing if f not in set(releases)]
    names = ", ".join(repr(rv.name) for rv in records)
    for release in filter(is_release, seeing):
        if release not in model.observed_RVs:
            raise ReleaseError(
                f"The release {release.name!r} must be observed before its records {names} can "
                "be sampled; give observed=, or use pm.observe."
            )
        observed_value(model, release)
    start = probing_point(model)
    contributions = {r.name: contributions_of(r) for r in filter(is_release, seeing)}
    refuse_contributions_that_are_not_numbers(model, start, contributions)
    released = {rv for graph in contributions.values() for rv in parents(graph, model)}
    probe = _probe(model, records, releases, others, start)
    _refuse_mixed(probe, released)
    return Database(
        model=model,
        records=tuple(records),
        releases=tuple(releases),
        record_factors=tuple(others),
        size=len(start[model.rvs_to_values[records[0]].name]),
        # Of two records in different groups, each enters another total.
        exchangeable=all(groups_of(r) is None for r in releases) and probe.exchangeable(),
    )


def _probe(
    model: Model,
    records: Sequence[TensorVariable],
    releases: Sequence[TensorVariable],
    others: Sequence[TensorVariable],
    start: Point,
) -> Probe:
    """Return what tells whether anything that sees the records mixes them."""
    densities = log_densities(model, others)
    graphs = {f"the contributions to {r.name!r}": contributions_of(r) for r in releases}
    graphs |= {repr(w.name): density for w, density in zip(others, densities, strict=True)}
    return Probe(model, start, records, graphs)


def _refuse_mixed(probe: Probe, released: Collection[TensorVariable]) -> None:
    for rv, mixed in probe.mixed().items():
        if mixed:
            raise RecordError(
                not_local(rv.name, mixed) + " Write it with one term per record, or leave it out."
                f"{'' if rv in released else _LATE.format(name=rv.name)}"
            )


def check_locality(databases: Sequence[Database], point: Point) -> None:
    """Look once more, at a point, whether records are mixed where the graph does not say."""
    for d in databases:
        probe = _probe(d.model, d.records, d.releases, d.record_factors, point)
        if not probe.is_proven():
            _refuse_mixed(probe, d.records)
