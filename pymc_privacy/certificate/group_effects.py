"""The identities between the program of `targets.group_effects` and the plain model.

With L the log density of the model, t effects of which those of every other group are moved to t',
x records, and x' = T(t', u):

    given_records(t', x) - given_records(t, x)  = L(t', x) - L(t, x), summed over groups
    given_base(t', u) - given_base(t, u)        = the change of all terms but the records'
                                                  at x', and of the log weight of u
    both                                        = 0 in groups that were not moved
    released(t, u)                              = the statistic of x less the release
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from pymc_privacy.certificate.base import Comparison, Pair, Reference, log_density_change
from pymc_privacy.certificate.parameters import log_weight, same_records, statistics_less_releases
from pymc_privacy.densities.carrying import carry_records
from pymc_privacy.model.database import Database
from pymc_privacy.model.group_effects import GroupEffects
from pymc_privacy.targets.base import ParameterProgram


def compare_effects(
    program: ParameterProgram,
    effects: GroupEffects,
    databases: Sequence[Database],
    reference: Reference,
    pairs: Sequence[Pair],
) -> Iterator[Comparison]:
    """Compare all functions of a program with the model, with effects of some groups moved."""
    own = {rv.name for database in databases for rv in database.records}
    releases = {rv.name for database in databases for rv in database.releases}
    given_records = [name for name in reference.factors if name not in releases]
    others = [name for name in reference.factors if name not in own]
    moves = np.arange(effects.number) % 2 == 0
    carried = carry_records(reference.model, [rv for d in databases for rv in d.records])
    weight = None if carried is None else log_weight(reference.model, carried)
    for label, here, _ in pairs:
        before = reference.terms(here)
        if not math.isfinite(before.total(reference.factors)):
            continue
        held, x = program.held_at(here), tuple(here[name] for name in program.records)
        q = program.flatten(here)
        step = np.random.default_rng(23).standard_normal(q.size)
        moved = q + np.tile(moves, len(effects.effects)) * step
        there = here | program.unflatten(moved)
        now, then = (program.functions["given_records"](t, *held, *x)[0] for t in (q, moved))
        what = f"the change of the log density of effects given records ({label})"
        change = then - now
        yield log_density_change(
            what, before, reference.terms(there), given_records, float(change.sum())
        )
        yield _stays(what, change[~moves])
        if carried is None:
            continue
        u = [
            np.array(part)
            for part in program.functions["base"](np.random.default_rng(7), q, *held, *x)
        ]
        yield from same_records(program, q, held, tuple(u), x, label)
        records = program.functions["forward"](moved, *held, *u)
        there |= {name: np.array(r) for name, r in zip(program.records, records, strict=True)}
        now, then = (program.functions["given_base"](t, *held, *u)[0] for t in (q, moved))
        change = then - now
        assert weight is not None  # as there is a form
        more = weight(there, u) - weight(here, u) if carried.base_log_weights else 0.0
        what = f"the change of the log density of effects given base variates ({label})"
        after = reference.terms(there)
        yield log_density_change(what, before, after, others, float(change.sum()), more)
        yield _stays(what, change[~moves])
        for t, point in ((q, here), (moved, there)):
            expected, scale = statistics_less_releases(databases, reference, point)
            found = program.functions["released"](t, *held, *u)[0]
            by_group = [part.reshape(effects.number, -1) for part in expected]
            what = f"the distance of statistics of groups from their releases ({label})"
            tolerance = 1e-8 * (1 + scale)
            yield Comparison(what, np.concatenate(by_group, axis=1), found, tolerance=tolerance)


def _stays(what: str, change: np.ndarray) -> Comparison:
    return Comparison(f"{what}, where a group was not moved,", np.zeros(change.size), change)
