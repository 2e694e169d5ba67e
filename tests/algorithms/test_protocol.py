"""One contract for all kernels: a step takes a generator and a state, and returns state and info.

State and info are named tuples, the same generator gives the same step, what a step does is learnt
from its info alone, and every sampler of the package is here.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit

import pymc_privacy.algorithms
import pymc_privacy.targets
from pymc_privacy.algorithms import (
    birth_death,
    count_states,
    interweave,
    lattice_walk,
    record_sweep,
)
from pymc_privacy.algorithms.adaptation import local_proposal, ridge_adaptation, tuning
from pymc_privacy.algorithms.interweave import Move
from pymc_privacy.algorithms.noise import noise
from pymc_privacy.algorithms.numerics.integer_kernel import fibre_of
from pymc_privacy.algorithms.proposals import leaps
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
    """A module, a state, how to make a step, and which acceptances tuning learns from."""

    module: Any
    state: Any
    step: Callable[..., Any]
    learnt_from: tuple[str, ...]


def of_moves(template, functions):
    step = template.compile_moves(functions, gradients=())
    data = interweave.data_of(dict.fromkeys(functions, ()))
    walk = tuning.init(1)._replace(centre=np.zeros(1))
    reference = local_proposal.reference(walk, local_proposal.init(1), np.ones(1), leap=True)
    move = Move(np.eye(1), 0.7, 4)
    settings = interweave.Settings(move, move, reference)
    return Kernel(
        interweave,
        interweave.State(np.array([0.2]), RECORDS),
        lambda rng, state: step(rng, state, (), settings, data),
        ("centred_accept", "noncentred_accept"),
    )


def of_sizes():
    functions = CARRIED | {"centred": sized_centred, "noncentred": sized_noncentred}
    step = birth_death.compile_moves(functions, gradients=())
    data = interweave.data_of(dict.fromkeys(functions, ()))
    found = ridge_adaptation.init(1, 1)
    bounds = (np.array([0]), np.array([9]))
    move = Move(np.eye(2), 0.7, 4)
    ridge = tuple(found.ridge)
    settings = birth_death.Settings(move, move, ridge, bounds, local_proposal.unguided())
    return Kernel(
        interweave,
        interweave.State(np.array([0.2, 1.0]), RECORDS),
        lambda rng, state: step(rng, state, (), settings, data),
        ("centred_accept", "noncentred_accept"),
    )


def of_counts():
    step = count_states.compile_step(
        centred=given_counts, law=law, noise=log_noise, has_gradient=False
    )
    cells = count_states.Cells(np.array([[0.0], [1.0]]), np.array([0, 2]))
    move = Move(np.eye(1), 0.7, 4)
    settings = count_states.Settings(move, move, count_states.Block(0.3, 4))
    data = count_states.Data((), (), ())
    return Kernel(
        count_states,
        count_states.State(np.array([0.2]), np.array([4, 6])),
        lambda rng, state: step(rng, state, cells, (), settings, data),
        ("centred_accept", "noncentred_accept", "block_accept"),
    )


def of_records():
    mechanism = Laplace(scale=1.5)
    given = noise([type(mechanism).formula], [2.0], [mechanism.parameters])
    return Kernel(
        record_sweep,
        record_sweep.init(RECORDS[0][None]),
        lambda rng, state: record_sweep.step(rng, state, rng.standard_normal((1, 3)), noise=given),
        ("accept",),
    )


def of_tables():
    def density(counts):
        return np.where(counts < 0, -np.inf, -0.1 * counts)

    measured = lattice_walk.stack([np.ones((1, 3))], [[7.0]], [1.0], [False])
    fibre = fibre_of(np.zeros((0, 3), dtype=int))
    return Kernel(
        lattice_walk,
        lattice_walk.init(np.array([2, 3, 1]), measured, density),
        lambda rng, state: lattice_walk.step(
            rng,
            state,
            measurements=measured,
            fibre=fibre,
            density=density,
            scales=np.full((2, 3), 2.0),
            sweeps=3,
        ),
        ("single",),
    )


KERNELS = {
    "interweave": lambda: of_moves(interweave, CARRIED),
    "interweave by leaps": lambda: of_moves(leaps, CARRIED),
    "interweave afresh": lambda: of_moves(interweave, REFRESHED),
    "birth_death": of_sizes,
    "count_states": of_counts,
    "record_sweep": of_records,
    "lattice_walk": of_tables,
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
    assert stems - {"__init__"} == {name.split()[0] for name in KERNELS}


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


def test_tuning_learns_from_the_info(kernel):
    _, info = kernel.step(np.random.default_rng(1), copy.deepcopy(kernel.state))
    for name in kernel.learnt_from:
        accept = getattr(info, name)
        assert 0 <= accept <= 1
        before = tuning.init(1)
        assert tuning.rescale(before, accept, 2.0).scale < before.scale
