"""Nothing that a caller can pass to a public name ends in a raw error, a hang, or a promise.

Every public name is called with a set of good arguments in which one, and then several, are
replaced by nonsense. Two endings are right: one of this package's own errors, or, for values that
are only odd, a result that makes sense. There is no list of exceptions.
"""

import contextlib
import functools
import math
import random
import signal
import warnings
import zlib
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_privacy as pmp
from pymc_privacy.algorithms.ascent import Step
from pymc_privacy.arguments import shown
from pymc_privacy.errors import InsecureNoiseWarning, PrivacyError
from pymc_privacy.inference.profiling import Profile
from pymc_privacy.mechanisms import Mechanism
from pymc_privacy.model.size_matters import SizeMatters
from pymc_privacy.sanitize import Audit
from tests.nonsense import ODD, WRONG

SECONDS = 5  # of processor time, for one call
MIXED = 40  # calls with several odd or wrong arguments, for each set of good ones

NOISE = pmp.Laplace(scale=1.0)
WHOLE = pmp.DiscreteLaplace(scale=2.0)
PARQUET = find_spec("pyarrow") is not None
HALF_LOG = math.log(-math.expm1(-1.0))
PURE = pmp.PureDP(1.0, neighbours="add_remove")
ANSWERS = [0, 1, 1, 0] * 25
AGES = np.linspace(20.0, 60.0, 60)
DRAWS = np.random.default_rng(1).beta(30, 70, size=400)
TREE = xr.DataTree.from_dict(
    {
        "posterior": xr.Dataset(
            {
                "p": (("chain", "draw"), DRAWS.reshape(2, 200)),
                "n": (("chain", "draw"), np.arange(400).reshape(2, 200) % 30 + 90),
                "x": (("chain", "draw", "row"), np.ones((2, 200, 3))),
            }
        ),
        "posterior_predictive": xr.Dataset({"s": (("chain", "draw"), DRAWS.reshape(2, 200))}),
        "observed_data": xr.Dataset({"s": ((), 0.31)}),
        "sample_stats": xr.Dataset(
            {
                "record_sweep_accept": (("chain", "draw"), np.full((2, 200), 0.7)),
                "record_sweep_accept_min": (("chain", "draw"), np.full((2, 200), 0.5)),
            }
        ),
    }
)
PREDICTED = TREE.copy()
del PREDICTED["posterior"]


MATTERS = SizeMatters(100, 4.2, "sqrt(n)", 0.42, "not known", None, pmp.PureDP(1.0), NOISE, ())
PROFILE = Profile("mu", np.arange(3.0), np.array([-2.0, 0.0, -2.0]), np.full(3, 0.1), [], 1.0, 0.0)
CLIMBED = SimpleNamespace(
    path=((Step(np.zeros(1), 0, math.nan, "far"), Step(np.ones(1), 40, 0.5, "far")),),
    q=np.ones(1),
    coordinates=("mu",),
    fitting=SimpleNamespace(
        problem=SimpleNamespace(owners=["mu"], is_transformed=np.array([False]))
    ),
)


def rng():
    return np.random.default_rng(7)


def measure(generator, settings):
    return {"value": 1.0}


def squared(alpha):
    return (1 - alpha) ** 2


class Case:
    """A public name, good arguments, and the kind of each; `?` after a kind allows None."""

    def __init__(self, call, good, within=contextlib.nullcontext, **kinds):
        self.call, self.good, self.kinds, self.within = call, good, kinds, within

    def arguments(self):
        return {name: value() if callable(value) else value for name, value in self.good.items()}

    def values(self, name, pool):
        kind = self.kinds[name]
        extra = [] if pool is ODD or kind.endswith("?") else [None]
        return [*pool.get(kind.removesuffix("?"), []), *extra]


def constant(value):
    """Hand out a fixed object that is itself callable, or must be made anew for each call."""
    return lambda: value


STEPS = {"centred_steps": "natural?", "noncentred_steps": "natural?", "rng": "seed?"}
STEP_OPTIONS = {
    "BirthDeath": STEPS | {"jumps": "natural", "single": "flag"},
    "CountStates": STEPS | {"blocks": "count?"},
    "Interweave": STEPS | {"sweep_fraction": "share?"},
    "LatticeWalk": {"sweeps": "count", "carries": "natural", "rng": "seed?"},
    "RecordSweep": {"rng": "seed?", "blocked": "flag"},
}
LABELS = {"neighbours": "neighbours?", "unit": "title"}
NEAR = {"neighbours": "neighbours?"}


def dp_wizard(histogram, accuracy):
    """Return a report of DP Wizard, as a dictionary."""
    output = {"histogram": histogram, "accuracy": accuracy, "confidence": 0.95}
    return {"inputs": {"epsilon": 1.0}, "outputs": {"age": output}}


def cases(folder):
    """Return the cases of every public name."""
    numbers = iter(range(10**6))

    def fresh():
        return folder / f"file{next(numbers)}"

    def ptable():
        path = fresh()
        path.write_text("i,j,p\n0,0,1\n1,0,.5\n1,2,.5\n")
        return path

    @functools.cache
    def measured():
        path = fresh()
        if PARQUET:
            pmp.simulate_nmf(rng(), path, counties=1, tracts=1)
        return path

    def study():
        return {"function": constant(measure), "grid": {"epsilon": [1.0]}, "path": fresh}

    def interval(call, **more):
        kinds = {"records": "rows", "family": "object", "epsilon": "positive"}
        kinds |= {"prob": "probability", "name": "title?", "ledger": "object?", "size": "natural?"}
        good = {"records": ANSWERS, "family": constant(pmp.Proportion()), "epsilon": 1.0}
        kinds |= {name: kind for name, (kind, _) in more.items()}
        return Case(call, good | {name: value for name, (_, value) in more.items()}, **kinds)

    published = pmp.release(ANSWERS, bounds=(0, 1), epsilon=1.0, neighbours="replace_one")
    proven = pmp.noise_aware_interval(ANSWERS, pmp.Proportion(), epsilon=1.0)
    draws = {"draws": DRAWS, "bounds": (0.0, 1.0), "epsilon": 1.0}
    of_draws = {"draws": "posterior", "bounds": "pair", "epsilon": "positive", "ledger": "object?"}
    releasing = {"contributions": ANSWERS, "bounds": (0, 1), "neighbours": "replace_one"}
    of_release = {
        "contributions": "rows",
        "bounds": "bounds",
        "neighbours": "neighbours",
        "epsilon": "positive?",
        "delta": "probability?",
        "rho": "positive?",
        "sensitivity": "positive?",
        "granularity": "positive?",
        "integers": "flag",
        "size": "natural?",
        "name": "title",
        "unit": "title",
    }
    registry = {"curators": ["a"], "description": "d", "intended_use": "u", "region": "r"}
    return {
        "ApproximateDP": [
            Case(
                pmp.ApproximateDP,
                {"epsilon": 1.0, "delta": 0.1},
                epsilon="least_zero",
                delta="delta",
                **LABELS,
            ),
        ],
        "PureDP": [Case(pmp.PureDP, {"epsilon": 1.0}, epsilon="positive", **LABELS)],
        "RenyiDP": [
            Case(pmp.RenyiDP, {"alpha": 2.0, "epsilon": 1.0}, epsilon="positive", **LABELS),
        ],
        "FDP": [Case(pmp.FDP, {"tradeoff": constant(squared)}, tradeoff="function", **LABELS)],
        "GaussianDP": [Case(pmp.GaussianDP, {"mu": 1.0}, mu="positive", **LABELS)],
        "ZeroConcentratedDP": [
            Case(pmp.ZeroConcentratedDP, {"rho": 1.0}, rho="positive", **LABELS)
        ],
        "Laplace": laplace(pmp.Laplace),
        "DiscreteLaplace": laplace(pmp.DiscreteLaplace),
        "ExponentialMechanism": [
            Case(
                pmp.ExponentialMechanism,
                {"scale": 1.0},
                scale="key",
                sensitivity="positive?",
                **NEAR,
            ),
            Case(
                pmp.ExponentialMechanism,
                {"epsilon": 1.0, "sensitivity": 1.0},
                epsilon="positive",
                sensitivity="positive",
                **NEAR,
            ),
        ],
        "Gaussian": gaussian(pmp.Gaussian),
        "DiscreteGaussian": gaussian(pmp.DiscreteGaussian),
        "Tulap": [
            Case(
                pmp.Tulap,
                {"epsilon": 1.0, "delta": 0.1, "sensitivity": 1.0},
                epsilon="positive",
                delta="delta",
                sensitivity="positive",
                **NEAR,
            ),
        ],
        "TruncatedLaplace": [
            Case(
                pmp.TruncatedLaplace,
                {"epsilon": 1.0, "delta": 0.1, "sensitivity": 1.0},
                epsilon="positive",
                delta="probability",
                sensitivity="positive",
                **NEAR,
            ),
        ],
        "RandomizedResponse": [
            Case(
                pmp.RandomizedResponse,
                {"epsilon": 1.0},
                epsilon="positive",
                categories="count",
                **NEAR,
            ),
            Case(
                pmp.RandomizedResponse,
                {"keep_probability": 0.7},
                keep_probability="probability",
                categories="count",
                **NEAR,
            ),
        ],
        "TableMechanism": [
            Case(
                pmp.TableMechanism,
                {"probabilities": [[0.75, 0.25], [0.25, 0.75]]},
                probabilities="table",
                neighbours="neighbours?",
                continues="flag",
            ),
            Case(
                pmp.TableMechanism.forced_response,
                {"forced": [0.1, 0.2]},
                forced="vector",
                **NEAR,
            ),
            Case(
                pmp.TableMechanism.unrelated_question,
                {"p": 0.7, "prevalence": 0.2},
                p="probability",
                **NEAR,
            ),
            Case(
                pmp.TableMechanism.kuk,
                {"p_yes": 0.8, "p_no": 0.2},
                p_yes="probability",
                p_no="probability",
                cards="count",
                **NEAR,
            ),
            *(
                Case(design, {"p": 0.3}, p="probability", **NEAR)
                for design in (
                    pmp.TableMechanism.crosswise,
                    pmp.TableMechanism.triangular,
                    pmp.TableMechanism.mangat,
                )
            ),
        ],
        "SetResponse": [
            Case(
                pmp.SetResponse,
                {"log_inside": [-9e9, -1.0, -9e9], "log_outside": [-9e9, HALF_LOG, -9e9]},
                log_inside="vector",
                log_outside="vector",
                **NEAR,
            ),
            *(
                Case(
                    protocol,
                    {"epsilon": 1.0, "categories": 4},
                    epsilon="positive",
                    categories="count",
                )
                for protocol in (
                    pmp.SetResponse.symmetric_unary_encoding,
                    pmp.SetResponse.optimised_unary_encoding,
                )
            ),
            Case(
                pmp.SetResponse.subset_selection,
                {"epsilon": 1.0, "categories": 4},
                epsilon="positive",
                categories="count",
                size="count?",
            ),
            Case(
                pmp.SetResponse.local_hashing,
                {"epsilon": 1.0, "categories": 4},
                epsilon="positive",
                categories="count",
                hashes="count?",
            ),
        ],
        "read_nmf": [
            Case(
                pmp.read_nmf,
                {"path": measured, "level": "County"},
                path="path",
                level="name",
                queries="names?",
                states="object?",
                totals="object?",
            ),
        ],
        "simulate_nmf": [
            Case(
                pmp.simulate_nmf,
                {"rng": rng, "path": fresh, "counties": 1, "tracts": 1},
                rng="generator",
                path="path",
                counties="count",
                tracts="count",
                state="positive",
                aian="flag",
            ),
        ],
        "read_ptable": [
            Case(pmp.read_ptable, {"path": ptable}, path="path", neighbours="neighbours?"),
        ],
        "FunctionalMechanism": [
            Case(
                pmp.FunctionalMechanism,
                {"epsilon": 1.0, "covariates": 2},
                epsilon="positive",
                covariates="count",
                logistic="flag",
                neighbours="neighbours",
            ),
        ],
        "KNormGradient": [
            Case(
                pmp.KNormGradient,
                {"epsilon": 1.0, "sensitivity": 1.0, "edges": [0.0, 1.0]},
                epsilon="positive",
                sensitivity="positive",
                edges="vector",
                probability="probability?",
                **NEAR,
            ),
            Case(
                pmp.KNormGradient.mean,
                {"epsilon": 1.0, "bounds": (0, 1)},
                epsilon="positive",
                bounds="pair",
                **NEAR,
            ),
            Case(
                pmp.KNormGradient.quantile,
                {"probability": 0.5, "epsilon": 1.0, "edges": [0.0, 1.0]},
                probability="probability?",
                epsilon="positive",
                edges="vector",
                **NEAR,
            ),
        ],
        "LocalSum": [
            Case(pmp.LocalSum, {"noise": NOISE}, noise="object"),
        ],
        "ExponentialInterval": [
            Case(
                pmp.ExponentialInterval,
                {"edges": [0.0, 1.0], "epsilon": 1.0, "sensitivity": 1.0},
                epsilon="positive",
                sensitivity="positive",
                edges="vector",
                **NEAR,
            ),
        ],
        "KNormGradientRegression": [
            Case(
                pmp.KNormGradientRegression,
                {"epsilon": 1.0, "box": [(-1, 1)], "cells": 4},
                epsilon="positive",
                cells="count",
                probability="probability?",
                neighbours="neighbours",
            ),
        ],
        "ObjectivePerturbation": [
            Case(
                pmp.ObjectivePerturbation,
                {"epsilon": 1.0, "bound": 1.0, "delta": 0.1, "loss": "linear", "response": 1.0}
                | {"box": [(-1, 1)]},
                epsilon="positive",
                delta="probability",
                bound="positive",
                response="positive",
                share="probability",
                ridge="positive?",
                **NEAR,
            ),
            Case(
                pmp.ObjectivePerturbation,
                {"epsilon": 1.0, "bound": 1.0},
                epsilon="positive",
                bound="positive",
                share="probability",
                ridge="positive?",
                **NEAR,
            ),
            Case(
                pmp.ObjectivePerturbation,
                {"scale": 1.0, "ridge": 1.0},
                scale="key",
                ridge="key",
                bound="positive?",
                **NEAR,
            ),
        ],
        "CustomMechanism": [
            Case(
                pmp.CustomMechanism,
                {"log_density_function": constant(pm.math.abs)},
                log_density_function="function",
                simulator="function?",
                stated_guarantee="guarantee?",
            ),
        ],
        "Clamped": [
            Case(
                pmp.Clamped,
                {"mechanism": NOISE, "lower": 0.0},
                mechanism="mechanism",
                lower="real",
                upper="real?",
            ),
        ],
        "Rounded": [
            Case(
                pmp.Rounded, {"mechanism": WHOLE, "to": 2.0}, mechanism="mechanism", to="positive"
            ),
        ],
        "Suppressed": [
            Case(
                pmp.Suppressed,
                {"mechanism": NOISE, "below": 2.0},
                mechanism="mechanism",
                below="real",
            ),
        ],
        "expected_acceptance": [
            Case(lambda one: pmp.expected_acceptance(one), {"one": PURE}, one="guarantee"),
        ],
        "compose": [
            Case(
                lambda one, **kw: pmp.compose(one, PURE, **kw),
                {"one": PURE, "delta": 0.01, "parallel": False},
                one="guarantee",
                delta="probability?",
                parallel="flag",
            ),
            Case(
                lambda mu, delta: pmp.compose(pmp.GaussianDP(mu), pmp.PureDP(1.0), delta=delta),
                {"mu": 1.0, "delta": 0.01},
                mu="positive",
                delta="probability?",
            ),
            Case(
                lambda rho, delta: pmp.compose(
                    pmp.ZeroConcentratedDP(rho), pmp.ApproximateDP(1.0, 1e-9), delta=delta
                ),
                {"rho": 1.0, "delta": 0.01},
                rho="positive",
                delta="probability",
            ),
        ],
        "SizeGap": [
            Case(
                pmp.SizeGap,
                {"bound": 0.5, "expected_difference": 1.0, "total_variation": 0.1},
                bound="least_zero",
                expected_difference="least_zero",
                total_variation="least_zero",
            ),
        ],
        "size_gap": [
            Case(
                pmp.size_gap,
                {"guarantee": PURE, "size_mechanism": NOISE, "size": 100},
                guarantee="object",
                size_mechanism="mechanism",
                size="count?",
                release="real?",
                log_prior="function?",
            ),
            Case(
                lambda scale: pmp.size_gap(PURE, pmp.Gaussian(scale=scale), size=50),
                {"scale": 1.0},
                scale="key",
            ),
        ],
        "capacity_for": [
            Case(
                pmp.capacity_for,
                {"release": 100.0, "mechanism": NOISE, "tail": 1e-6},
                release="real",
                mechanism="mechanism",
                tail="probability",
            ),
        ],
        "discrete_gaussian_scale": [
            Case(pmp.discrete_gaussian_scale, {"variance": 1.0}, variance="positives"),
        ],
        "discrete_gaussian_variance": [
            Case(pmp.discrete_gaussian_variance, {"scale": 1.0}, scale="positives"),
        ],
        "from_opendp": [
            Case(
                pmp.from_opendp,
                {"measurement": Measured, "d_in": 1.0},
                measurement="object",
                d_in="positive?",
            ),
        ],
        "from_opendp_summary": [
            Case(
                pmp.from_opendp_summary,
                {"frame": [{"column": "a", "distribution": "Float Laplace", "scale": 1.0}]},
                frame="frame",
                unsigned="names",
            ),
            Case(
                lambda scale: pmp.from_opendp_summary(
                    [{"column": "a", "distribution": "Float Laplace", "scale": scale}]
                ),
                {"scale": 1.0},
                scale="key",
            ),
        ],
        "from_registry_entry": [
            Case(
                pmp.from_registry_entry,
                {
                    "entry": lambda: {
                        "deployment": {"privacy_loss": {"privacy_parameters": {"epsilon": 2.0}}}
                    },
                    "noise": "Laplace",
                    "sensitivity": 1.0,
                    "share": 0.5,
                },
                entry="object",
                noise="neighbours",
                sensitivity="positive?",
                share="positive?",
            ),
            Case(
                lambda epsilon: pmp.from_registry_entry(
                    {"deployment": {"privacy_loss": {"privacy_parameters": {"epsilon": epsilon}}}},
                    noise="Laplace",
                    sensitivity=1.0,
                    share=0.5,
                ),
                {"epsilon": 2.0},
                epsilon="positive",
            ),
        ],
        "read_dp_wizard": [
            Case(
                pmp.read_dp_wizard,
                {"report": lambda: dp_wizard({"(0, 50]": 31, "(50, 100]": 12}, 9.4457)},
                report="object",
            ),
            Case(
                lambda accuracy: pmp.read_dp_wizard(dp_wizard({"(0, 50]": 31}, accuracy)),
                {"accuracy": 9.4457},
                accuracy="positive",
            ),
            Case(
                lambda count: pmp.read_dp_wizard(dp_wizard({"(0, 50]": count}, 9.4457)),
                {"count": 31},
                count="real",
            ),
        ],
        "Ledger": [
            Case(pmp.Ledger, {"path": fresh, "budget": PURE}, path="path", budget="guarantee"),
            Case(
                lambda path, epsilon, what: pmp.Ledger(path, PURE).charge(
                    pmp.PureDP(epsilon, neighbours="add_remove"), what=what
                ),
                {"path": fresh, "epsilon": 0.5, "what": "a"},
                epsilon="positive",
                what="title",
            ),
            Case(
                lambda path, charge: pmp.Ledger(path, PURE).charge(charge),
                {"path": fresh, "charge": PURE},
                charge="guarantee",
            ),
        ],
        "Study": [
            Case(
                pmp.Study,
                {**study(), "replicates": 2, "seed": 1},
                function="function",
                grid="mapping",
                replicates="count",
                seed="natural",
                path="path",
            ),
        ],
        "audit": [
            Case(
                pmp.audit,
                {
                    "rng": rng,
                    "mechanism": constant(NOISE),
                    "records": 0.0,
                    "neighbour": 1.0,
                    "draws": 1000,
                },
                rng="generator",
                mechanism="mechanism",
                records="statistic",
                neighbour="statistic",
                draws="count",
                delta="delta",
                false_alarm="probability",
                bins="count",
                features="features?",
            ),
        ],
        "Proportion": [Case(pmp.Proportion, {"prior": (1, 1)}, prior="prior")],
        "Rate": [Case(pmp.Rate, {"upper": 5, "prior": (1, 1)}, upper="count", prior="prior")],
        "NormalMean": [Case(pmp.NormalMean, {"bounds": (0, 1)}, bounds="pair")],
        "NormalVariance": [Case(pmp.NormalVariance, {"bounds": (0, 1)}, bounds="pair")],
        "Slope": [
            Case(
                pmp.Slope,
                {"covariate_bounds": (0, 1), "response_bounds": (0, 1), "bounds": (-1, 1)},
                covariate_bounds="pair",
                response_bounds="pair",
                bounds="pair",
            ),
        ],
        "PrivateInterval": [
            Case(
                pmp.PrivateInterval,
                {name: constant(getattr(proven, name)) for name in vars(proven)},
                lower="real",
                upper="real",
                prob="probability",
                method="neighbours",
                label="neighbours",
                assumptions="object",
                guarantee="guarantee",
                claimed="guarantee?",
                supported="guarantee?",
                why="object",
                releases="object",
                name="title",
                family="object?",
            ),
        ],
        "Release": [
            Case(
                pmp.Release,
                {
                    name: constant(getattr(published, name))
                    for name in ("plan", "integers", "size", "published", "sampler")
                },
                plan="object",
                integers="object",
                size="natural",
                published="name",
                sampler="neighbours",
            ),
        ],
        "release": [
            Case(
                pmp.release,
                releasing | {"epsilon": 1.0},
                **of_release,
                ledger="object?",
                sampler="neighbours",
            ),
            Case(pmp.release, releasing | {"rho": 0.5}, **of_release),
            Case(pmp.release, releasing | {"epsilon": 1.0, "delta": 1e-6}, **of_release),
            Case(
                pmp.release,
                releasing | {"epsilon": 1.0, "contributions": AGES, "bounds": (20.0, 60.0)},
                **of_release,
            ),
        ],
        "simulate_release": [
            Case(
                pmp.simulate_release,
                releasing | {"rng": rng, "epsilon": 1.0},
                rng="generator",
                **of_release,
            ),
        ],
        "release_card": [Case(pmp.release_card, {"release": published}, release="release")],
        "write_card": [
            Case(
                pmp.write_card,
                {"release": published, "path": fresh},
                release="release",
                path="path",
                overwrite="flag",
            ),
        ],
        "read_card": [
            Case(pmp.read_card, {"source": pmp.release_card(published)}, source="object"),
        ],
        "registry_entry": [
            Case(
                pmp.registry_entry,
                {"release": published, **registry},
                release="release",
                curators="object",
                description="name",
                intended_use="name",
                region="name",
            ),
        ],
        "noise_aware_interval": [
            interval(pmp.noise_aware_interval, draws=("count", 500), rng=("generator?", rng)),
        ],
        "bootstrap_interval": [
            interval(pmp.bootstrap_interval, repeats=("count", 50), rng=("generator?", rng)),
        ],
        "repro_interval": [
            interval(pmp.repro_interval, draws=("count", 50), rng=("generator?", rng)),
        ],
        "repro_set": [
            Case(
                pmp.repro_set,
                {
                    "observed": 3.0,
                    "simulate": constant(lambda rng, p, draws: rng.normal(np.mean(p), size=draws)),
                    "candidates": [1.0, 2.0],
                    "draws": 50,
                },
                observed="drawn",
                candidates="drawn",
                draws="count",
                prob="probability",
                rng="generator?",
            ),
        ],
        "multiple_sanitization_interval": [
            interval(pmp.multiple_sanitization_interval, releases=("count", 3)),
        ],
        "centre_scale_interval": [interval(pmp.centre_scale_interval)],
        "summary_interval": [
            Case(
                pmp.summary_interval,
                draws
                | {"centre_sensitivity": 0.1, "spread_sensitivity": 0.1, "largest_spread": 0.5},
                **of_draws,
                centre_sensitivity="positive",
                spread_sensitivity="positive",
                largest_spread="positive",
                prob="probability",
                name="title",
            ),
        ],
        "pp_interval": [Case(pmp.pp_interval, draws, **of_draws, prob="probability", name="title")],
        "pp_quantile": [
            Case(pmp.pp_quantile, draws | {"quantile": 0.5}, **of_draws, quantile="probability"),
        ],
        "private_quantile": [
            Case(
                pmp.private_quantile,
                {
                    "records": AGES,
                    "quantile": 0.5,
                    "bounds": (0.0, 100.0),
                    "epsilon": 1.0,
                    "neighbours": "replace_one",
                },
                records="rows",
                quantile="probability",
                bounds="pair",
                epsilon="positive",
                neighbours="neighbours",
                ledger="object?",
            ),
        ],
        "joint_guarantee": [
            Case(
                pmp.joint_guarantee,
                {"samples": 10, "epsilon": 1.0},
                samples="count",
                epsilon="positive",
                total_variation="share",
            ),
            Case(pmp.joint_guarantee, {"samples": 10, "mu": 1.0}, samples="count", mu="positive"),
        ],
        "precise": [
            Case(
                pmp.precise,
                {
                    "draws_or_idata": DRAWS,
                    "bounds": (0, 1),
                    "density_bound": 5.0,
                    "samples": 50,
                    "epsilon": 1.0,
                    "rng": rng,
                },
                draws_or_idata="records",
                bounds="pair",
                density_bound="positive",
                samples="count",
                epsilon="positive",
                prob="probability",
                variant="neighbours",
                collapse="object?",
                rng="generator?",
            ),
        ],
        "precise_quantiles": [
            Case(
                pmp.precise_quantiles,
                {
                    "rng": rng,
                    "draws": DRAWS,
                    "quantiles": [0.5],
                    "bounds": (0, 1),
                    "density_bound": 5.0,
                    "samples": 50,
                    "mu": 1.0,
                },
                rng="generator",
                draws="records",
                quantiles="vector",
                bounds="pair",
                density_bound="positive",
                samples="count",
                mu="positive",
            ),
        ],
        "posterior_interval": [
            Case(
                pmp.posterior_interval,
                {"idata": TREE, "releases": {"s": published}},
                idata="tree",
                releases="object",
                prob="probability",
                var_names="object?",
                public="object",
            ),
        ],
        "posterior_counts": [
            Case(pmp.posterior_counts, {"idata": TREE}, model, idata="tree", model="object?"),
        ],
        "window_error": [
            Case(pmp.window_error, {"idata": TREE}, model, idata="tree", model="object?"),
        ],
        "importance_sample": [
            Case(
                pmp.importance_sample,
                {},
                model,
                model="object?",
                draws="count",
                executor="object?",
                max_proposals="count",
                random_seed="seed?",
                progressbar="flag",
                keep_records="flag",
            ),
        ],
        "maximum_likelihood": [
            Case(
                pmp.maximum_likelihood,
                {},
                model,
                model="object?",
                starts="count",
                tolerance="positive",
                penalty="object?",
                random_seed="seed?",
                progressbar="flag",
            ),
        ],
        "likelihood_ratio": [
            Case(
                pmp.likelihood_ratio,
                {"fit": TREE, "null_fit": TREE},
                fit="object",
                null_fit="object",
                replicates="count",
            ),
        ],
        "plot_ascent": [
            Case(
                pmp.plot_ascent,
                {"fit": constant(CLIMBED), "axes": two_axes},
                fit="object",
                var_names="object?",
                axes="object?",
            ),
        ],
        "plot_profile": [
            Case(
                pmp.plot_profile,
                {"profile": constant(PROFILE), "axis": axis},
                profile="object",
                ci_prob="probability",
                axis="object?",
            ),
        ],
        "acceptance_bounds": [Case(pmp.acceptance_bounds, {}, model, model="object?")],
        "ergodicity": [Case(pmp.ergodicity, {}, sized_model, model="object?")],
        "size_matters": [
            Case(pmp.size_matters, {"size": 30}, sized_model, model="object?", size="count?")
        ],
        "plot_acceptance": [
            Case(
                pmp.plot_acceptance,
                {"runs": {1.0: TREE}, "axis": axis},
                runs="object",
                axis="object?",
            ),
            Case(
                lambda e: pmp.plot_acceptance({e: (0.5, 0.2)}, axis=axis()),
                {"e": 1.0},
                e="key",
            ),
        ],
        "plot_interval": [
            Case(
                pmp.plot_interval,
                {
                    "interval": constant(proven),
                    "draws_or_idata": DRAWS,
                    "axis": axis,
                },
                interval="object",
                draws_or_idata="records",
                axis="object?",
            ),
        ],
        "plot_posteriors": [
            Case(
                pmp.plot_posteriors,
                {"posteriors": TREE, "var_names": "p", "ci_prob": 0.9, "axes": axis},
                posteriors="object",
                var_names="object?",
                truth="mapping?",
                ci_prob="probability",
                axes="object?",
            ),
        ],
        "plot_records": [
            Case(
                pmp.plot_records,
                {"dt": TREE, "var_names": "x", "databases": 3, "axes": axis},
                dt="tree",
                var_names="names",
                databases="count",
                size="object?",
                confidential="mapping?",
                axes="object?",
            ),
        ],
        "plot_release": [
            Case(
                pmp.plot_release,
                {"dt": PREDICTED, "ci_prob": 0.9, "axes": axis},
                dt="tree",
                var_names="object?",
                ci_prob="probability",
                axes="object?",
            ),
        ],
        "plot_size_gap": [
            Case(
                pmp.plot_size_gap,
                {"found": constant(MATTERS), "axis": axis},
                found="object",
                axis="object?",
            ),
        ],
        "plot_size": [
            Case(
                pmp.plot_size,
                {"dt": TREE, "release": 100.0, "truth": 101, "axis": axis},
                dt="tree",
                var_names="names",
                release="real?",
                truth="real?",
                ci_prob="probability",
                axis="object?",
            ),
        ],
        "Privatized": [
            Case(
                lambda x, **kw: pmp.Privatized(contributions=x(), **kw),
                {
                    "x": constant(lambda: pm.Normal("x", shape=3)),
                    "name": "s",
                    "mechanism": NOISE,
                    "observed": 1.0,
                },
                model,
                name="name",
                mechanism="mechanism",
                observed="real?",
                local="flag",
            ),
            Case(
                pmp.Privatized,
                {"contributions": bits, "name": "s", "mechanism": NOISE, "observed": 1.0},
                model,
                contributions="contributions",
            ),
            Case(
                lambda x, **kw: pmp.Privatized(contributions=x(), **kw),
                {
                    "x": constant(lambda: pm.Normal("x", shape=3)),
                    "name": "s",
                    "mechanism": NOISE,
                    "observed": [1.0, 2.0],
                    "by": [0, 1, 0],
                },
                model,
                by="vector?",
                observed="observed?",
            ),
        ],
        "Records": [
            Case(
                lambda capacity, **kw: pmp.Records(
                    dist=pm.Normal.dist(),
                    size=pm.DiscreteUniform("n", 1, 9),
                    capacity=capacity,
                    **kw,
                ),
                {"name": "x", "capacity": 9},
                model,
                name="name",
                capacity="count?",
            ),
            Case(
                lambda **kw: pmp.Records("x", dist=pm.Normal.dist(), **kw),
                {"size": lambda: pm.DiscreteUniform("n", 1, 9)},
                model,
                size="object",
            ),
            Case(
                lambda **kw: pmp.Records("x", size=pm.DiscreteUniform("n", 1, 9), **kw),
                {"dist": pm.Normal.dist},
                model,
                dist="object",
            ),
        ],
        "NoisyRecord": [
            Case(
                pmp.NoisyRecord,
                {
                    "name": "y",
                    "dist": lambda: pm.Normal.dist(3.0, 1.0),
                    "mechanism": pmp.Laplace(scale=1.0),
                    "lower": -1.0,
                    "upper": 1.0,
                    "observed": [3.0, 4.0],
                },
                model,
                name="name",
                dist="object",
                mechanism="mechanism",
                lower="end",
                upper="end",
                observed="observed?",
            )
        ],
        "NoisyCount": [
            Case(
                pmp.NoisyCount,
                {
                    "name": "y",
                    "dist": lambda: pm.Poisson.dist(3.0),
                    "mechanism": WHOLE,
                    "observed": [3, 4],
                    "tail": 1e-12,
                },
                model,
                name="name",
                dist="object",
                mechanism="mechanism",
                observed="observed?",
                tail="probability",
            ),
        ],
        "LinearMeasurements": [
            Case(
                lambda **kw: pmp.LinearMeasurements(counts=pm.Poisson("c", 3.0, shape=2), **kw),
                {"name": "y", "matrix": [[1, 0], [1, 1]], "mechanism": WHOLE, "observed": [3, 7]},
                model,
                name="name",
                matrix="table",
                mechanism="mechanism",
                observed="observed",
                invariants="object?",
                at_least="object?",
                at_most="object?",
            ),
        ],
        "Sum": [
            Case(
                lambda over, groups: pmp.Sum(over=over, within=groups),
                {"over": "race", "groups": {"tract": ["a", "b", "a"]}},
                groups="mapping?",
            ),
        ],
        "sample": [
            Case(
                pmp.sample, {"draws": 5}, model, draws="count", keep_records="flag", model="object?"
            ),
        ],
        **{
            name: [
                Case(
                    getattr(pmp, name),
                    {},
                    plain_model,
                    vars="object?",
                    model="object?",
                    **STEP_OPTIONS[name],
                )
            ]
            for name in STEP_OPTIONS
        },
    }


def laplace(kind):
    return [
        Case(kind, {"scale": 1.0}, scale="scale", sensitivity="positive?", **NEAR),
        Case(
            kind,
            {"epsilon": 1.0, "sensitivity": 1.0},
            epsilon="positive",
            sensitivity="positive",
            **NEAR,
        ),
    ]


def gaussian(kind):
    common = {"sensitivity": "positive", **NEAR}
    return [
        Case(kind, {"scale": 1.0}, scale="scale", **NEAR),
        Case(kind, {"rho": 1.0, "sensitivity": 1.0}, rho="positive", **common),
        Case(kind, {"mu": 1.0, "sensitivity": 1.0}, mu="positive", **common),
        Case(
            kind,
            {"epsilon": 1.0, "delta": 0.1, "sensitivity": 1.0},
            epsilon="positive",
            delta="probability",
            **common,
        ),
    ]


def laws():
    """Return the cases of what the mechanisms do, by the name of each."""
    two = np.array([0.2, 0.4])
    known = {
        "Laplace": (NOISE, 1.0, 0.0),
        "DiscreteLaplace": (WHOLE, 1, 0),
        "Gaussian": (pmp.Gaussian(scale=(1.0, 2.0)), two, two),
        "DiscreteGaussian": (pmp.DiscreteGaussian(scale=2.0), 1, 0),
        "ExponentialMechanism": (pmp.ExponentialMechanism(scale=1.0), 0, two),
        "Tulap": (pmp.Tulap(epsilon=1.0, delta=0.1), 0.5, 0.0),
        "TruncatedLaplace": (
            pmp.TruncatedLaplace(epsilon=1.0, delta=0.1, sensitivity=1.0),
            0.5,
            0.0,
        ),
        "RandomizedResponse": (pmp.RandomizedResponse(epsilon=1.0), 1, 0),
        "TableMechanism": (pmp.TableMechanism.crosswise(p=0.3), 1, 0),
        "SetResponse": (pmp.SetResponse.local_hashing(epsilon=1.0, categories=3), 1, 0),
        "FunctionalMechanism": (pmp.FunctionalMechanism(epsilon=1.0, covariates=1), two, two),
        "KNormGradient": (pmp.KNormGradient.mean(epsilon=1.0, bounds=(0, 1)), 0.5, two),
        "LocalSum": (pmp.LocalSum(noise=NOISE), 1.0, [0.4, 3.0]),
        "ExponentialInterval": (pmp.ExponentialInterval(edges=[0, 0.5, 1], scale=1.0), 0.5, two),
        "KNormGradientRegression": (
            pmp.KNormGradientRegression(epsilon=1.0, box=[(-1, 1)], cells=4),
            [0.5],
            two,
        ),
        "ObjectivePerturbation": (
            pmp.ObjectivePerturbation(epsilon=1.0, bound=1.0),
            [0.2],
            two,
        ),
        "Clamped": (pmp.Clamped(mechanism=NOISE, lower=0.0), 1.0, 0.0),
        "Rounded": (pmp.Rounded(mechanism=NOISE), 1.0, 0.0),
        "Suppressed": (pmp.Suppressed(mechanism=NOISE, below=1.0), 2.0, 0.0),
    }
    found = {}
    for name, (law, release, statistic) in known.items():
        drawn = statistic if name != "ObjectivePerturbation" else [[1.0, 0.0], [-1.0, 1.0]]
        found[name] = [
            Case(
                # An impossible release has a density, too; it is no number, and no fault.
                lambda release, statistic, law=law: [law.log_density(release, statistic)],
                {"release": release, "statistic": statistic},
                release="value",
                statistic="value",
            ),
            Case(
                law.simulate, {"rng": rng, "statistic": drawn}, rng="generator", statistic="drawn"
            ),
        ]
    covariates, responses = np.array([[0.5], [0.2]]), np.array([0, 1])
    found["KNormGradient"].append(
        Case(known["KNormGradient"][0].contributions, {"x": two}, x="value")
    )
    found["FunctionalMechanism"].append(
        Case(
            known["FunctionalMechanism"][0].contributions,
            {"x": covariates, "y": responses},
            x="value",
            y="value",
        )
    )
    found["ObjectivePerturbation"].append(
        Case(
            known["ObjectivePerturbation"][0].contributions,
            {"release": [0.2], "x": covariates, "y": responses},
            release="drawn",
            x="value",
            y="value",
        )
    )
    return found


def promises():
    """Return the cases of what guarantees imply, by the name of each."""
    stated = {
        "PureDP": (pmp.PureDP, "delta"),
        "ZeroConcentratedDP": (pmp.ZeroConcentratedDP, "probability"),
        "GaussianDP": (pmp.GaussianDP, "probability"),
    }
    found = {}
    for name, (kind, delta) in stated.items():
        found[name] = [
            Case(
                lambda value, delta, kind=kind: kind(value).to_approximate(delta),
                {"value": 1.0, "delta": 0.1},
                value="positive",
                delta=delta,
            ),
            Case(
                lambda value, epsilon, kind=kind: kind(value).delta(epsilon),
                {"value": 1.0, "epsilon": 0.5},
                value="positive",
                epsilon="least_zero",
            ),
            Case(
                lambda value, kind=kind: (
                    kind(value).to_zero_concentrated(),
                    kind(value).to_total_variation(),
                    kind(value, neighbours="add_remove").to_replace_one(),
                ),
                {"value": 1.0},
                value="positive",
            ),
        ]
    found["ApproximateDP"] = [
        Case(
            lambda epsilon, delta: (
                pmp.ApproximateDP(epsilon, 0.01).to_approximate(delta),
                pmp.ApproximateDP(epsilon, 0.01, neighbours="add_remove").to_replace_one(),
                pmp.ApproximateDP(epsilon, 0.01).to_total_variation(),
            ),
            {"epsilon": 1.0, "delta": 0.1},
            epsilon="least_zero",
            delta="delta",
        )
    ]
    return found


def answers():
    """Return the cases of queries to single users, and of what is made of their answers."""
    place = {"coordinate": "natural?", "covariates": "mapping?"}
    stream = open_stream()
    return {
        "BinnedQuery": [
            Case(
                pmp.BinnedQuery,
                {"edges": [0.0, 1.0], "epsilon": 1.0},
                edges="edges",
                epsilon="positive",
                **place,
            ),
            Case(
                lambda record, **kw: pmp.BinnedQuery(edges=[0.0], epsilon=1.0, **kw).release(
                    record
                ),
                {"record": 0.5},
                record="record",
            ),
            Case(
                lambda rng, record: pmp.BinnedQuery(edges=[0.0], epsilon=1.0).simulate(rng, record),
                {"rng": rng, "record": [0.5, -1.0]},
                rng="generator",
                record="record",
            ),
        ],
        "ClippedQuery": [
            Case(
                pmp.ClippedQuery,
                {"lower": -1.0, "upper": 1.0, "epsilon": 1.0},
                lower="real",
                upper="real",
                epsilon="positive",
                **place,
            ),
            Case(
                pmp.ClippedQuery,
                {"lower": 0, "upper": 1, "mechanism": constant(NOISE)},
                lower="real",
                upper="real",
                mechanism="mechanism",
            ),
            Case(
                lambda lower, upper, epsilon, record: pmp.ClippedQuery(
                    lower=lower, upper=upper, epsilon=epsilon
                ).release(record),
                {"lower": 0.0, "upper": 1.0, "epsilon": 1.0, "record": 0.5},
                lower="real",
                upper="real",
                epsilon="positive",
                record="record",
            ),
        ],
        "Query": [
            Case(
                pmp.Query.from_json,
                {"line": pmp.BinnedQuery(edges=[0.0], epsilon=1.0).to_json()},
                line="line",
            ),
        ],
        "Stream": [
            Case(
                stream.update,
                {"query": constant(pmp.BinnedQuery(edges=[0.0, 1.0], epsilon=1.0)), "release": 1},
                query="object",
                release="answer",
            ),
            Case(stream.query, {}, coordinate="object?"),
        ],
        "online": [
            Case(
                lambda **kw: pmp.online(pm.Normal("x"), **kw),
                {"epsilon": 1.0},
                model,
                epsilon="positive",
                draws="count",
                queries="object",
                score="name",
                memory="flag?",
                thompson="flag",
                chains="count",
                random_seed="natural?",
                path="path?",
            ),
            Case(
                lambda record: pmp.online(record, epsilon=1.0),
                {"record": 1.0},
                record="object",
            ),
        ],
    }


def compositions():
    """Return the cases of shares of a whole, by the name of each."""
    table = [[0.2, 0.3, 0.5], [0.6, 0.4, 0.0], [0.1, 0.1, 0.8], [1.0, 0.0, 0.0]]
    records = {"shares": table, "epsilon": 1.0, "neighbours": "replace_one"}
    several = {"thresholds": [0.01, 0.1], "means": 0.2, "name": "time"}
    whose = {"by": ["f", "m", "f", "m"]}
    fixed = pmp.release_composition(**records, threshold=0.1)
    chosen = pmp.release_composition(**records, **several)
    grouped = pmp.release_composition(**records, **several, **whose)
    of_records = {
        "shares": "shares",
        "epsilon": "positive",
        "neighbours": "neighbours",
        "name": "title",
        "unit": "title",
    }
    of_choice = {"thresholds": "thresholds", "censored": "probability", "selection": "probability"}

    def published(call, **more):
        good, kinds = records | more, dict(of_records)
        if "rng" in more:
            kinds["rng"] = "generator"
        else:
            kinds["ledger"] = "object?"
        return [
            Case(call, good | {"threshold": 0.1}, threshold="probability", parts="count?", **kinds),
            Case(call, good | several, means="share", **of_choice, **kinds),
            Case(call, good | several | whose, by="groups?", means="share", **of_choice, **kinds),
            Case(call, good | {"means": 1}, means="share", parts="count?", **kinds),
            # A table without records has no columns, and `parts` are all there is to go by.
            Case(
                call,
                good | {"shares": [], "neighbours": "add_remove", "parts": 3, "threshold": 0.1},
                threshold="probability",
                parts="count",
            ),
        ]

    def shares():
        return pm.Dirichlet("x", np.ones(3), shape=(4, 3))

    def modelled(one, **kinds):
        good = {"x": constant(shares), "name": "s", "published": one}
        return [
            Case(
                lambda x, **kw: pmp.PrivatizedComposition(x=x(), **kw),
                good,
                model,
                name="title",
                published="object",
                **kinds,
            ),
            Case(pmp.PrivatizedComposition, good | {"x": shares}, model, x="contributions"),
        ]

    def of_group(x, group):
        return pmp.PrivatizedComposition("s", x, grouped, group=group)

    return {
        "release_composition": published(pmp.release_composition),
        "simulate_composition": published(pmp.simulate_composition, rng=rng),
        "CompositionRelease": [
            Case(
                pmp.CompositionRelease,
                {"plan": one.plan, "releases": one.releases, "group": one.group},
                plan="object",
                releases="object",
                group="title" if one.group else "title?",
            )
            for one in (fixed, chosen, grouped["f"])
        ],
        "GroupedComposition": [
            Case(pmp.GroupedComposition, {"groups": grouped.groups}, groups="object"),
            Case(
                lambda one: pmp.GroupedComposition((*grouped.groups, one)),
                {"one": replace(grouped["f"], group="x")},
                one="object",
            ),
            Case(lambda group: grouped[group], {"group": "m"}, group="title"),
        ],
        "PrivatizedComposition": [
            *modelled(fixed, group="object?"),
            *modelled(chosen),
            Case(
                of_group,
                {"x": lambda: pm.Dirichlet("x", np.ones(3), shape=(2, 3)), "group": "m"},
                model,
                x="contributions",
                group="title",
            ),
        ],
        "release_card": [
            Case(pmp.release_card, {"release": one}, release="release")
            for one in (fixed, chosen, grouped)
        ],
        "read_card": [
            Case(pmp.read_card, {"source": pmp.release_card(one)}, source="object")
            for one in (fixed, chosen, grouped)
        ],
        "log_share_sensitivity": [
            Case(
                pmp.log_share_sensitivity,
                {"parts": 3, "threshold": 0.1},
                parts="count",
                threshold="probability",
                neighbours="neighbours",
            ),
        ],
        "log_shares": [
            Case(
                pmp.log_shares, {"x": table, "threshold": 0.1}, x="table", threshold="probability"
            ),
        ],
        "smallest_share_bins": [
            Case(
                pmp.smallest_share_bins,
                {"x": table, "thresholds": [0.01, 0.1]},
                x="table",
                thresholds="thresholds",
            ),
        ],
        "select_threshold": [
            Case(
                pmp.select_threshold,
                {"noisy_counts": counts, "thresholds": [0.01, 0.1]},
                noisy_counts="vector",
                thresholds="thresholds",
                censored="probability",
            )
            for counts in ([-2, 40, 959], [1e308, -1e308, 1e308], chosen.counts)
        ],
        "plot_shares": [
            Case(
                pmp.plot_shares,
                {"dt": np.ones((20, 3)), "axes": axis, "truth": [1, 2, 3]},
                dt="table",
                labels="names?",
                truth="vector?",
                axes="object?",
            ),
            Case(
                pmp.plot_shares,
                {"dt": TREE, "var_names": "x", "axes": axis, "labels": ["a", "b", "c"]},
                dt="tree",
                var_names="names",
            ),
            Case(
                lambda draws, label, **kw: pmp.plot_shares({label: draws}, **kw),
                {"draws": np.ones((20, 2)), "label": "sharp", "axes": axis},
                draws="table",
                label="label",
            ),
            Case(
                pmp.plot_shares,
                {"dt": np.arange(1, 61).reshape(20, 3), "axes": axis},
                dt="positive_table",
            ),
        ],
        "plot_threshold": [
            Case(
                pmp.plot_threshold,
                {"published": one, "axis": axis},
                published="object",
                axis="object?",
            )
            for one in (chosen, grouped["f"])
        ],
    }


@functools.cache
def open_stream():
    """Return a stream of answers about a mean."""
    with pm.Model():
        x = pm.Normal("x", pm.Normal("mu"), 1.0)
    return pmp.online(x, epsilon=1.0, draws=20, random_seed=1)


class Measured:
    """What a measurement of OpenDP remembers of how it was made."""

    __opendp_dict__: ClassVar[dict] = {
        "__function__": "make_laplace",
        "__module__": "measurements",
        "__kwargs__": {"input_domain": "AtomDomain(T=f64)", "scale": 1.0, "k": None},
    }


def bits():
    return pm.Bernoulli("x", 0.5, shape=3)


@contextlib.contextmanager
def model():
    with pm.Model() as built:
        yield built


@contextlib.contextmanager
def plain_model():
    """A model that has a variable, and nothing that was released."""
    with pm.Model() as built:
        pm.Normal("free")
        yield built


@contextlib.contextmanager
def sized_model():
    with pm.Model() as built:
        n = pm.DiscreteUniform("n", 1, 60)
        x = pmp.Records("x", pm.Bernoulli.dist(0.4), size=n)
        pmp.Privatized("s", x, pmp.Laplace(epsilon=1.0, sensitivity=1.0), observed=3.0)
        pmp.Privatized("n_dp", n, pmp.Laplace(scale=2.0), observed=31.0)
        yield built


def two_axes():
    return [axis(), axis()]


def axis():
    import matplotlib.pyplot as plt

    plt.close("all")
    return plt.figure().add_subplot()


class Hang(BaseException):
    """A call took too long; not an Exception, so that nobody swallows it."""


@contextlib.contextmanager
def time_limit():
    def stop(*_):
        raise Hang

    before = [signal.signal(kind, stop) for kind in (signal.SIGVTALRM, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 30 * SECONDS)  # for a call that sleeps
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for kind, handler in zip((signal.SIGVTALRM, signal.SIGALRM), before, strict=True):
            signal.signal(kind, handler)


def ending(case, given):
    """Return None where the call was refused, ("result", it), or ("fault", what happened)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureNoiseWarning)
        try:
            with time_limit(), case.within():
                arguments = case.arguments() | given
                result = case.call(**arguments)
                harm = harmful(result)
        except PrivacyError as error:
            said = str(error)
            return None if said.strip() and len(said) < 5000 else ("fault", "no sentence")
        except Hang:
            return "fault", f"no answer within {SECONDS} seconds of processor time"
        except Exception as error:
            return "fault", f"{type(error).__name__}: {str(error)[:200]}"
    return ("fault", harm) if harm else ("result", result)


def harmful(result):
    """Say what is wrong with a result: numbers that are none, a law that cannot be evaluated."""
    promise = getattr(result, "guarantee", result)
    for name in ("epsilon", "delta", "rho", "mu", "scale", "bound", "lower", "upper"):
        value = getattr(result, name, None)
        if callable(value) or isinstance(value, str):
            continue
        # Nothing found is minus infinity, and noise without a bound reaches for ever.
        endless = isinstance(result, Audit) or (isinstance(result, pmp.Tulap) and name == "bound")
        # A release that rules a truth out has no bound of its loss, and promises nothing.
        tables = pmp.TableMechanism | pmp.SetResponse
        endless |= name == "epsilon" and isinstance(result, tables) and promise is None
        if value is not None and not endless and not np.all(np.isfinite(value)):
            return f"{name} is {value}"
    if isinstance(promise, pmp.PureDP) and not 0 < promise.epsilon < math.inf:
        return f"promises {promise}"
    if isinstance(result, Mechanism):
        return harmful_law(result)
    if isinstance(result, float) and not math.isfinite(result):
        return f"returned {result}"
    return None


def harmful_law(mechanism):
    hash(mechanism)
    repr(mechanism)
    if isinstance(mechanism, pmp.CustomMechanism):
        return None
    shape = np.shape(getattr(mechanism, "scale", 0.0))
    statistic = np.zeros(shape, dtype=int)
    if isinstance(mechanism, pmp.ExponentialMechanism):
        statistic = np.zeros(3)
    elif isinstance(mechanism, pmp.KNormGradient):
        statistic = np.ones(2 * (len(mechanism.edges) - 1))
    elif isinstance(mechanism, pmp.LocalSum):
        statistic = np.ones(np.size(mechanism.scale) + 1)
    elif isinstance(mechanism, pmp.ExponentialInterval):
        statistic = np.ones(len(mechanism.nodes))
    elif isinstance(mechanism, pmp.KNormGradientRegression):
        statistic = mechanism.contributions(np.ones((1, len(mechanism.box))), np.ones(1))[0]
    elif isinstance(mechanism, pmp.ObjectivePerturbation):
        statistic = np.array([[1.0, 0.0], [-1.0, 1.0]])
    try:
        drawn = mechanism.simulate(rng(), statistic)
    except PrivacyError:
        return None
    if isinstance(mechanism, pmp.Suppressed):
        drawn = np.asarray(mechanism.below)
    elif not np.all(np.isfinite(drawn)):
        return f"simulates {drawn}"
    if isinstance(mechanism, pmp.ObjectivePerturbation):
        return None
    density = mechanism.log_density(drawn, statistic)
    return None if not np.any(np.isnan(density)) else f"has log density {density} at {drawn}"


def wrong_calls(case):
    """Yield arguments of which one is of no use whatever."""
    for name in case.kinds:
        for value in case.values(name, WRONG):
            yield {name: value}


def odd_calls(case):
    """Yield arguments of which one is odd, and some of which several are odd or wrong."""
    for name in case.kinds:
        for value in case.values(name, ODD):
            yield {name: value}
    chooser = random.Random(zlib.crc32(repr(sorted(case.kinds)).encode()))
    names = sorted(case.kinds)
    for _ in range(MIXED):
        picked = chooser.sample(names, chooser.randint(1, len(names)))
        pools = [(n, case.values(n, chooser.choice([ODD, ODD, WRONG]))) for n in picked]
        yield {n: chooser.choice(pool) for n, pool in pools if pool}


@pytest.fixture(scope="module")
def every_case(tmp_path_factory):
    found = cases(tmp_path_factory.mktemp("fuzz"))
    for more in (laws(), promises(), answers(), compositions()):
        for name, several in more.items():
            found.setdefault(name, []).extend(several)
    return found


def test_every_public_name_is_fuzzed(every_case):
    assert sorted(every_case) == sorted(pmp.__all__)


@pytest.mark.parametrize("name", pmp.__all__)
def test_good_arguments_are_taken(name, every_case):
    needs_releases = {"sample", "posterior_interval", "posterior_counts", "window_error"}
    needs_releases |= {"online", "importance_sample", "maximum_likelihood", "likelihood_ratio"}
    if not PARQUET:
        needs_releases |= {"read_nmf", "simulate_nmf"}  # refused for want of pyarrow
    for case in every_case[name]:
        found = ending(case, {})
        if name in needs_releases | set(STEP_OPTIONS):
            assert found is None  # refused for want of a model, and not otherwise
        else:
            assert found is not None
            assert found[0] == "result", found[1]


@pytest.mark.parametrize("name", pmp.__all__)
def test_nonsense_is_refused_in_a_sentence(name, every_case):
    faults = []
    for case in every_case[name]:
        for given in wrong_calls(case):
            found = ending(case, given)
            if found is not None:
                what = "was accepted" if found[0] == "result" else found[1]
                faults.append(f"{said(given)}: {what}")
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults)


@pytest.mark.parametrize("name", pmp.__all__)
def test_odd_values_do_no_harm(name, every_case):
    faults = []
    for case in every_case[name]:
        for given in odd_calls(case):
            found = ending(case, given)
            if found is not None and found[0] == "fault":
                faults.append(f"{said(given)}: {found[1]}")
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults)


def said(given):
    return ", ".join(f"{name}={shown(value)[:60]}" for name, value in given.items())
