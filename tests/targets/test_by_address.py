"""Moves that call a model's functions by address: the same draws, errors that come out."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from numba import njit

import pymc_privacy as pmp
from pymc_privacy.algorithms import birth_death, interweave
from pymc_privacy.algorithms.adaptation import local_proposal, tuning
from pymc_privacy.algorithms.adaptation.ridge import straight
from pymc_privacy.algorithms.interweave import Move, Settings, State, data_of
from pymc_privacy.algorithms.machine_code.caching import compiled
from pymc_privacy.algorithms.proposals import frames, leaps
from pymc_privacy.errors import CertificateError
from pymc_privacy.model.database import find_databases
from pymc_privacy.targets import by_address as addresses
from pymc_privacy.targets.base import ParameterProgram, jitted_functions
from pymc_privacy.targets.birth_death import compile_sized_parameters, find_sized_databases
from pymc_privacy.targets.by_address import MovesByAddress
from pymc_privacy.targets.interweave import compile_parameters


def program_of(write):
    """Return a program, a point and the model."""
    with pm.Model() as model:
        write()
    records = [rv for rv in model.free_RVs if rv.name in ("x", "y")]
    values = [model.rvs_to_values[rv] for rv in model.free_RVs if rv not in records]
    moved = [value for value in values if not value.name.startswith("held")]
    program = compile_parameters(model, moved, find_databases(model, records))
    return program, model.initial_point(random_seed=3), model


def real_records(released=9.0):
    mu = pm.Normal("mu", 0, pm.Data("spread", 3.0))
    x = pm.Normal("x", mu, pm.HalfNormal("held", 1), shape=6)
    pmp.Privatized("s", x, pmp.Laplace(scale=2.0), observed=released)


def counts_and_rows():
    mu = pm.Normal("mu", 0, 1, shape=2)
    x = pm.Poisson("x", pm.math.exp(mu[0]), shape=6)
    y = pm.Normal("y", mu, 1, shape=(6, 2))
    pmp.Privatized("s", x + y[:, 0] * y[:, 1], pmp.Gaussian(scale=2.0), observed=9.0)


def drawn_afresh():
    a = pm.Gamma("a", 2, 1)
    x = pm.Dirichlet("x", a * np.ones(3), shape=(4, 3))
    pmp.Privatized("s", x[:, 0], pmp.Laplace(scale=1.0), observed=1.0)


def settings(program):
    """Return settings of the two moves and of the frame."""
    size = program.size
    walk = tuning.init(size)._replace(centre=np.full(size, 0.1))
    guided = local_proposal.reference(
        walk, local_proposal.init(size), program.noise_precision, True
    )
    reference = guided if program.is_guided else local_proposal.unguided()
    return Settings(Move(np.eye(size), 0.3, 3), Move(np.eye(size), 0.4, 12), reference)


@pytest.mark.exhaustive
@pytest.mark.parametrize("write", [counts_and_rows, drawn_afresh])
def test_moves_are_those_that_are_compiled_with_the_functions(write):
    program, point, _ = program_of(write)
    jitted, remember = jitted_functions(program)
    template = leaps if program.is_guided else interweave
    together = template.compile_moves(jitted, gradients=program.gradients, remember=remember)
    by_address = MovesByAddress(program)
    held = tuple(point[name] for name in program.held)
    ends = []
    for moves, data in ((together, (data_of(program.data()),)), (by_address, ())):
        rng, records = np.random.default_rng(4), tuple(point[name] for name in program.records)
        state = State(program.flatten(point), records)
        for _ in range(5):
            state, info = moves(rng, state, held, settings(program), *data)
        ends.append([state.q, *state.records, *info, rng.random()])
    assert not np.array_equal(ends[0][0], program.flatten(point))
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
        assert np.asarray(one).dtype == np.asarray(other).dtype


def of_unknown_number():
    """Return the program of records of two kinds, a point, and the value of their parameter."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        n = pm.DiscreteUniform("n", 1, 20)
        x = pmp.Records("x", pm.Poisson.dist(pm.math.exp(mu)), size=n)
        y = pmp.Records("y", pm.Normal.dist(mu, 1), size=n)
        pmp.Privatized("s", x * y, pmp.Laplace(scale=2.0), observed=9.0)
    twin, databases = find_sized_databases(model, [x, y])
    return compile_sized_parameters(twin, [twin.rvs_to_values[twin["mu"]]], databases)


@pytest.mark.exhaustive
def test_so_are_moves_of_records_that_have_other_lengths_each_time():
    program, rng = of_unknown_number(), np.random.default_rng(5)
    jitted, remember = jitted_functions(program)
    together = birth_death.compile_moves(jitted, gradients=program.gradients, remember=remember)
    by_address = MovesByAddress(program, birth_death)
    move = Move(np.eye(2), 0.5, 12)
    given = birth_death.Settings(move, move, tuple(straight(1, 1)), (), local_proposal.unguided())
    moved = 0
    for rows in (7, 12, 7, 9):
        records = (rng.poisson(1.0, rows), rng.normal(size=rows))
        state = State(np.array([0.3, np.log(5.5)]), records)
        bounds = (np.asarray(1), np.asarray(rows))
        alone, data = np.random.default_rng(rows), data_of(program.data())
        one, info = together(alone, state, (), given._replace(bounds=bounds), data)
        other, other_info = by_address(np.random.default_rng(rows), state, (), given, bounds)
        moved += not np.array_equal(other.records[1], records[1])
        for a, b in zip(
            [one.q, *one.records, *info], [other.q, *other.records, *other_info], strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-10)
            assert np.asarray(a).dtype == np.asarray(b).dtype
    assert moved > 1


def test_data_that_are_set_anew_are_read():
    program, point, model = program_of(real_records)
    moves, ends = MovesByAddress(program), []
    held, records = (tuple(point[n] for n in names) for names in (program.held, program.records))

    def end(moves):
        state = State(program.flatten(point), records)
        return moves(np.random.default_rng(4), state, held, settings(program))[0].q

    ends.append(end(moves))
    with model:
        pm.set_data({"spread": 0.3})
    ends += [end(moves), end(MovesByAddress(program))]
    assert (ends[0] != ends[1]).all()
    np.testing.assert_array_equal(ends[1], ends[2])


def with_many_arrays():
    mu = pm.Normal("mu", 0, 1)
    x = pm.Normal("x", mu, 1, shape=3)
    for k, row in enumerate(np.random.default_rng(1).normal(size=(40, 3))):
        pm.Potential(f"wave {k}", pm.math.cos(row * mu))
    pmp.Privatized("s", x, pmp.Laplace(scale=2.0), observed=1.0)


@pytest.mark.slow
def test_a_function_may_read_any_number_of_arrays():
    program, point, _ = program_of(with_many_arrays)
    assert len(program.data()["centred"]) > 40
    state = State(program.flatten(point), tuple(point[name] for name in program.records))
    moved, _ = MovesByAddress(program)(np.random.default_rng(4), state, (), settings(program))
    assert np.isfinite(moved.q).all()
    assert moved.q != state.q


def test_two_models_share_their_moves():
    one, two = (program_of(lambda r=r: real_records(r))[0] for r in (9.0, -4.0))
    assert MovesByAddress(one)._moves is MovesByAddress(two)._moves


def test_an_edited_move_is_another(monkeypatch):
    program, *_ = program_of(real_records)
    before = MovesByAddress(program)._moves
    monkeypatch.setattr(frames, "solve_lower", compiled(lambda factor, vector: 3 * vector))
    assert MovesByAddress(program)._moves is not before


@njit
def totals(q, x):
    return (np.zeros(0),)


@njit
def fails_beyond_one(q, x, totals):
    if q[0] > 1:
        raise ValueError("beyond one")
    return (np.array(q[0]),)


@njit
def others(q, x):
    return (np.array(0.0),)


@njit
def fresh(rng, q):
    return np.array(0.0), np.array([rng.standard_normal()])


class Compiled:
    """A jitted function in the form of a compiled graph."""

    def __init__(self, function):
        self.vm = SimpleNamespace(jit_fn=function)
        self.input_storage = []
        self._function = function

    def __call__(self, *arguments):
        return self._function(*arguments)


def test_an_error_in_compiled_code_comes_out():
    """It would be printed otherwise, and the proposal refused."""
    graphs = {
        "statistics": totals,
        "centred": fails_beyond_one,
        "others": others,
        "refresh": fresh,
    }
    functions = {name: Compiled(function) for name, function in graphs.items()}
    program = ParameterProgram(("q",), ((1,),), (), ("x",), functions, dict.fromkeys(functions, 9))
    moves, rng = MovesByAddress(program), np.random.default_rng(1)
    state, move = State(np.zeros(1), (np.zeros(1),)), Move(np.eye(1), 1e-3, 1)
    short = Settings(move._replace(steps=4), move, local_proposal.unguided())
    for _ in range(3):
        state, _ = moves(rng, state, (), short)
    with pytest.raises(ValueError, match="beyond one"):
        moves(rng, state, (), short._replace(centred=Move(np.eye(1), 1e3, 4)))


def test_data_that_are_changed_in_place_are_read():
    program, point, model = program_of(real_records)
    moves = MovesByAddress(program)
    held, records = (tuple(point[n] for n in names) for names in (program.held, program.records))
    given = (State(program.flatten(point), records), held, settings(program))
    before = moves(np.random.default_rng(4), *given)[0].q
    model["spread"].get_value(borrow=True)[...] = 0.3
    after = moves(np.random.default_rng(4), *given)[0].q
    assert (before != after).all()
    again, _ = MovesByAddress(program)(np.random.default_rng(4), *given)
    np.testing.assert_array_equal(after, again.q)


def test_a_function_that_finds_other_data_at_its_address_is_noticed(monkeypatch):
    program, point, _ = program_of(real_records)
    held, records = (tuple(point[n] for n in names) for names in (program.held, program.records))
    monkeypatch.setattr(addresses, "_in_rows", lambda array: np.array(array + 1))
    moves = MovesByAddress(program)
    state = State(program.flatten(point), records)
    with pytest.raises(CertificateError, match="called by address must agree"):
        moves(np.random.default_rng(4), state, held, settings(program))
