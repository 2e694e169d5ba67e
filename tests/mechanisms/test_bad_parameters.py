"""Mechanisms refuse what describes no law, in a sentence: what must hold, and what came."""

import numpy as np
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import MechanismError

NOISY = pmp.Laplace(scale=1.0)
WHOLE = pmp.DiscreteLaplace(scale=1.0)
HIDDEN = pmp.Suppressed(mechanism=NOISY, below=3.0)

BAD = [
    (pmp.RandomizedResponse, {}, "epsilon= or keep_probability=", "neither"),
    (pmp.RandomizedResponse, {"epsilon": 1.0, "keep_probability": 0.7}, "one of the two", "both"),
    (pmp.RandomizedResponse, {"epsilon": -1.0}, "epsilon must be a finite number > 0", "-1.0"),
    (pmp.RandomizedResponse, {"keep_probability": 1.0}, r"number in \(0, 1\)", "1.0"),
    (pmp.RandomizedResponse, {"keep_probability": 0.0}, "keep_probability must be", "0.0"),
    (pmp.RandomizedResponse, {"keep_probability": 0.5}, "other than 1 / categories", "0.5"),
    (pmp.RandomizedResponse, {"epsilon": 1.0, "categories": 1}, "integer >= 2", "1"),
    (pmp.RandomizedResponse, {"epsilon": 1.0, "categories": 2.5}, "integer >= 2", "2.5"),
    (pmp.ExponentialMechanism, {}, "needs scale=, or epsilon=", "neither"),
    (pmp.ExponentialMechanism, {"epsilon": 1.0}, "needs sensitivity=", "no sensitivity"),
    (pmp.ExponentialMechanism, {"scale": [1.0, 2.0]}, "scale must be one number", r"\[1.0, 2.0"),
    (pmp.ExponentialMechanism, {"scale": 0.0}, "scale must be a finite number > 0", "0.0"),
    (
        pmp.ExponentialMechanism,
        {"scale": 1.0, "epsilon": 1.0, "sensitivity": 1.0},
        "must describe the same noise",
        "scale=1.0",
    ),
    (pmp.Tulap, {"epsilon": 0.0}, "epsilon must be a finite number > 0", "0.0"),
    (pmp.Tulap, {"epsilon": 1.0, "delta": 1.0}, r"delta must be a number in \[0, 1\)", "1.0"),
    (pmp.Tulap, {"epsilon": 1.0, "delta": "some"}, "delta must be", "'some'"),
    (pmp.Tulap, {"epsilon": 1.0, "sensitivity": np.nan}, "sensitivity must be", "nan"),
    (
        pmp.TruncatedLaplace,
        {"epsilon": 1.0, "delta": 0.5, "sensitivity": 1.0},
        "delta must be below 1/2",
        "0.5",
    ),
    (
        pmp.TruncatedLaplace,
        {"epsilon": 1.0, "delta": 0.0, "sensitivity": 1.0},
        "delta must be a finite number > 0",
        "0.0",
    ),
    (
        pmp.KNormGradient,
        {"epsilon": 1.0, "sensitivity": 1.0, "edges": [0.0]},
        "edges must be two or more finite numbers",
        r"\[0.0\]",
    ),
    (
        pmp.KNormGradient,
        {"epsilon": 1.0, "sensitivity": 1.0, "edges": [0.0, np.inf]},
        "edges must be two or more finite numbers",
        ".*inf",
    ),
    (pmp.KNormGradient.mean, {"epsilon": 1.0, "bounds": (1.0, 0.0)}, "bounds must be a pair", ""),
    (
        pmp.KNormGradient.quantile,
        {"probability": 1.0, "epsilon": 1.0, "edges": [0.0, 1.0]},
        r"probability must be a number in \(0, 1\)",
        "1.0",
    ),
    (pmp.ObjectivePerturbation, {"epsilon": 1.0}, "epsilon= needs bound=", "no bound"),
    (pmp.ObjectivePerturbation, {"scale": 1.0}, "scale= and ridge=", "no ridge"),
    (pmp.ObjectivePerturbation, {}, "needs epsilon= and bound=", "no scale"),
    (
        pmp.ObjectivePerturbation,
        {"epsilon": 1.0, "bound": 1.0, "ridge": 0.01},
        "ridge must be at least",
        "0.01",
    ),
    (
        pmp.ObjectivePerturbation,
        {"epsilon": 1.0, "bound": 1.0, "share": 1.0},
        r"share must be a number in \(0, 1\)",
        "1.0",
    ),
    (
        pmp.ObjectivePerturbation,
        {"epsilon": 1.0, "bound": 1.0, "neighbours": "add_remove"},
        "replacement of a record",
        "neighbours='add_remove'",
    ),
    (
        pmp.FunctionalMechanism,
        {"epsilon": 1.0, "covariates": 0},
        "covariates must be an integer >= 1",
        "0",
    ),
    (
        pmp.FunctionalMechanism,
        {"epsilon": 1.0, "covariates": 1, "neighbours": None},
        "neighbours must be",
        "None",
    ),
    (pmp.Clamped, {"mechanism": NOISY}, "needs lower=, upper=, or both", "neither"),
    (pmp.Clamped, {"mechanism": NOISY, "lower": np.inf}, "lower must be a finite number", "inf"),
    (pmp.Clamped, {"mechanism": NOISY, "lower": 2, "upper": 1}, "lower must be less", "2.0 and 1"),
    (pmp.Clamped, {"mechanism": WHOLE, "lower": 0.5}, "lower must be a multiple of 1", "0.5"),
    (pmp.Clamped, {"mechanism": HIDDEN, "lower": 0}, "Suppression must come last", "Suppressed"),
    (pmp.Rounded, {"mechanism": NOISY, "to": 0.0}, "to must be a finite number > 0", "0.0"),
    (pmp.Rounded, {"mechanism": HIDDEN}, "Suppression must come last", "Suppressed"),
    (pmp.Suppressed, {"mechanism": NOISY, "below": np.nan}, "below must be a finite", "nan"),
    (
        pmp.Suppressed,
        {"mechanism": pmp.ExponentialMechanism(scale=1.0), "below": 1.0},
        "must be a mechanism that adds noise",
        "ExponentialMechanism",
    ),
]


@pytest.mark.parametrize(("make", "given", "must_hold", "came"), BAD)
def test_a_bad_parameter_is_refused(make, given, must_hold, came):
    with pytest.raises(MechanismError, match=rf"(?s){must_hold}.*got.*{came}"):
        make(**given)


def test_simulators_refuse_what_they_cannot_act_on():
    rng = np.random.default_rng(0)
    with pytest.raises(MechanismError, match=r"one of 0, …, 2.*got 3"):
        pmp.RandomizedResponse(epsilon=1.0, categories=3).simulate(rng, 3)
    with pytest.raises(MechanismError, match=r"needs the records themselves.*\(5,\)"):
        pmp.ObjectivePerturbation(epsilon=1.0, bound=1.0).simulate(rng, np.zeros(5))


def test_contributions_refuse_what_they_are_not_known_for():
    gradient = pmp.KNormGradient(epsilon=1.0, sensitivity=1.0, edges=[0, 1, 2])
    with pytest.raises(MechanismError, match="2 cells and no probability"):
        gradient.contributions(np.zeros(3))
    fit = pmp.ObjectivePerturbation(epsilon=1.0, bound=1.0)
    with pytest.raises(MechanismError, match="vector of finite coefficients"):
        fit.contributions([np.nan], np.zeros((3, 1)), np.zeros(3))
