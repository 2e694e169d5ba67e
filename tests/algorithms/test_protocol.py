"""One contract for all kernels: a step takes a generator and a state, and returns state and info.

State and info are named tuples, the same generator gives the same step, tuning learns from the info
and leaves what it knew before alone, and every sampler of the package is here.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit

import pymc_privacy.algorithms
import pymc_privacy.algorithms.adaptation.birth_death
import pymc_privacy.algorithms.adaptation.count_states
import pymc_privacy.algorithms.adaptation.interweave
import pymc_privacy.algorithms.adaptation.lattice_walk
import pymc_privacy.algorithms.adaptation.refresh
import pymc_privacy.targets
from pymc_privacy.algorithms import (
    adaptation,
    birth_death,
    count_states,
    group_effects,
    group_sizes,
    ibis,
    interweave,
    lattice_walk,
    record_sweep,
)
from pymc_privacy.algorithms import refresh as refreshing
from pymc_privacy.algorithms.noise import noise
from pymc_privacy.algorithms.numerics.integer_kernel import fibre_of
from pymc_privacy.algorithms.proposals import leaps, poisson_carry
from pymc_privacy.mechanisms import Laplace

RECORDS = (np.array([0.3, -1.2, 0.7]),)


@njit
def statistics(q, x):
    return (np.array([x.sum()]),)


@njit
def centred(q, x, totals):
    return (np.array(-0.5 * q[0] ** 2 - 0.5 * ((x - q[0]) ** 2).sum()),)


@njit
def base(rng, q, x):
    return (x - q[0],)


@njit
def noncentred(q, u):
    return (np.array(-0.5 * q[0] ** 2 - abs((u + q[0]).sum() - 2.0)),)


@njit
def forward(q, u):
    return (u + q[0],)


@njit
def released(q, u):
    return (np.array([(u + q[0]).sum() - 2.0]),)


@njit
def others(q, x):
    return (np.array(-0.5 * q[0] ** 2 - abs(x.sum() - 2.0)),)


@njit
def refresh(rng, q):
    x = q[0] + rng.standard_normal(3)
    return np.array(-0.5 * q[0] ** 2 - abs(x.sum() - 2.0)), x


@njit
def sized_centred(q, x, totals):
    return (np.array(-0.5 * (q * q).sum()),)


@njit
def sized_noncentred(q, u, least, largest):
    return (np.array(-0.5 * (q * q).sum()),)


@njit
def given_counts(q, counts):
    return (np.array(-0.5 * q[0] ** 2 + counts[1] * q[0] - counts.sum() * np.log1p(np.exp(q[0]))),)


@njit
def law(q):
    chance = 1 / (1 + np.exp(-q[0]))
    return np.array(-0.5 * q[0] ** 2), np.array([1 - chance, chance])


@njit
def log_noise(totals):
    return (np.array(-abs(totals[0] - 5.0)),)


CARRIED = {
    "statistics": statistics,
    "centred": centred,
    "base": base,
    "noncentred": noncentred,
    "forward": forward,
    "released": released,
}
REFRESHED = {"statistics": statistics, "centred": centred, "others": others, "refresh": refresh}


class Kernel(NamedTuple):
    """A module, a state, how to make a step, what is known before tuning, and how it is learnt."""

    module: Any
    state: Any
    step: Callable[..., Any]
    learnt: Any = None
    learn: Callable[..., Any] | None = None
    """From what is known, a state and an info to what is known then."""


def traits(size, functions, **changes):
    carries = "noncentred" in functions
    return adaptation.interweave.Traits(
        size,
        has_gradient=False,
        has_noncentred_gradient=False,
        has_statistics=False,
        carries_records=carries,
        noise_precision=np.ones(1) if carries else np.empty(0),
    )._replace(**changes)


def of_moves(template, functions, **changes):
    learns = adaptation.interweave
    step = template.compile_moves(functions, gradients=())
    data = interweave.data_of(dict.fromkeys(functions, ()))
    plan = learns.plan(traits(1, functions, **changes), centred_steps=4, noncentred_steps=None)
    learnt = learns.init(plan, 100)
    known = learnt._replace(noncentred=learnt.noncentred._replace(centre=np.zeros(1)))
    return Kernel(
        interweave,
        interweave.State(np.array([0.2]), RECORDS),
        lambda rng, state: step(rng, state, (), learns.settings(known, plan), data),
        known,
        lambda learnt, state, info: learns.learn(learnt, plan, state.q, info),
    )


def of_sizes():
    learns = adaptation.birth_death
    functions = CARRIED | {"centred": sized_centred, "noncentred": sized_noncentred}
    step = birth_death.compile_moves(functions, gradients=())
    data = interweave.data_of(dict.fromkeys(functions, ()))
    plan = learns.plan(traits(2, functions), [9], centred_steps=4, noncentred_steps=None, jumps=4)
    learnt = learns.init(plan, 100)
    bounds = (np.array([0]), np.array([9]))
    settings = learns.settings(learnt, plan, False)._replace(bounds=bounds)
    return Kernel(
        interweave,
        interweave.State(np.array([0.2, 1.0]), RECORDS),
        lambda rng, state: step(rng, state, (), settings, data),
        learnt,
        lambda learnt, state, info: learns.learn(
            np.random.default_rng(1), learnt, plan, state.q, [3], jump_accept=0.1, info=info
        ),
    )


def of_counts():
    learns = adaptation.count_states
    step = count_states.compile_step(
        centred=given_counts, law=law, noise=log_noise, has_gradient=False
    )
    cells = count_states.CellTable(np.array([[0.0], [1.0]]), np.array([0, 2]))
    numbers = dict.fromkeys(("centred_steps", "noncentred_steps", "blocks"), 4)
    plan = learns.plan(traits(1, ()), cells, **numbers)
    learnt, data = learns.init(plan, 100), count_states.Data((), (), ())
    return Kernel(
        count_states,
        count_states.State(np.array([0.2]), np.array([4, 6])),
        lambda rng, state: step(rng, state, cells, (), learns.settings(learnt, plan), data),
        learnt,
        lambda learnt, state, info: learns.learn(learnt, plan, info),
    )


def of_records():
    mechanism = Laplace(scale=1.5)
    given = noise([type(mechanism).formula], [2.0], [mechanism.parameters])
    return Kernel(
        record_sweep,
        record_sweep.init(RECORDS[0][None]),
        lambda rng, state: record_sweep.step(rng, state, rng.standard_normal((1, 3)), noise=given),
    )


MEASURED = lattice_walk.stack([np.ones((1, 3))], [[7.0]], [1.0], [False])


def of_tables():
    def density(counts):
        return np.where(counts < 0, -np.inf, -0.1 * counts)

    learns, fibre = adaptation.lattice_walk, fibre_of(np.zeros((0, 3), dtype=int))
    target = {"measurements": MEASURED, "fibre": fibre, "density": density}
    learnt = learns.init(3)
    return Kernel(
        lattice_walk,
        lattice_walk.init(np.array([2, 3, 1]), MEASURED, density),
        lambda rng, state: lattice_walk.step(rng, state, learnt.walk, **target),
        learnt,
        lambda learnt, state, info: learns.learn(learnt, info),
    )


def of_carried_tables():
    def program(parameters, counts):
        return -0.5 * float(parameters[0] ** 2), np.exp(parameters[0] * np.ones(3))

    learns = adaptation.lattice_walk
    shape = learns.first_shape(1)
    nobody = (poisson_carry.held((), 3),)
    target = {"measurements": MEASURED, "groupings": nobody, "program": program}
    return Kernel(
        poisson_carry,
        poisson_carry.init(np.array([0.5]), np.array([2, 3, 1]), MEASURED),
        lambda rng, state: poisson_carry.step(
            rng, state, learns.carry_settings([shape], [np.array([0])], 4), **target
        ),
        shape,
        lambda shape, state, info: learns.learn_carry(shape, state.parameters, info.accept),
    )


def of_fresh_databases():
    learns = adaptation.refresh
    learnt = learns.begin(np.random.default_rng(3).standard_normal((40, 1)))

    def offer(q):
        return refreshing.State(q, -0.5 * float(q[0] ** 2), ())

    here = refreshing.State(np.array([0.2]), -0.02, ())
    return Kernel(
        refreshing,
        here,
        lambda rng, state: refreshing.step(
            rng, state, mixture=learnt.mixture, offers=6, offer=offer
        ),
    )


def of_particles():
    target = ibis.Target(lambda q: -0.5 * (q**2).sum(axis=1), lambda q: -4.0 * (q[:, 0] - 1.5) ** 2)
    particles = np.random.default_rng(3).standard_normal((40, 1))
    return Kernel(
        ibis,
        ibis.init(particles, target.before(particles)),
        lambda rng, state: ibis.step(rng, state, target),
    )


def of_effects():
    def density(effects):
        return -0.5 * (effects - 1.0) ** 2

    law = group_effects.Law(np.ones(3), np.ones(3))
    options = {"log_density": density, "law": law, "leaps": 2, "steps": (1.0,)}
    return Kernel(
        group_effects,
        group_effects.State(np.zeros(3)),
        lambda rng, state: group_effects.step(rng, state, **options),
    )


def of_sizes_of_groups():
    log_weights = np.log(np.arange(1.0, 9.0).reshape(4, 2))
    return Kernel(
        group_sizes,
        group_sizes.State(np.array([2, 3])),
        lambda rng, state: group_sizes.step(rng, state, log_weights),
    )


KERNELS = {
    "interweave": lambda: of_moves(interweave, CARRIED, noise_precision=np.empty(0)),
    "interweave by leaps": lambda: of_moves(leaps, CARRIED),
    "interweave afresh": lambda: of_moves(interweave, REFRESHED),
    "birth_death": of_sizes,
    "count_states": of_counts,
    "record_sweep": of_records,
    "lattice_walk": of_tables,
    "lattice_walk carried": of_carried_tables,
    "ibis": of_particles,
    "refresh": of_fresh_databases,
    "group_effects": of_effects,
    "group_sizes": of_sizes_of_groups,
}


@pytest.fixture(scope="module", params=KERNELS)
def kernel(request):
    return KERNELS[request.param]()


def numbers(value):
    """Return all numbers of nested tuples."""
    if isinstance(value, tuple):
        return [number for part in value for number in numbers(part)]
    return [np.asarray(value)]


def test_every_sampler_is_here():
    targets = Path(pymc_privacy.targets.__file__).parent
    algorithms = Path(pymc_privacy.algorithms.__file__).parent
    stems = {path.stem for path in targets.glob("*.py")} & {
        path.stem for path in algorithms.glob("*.py")
    }
    # An ascent draws no posterior, and independent draws have no state: neither has a kernel.
    assert stems - {"__init__", "ascent", "importance"} == {name.split()[0] for name in KERNELS}


def test_a_step_returns_a_state_of_the_same_form_and_an_info(kernel):
    state, info = kernel.step(np.random.default_rng(1), copy.deepcopy(kernel.state))
    for found, kind in ((state, kernel.module.State), (info, kernel.module.Info)):
        assert isinstance(found, kind)
        assert found._fields
    for before, after in zip(numbers(kernel.state), numbers(state), strict=True):
        assert before.shape == after.shape
        assert before.dtype == after.dtype


def test_the_same_generator_makes_the_same_step_and_another_one_another(kernel):
    ends = [
        kernel.step(np.random.default_rng(seed), copy.deepcopy(kernel.state)) for seed in (1, 1, 2)
    ]
    one, same, other = (numbers(tuple(end)) for end in ends)
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_tuning_learns_from_the_info_and_leaves_what_it_knew(kernel):
    state, info = kernel.step(np.random.default_rng(1), copy.deepcopy(kernel.state))
    if kernel.learn is None:
        # Proposals are those of the data model, or of the particles themselves, or found anew in
        # every step, or exact; or what is known grows with every offer, and has no form to keep.
        assert kernel.module in (record_sweep, ibis, group_effects, group_sizes, refreshing)
        return
    before = copy.deepcopy(kernel.learnt)
    learnt, again = (kernel.learn(kernel.learnt, state, info) for _ in range(2))
    assert type(learnt) is type(before)
    for was, known, same, now in zip(
        *(numbers(value) for value in (before, kernel.learnt, again, learnt)), strict=True
    ):
        np.testing.assert_array_equal(was, known)
        np.testing.assert_array_equal(same, now)
    after, was = numbers(learnt), numbers(before)
    assert any(a.shape != b.shape or (a != b).any() for a, b in zip(after, was, strict=True))
