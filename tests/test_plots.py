"""Plots show the draws that they were given, and refuse in a sentence what they cannot show."""

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_privacy as pmp
from pymc_privacy.errors import PlotError
from pymc_privacy.inference.replicates import replicates
from pymc_privacy.plots.canvas import COLOURS, new_axes
from tests.stochastic import assert_mean


@pytest.fixture(autouse=True)
def figures_are_closed():
    yield
    plt.close("all")


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def tree(**groups):
    return az.from_dict(groups)


def posterior(rng, centre, scale=1.0, **more):
    draws = rng.normal(centre, scale, size=(2, 400))
    return tree(posterior={"mu": draws, "beta": rng.normal(size=(2, 400, 2)), **more})


def labels(axis):
    return [text.get_text() for text in axis.get_legend().get_texts()]


def bars(axis):
    """Ends of the horizontal bars below the curves."""
    return [line.get_xdata() for line in axis.lines if line.get_linewidth() == 4]


def peak(line):
    return line.get_xdata()[np.argmax(line.get_ydata())]


# ---------------------------------------------------------------- posteriors


def test_posteriors_are_drawn_where_their_draws_are(rng):
    trees = {"privatized": posterior(rng, 3.0), "naive": posterior(rng, 5.0, 0.2)}
    axes = pmp.plot_posteriors(trees, truth={"mu": 3.5, "beta": [0.1, 0.2]}, ci_prob=0.9)
    assert [axis.get_xlabel() for axis in axes] == ["mu", "beta[0]", "beta[1]"]
    curves = [line for line in axes[0].lines if line.get_label() in trees]
    assert [line.get_color() for line in curves] == [COLOURS["privatized"], COLOURS["naive"]]
    assert peak(curves[0]) == pytest.approx(3.0, abs=0.5)
    assert peak(curves[1]) == pytest.approx(5.0, abs=0.1)
    draws = trees["privatized"]["posterior"]["mu"].values
    assert bars(axes[0])[0] == pytest.approx(np.quantile(draws, [0.05, 0.95]))
    assert labels(axes[0]) == ["privatized", "naive", "truth"]
    truths = [
        line.get_xdata()[0] for axis in axes for line in axis.lines if line.get_label() == "truth"
    ]
    assert truths == [3.5, 0.1, 0.2]


def test_a_prior_is_taken_where_there_is_no_posterior(rng):
    prior = tree(prior={"mu": rng.normal(size=(1, 300))})
    [axis] = pmp.plot_posteriors({"privatized": posterior(rng, 0), "prior": prior})
    dotted = [line for line in axis.lines if line.get_label() == "prior"]
    assert dotted[0].get_linestyle() == ":"
    assert axis.get_xlabel() == "mu", "only what all trees have in common"


def test_a_wide_prior_does_not_squeeze_the_posterior(rng):
    prior = tree(prior={"mu": rng.normal(0, 1000, size=(1, 300))})
    [axis] = pmp.plot_posteriors({"privatized": posterior(rng, 0), "prior": prior})
    left, right = axis.get_xlim()
    assert -25 < left < -5
    assert 5 < right < 25


def test_one_tree_needs_no_label_and_no_legend(rng):
    axes = pmp.plot_posteriors(posterior(rng, 0), var_names="mu")
    assert len(axes) == 1
    assert axes[0].get_legend() is None


def test_integers_have_bars_and_a_constant_has_a_line(rng):
    draws = {"k": rng.integers(0, 4, size=(2, 100)), "c": np.ones((2, 100))}
    axes = pmp.plot_posteriors(tree(posterior=draws))
    assert sum(bar.get_height() for bar in axes[0].patches) == pytest.approx(1.0)
    assert axes[1].lines[0].get_xdata()[0] == 1.0


def test_every_posterior_has_a_colour_and_a_bar_of_its_own(rng):
    trees = {label: posterior(rng, 0) for label in ("privatized", "a", "b", "confidential")}
    [axis] = pmp.plot_posteriors(trees, var_names="mu")
    colours = [line.get_color() for line in axis.lines if line.get_label() in trees]
    assert len(set(colours)) == len(bars(axis)) == 4
    many = {f"model {k}": posterior(rng, 0) for k in range(9)}
    [axis] = pmp.plot_posteriors(many, var_names="mu")
    assert len(bars(axis)) == 9


def test_given_axes_are_used(rng):
    given = new_axes(1)
    assert pmp.plot_posteriors(posterior(rng, 0), var_names=["mu"], axes=given[0])[0] is given[0]
    with pytest.raises(PlotError, match="one for each of 3 panels; got 1"):
        pmp.plot_posteriors(posterior(rng, 0), axes=given)


def test_many_panels_are_wrapped():
    axes = new_axes(5)
    figure = axes[0].figure
    assert len(axes) == 5
    assert len({axis.get_subplotspec().rowspan.start for axis in axes}) == 2
    assert sum(not axis.get_visible() for axis in figure.axes) == 3


# ---------------------------------------------------------------- acceptance


def test_acceptance_has_one_point_for_each_chain_and_the_bound():
    statistics = {
        "record_sweep_accept": np.array([[0.8, 0.9], [0.6, 0.8]]),
        "record_sweep_accept_min": np.array([[0.5, 0.4], [0.45, 0.6]]),
    }
    run = tree(sample_stats=statistics)
    axis = pmp.plot_acceptance({1.0: run, 10.0: [(0.5, 0.2), (0.6, 0.1)]})
    bound, average, smallest = axis.lines
    x, y = bound.get_data()
    assert y == pytest.approx(np.exp(-x))
    assert list(average.get_xdata()) == [1.0, 1.0, 10.0, 10.0]
    assert average.get_ydata() == pytest.approx([0.85, 0.7, 0.5, 0.6])
    assert smallest.get_ydata() == pytest.approx([0.4, 0.45, 0.2, 0.1])
    assert axis.get_xscale() == "log"


def test_acceptance_needs_records_that_were_moved_one_by_one():
    with pytest.raises(PlotError, match="known where they are moved one by one"):
        pmp.plot_acceptance({1.0: tree(sample_stats={"lp": np.zeros((2, 3))})})
    with pytest.raises(PlotError, match="epsilon > 0"):
        pmp.plot_acceptance({0.0: (0.5, 0.4)})
    with pytest.raises(PlotError, match="at least one"):
        pmp.plot_acceptance({})


# ---------------------------------------------------------------- size


@pytest.mark.parametrize("spread", [20, 2000])
def test_the_size_has_probabilities_that_add_up_to_one(rng, spread):
    draws = rng.integers(1000, 1000 + spread, size=(2, 3000))
    dt = tree(posterior={"n": draws}, observed_data={"n_dp": np.float64(1007.5)})
    axis = pmp.plot_size(dt, release="n_dp", truth=1003)
    heights = [patch.get_height() for patch in axis.containers[0]]
    assert sum(heights) == pytest.approx(1.0)
    assert len(heights) <= 62
    assert [line.get_xdata()[0] for line in axis.lines] == [1007.5, 1003]
    assert labels(axis) == ["95% interval", "release", "truth"]


def test_the_size_must_be_in_the_posterior_and_its_release_observed(rng):
    dt = tree(posterior={"n": rng.integers(5, 9, size=(1, 50))}, observed_data={"s": np.float64(1)})
    with pytest.raises(PlotError, match="var_names must be among n; got size"):
        pmp.plot_size(dt, var_names="size")
    with pytest.raises(PlotError, match="among s; got n_dp"):
        pmp.plot_size(dt, release="n_dp")
    assert pmp.plot_size(dt, release=6.5).lines[0].get_xdata()[0] == 6.5


# ---------------------------------------------------------------- release


def test_a_release_is_compared_with_its_own_predictive_law(rng):
    predictive = rng.normal([0, 10], [1, 2], size=(2, 500, 2))
    dt = tree(posterior_predictive={"s": predictive}, observed_data={"s": np.array([0.0, 30.0])})
    axes = pmp.plot_release(dt)
    assert [axis.get_xlabel() for axis in axes] == ["s[0]", "s[1]"]
    out = predictive[..., 1]
    away = (30 - out.mean()) / out.std()
    assert axes[1].get_title() == (
        f"100% below the release\nfar out: {away:.1f} standard deviations above"
    )
    share = (predictive[..., 0] < 0).mean()
    assert axes[0].get_title() == f"{share:.0%} below the release"
    assert labels(axes[0])[0] == "replicates, as given"


SUMS = 20
PRIOR_SD, RECORD_SD, NOISE_SD = 0.1, 1.0, 1.0


def predictive_of_a_sum(release):
    """Return mean and sd of another release given this one: Normal all the way, by hand."""
    given_mu = SUMS * RECORD_SD**2 + NOISE_SD**2
    precision = 1 / PRIOR_SD**2 + SUMS**2 / given_mu
    mean = SUMS * release / given_mu / precision
    return SUMS * mean, np.sqrt(given_mu + SUMS**2 / precision)


def release_so_far_out(sds):
    """Return the release that is so many sd out in its own predictive law."""
    at_one, sd = predictive_of_a_sum(1.0)
    return sds * sd / (1 - at_one)


@pytest.fixture(scope="module")
def far_out():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, PRIOR_SD)
        x = pm.Normal("x", mu, RECORD_SD, shape=SUMS)
        noise = pmp.Gaussian(scale=NOISE_SD)
        pmp.Privatized("s", x, noise, observed=release_so_far_out(5.6))
        dt = pmp.sample(
            1500, tune=500, chains=2, cores=1, random_seed=1, quiet=True, keep_records=True
        )
    return model, dt


@pytest.mark.slow
def test_a_release_far_out_is_shown_to_be_so_far_out(far_out):
    model, dt = far_out
    release = release_so_far_out(5.6)
    mean, sd = predictive_of_a_sum(release)
    assert (release - mean) / sd == pytest.approx(5.6)
    found = replicates(dt, None, model=model, random_seed=2)
    assert found.records == "redrawn"
    assert_mean(found.draws["s"].values, mean)
    assert_mean((found.draws["s"].values - mean) ** 2, sd**2)
    [axis] = pmp.plot_release(dt, model=model, random_seed=2)
    shown = found.draws["s"].values
    away = (release - shown.mean()) / shown.std()
    assert axis.get_title() == (
        f"100% below the release\nfar out: {away:.1f} standard deviations above"
    )
    assert away == pytest.approx(5.6, abs=0.5)
    assert labels(axis) == ["replicates, records redrawn", "release"]


def test_fitted_records_are_shown_by_name_and_are_no_check(far_out):
    model, dt = far_out
    with model:
        [axis] = pmp.plot_release(dt, records="fitted", random_seed=2)
    assert "far out" not in axis.get_title()
    assert labels(axis) == ["replicates, records as fitted to the release", "release"]


def test_replicates_of_fitted_records_are_never_taken_for_others(far_out):
    model, dt = far_out
    with model:
        own = pm.sample_posterior_predictive(dt, random_seed=3, progressbar=False)
    both = dt.copy()
    both.update(own)
    with pytest.raises(PlotError, match=r"have records that are fitted. Give model="):
        pmp.plot_release(both)
    [axis] = pmp.plot_release(both, records="fitted")
    assert labels(axis)[0] == "replicates, records as fitted to the release"
    [axis] = pmp.plot_release(both, model=model, random_seed=4)
    assert labels(axis)[0] == "replicates, records redrawn"
    unsaid = both.copy()
    del unsaid["privacy"]
    with pytest.raises(PlotError, match="does not say which of its variables are records"):
        pmp.plot_release(unsaid)


def test_replicates_without_stored_records_are_redrawn(far_out):
    model, dt = far_out
    kept = dt.copy()
    kept["posterior"] = xr.DataTree(kept["posterior"].to_dataset().drop_vars("x"))
    with pytest.raises(PlotError, match="need the model, or a group"):
        pmp.plot_release(kept)
    with pytest.raises(PlotError, match="keep_records=True; got a posterior without x"):
        pmp.plot_release(kept, records="fitted", model=model)
    with pytest.raises(PlotError, match="var_names must be among s; got t"):
        pmp.plot_release(kept, var_names="t", model=model)
    with pytest.raises(PlotError, match=r'"redrawn" or "fitted"'):
        pmp.plot_release(kept, records="new", model=model)
    with model:
        kept.update(pm.sample_posterior_predictive(kept, random_seed=3, progressbar=False))
    [axis] = pmp.plot_release(kept)
    assert labels(axis)[0] == "replicates, records redrawn"
    assert "far out: 5." in axis.get_title()


def test_what_was_suppressed_is_below_all_else(rng):
    predictive = np.where(rng.random((2, 500)) < 0.3, np.nan, rng.normal(5, 1, (2, 500)))
    dt = tree(posterior_predictive={"s": predictive}, observed_data={"s": np.float64(-np.inf)})
    [axis] = pmp.plot_release(dt)
    assert axis.get_title() == f"{np.isnan(predictive).mean() / 2:.0%} below the release"


def test_many_released_numbers_share_one_panel(rng):
    predictive = rng.normal(5, 2, size=(2, 500, 30))
    seen = np.full(30, 5.0)
    seen[3] = 50.0
    dt = tree(posterior_predictive={"s": predictive}, observed_data={"s": seen})
    [axis] = pmp.plot_release(dt)
    assert axis.get_title().startswith("1 of 30 outside, 1.5 expected\nfarthest out: 2")
    assert np.argmax(axis.lines[0].get_ydata()) == 3


def test_a_release_must_have_been_predicted_and_observed(rng):
    with pytest.raises(PlotError, match="a group `observed_data`"):
        pmp.plot_release(posterior(rng, 0))
    dt = tree(
        posterior_predictive={"s": rng.normal(size=(1, 9))}, observed_data={"t": np.float64(0)}
    )
    with pytest.raises(PlotError, match="got s, which the group `observed_data` does not have"):
        pmp.plot_release(dt)


# ---------------------------------------------------------------- records


def test_imputed_databases_are_drawn_with_their_average(rng):
    dt = tree(posterior={"x": rng.normal(2, 1, size=(2, 100, 300))})
    confidential = rng.normal(2, 1, size=300)
    [axis] = pmp.plot_records(dt, "x", databases=12, confidential={"x": confidential})
    *thin, average, truth = axis.lines
    assert len(thin) == 12
    assert average.get_ydata() == pytest.approx(np.mean([t.get_ydata() for t in thin], axis=0))
    assert np.sum(average.get_xdata() * average.get_ydata()) == pytest.approx(2.0, abs=0.1)
    assert labels(axis) == ["imputed records", "confidential"]
    assert 0.95 < truth.get_ydata().sum() <= 1


def test_records_of_several_numbers_have_several_panels(rng):
    dt = tree(posterior={"x": rng.normal([0, 5], 1, size=(2, 50, 80, 2))})
    axes = pmp.plot_records(dt, "x", confidential={"x": np.tile([0.0, 5.0], (80, 1))})
    assert [axis.get_xlabel() for axis in axes] == ["x[0]", "x[1]"]
    assert [peak(axis.lines[-1]) for axis in axes] == pytest.approx([0, 5], abs=0.4)


def test_rows_that_do_not_exist_are_left_out(rng):
    values = np.zeros((1, 40, 10), dtype=int)
    values[..., 6:] = 7  # padding
    dt = tree(posterior={"x": values, "n": np.full((1, 40), 6)})
    [axis] = pmp.plot_records(dt, "x", size="n")
    assert list(axis.lines[-1].get_xdata()) == [-1, 0, 1]
    [axis] = pmp.plot_records(dt, "x")
    assert list(axis.lines[-1].get_xdata())[-2] == 7
    stored = np.where(np.arange(10) < 6, values, np.nan)
    [axis] = pmp.plot_records(tree(posterior={"x": stored}), "x")
    assert list(axis.lines[-1].get_xdata()) == [-1, 0, 1]


def test_shares_of_records_start_at_zero(rng):
    dt = tree(posterior={"x": rng.integers(0, 2, size=(1, 40, 10)), "y": np.ones((1, 40, 10))})
    for axis in pmp.plot_records(dt, ["x", "y"], confidential={"x": [0, 1]}):
        assert axis.get_ylim()[0] == 0
        assert {line.get_ydata()[0] for line in axis.lines} == {0}


def test_records_must_have_been_kept(rng):
    with pytest.raises(PlotError, match="keep_records=True alone"):
        pmp.plot_records(posterior(rng, 0), "x")
    with pytest.raises(PlotError, match="numbers or vectors"):
        pmp.plot_records(tree(posterior={"x": np.zeros((1, 4, 3, 2, 2))}), "x")


def test_a_probability_must_be_one(rng):
    with pytest.raises(PlotError, match=r"ci_prob must be a number in \(0, 1\); got 95"):
        pmp.plot_posteriors(posterior(rng, 0), ci_prob=95)


def test_every_plot_can_be_written(rng, tmp_path):
    dt = posterior(rng, 0, x=rng.normal(size=(2, 400, 20)), n=rng.integers(5, 9, size=(2, 400)))
    for number, axes in enumerate(
        (pmp.plot_posteriors(dt, var_names="mu"), pmp.plot_records(dt, "x"), [pmp.plot_size(dt)])
    ):
        path = tmp_path / f"{number}.png"
        axes[0].figure.savefig(path)
        assert path.stat().st_size > 3000


def test_trees_must_have_something_in_common(rng):
    other = tree(posterior={"nu": rng.normal(size=(1, 50))})
    with pytest.raises(PlotError, match="got none"):
        pmp.plot_posteriors({"a": posterior(rng, 0), "b": other})
    with pytest.raises(PlotError, match="at least one by its label; got none"):
        pmp.plot_posteriors({})


def test_mean_shares_are_drawn_where_they_are(rng):
    draws = rng.gamma(1e6, size=(50, 3)) * [1.0, 2.0, 1.0]
    axis = pmp.plot_shares(draws, truth=[1, 2, 1])
    cloud, truth = (np.array(s.get_offsets()).mean(axis=0) for s in axis.collections)
    # Between corners at (0, 0), (1, 0) and (1/2, sqrt(3)/2).
    assert cloud == pytest.approx([0.625, 0.25 * 3**0.5 / 2], abs=1e-3)
    assert truth == pytest.approx(cloud, abs=1e-3)
    wide = {"alpha": draws[None, :, :2]}
    panels = pmp.plot_shares({"a": tree(posterior=wide), "b": draws[:, :2]}, labels=["x", "y"])
    assert [t.get_text() for t in panels.get_legend().get_texts()] == ["a", "b"]
    cloud = np.array(panels.collections[0].get_offsets()).mean(axis=0)
    assert cloud == pytest.approx([1 / 3, 2 / 3], 1e-3)
    assert len(pmp.plot_shares(rng.gamma(3, size=(9, 4)))) == 3
    alone = pmp.plot_shares(tree(posterior={"alpha": draws[None]}))
    assert len(alone.collections[0].get_offsets()) == 50
    assert alone.get_legend() is None
    # Parameters whose sum no float holds have proportions like others.
    large = np.array(pmp.plot_shares(draws * 8e301).collections[0].get_offsets())
    assert large == pytest.approx(np.array(alone.collections[0].get_offsets()))


@pytest.mark.parametrize(
    ("draws", "options"),
    [
        (np.ones(3), {}),
        (-np.ones((3, 3)), {}),
        (np.ones((3, 1)), {}),
        (np.empty((0, 3)), {}),
        ({}, {}),
        ({"a": np.ones((3, 3)), "b": np.ones((3, 2))}, {}),
        (np.ones((3, 3)), {"labels": ["a"]}),
        (np.ones((3, 3)), {"truth": [1, 2]}),
        (np.ones((3, 3)), {"axes": 3}),
        (np.ones((3, 51)), {}),
        ({"_hidden": np.ones((3, 3))}, {}),
        ({None: np.ones((3, 3))}, {}),
        (tree(posterior={"alpha": np.ones((1, 3, 3))}), {"var_names": None}),
        (tree(posterior={"alpha": np.ones((1, 3, 3))}), {"var_names": ["alpha"]}),
        ("alpha", {}),
    ],
)
def test_shares_must_be_of_as_many_parts(draws, options):
    with pytest.raises(PlotError, match="must"):
        pmp.plot_shares(draws, **options)


def test_a_threshold_is_chosen_below_the_line(rng):
    table = rng.dirichlet([2, 3, 4], size=5000)
    published = pmp.release_composition(
        table, epsilon=5.0, thresholds=[1e-4, 0.01, 0.3], neighbours="replace_one"
    )
    assert published.threshold == 0.01
    axis = pmp.plot_threshold(published)
    heights = [bar.get_height() for bar in axis.patches]
    assert heights[2] > 0.9 > 0.01 > heights[1]
    assert axis.get_title() == "chosen: 0.01"
    fixed = pmp.release_composition(table, epsilon=5.0, threshold=0.1, neighbours="replace_one")
    for wrong in (fixed, fixed.logs, None):
        with pytest.raises(PlotError, match="with noisy counts"):
            pmp.plot_threshold(wrong)
