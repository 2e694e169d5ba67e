"""Parameters that carry Poisson counts along: the coupling, and the posterior by enumeration."""

import numpy as np
import pytest
from scipy import special

from pymc_privacy.algorithms import lattice_walk, poisson_carry
from pymc_privacy.algorithms.integer_kernel import equal_columns, fibre_of, some_table
from tests import references
from tests.stochastic import assert_law, assert_mean, seed_of

FROM, TO = np.array([3.0, 5.0, 2.0, 4.0]), np.array([4.5, 1.0, 2.2, 6.0])
HELD = (np.array([0, 1, 3]),)


def coupled(rng, rates, moved, size=8000):
    """Return counts of some rates and what they are carried to; held sums are 9."""
    before = np.column_stack([rng.poisson(r, size) for r in rates])
    cells = HELD[0]
    before[:, cells] = rng.multinomial(9, rates[cells] / rates[cells].sum(), size=size)
    after = np.array([poisson_carry.carry(rng, c, rates, moved, HELD) for c in before])
    return before, after


def test_counts_that_are_carried_have_the_other_rates(request):
    before, after = coupled(np.random.default_rng(seed_of(request)), FROM, TO)
    np.testing.assert_array_equal(after[:, HELD[0]].sum(axis=1), 9)
    share = TO[HELD[0]] / TO[HELD[0]].sum()
    for cell, p in zip(HELD[0], share, strict=True):
        assert_mean(after[:, cell], 9 * p, what=f"E c{cell}")
        assert_mean((after[:, cell] - 9 * p) ** 2, 9 * p * (1 - p), what=f"Var c{cell}")
    assert_mean(after[:, 2], TO[2], what="E c2")
    assert_mean((after[:, 2] - TO[2]) ** 2, TO[2], what="Var c2")
    # And no more of them move than must.
    moved = abs(after - before)[:, 2]
    assert_mean(moved, abs(TO[2] - FROM[2]), what="E |c2' - c2|")


def test_the_way_back_has_the_same_law(request):
    rng = np.random.default_rng(seed_of(request))
    before, after = coupled(rng, FROM, TO)
    back_after, back_before = coupled(rng, TO, FROM)
    for i, j in ((0, 0), (0, 1), (1, 3), (2, 2)):
        there = before[:, i] ** 2 * after[:, j]
        back = back_before[:, i] ** 2 * back_after[:, j]
        assert_mean(there - back, 0.0, what=f"E c{i}² c{j}' there and back")


# A slope on three cells, a sum of two of them exact.
COVARIATE = np.array([-1.0, 0.5, 1.5])
MATRIX, RELEASE, SCALE = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]]), np.array([4.0, 7.0, 1.0]), 4.0
EXACT, TOTAL = np.array([[1, 1, 0]]), np.array([8])
NOISY = lattice_walk.stack([MATRIX], [RELEASE], [SCALE], [True])


def program(parameters, counts):
    """The prior Normal(0, 1), and a factor of the first count alone."""
    log_g = -0.5 * parameters[0] ** 2 + 0.2 * counts[0]
    return log_g, np.exp(1.2 + parameters[0] * COVARIATE)


def slope_law():
    grid = np.linspace(-4.0, 4.0, 2001)
    rates = np.exp(1.2 + grid[:, None] * COVARIATE)
    density = np.zeros(grid.size)
    for first in range(9):
        for third in range(80):
            table = np.array([first, 8 - first, third])
            log_p = (table * np.log(rates) - rates - special.gammaln(table + 1.0)).sum(axis=1)
            noise = -0.5 * (((RELEASE - table) / SCALE) ** 2).sum() + 0.2 * first
            density += np.exp(log_p + noise)
    density *= np.exp(-0.5 * grid**2)
    return references.GridPosterior((grid,), density / density.sum())


def slopes(rng, groupings, draws=3000):
    fibre = fibre_of(EXACT)
    parameters, shape = np.zeros(1), poisson_carry.first_shape(1)
    counts = some_table(EXACT, TOTAL, None)
    scales, drawn = np.full((2, 3), 2.0), np.empty(draws)
    for i in range(draws):
        held = parameters[0]

        def density(c, held=held):
            rates = np.exp(1.2 + held * COVARIATE)
            inside = c * np.log(rates) - special.gammaln(c + 1.0) - rates
            return np.where(c < 0, -np.inf, inside) + 0.2 * c * [1, 0, 0]

        state = lattice_walk.init(counts, NOISY, density)
        state, _ = lattice_walk.step(
            rng, state, measurements=NOISY, fibre=fibre, density=density, scales=scales, sweeps=1
        )
        state, parameters, accepted = poisson_carry.step(
            rng,
            state,
            parameters,
            measurements=NOISY,
            groupings=groupings,
            program=program,
            shape=shape,
            moves=4,
        )
        if i < 500:
            shape = shape.learn(parameters, accepted)
        counts, drawn[i] = state.counts, parameters[0]
    return drawn[None, 500:]


GROUPINGS = {
    "exact sums": (fibre_of(EXACT).held,),
    "in turn": (fibre_of(EXACT).held, equal_columns(EXACT)),
}


@pytest.mark.parametrize("name", ["exact sums", "in turn"])
def test_parameters_and_counts_follow_their_posterior(name, request):
    drawn = slopes(np.random.default_rng(seed_of(request)), GROUPINGS[name])
    assert_law(drawn, slope_law())


def test_a_move_that_forgets_the_law_of_the_sums_is_caught(request, monkeypatch):
    """The mutant."""
    monkeypatch.setattr(poisson_carry, "log_sums", lambda *_: 0.0)
    drawn = slopes(np.random.default_rng(seed_of(request)), GROUPINGS["in turn"])
    with pytest.raises(AssertionError, match="z ="):
        assert_law(drawn, slope_law())


def test_a_move_that_forgets_a_factor_of_the_counts_is_caught(request, monkeypatch):
    """The mutant: the factor is taken at the counts before the move."""
    step = poisson_carry.step
    monkeypatch.setattr(
        poisson_carry, "step", lambda *args, **kwargs: step(*args, **kwargs, sees_counts=False)
    )
    drawn = slopes(np.random.default_rng(seed_of(request)), GROUPINGS["in turn"])
    with pytest.raises(AssertionError, match="z ="):
        assert_law(drawn, slope_law())


def test_the_shape_of_moves_is_learnt():
    rng = np.random.default_rng(3)
    mixing = np.array([[2.0, 0.0], [1.9, 0.1]])
    shape = poisson_carry.first_shape(2)
    for _ in range(1500):
        shape = shape.learn(mixing @ rng.standard_normal(2), poisson_carry.TARGET)
    learnt = shape.root @ shape.root.T
    np.testing.assert_allclose(learnt, mixing @ mixing.T, rtol=0.15)
