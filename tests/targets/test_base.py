"""Moves of a model are found again on disk: by its graphs, and by all code that they call."""

import numpy as np
import pymc as pm
import pytest

import pymc_privacy as pmp
from pymc_privacy._compat import CACHED_SRC_FUNCTIONS, INTERPRETED
from pymc_privacy.algorithms.machine_code.caching import compiled
from pymc_privacy.algorithms.proposals import frames, leaps
from pymc_privacy.certificate.base import Reference
from pymc_privacy.model.database import find_databases
from pymc_privacy.targets import base as parameter_program
from pymc_privacy.targets.base import jitted_functions
from pymc_privacy.targets.interweave import compile_parameters


def program(prior_mean=0.0):
    with pm.Model() as model:
        mu = pm.Normal("mu", prior_mean, 3)
        x = pm.Normal("x", mu, 1, shape=5)
        pmp.Privatized("s", x, pmp.Laplace(scale=2.0), observed=1.0)
    return compile_parameters(model, [model.rvs_to_values[mu]], find_databases(model, [x]))


@pytest.fixture(scope="module")
def plain():
    return program()


def keys_of(program):
    """Return the key of everything that is bound to a model."""
    jitted, remember = jitted_functions(program)
    found = {}

    def told(function, label):
        kept = remember(function, label)
        found[label] = CACHED_SRC_FUNCTIONS[function]
        return kept

    leaps.compile_moves(jitted, gradients=program.gradients, remember=told)
    return found


def test_the_same_model_has_the_same_keys(plain):
    assert keys_of(plain) == keys_of(plain) == keys_of(program())
    assert len(set(keys_of(plain).values())) == len(keys_of(plain)) == 6


def test_another_model_has_others(plain):
    one, two = keys_of(plain), keys_of(program(prior_mean=1.0))
    assert one["guided moves"] != two["guided moves"]


def test_an_edited_callee_of_a_move_is_another_key(plain, monkeypatch):
    before = keys_of(plain)
    monkeypatch.setattr(frames, "solve_lower", compiled(lambda factor, vector: 3 * vector))
    after = keys_of(plain)
    changed = {label for label in before if before[label] != after[label]}
    assert changed == {"guided", "guided moves"}


def test_where_a_graph_has_no_key_nothing_is_kept(plain, monkeypatch):
    monkeypatch.setattr(parameter_program, "CACHED_SRC_FUNCTIONS", {})
    _, remember = jitted_functions(plain)
    assert not remember(leaps.guided_walk, "guided")


def test_a_density_that_overflows_is_not_a_number():
    """A chain that accepts +inf stays there for good; PyMC's prior of a covariance has it far out.

    Steps between standard deviations of 1 and e^22 are made: by leaps, and while steps are learnt.
    """
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("c", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0, shape=2))
        x = pm.MvNormal("x", np.zeros(2), chol=chol, shape=(3, 2))
        pmp.Privatized("s", x[:, 0] ** 2, pmp.Laplace(scale=1.0), observed=3.0)
    [value] = [v for v in model.value_vars if v.name.startswith("c_")]
    made = compile_parameters(model, [value], find_databases(model), mode=INTERPRETED)
    q, records = np.array([22.0, 0.0, 0.0]), np.ones((3, 2))
    terms = Reference(model).terms({value.name: q, "x": records})
    assert terms.by_name["c"].sum() == np.inf
    assert terms.total(["c", "x"]) == -np.inf
    with np.errstate(all="ignore"):
        [totals] = made.functions["statistics"](q, records)
        assert np.isnan(made.functions["centred"](q, records, totals)[0])
        u = made.functions["base"](np.random.default_rng(0), q, records)
        assert np.isnan(made.functions["noncentred"](q, *u)[0])
