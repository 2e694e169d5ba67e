"""Lattices, counts and sizes beside the plain model: right ones agree, broken twins do not."""

from copy import copy
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import pymc_privacy as pmp
from pymc_privacy.algorithms.numerics.integer_kernel import equal_columns
from pymc_privacy.algorithms.proposals.poisson_carry import held
from pymc_privacy.certificate.base import disagreements
from pymc_privacy.certificate.certifier import Certifier
from pymc_privacy.certificate.counts import (
    compare_counts,
    compare_jumps,
    compare_lattice,
    compare_sized,
)
from pymc_privacy.errors import CertificateError, RecordError
from pymc_privacy.targets import lattice_walk as lattice_graph
from tests.model.test_locality import Shift

PLAIN = {"mode": Mode(linker="py", optimizer="fast_compile")}


def caught(comparisons):
    return bool(disagreements(comparisons))


# Counts of which totals are known.
def table(*, crossed=False, tied=False):
    with pm.Model() as model:
        level = pm.Normal("level", 1.0, 0.5)
        count = pm.Poisson("count", pt.exp(level) * np.array([1.0, 2.0, 1.5, 1.0]))
        rows, totals = [[1, 0, 0, 0], [0, 1, 1, 0]], [3, 7]
        if crossed:
            rows, totals = [[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], [7, 6, 5]
        pmp.LinearMeasurements(
            "y",
            count,
            [[1, 1, 0, 0], [0, 0, 0, 1], [0, 1, 1, 1]],
            pmp.DiscreteGaussian(scale=(2.0, 1.0, 3.0)),
            observed=[5, 2, 9],
            invariants=(rows, totals),
        )
        pmp.LinearMeasurements("z", count, [[1, 1, 1, 1]], pmp.Laplace(scale=2.0), observed=[13.5])
        pm.Potential("each", -0.1 * (count - level) ** 2)
        if tied:
            pm.Potential("tied", -0.5 * (count - count[::-1]) ** 2)
    return model


def lattice_of(model):
    return lattice_graph.lattice_target(model, model["count"], PLAIN, carries=True)


def compared(lattice, model):
    certifier = Certifier(model)
    return list(compare_lattice(lattice, certifier.reference, certifier.pairs))


@pytest.fixture(scope="module")
def nested():
    model = table()
    return model, lattice_of(model)


def test_the_moves_of_a_lattice_agree_with_the_model(nested):
    model, lattice = nested
    found = compared(lattice, model)
    assert not caught(found)
    kinds = ("alone", "in pairs", "Poisson count", "all but the counts", "carried counts")
    for kind in kinds:
        assert any(kind in c.what and c.is_informative for c in found), kind


def test_directions_agree_with_the_model():
    model = table(crossed=True)
    found = compared(lattice_of(model), model)
    assert not caught(found)
    assert any("direction" in c.what and c.is_informative for c in found)


class _Broken:
    """A carry program with one thing replaced."""

    def __init__(self, program, **changes):
        self._program, self._changes = program, changes

    def __getattr__(self, name):
        return self._changes[name] if name in self._changes else getattr(self._program, name)


def _scaled_rates(program):
    def at(point):
        right = program.at(point)
        return lambda vector, counts: (right(vector, counts)[0], 1.1 * right(vector, counts)[1])

    return _Broken(program, at=at)


LATTICE_MUTANTS = {
    "another scale": lambda t: t._replace(noisy=t.noisy._replace(scale=1.1 * t.noisy.scale)),
    "another release": lambda t: t._replace(noisy=t.noisy._replace(release=t.noisy.release + 1)),
    "another noise": lambda t: t._replace(noisy=t.noisy._replace(gaussian=~t.noisy.gaussian)),
    "another law": lambda t: t._replace(density=lambda p, c: t.density(p, c) + 0.01 * c),
    "a cell that is held moves": lambda t: t._replace(
        fibre=replace(t.fibre, singles=np.array([[0], [1], [2], [3]]))
    ),
    "a pair that is not held together": lambda t: t._replace(
        fibre=replace(t.fibre, classes=(np.array([0, 1, 2, 3]),))
    ),
    "a single cell is not held by the carry": lambda t: t._replace(
        carry=_Broken(t.carry, groupings=(held(equal_columns(np.array([[0, 1, 1, 0]])), 4),))
    ),
    "a factor of the counts is not looked at": lambda t: t._replace(
        carry=_Broken(t.carry, sees_counts=False)
    ),
    "other rates": lambda t: t._replace(carry=_scaled_rates(t.carry)),
}


@pytest.mark.parametrize("name", LATTICE_MUTANTS)
def test_a_broken_lattice_is_caught(name, nested):
    model, lattice = nested
    assert caught(compared(LATTICE_MUTANTS[name](lattice), model))


def test_counts_that_are_drawn_at_once_keep_exact_totals_and_have_the_models_rates():
    with pm.Model() as model:
        count = pm.Poisson("count", pt.exp(pm.Normal("level", 1.0, 0.3)), shape=4)
        pmp.LinearMeasurements(
            "y",
            count,
            np.eye(4, dtype=int),
            pmp.DiscreteGaussian(scale=5.0),
            observed=[3, 2, 4, 1],
            invariants=([[1, 1, 1, 1]], [10]),
        )
    lattice = lattice_of(model)
    [[trees]] = lattice.draws.ways
    right = lattice.draws.rates_at
    unheld = trees._replace(exact=np.zeros_like(trees.exact))
    for changes in ({}, {"ways": ((unheld,),)}, {"rates_at": lambda point: 1.1 * right(point)}):
        found = compared(lattice._replace(draws=lattice.draws._replace(**changes)), model)
        assert any("drawn at once" in c.what for c in found)
        assert bool(caught(found)) == bool(changes)


def test_cells_that_are_tied_are_caught_though_locality_was_not_looked_at(monkeypatch):
    monkeypatch.setattr(lattice_graph, "_refuse_mixed_cells", lambda *_: None)
    model = table(tied=True)
    assert caught(compared(lattice_of(model), model))
    with model, pytest.raises(CertificateError, match=r"counts 'count'.*Nothing was drawn"):
        pmp.LatticeWalk(compile_kwargs=PLAIN)


def test_cells_that_the_prior_seldom_allows_are_compared_all_the_same():
    """Of every draw from the prior some count is less than was seen of it."""
    with pm.Model() as model:
        level = pm.Normal("level", 0.0, 0.1)
        count = pm.Poisson("count", pt.exp(level), shape=3)
        pmp.LinearMeasurements("y", count, np.eye(3), pmp.Laplace(scale=2.0), observed=[3.0, 4, 5])
        pm.Binomial("seen", count, 0.5, observed=[0, 0, 30])
        lattice = lattice_of(model)
    found = compared(lattice._replace(exact_names=[]), model)
    assert not caught(found)
    assert any("alone" in c.what and c.is_informative for c in found)


# Records that are known by counts.
@pytest.fixture(scope="module")
def voters():
    with pm.Model():
        p = pm.Beta("p", 2, 2)
        q = pm.Dirichlet("q", np.ones(3))
        x = pm.Bernoulli("x", p, shape=600)
        z = pm.Categorical("z", q, shape=600)
        t = pt.stack([x, pt.eq(z, 1), x * z], axis=1)
        pmp.Privatized("s", t, pmp.Laplace(scale=20.0), observed=[250.0, 210.0, 240.0])
        return pmp.CountStates()


def changed(target, **changes):
    """Return a target that differs in some attributes."""
    twin = copy(target)
    vars(twin).update(changes)
    return twin


def counts_compared(step, **changes):
    certifier, target = step._certifier, changed(step._target, **changes)
    return list(compare_counts(target, certifier.reference, certifier.pairs))


@pytest.mark.slow
def test_densities_by_counts_agree_with_the_model(voters):
    found = counts_compared(voters)
    assert not caught(found)
    for kind in ("given", "with", "noise of", "every cell occupied", "other parameters", "slope"):
        assert any(kind in c.what and c.is_informative for c in found), kind


def with_function(program, name, broken):
    functions = dict(program.functions)
    right = functions[name]
    functions[name] = lambda *arguments: broken(right(*arguments), *arguments)
    return replace(program, functions=functions)


COUNT_MUTANTS = {
    "noise at other totals": ("noise", lambda out, totals: [np.asarray(out[0]) + 0.01 * totals[0]]),
    "a prior left out": ("law", lambda out, q, *_: [np.asarray(out[0]) - 0.1 * q[0] ** 2, out[1]]),
    "cells in another order": ("law", lambda out, *_: [out[0], np.roll(out[1], 1)]),
    "counts that count more": (
        "centred",
        lambda out, q, *rest: [np.asarray(out[0]) + 0.01 * q[0] * rest[-1][0], *out[1:]],
    ),
    "another gradient": ("centred", lambda out, *_: [out[0], 1.01 * np.asarray(out[1])]),
}


@pytest.mark.parametrize("name", COUNT_MUTANTS)
def test_broken_densities_by_counts_are_caught(name, voters):
    function, broken = COUNT_MUTANTS[name]
    assert caught(
        counts_compared(voters, program=with_function(voters._target.program, function, broken))
    )


def test_broken_contributions_of_cells_are_caught(voters):
    contributions = voters._target.cells.contributions.copy()
    contributions[-1, 2] += 1
    cells = voters._target.cells._replace(contributions=contributions)
    assert caught(counts_compared(voters, cells=cells))


# Records of unknown number.
@pytest.fixture(scope="module")
def sized():
    with pm.Model():
        shape = pm.Gamma("shape", 3, 2)
        n = pm.DiscreteUniform("n", 0, 9)
        level = pm.Normal("level", 0.3 * n, 1.0)
        x = pmp.Records("x", pm.Gamma.dist(shape, pt.exp(-level)), size=n)
        t = pt.stack([pt.clip(x, 0, 4), pt.clip(x, 0, 4) ** 2], axis=1)
        pmp.Privatized("s", t, pmp.Laplace(scale=1.5), observed=[9.0, 20.0])
        pmp.Privatized("n_dp", n, pmp.Laplace(scale=2.0), observed=5.3)
        return pmp.BirthDeath(compile_kwargs=PLAIN)


def jumps_of(step):
    [size] = step._target.sizes
    return size


def sizes_compared(step, program=None):
    certifier, program = step._certifier, program or step._target.program
    return list(compare_sized(program, step._sized, certifier.reference, certifier.pairs))


@pytest.mark.slow
def test_densities_of_sizes_agree_with_the_model(sized):
    found = sizes_compared(sized)
    assert not caught(found)
    for kind in ("records that exist", "when sizes change too", "put together again", "slope"):
        assert any(kind in c.what and c.is_informative for c in found), kind


SIZED_MUTANTS = {
    "no factor nu": ("noncentred", lambda out, q, *_: [np.asarray(out[0]) - q[-1]]),
    "a weight of base variates left out": (
        "noncentred",
        lambda out, q, *_: [np.asarray(out[0]) + 0.1 * q[0]],
    ),
    "a prior given the size left out": (
        "centred",
        lambda out, q, *_: [np.asarray(out[0]) + 0.1 * q[1], *out[1:]],
    ),
    "other records": ("forward", lambda out, *_: [np.asarray(v) * 1.001 for v in out]),
    "another gradient": ("centred", lambda out, *_: [out[0], 1.01 * np.asarray(out[1])]),
    "a sum of too few": ("statistics", lambda out, *_: [np.asarray(out[0]) * 0.9]),
}


@pytest.mark.parametrize("name", SIZED_MUTANTS)
def test_broken_densities_of_sizes_are_caught(name, sized):
    function, broken = SIZED_MUTANTS[name]
    assert caught(sizes_compared(sized, with_function(sized._target.program, function, broken)))


def jumps_compared(sized, jumps=None):
    certifier = sized._certifier
    return list(compare_jumps(jumps or jumps_of(sized), certifier.reference, certifier.pairs))


def test_jumps_agree_with_the_model(sized):
    found = jumps_compared(sized)
    assert not caught(found)
    for kind in ("fresh records", "contributions of records", "the size alone", "the noise when"):
        assert any(kind in c.what and c.is_informative for c in found), kind


def _without_the_release_of_the_size(jumps):
    def broken(sizes, *inputs):
        return [jumps.log_size(sizes, *inputs)[0] + abs(sizes - 5.3) / 2.0]

    return changed(jumps, log_size=broken)


JUMP_MUTANTS = {
    "the size's own release left out": _without_the_release_of_the_size,
    "another release": lambda j: changed(j, _noise=j.noise._replace(release=j.noise.release + 0.5)),
    "another scale": lambda j: changed(
        j, _noise=j.noise._replace(parameters=1.1 * j.noise.parameters)
    ),
    "contributions of another power": lambda j: changed(
        j,
        program=replace(
            j.program,
            current=lambda *a: [c * (1 + k) for k, c in enumerate(j.program.current(*a))],
        ),
    ),
}


@pytest.mark.parametrize("name", JUMP_MUTANTS)
def test_broken_jumps_are_caught(name, sized):
    assert caught(jumps_compared(sized, JUMP_MUTANTS[name](jumps_of(sized))))


# Where a chain has come to, beyond all draws from the prior that were looked at.
def far_off(step, name, shift):
    """Return a point of a chain that has come far, after tuning."""
    step.stop_tuning()
    step._certifier.start_chain()
    point = step._certifier._model.initial_point(random_seed=1)
    return point | {name: point[name] + shift}


def broken_far_off(program, function, by, to=0.01):
    """Return a twin that is right unless its first parameter is beyond ``by``."""

    def broken(out, q, *_):
        return [np.asarray(out[0]) + to * (q[0] > by) * q[0], *out[1:]]

    return with_function(program, function, broken)


def checked(step, point):
    step._certifier.check_again(step.tune, lambda: step._compared(point))


@pytest.mark.parametrize("function", ["centred", "law"])
def test_counts_are_compared_again_where_a_chain_has_come_to(function, voters, monkeypatch):
    point = far_off(voters, "p_logodds__", 9.0)
    checked(voters, point)
    broken = broken_far_off(voters._target.program, function, 8.0)
    monkeypatch.setattr(voters._target, "program", broken)
    assert not caught(counts_compared(voters))
    voters._certifier.start_chain()
    with pytest.raises(CertificateError, match=f"where this chain came to.*{COUNTED[function]}"):
        voters.step(point)


COUNTED = {"centred": "given counts", "law": "with counts"}


@pytest.mark.parametrize("size", [0, 4, 9])
def test_sizes_are_compared_again_where_a_chain_has_come_to(size, sized):
    point = far_off(sized, "shape_log__", 6.0) | {"n": np.array(size)}
    # What is left in rows that do not exist is nobody's.
    point["x"] = np.where(np.arange(9) < size, 1.5, -1.0)
    checked(sized, point)
    assert sized._certifier._is_certified


@pytest.mark.parametrize("function", ["centred", "noncentred"])
def test_broken_sizes_far_off_are_caught(function, sized, monkeypatch):
    point = far_off(sized, "shape_log__", 6.0) | {"n": np.array(4)}
    broken = broken_far_off(sized._target.program, function, 5.0)
    monkeypatch.setattr(sized, "_target", replace(sized._target, program=broken))
    assert not caught(sizes_compared(sized))
    with pytest.raises(CertificateError, match="where this chain came to"):
        sized.step(point)


def test_broken_jumps_far_off_are_caught(sized, monkeypatch):
    point = far_off(sized, "shape_log__", 6.0) | {"n": np.array(4)}
    [size] = sized._target.sizes
    right = size.log_size

    def broken(sizes, level):
        return [right(sizes, level)[0] + 0.1 * sizes * (level > 20)]

    monkeypatch.setattr(size, "log_size", broken)
    checked(sized, point)
    sized._certifier.start_chain()
    with pytest.raises(CertificateError, match="all factors of the size alone"):
        sized.step(point | {"level": np.array(21.0)})


def test_a_lattice_is_compared_again_where_a_chain_has_come_to(monkeypatch):
    with table():
        step = pmp.LatticeWalk(compile_kwargs=PLAIN)
    [lattice] = step._lattices
    point = far_off(step, "count", 40)
    checked(step, point)
    broken = lattice._replace(
        density=lambda p, c: lattice.density(p, c) + 0.01 * np.maximum(c - 40, 0)
    )
    assert not caught(compared(broken, step._certifier._model))
    monkeypatch.setattr(step, "_lattices", [broken])
    step.step(point)
    step._certifier.start_chain()
    with pytest.raises(CertificateError, match="where this chain came to"):
        step.step(point)


def test_cells_that_are_tied_far_off_only_are_refused_there():
    """What no draw of the prior shows, and the graph does not say."""
    with pm.Model() as model:
        level = pm.Normal("level", 1.0, 0.5)
        count = pm.Poisson("count", pt.exp(level), shape=4)
        pmp.LinearMeasurements("y", count, np.eye(4), pmp.Laplace(scale=2.0), observed=[90.0] * 4)
        pm.Potential("tied", -0.1 * Shift(80.0)(count.astype("float64")))
        step = pmp.LatticeWalk(compile_kwargs=PLAIN)
    step.stop_tuning()
    point = model.initial_point(random_seed=1) | {"level": np.array(5.0)}
    with pytest.raises(RecordError, match=r"Whatever depends on the counts.*'tied'"):
        step.step(point)
