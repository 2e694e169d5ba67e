"""Totals of tables by the names of their dims, and what is known of them without noise."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from pytensor.compile.mode import Mode
from scipy import sparse

import pymc_privacy as pmp
from pymc_privacy.distributions.measured_totals import known_totals
from pymc_privacy.errors import ReleaseError

PLAIN = {"mode": Mode(linker="py", optimizer="fast_compile")}
COORDS = {
    "tract": ["t1", "t2", "t3"],
    "race": ["a", "b"],
    "age": [0, 1, 2, 3],
    "county": ["south", "north", "nowhere"],
}
NOISE = pmp.DiscreteGaussian(scale=2.0)
TABLE = np.arange(24).reshape(3, 2, 4)
COUNTY = ["north", "south", "north"]


def statistic(what, **options):
    """The totals that a Sum means, computed by the model from a table."""
    with pm.Model(coords=COORDS) as model:
        people = pm.Poisson("people", 3.0, dims=("tract", "race", "age"))
        release = pmp.LinearMeasurements("y", people, what, NOISE, **options)
        op = release.owner.op
        totals = op.matrix.values @ TABLE.ravel()
        value = model.compile_logp(vars=[release], sum=False, **PLAIN)({"people": TABLE})[0]
    assert value.shape == op.shape
    return totals.reshape(op.shape), model


def zeros(*shape):
    return np.zeros(shape, dtype=int)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (pmp.Sum(over="race"), TABLE.sum(axis=1)),
        (pmp.Sum(over=1), TABLE.sum(axis=1)),
        (pmp.Sum(over=("race", "age")), TABLE.sum(axis=(1, 2))),
        (pmp.Sum(over=("tract", "race", "age")), TABLE.sum()),
        (pmp.Sum(over=()), TABLE),
        # Without coordinates, groups are in sorted order.
        (pmp.Sum(within={"tract": COUNTY}), np.stack([TABLE[[0, 2]].sum(axis=0), TABLE[1]])),
        (
            pmp.Sum(over="race", within={"age": pd.Series([7, 7, 3, 7]), 0: np.array([5, 5, 5])}),
            np.stack([TABLE[:, :, 2].sum(), TABLE[:, :, [0, 1, 3]].sum()])[None],
        ),
    ],
    ids=["a dim", "an axis", "two dims", "all dims", "none", "groups", "groups and a dim"],
)
def test_a_sum_means_the_totals_of_numpy(what, expected):
    shape = np.shape(expected)
    found, _ = statistic(what, observed=zeros(*shape))
    np.testing.assert_array_equal(found, expected)
    # One vector in the order of C is the same release.
    _, model = statistic(what, observed=zeros(*shape).ravel())
    assert model["y"].eval().shape == shape


def test_groups_are_in_the_order_of_the_coordinates():
    totals = np.stack([TABLE[1], TABLE[[0, 2]].sum(axis=0), 0 * TABLE[0]])
    for group in (COUNTY, [1, 0, 1]):
        found, model = statistic(
            pmp.Sum(within={"tract": group}),
            observed=zeros(3, 2, 4),
            dims=("county", "race", "age"),
        )
        np.testing.assert_array_equal(found, totals)
    assert model.named_vars_to_dims["y"] == ("county", "race", "age")


def test_a_release_has_the_dims_of_the_counts_that_are_left():
    _, model = statistic(pmp.Sum(over="race"), observed=zeros(3, 4))
    assert model.named_vars_to_dims["y"] == ("tract", "age")
    assert model.initial_point()["people"].shape == (3, 2, 4)


def test_sums_and_matrices_mean_the_same_density():
    point = {"people": TABLE}
    found = []
    for what in (pmp.Sum(over=("race", "age")), np.kron(np.eye(3, dtype=int), np.ones(8, int))):
        for kind in (np.asarray, sparse.csc_array) if not isinstance(what, pmp.Sum) else (None,):
            matrix = what if kind is None else kind(what)
            with pm.Model() as model:
                people = pm.Poisson("people", 3.0, shape=(3, 2, 4))
                dims = {"race": 1, "age": 2}
                if isinstance(what, pmp.Sum):
                    matrix = pmp.Sum(over=tuple(dims.values()))
                pmp.LinearMeasurements("y", people, matrix, NOISE, observed=[30, 90, 150])
            found.append(float(model.compile_logp(vars=model.observed_RVs, **PLAIN)(point)))
    assert len(set(found)) == 1
    assert np.isfinite(found[0])


def table_of(**known):
    with pm.Model(coords=COORDS) as model:
        people = pm.Poisson("people", 3.0, dims=("tract", "race"))
        pmp.LinearMeasurements("y", people, pmp.Sum(over=()), NOISE, observed=zeros(3, 2), **known)
    return model


def test_bounds_are_part_of_the_density_and_of_the_start():
    model = table_of(
        invariants=(pmp.Sum(over=("tract", "race")), 20),
        at_least=(pmp.Sum(over="race"), [-np.inf, 9, 2]),
        at_most=(pmp.Sum(over=()), [[np.inf, 0], [np.inf] * 2, [1, np.inf]]),
    )
    start = model.initial_point()["people"]
    assert start.sum() == 20
    assert start[0, 1] == 0
    assert start[2, 0] <= 1
    assert start[1].sum() >= 9
    density = model.compile_logp(vars=model.observed_RVs, **PLAIN)
    assert np.isfinite(density({"people": start}))
    for wrong in ([[4, 1], [8, 1], [1, 5]], [[5, 0], [4, 4], [1, 6]], [[5, 0], [8, 1], [2, 4]]):
        assert np.sum(wrong) == 20
        assert density({"people": np.array(wrong)}) == -np.inf
    assert {"y_at_least", "y_at_most", "y_invariants"} < set(model.named_vars)


def test_counts_that_are_at_most_zero_together_are_each_an_exact_total():
    model = table_of(at_most=(pmp.Sum(over="race"), [np.inf, 0, 5]))
    known = known_totals(model, model["people"])
    np.testing.assert_array_equal(known.exact.toarray(), np.eye(6, dtype=int)[[2, 3]])
    assert known.totals.tolist() == [0, 0]


def test_a_law_that_may_be_negative_has_no_zeros_from_a_bound_above():
    with pm.Model() as model:
        cell = pm.DiscreteUniform("cell", -3, 3, shape=2)
        pmp.LinearMeasurements(
            "y", cell, np.eye(2), NOISE, observed=[0, 1], at_most=(np.eye(2), [0, 0])
        )
    assert known_totals(model, cell).exact.shape[0] == 0
    assert np.isfinite(model.compile_logp(**PLAIN)(model.initial_point()))


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"at_least": (pmp.Sum(over="race"), [1, 2])}, r"must have shape \(3,\).*|3 totals"),
        ({"at_most": (pmp.Sum(over="race"), [1, 2, -np.inf])}, "infinite where there is no bound"),
        ({"at_least": (pmp.Sum(over="race"), [1, 2, np.nan])}, "infinite where there is no bound"),
        ({"at_most": (pmp.Sum(over="race"), [1.5, 2, 3])}, "be integers"),
        ({"at_most": 5}, "at_most must be a pair"),
        ({"at_least": (pmp.Sum(over="race"), [2**62, 5, 5])}, "of at most 9007199254740992"),
        ({"at_most": (pmp.Sum(over="race"), [-1, 2, 3])}, "which no counts have"),
        (
            {
                "at_least": (pmp.Sum(over="race"), [4, 4, 4]),
                "at_most": (pmp.Sum(over=("tract", "race")), 11),
            },
            "within all bounds",
        ),
        (
            {
                "at_least": (pmp.Sum(over="race"), [1, 1, 1]),
                "at_most": (pmp.Sum(over="tract"), [9, 9]),
            },
            "must be nested with each other",
        ),
        (
            {
                "invariants": (pmp.Sum(over="tract"), [9, 9]),
                "at_most": (pmp.Sum(over="race"), [9, 9, 9]),
            },
            "must be nested with each other",
        ),
        ({"at_most": ([[1, 2, 0, 0, 0, 0]], [9])}, "counted alike"),
        ({"invariants": (pmp.Sum(over=()), [[1, 2], [3, 4], [5, -6]])}, "which no counts have"),
        (
            {
                "invariants": (
                    sparse.csr_array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]),
                    [5, 6],
                )
            },
            "which no counts have",
        ),
    ],
)
def test_what_cannot_be_known_is_refused(known, message):
    with pytest.raises(ReleaseError, match=f"(?s){message}"):
        table_of(**known)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pmp.Sum(), "must say which dims"),
        (lambda: pmp.Sum(over=3.5), "names or numbers of dims"),
        (lambda: pmp.Sum(over=True), "names or numbers of dims"),
        (lambda: pmp.Sum(within=["a"]), "a dictionary of dims"),
        (lambda: pmp.Sum(within={"tract": "abc"}), "one label for each"),
        (lambda: pmp.Sum(within={"tract": ["a", None, "b"]}), "none missing"),
        (lambda: pmp.Sum(within={"tract": ["a", 1, "b"]}), "all words or all integers"),
        (lambda: pmp.Sum(within={"tract": [0.5, 1.0, 2.0]}), "all words or all integers"),
        (lambda: pmp.Sum(within={"tract": []}), "one label for each"),
        (lambda: table_sum(pmp.Sum(over="sex")), "which are tract, race; got 'sex'"),
        (lambda: table_sum(pmp.Sum(over=2)), "which are tract, race; got 2"),
        (lambda: table_sum(pmp.Sum(over=("race", 1))), "name each dim once"),
        (lambda: table_sum(pmp.Sum(over="race", within={"race": [0, 1]})), "name each dim once"),
        (lambda: table_sum(pmp.Sum(within={"tract": [0, 1]})), "3 coordinates; got 2"),
        (
            lambda: table_sum(pmp.Sum(within={"tract": ["x", "y", "y"]}), dims=("county", "race")),
            "must be coordinates of the dim of the release",
        ),
        # Are these labels, or numbers of labels?
        (lambda: numbered([0, 1, 1], [1, 3]), "must be coordinates of the dim of the release"),
        (lambda: numbered([0, 2, 1], [10, 20]), "must be coordinates of the dim of the release"),
        (lambda: table_sum(pmp.Sum(over="tract"), dims="tract"), "got 'tract' of length 3"),
        (lambda: table_sum(pmp.Sum(over="tract"), dims=("tract", "race")), "one for each axis"),
        (lambda: table_sum(pmp.Sum(over="tract"), dims="nowhere"), "must be dims of the model"),
        (lambda: table_sum(pmp.Sum(over="tract"), dims=5), "must be the names of dims"),
        (lambda: table_sum(pmp.Sum(over="tract"), observed=[1, 2, 3]), r"have shape \(2,\)"),
        (lambda: table_sum(pmp.Sum(over=()), observed=zeros(2, 3)), r"must have shape \(3, 2\)"),
    ],
)
def test_sums_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ReleaseError, match=f"(?s){message}"):
        make()


def numbered(groups, coords):
    """Return the matrix of groups of tracts, whose coordinates are numbers."""
    with pm.Model(coords={**COORDS, "county": coords}):
        people = pm.Poisson("people", 3.0, dims=("tract", "race"))
        within = pmp.Sum(within={"tract": groups})
        release = pmp.LinearMeasurements(
            "y", people, within, NOISE, observed=zeros(2, 2), dims=("county", "race")
        )
    return release.owner.op.matrix.values.toarray()[::2, ::2].tolist()


def test_numbers_are_labels_where_there_are_such_and_count_them_elsewhere():
    assert numbered([20, 10, 20], [10, 20]) == [[0, 1, 0], [1, 0, 1]]
    assert numbered([1, 0, 1], [10, 20]) == [[0, 1, 0], [1, 0, 1]]
    assert numbered([1, 0, 1], [1, 0]) == [[1, 0, 1], [0, 1, 0]]


def test_a_name_that_is_taken_by_what_is_known_is_refused_before_anything_is_added():
    with pm.Model() as model:
        cell = pm.Poisson("cell", 3.0, shape=2)
        pm.Normal("y_invariants")
        with pytest.raises(ReleaseError, match="'y_invariants' again"):
            pmp.LinearMeasurements(
                "y", cell, np.eye(2), NOISE, observed=[0, 1], invariants=(np.ones((1, 2)), [3])
            )
    assert "y" not in model.named_vars


def table_sum(what, observed=(1, 2), **options):
    with pm.Model(coords=COORDS):
        people = pm.Poisson("people", 3.0, dims=("tract", "race"))
        return pmp.LinearMeasurements("y", people, what, NOISE, observed=observed, **options)
