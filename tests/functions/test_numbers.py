"""Numbers are data: other ones need no other machine code, and give what they give elsewhere."""

import json
import subprocess
import sys
from functools import reduce

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_privacy as pmp
from pymc_privacy._compat import CACHED_SRC_FUNCTIONS
from pymc_privacy.functions.numbers import BY_STRUCTURE, Unpack

X = np.array([0.5, -1.5, 2.5])


def key(function):
    return CACHED_SRC_FUNCTIONS[function.vm.jit_fn.py_func]


def compiled(write, **kwargs):
    x = pt.vector("x", shape=(None,))
    return pytensor.function([x], write(x), mode=BY_STRUCTURE, **kwargs)


def both(write, *numbers):
    """Return the keys of one graph with either of two numbers, having compared its values."""
    keys = []
    for number in numbers:
        function = compiled(lambda x, n=number: write(x, n))
        x = pt.vector("x")
        plain = pytensor.function([x], write(x, number), mode="FAST_COMPILE")
        np.testing.assert_allclose(function(X), plain(X), rtol=1e-14)
        keys.append(key(function))
    return keys


@pytest.mark.parametrize(
    ("write", "numbers"),
    [
        pytest.param(lambda x, n: n * x + pt.exp(-n * x), (3.5, 2.25), id="factor"),
        pytest.param(lambda x, n: (n * x).sum() / 7.5, (3.5, 2.25), id="sum"),
        pytest.param(lambda x, n: pt.clip(x, -n, n), (5, 3), id="whole bounds"),
        pytest.param(lambda x, n: x * n, (X, X + 1), id="array"),
        pytest.param(lambda x, n: x[np.array(n)] + 1.5, ([2, 0, 0, 1], [1, 1, 0, 2]), id="places"),
        pytest.param(lambda x, n: x.sum() + pt.full(n, 2.5), (4, 6), id="length"),
        pytest.param(
            lambda x, n: reduce(lambda y, k: pt.cos(y + k * n), np.linspace(1, 9, 60), x),
            (3.5, 2.25),
            id="more than a tuple may have",
        ),
    ],
)
def test_another_number_has_the_same_key(write, numbers):
    first, second = both(write, *numbers)
    assert first == second


def test_another_structure_has_another_key():
    first, second = both(lambda x, n: 1.5 * x**n, 3, 4)
    assert first != second


def test_another_number_of_draws_has_the_same_key():
    keys = []
    for size in (5, 8):
        rng = pytensor.shared(np.random.default_rng(1))
        draw = pm.Normal.dist(1.5, 2.5, size=size, rng=rng)
        function = pytensor.function([], draw, mode=BY_STRUCTURE)
        assert function().shape == (size,)
        keys.append(key(function))
    assert keys[0] == keys[1]


def test_an_array_that_is_written_into_later_is_still_what_it_was():
    weights = np.array([1.0, 2.0, 4.0])
    function = compiled(lambda x: weights * x)
    weights[:] = 0
    np.testing.assert_array_equal(function(X), [0.5, -3.0, 10.0])


def test_elements_of_a_vector_have_their_own_dimensions():
    vector = pt.dvector()
    parts = Unpack(1, (None, 0, 2))(vector)
    parts[0] = pt.tensor_from_scalar(parts[0])
    for mode in ("FAST_COMPILE", "NUMBA"):
        scalar, number, matrix = pytensor.function([vector], parts, mode=mode)([0.0, 1.0, 2.0, 3.0])
        assert (scalar, number, matrix.tolist()) == (1.0, 2.0, [[3.0]])


def keys_of_a_model(*, release, scale, prior, size, bound, seed):
    covariate = np.random.default_rng(seed).normal(size=size)
    with pm.Model():
        slope = pm.Normal("slope", prior / 7, prior)
        sigma = pm.HalfNormal("sigma", prior)
        x = pm.Normal("x", slope * covariate, sigma, shape=size)
        clipped = pt.clip(x, -bound, bound)
        contributions = pt.stack([clipped * covariate, clipped**2], axis=1)
        pmp.Privatized("s", contributions, pmp.Laplace(scale=scale), observed=[release, 10.0])
        step = pmp.Interweave()
    return {name: key(function) for name, function in step._program.functions.items()}


FIRST = {"release": 3.5, "scale": 2.5, "prior": 3.0, "size": 20, "bound": 4.0, "seed": 1}


@pytest.mark.slow
def test_a_model_with_other_numbers_is_the_same_program():
    other = {"release": -1.5, "scale": 0.3, "prior": 2.5, "size": 31, "bound": 6.5, "seed": 2}
    assert keys_of_a_model(**FIRST) == keys_of_a_model(**other)


def keys_of_an_unknown_number(*, release, scale, prior, capacity):
    with pm.Model():
        mu = pm.Normal("mu", prior / 7, prior)
        n = pm.DiscreteUniform("n", 2, capacity)
        x = pmp.Records("x", pm.Normal.dist(mu, prior / 3.5), size=n)
        pmp.Privatized("s", pt.clip(x, -2.5, 2.5), pmp.Laplace(scale=scale), observed=release)
        pmp.Privatized("n_dp", n, pmp.Laplace(scale=scale / 5), observed=release * 3)
        program = pmp.BirthDeath()._target.program
    return {name: key(function) for name, function in program.functions.items()}


@pytest.mark.slow
def test_so_is_one_of_an_unknown_number_of_records():
    one = keys_of_an_unknown_number(release=3.5, scale=2.5, prior=3.0, capacity=20)
    other = keys_of_an_unknown_number(release=5.5, scale=0.3, prior=2.5, capacity=31)
    assert one == other


@pytest.mark.slow
def test_another_process_finds_the_same_program():
    code = (
        "import json; from tests.functions.test_numbers import FIRST, keys_of_a_model;"
        "print(json.dumps(keys_of_a_model(**FIRST)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(said.stdout.splitlines()[-1]) == keys_of_a_model(**FIRST)
