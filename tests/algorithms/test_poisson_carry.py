"""Parameters that carry Poisson counts along: the coupling, and the posterior by enumeration."""

import math

import numpy as np
import pytest
from scipy import special

from pymc_privacy.algorithms import lattice_walk
from pymc_privacy.algorithms.adaptation import lattice_walk as adaptation
from pymc_privacy.algorithms.numerics.integer_kernel import equal_columns, fibre_of, some_table
from pymc_privacy.algorithms.proposals import poisson_carry
from tests import references
from tests.stochastic import assert_law, assert_mean, seed_of

FROM, TO = np.array([3.0, 5.0, 2.0, 4.0]), np.array([4.5, 1.0, 2.2, 6.0])
ONE = [np.array([0])]
HELD_CELLS = np.array([0, 1, 3])
HELD = poisson_carry.held([HELD_CELLS], 4)


def coupled(rng, rates, moved, size=8000):
    """Return counts of some rates and what they are carried to; held sums are 9."""
    before = np.column_stack([rng.poisson(r, size) for r in rates])
    cells = HELD_CELLS
    before[:, cells] = rng.multinomial(9, rates[cells] / rates[cells].sum(), size=size)
    after = np.array([poisson_carry.carry(rng, c, rates, moved, HELD) for c in before])
    return before, after


def test_counts_that_are_carried_have_the_other_rates(request):
    before, after = coupled(np.random.default_rng(seed_of(request)), FROM, TO)
    np.testing.assert_array_equal(after[:, HELD_CELLS].sum(axis=1), 9)
    share = TO[HELD_CELLS] / TO[HELD_CELLS].sum()
    for cell, p in zip(HELD_CELLS, share, strict=True):
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
    parameters, shape = np.zeros(1), adaptation.first_shape(1)
    counts = some_table(EXACT, TOTAL)
    settings, drawn = lattice_walk.Settings(np.full((2, 3), 2.0)), np.empty(draws)
    for i in range(draws):
        held = parameters[0]

        def density(c, held=held):
            rates = np.exp(1.2 + held * COVARIATE)
            inside = c * np.log(rates) - special.gammaln(c + 1.0) - rates
            return np.where(c < 0, -np.inf, inside) + 0.2 * c * [1, 0, 0]

        state = lattice_walk.init(counts, NOISY, density)
        walked, _ = lattice_walk.step(
            rng, state, settings, measurements=NOISY, fibre=fibre, density=density
        )
        state, info = poisson_carry.step(
            rng,
            poisson_carry.init(parameters, walked.counts, NOISY),
            adaptation.carry_settings([shape], ONE, 4),
            measurements=NOISY,
            groupings=groupings,
            program=program,
        )
        parameters, counts = state.parameters, state.counts
        if i < 500:
            shape = adaptation.learn_carry(shape, parameters, info.accept)
        drawn[i] = parameters[0]
    return drawn[None, 500:]


GROUPINGS = {
    "exact sums": (poisson_carry.held(fibre_of(EXACT).held, 3),),
    "in turn": (
        poisson_carry.held(fibre_of(EXACT).held, 3),
        poisson_carry.held(equal_columns(EXACT), 3),
    ),
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


def test_parameters_without_a_log_density_are_left():
    def program(parameters, counts):
        return math.nan if parameters[0] > 1 else 0.0, np.exp(parameters)

    noisy = lattice_walk.stack([np.eye(1)], [np.array([4.0])], [np.ones(1)], [True])
    counts = np.array([5])
    state, _ = poisson_carry.step(
        np.random.default_rng(1),
        poisson_carry.init(np.array([1.5]), counts, noisy),
        adaptation.carry_settings([adaptation.first_shape(1)], ONE, 200),
        measurements=noisy,
        groupings=(poisson_carry.held((), 1),),
        program=program,
        sees_counts=False,
    )
    assert state.parameters[0] <= 1


def test_a_shape_is_learnt_from_parameters_on_a_line():
    """A matrix that is not quite positive definite must not end a chain."""
    rng, shape = np.random.default_rng(1), adaptation.first_shape(3)
    for _ in range(200):
        draw = 1e6 * rng.standard_normal() * np.array([1.0, 0.3, 3.0])
        shape = adaptation.learn_carry(shape, draw, 0.2)
    assert np.isfinite(shape.root).all()


def test_the_shape_of_moves_is_learnt():
    rng = np.random.default_rng(3)
    mixing = np.array([[2.0, 0.0], [1.9, 0.1]])
    shape = adaptation.first_shape(2)
    for _ in range(1500):
        draw = mixing @ rng.standard_normal(2)
        shape = adaptation.learn_carry(shape, draw, adaptation.CARRY_ACCEPT)
    learnt = shape.root @ shape.root.T
    np.testing.assert_allclose(learnt, mixing @ mixing.T, rtol=0.15)


# Rates of 0: a line through the origin, below which no cell has a rate.
SLOPES = np.array([1.0, 2.0])
EDGE_NOISY = lattice_walk.stack([np.eye(2, dtype=int)], [np.array([0.4, -1.1])], [1.5], [True])


def edge_program(parameters, counts):
    return -0.5 * parameters[0] ** 2, SLOPES * np.maximum(parameters[0], 0.0)


def edge_law(held):
    """P(theta < 0) and E theta, counts added up: of all tables, or of those with one sum."""
    tables = np.array(list(np.ndindex(25, 25)) if held is None else [(0, 0)])
    distance = (np.array([0.4, -1.1]) - tables) / 1.5
    noise = np.exp(-0.5 * (distance**2).sum(axis=1))
    grid = np.linspace(-7.0, 7.0, 2801)
    density = np.exp(-0.5 * grid**2)
    for k, theta in enumerate(grid):
        rates = SLOPES * max(theta, 0.0)
        with np.errstate(divide="ignore"):
            log_p = special.xlogy(tables, rates) - rates - special.gammaln(tables + 1.0)
        density[k] *= np.exp(log_p.sum(axis=1)) @ noise
    density /= density.sum()
    return density[grid < 0].sum() + density[grid == 0].sum() / 2, density @ grid


def edge_chain(seed, *, program=edge_program, held=None, rounds=6000):
    """Return draws of theta, with axes (chain, draw)."""
    rng = np.random.default_rng(seed)
    theta, counts, drawn = np.array([0.5]), np.zeros(2, dtype=np.int64), []
    for _ in range(rounds):
        state, _ = poisson_carry.step(
            rng,
            poisson_carry.init(theta, counts, EDGE_NOISY),
            poisson_carry.Settings((poisson_carry.Block(*ONE, 2.4 * np.eye(1)),), 4),
            measurements=EDGE_NOISY,
            groupings=(poisson_carry.held(held or (), 2),),
            program=program,
            sees_counts=False,
        )
        theta, counts = state.parameters, state.counts
        drawn.append(theta[0])
    return np.array(drawn)[None]


@pytest.mark.parametrize("held", [None, (np.array([0, 1]),)], ids=["free", "an empty group"])
def test_rates_of_zero_are_entered_as_often_as_they_are_left(held, request):
    """With a held sum of 0, all rates of a group are 0 below the origin."""
    drawn = edge_chain(seed_of(request), held=held)
    below, mean = edge_law(held)
    assert_mean(drawn < 0, below, what="P(theta < 0)")
    assert_mean(drawn, mean, what="E theta")


def test_a_cell_without_a_rate_is_emptied_and_filled(request):
    """One of a group, and one alone: from no rate to a rate and back, in law."""
    rng = np.random.default_rng(seed_of(request))
    some, none = np.array([3.0, 5.0, 2.0, 4.0]), np.array([3.0, 0.0, 0.0, 4.0])
    before, after = coupled(rng, some, none)
    assert not after[:, [1, 2]].any()
    np.testing.assert_array_equal(after[:, HELD_CELLS].sum(axis=1), 9)
    back_after, back_before = coupled(rng, none, some)
    for i, j in ((0, 0), (1, 3), (2, 2), (1, 0)):
        there, back = before[:, i] ** 2 * after[:, j], back_before[:, i] ** 2 * back_after[:, j]
        assert_mean(there - back, 0.0, what=f"E c{i}² c{j}' there and back")


def test_a_group_that_loses_all_its_rates_keeps_nobody():
    counts, rates, gone = np.array([2, 0, 1]), np.array([1.0, 2.0, 3.0]), np.zeros(3)
    held = poisson_carry.held([np.array([0, 1, 2])], 3)
    assert poisson_carry.log_sums(counts, gone, held) == -np.inf
    assert poisson_carry.log_sums(0 * counts, gone, held) == 0.0
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(poisson_carry.carry(rng, 0 * counts, rates, gone, held), 0)
    np.testing.assert_array_equal(poisson_carry.carry(rng, 0 * counts, gone, rates, held), 0)


def test_rates_of_zero_that_are_left_and_not_entered_are_caught(request):
    """The mutant: proposals with a rate of 0 are refused."""

    def positive(parameters, counts):
        log_g, rates = edge_program(parameters, counts)
        return log_g, np.where(rates > 0, rates, np.nan)

    drawn = edge_chain(seed_of(request), program=positive, rounds=2000)
    with pytest.raises(AssertionError, match="instead of"):
        assert_mean(drawn < 0, edge_law(None)[0])


# Several blocks: a slope, and an effect of the third cell.
def two_program(parameters, counts):
    rates = np.exp(1.2 + parameters[0] * COVARIATE + np.array([0.0, 0.0, parameters[1]]))
    return -0.5 * (parameters**2).sum(), rates


def effect_mean():
    """E of both parameters: tables added up on a grid."""
    slope, effect = np.meshgrid(np.linspace(-3, 3, 121), np.linspace(-4, 4, 121), indexing="ij")
    log_rates = 1.2 + slope[..., None] * COVARIATE
    log_rates[..., 2] += effect
    density = np.zeros(slope.shape)
    for first in range(9):
        for third in range(60):
            table = np.array([first, 8 - first, third])
            log_p = (table * log_rates - np.exp(log_rates) - special.gammaln(table + 1.0)).sum(-1)
            density += np.exp(log_p - 0.5 * (((RELEASE - table) / SCALE) ** 2).sum())
    density *= np.exp(-0.5 * (slope**2 + effect**2))
    density /= density.sum()
    return [float((density * q).sum()) for q in (slope, effect, effect**2)]


def blocked(rng, blocks, *, settle=400, draws=2500):
    """Return draws of both parameters, moved in blocks, with pairs of cells in between."""
    fibre, counts, parameters = fibre_of(EXACT), some_table(EXACT, TOTAL), np.zeros(2)
    learnt = adaptation.init(3, blocks=[block.size for block in blocks])
    drawn = np.empty((settle + draws, 2))
    sums = (fibre.held, equal_columns(EXACT))
    groupings = [poisson_carry.held(groups, 3) for groups in sums]
    for i in range(settle + draws):
        log_rates = np.log(two_program(parameters, counts)[1])

        def density(c, log_rates=log_rates):
            return np.where(c < 0, -np.inf, c * log_rates - special.gammaln(c + 1.0))

        walked, _ = lattice_walk.step(
            rng,
            lattice_walk.init(counts, NOISY, density),
            lattice_walk.Settings(np.full((2, 3), 2.0)),
            measurements=NOISY,
            fibre=fibre,
            density=density,
        )
        state, info = poisson_carry.step(
            rng,
            poisson_carry.init(parameters, walked.counts, NOISY),
            adaptation.carry_settings(learnt.carry, blocks, 8),
            measurements=NOISY,
            groupings=groupings,
            program=two_program,
            sees_counts=False,
        )
        parameters, counts = state.parameters, state.counts
        if i < settle:
            learnt = adaptation.learn_carries(learnt, blocks, parameters, info)
        drawn[i] = parameters
    return drawn[None, settle:]


def test_parameters_in_blocks_follow_their_posterior(request):
    drawn = blocked(np.random.default_rng(seed_of(request)), [np.array([0]), np.array([1])])
    slope, effect, square = effect_mean()
    assert_mean(drawn[..., 0], slope, what="E slope")
    assert_mean(drawn[..., 1], effect, what="E effect")
    assert_mean(drawn[..., 1] ** 2, square, what="E effect²")


def test_a_block_that_never_has_its_turn_is_caught(request, monkeypatch):
    """The mutant."""
    monkeypatch.setattr(poisson_carry, "_turn", lambda *_: 0)
    drawn = blocked(
        np.random.default_rng(seed_of(request)), [np.array([0]), np.array([1])], draws=300
    )
    with pytest.raises(AssertionError, match="instead of"):
        assert_mean(drawn[..., 1], effect_mean()[1], what="E effect")
