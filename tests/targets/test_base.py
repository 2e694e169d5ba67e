"""Moves of a model are found again on disk: by its graphs, and by all code that they call."""

import pymc as pm
import pytest

import pymc_privacy as pmp
from pymc_privacy._compat import CACHED_SRC_FUNCTIONS
from pymc_privacy.algorithms.machine_code.caching import compiled
from pymc_privacy.algorithms.proposals import frames, leaps
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
    assert changed == {"frame", "guided", "guided moves"}


def test_where_a_graph_has_no_key_nothing_is_kept(plain, monkeypatch):
    monkeypatch.setattr(parameter_program, "CACHED_SRC_FUNCTIONS", {})
    _, remember = jitted_functions(plain)
    assert not remember(leaps.guided_walk, "guided")
