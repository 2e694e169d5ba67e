"""Reports of DP Wizard and entries of a registry: a scale where one can be had, else a sentence."""

import math

import numpy as np
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import PrivacyError, ReleaseError

AGES = {"histogram": {"(0, 50]": 31, "(50, 100]": 0}, "accuracy": 9.445721638273584}
REPORT = {
    "inputs": {"data": "fake.csv", "epsilon": 1.0, "contributions": 1},
    "outputs": {"age: in years": AGES | {"confidence": 0.95}},
}
LINES = [
    "inputs: data,fake.csv",
    'inputs: columns: a,"1, 2"',
    '"outputs: age: in years: histogram: (0, 50]",31',
    '"outputs: age: in years: histogram: (50, 100]",0',
]
KEYS = ["accuracy,9.445721638273584", "confidence,0.95"]


def test_the_scale_of_opendp_comes_back():
    """OpenDP's guide prints this accuracy for a scale of 3 and 95 %."""
    found = pmp.read_dp_wizard(REPORT)["age: in years"]
    assert found.mechanism.scale == pytest.approx(3.0, rel=1e-12)
    assert isinstance(found.mechanism.mechanism, pmp.DiscreteLaplace)
    assert found.bins == ("(0, 50]", "(50, 100]")
    assert found.counts.tolist() == [31, 0]
    # A noisy count that was negative is published as 0.
    below = found.mechanism.log_density(0, 2)
    z = math.exp(-1 / 3)
    assert below == pytest.approx(math.log(z**2 / (1 + z)))


@pytest.mark.parametrize("scale", [0.1, 0.7, 20.0, 3e6])
@pytest.mark.parametrize("alpha", [0.05, 0.5])
def test_the_accuracy_means_its_confidence(scale, alpha):
    """The tail of the noise beyond it is alpha, interpolated between integers as OpenDP does."""
    accuracy = 1 + scale * (math.log(2 / alpha) - np.logaddexp(1 / scale, 0))
    output = AGES | {"accuracy": float(accuracy), "confidence": 1 - alpha}
    [found] = pmp.read_dp_wizard({"outputs": {"age": output}}).values()
    assert found.mechanism.scale == pytest.approx(scale, rel=1e-7)
    z = math.exp(-1 / scale)
    if accuracy >= 1:
        assert 2 * z**accuracy / (1 + z) == pytest.approx(alpha, rel=1e-9)


def test_a_csv_says_the_same(tmp_path):
    """Names may have colons, and other lines are of no concern."""
    file = tmp_path / "report.csv"
    file.write_text("\n".join(LINES))
    with pytest.raises(ReleaseError, match="got histogram, and no scale can be had"):
        pmp.read_dp_wizard(file)
    file.write_text("\n".join([*LINES, *(f"outputs: age: in years: {key}" for key in KEYS)]))
    [(name, found)] = pmp.read_dp_wizard(file).items()
    [(same, from_dictionary)] = pmp.read_dp_wizard(REPORT).items()
    assert name == same
    assert found.bins == from_dictionary.bins
    assert found.counts.tolist() == from_dictionary.counts.tolist()
    assert found.mechanism == from_dictionary.mechanism


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ({"outputs": {"age": {"mean": 41.2}}}, "got mean, and no scale can be had"),
        ({"outputs": {"age": AGES}}, "no scale can be had"),
        ({"outputs": {"age": AGES | {"confidence": 1.0}}}, "confidence"),
        ({"outputs": {"age": AGES | {"confidence": "high"}}}, "must be a number"),
        ({"outputs": {"age": AGES | {"confidence": 0.95, "accuracy": -2.0}}}, "no scale"),
        ({"outputs": {"age": AGES | {"confidence": 0.95, "accuracy": math.nan}}}, "finite|number"),
        ({"outputs": {"age": AGES | {"confidence": 0.9, "histogram": {"a": 1.5}}}}, "integers"),
        ({"outputs": {}}, "must be one of DP Wizard"),
        ({"inputs": {}}, "must be one of DP Wizard"),
        ({"outputs": {"age": 3}}, "must be one of DP Wizard"),
        ("no such file", "can be read"),
        (3, "path"),
    ],
)
def test_reports_without_a_scale_are_refused(report, message):
    with pytest.raises(PrivacyError, match=message):
        pmp.read_dp_wizard(report)


def entry_of(**parameters):
    return {"deployment": {"privacy_loss": {"privacy_parameters": parameters}}}


def test_an_entry_with_sensitivity_and_share_has_a_scale():
    known = {"sensitivity": 2.0, "share": 0.5}
    laplace = pmp.from_registry_entry(entry_of(epsilon=4.0), noise="Laplace", **known)
    assert laplace == pmp.Laplace(epsilon=2.0, sensitivity=2.0)
    # sigma^2 = sensitivity^2 / (2 rho), rho half of 0.5.
    gaussian = pmp.from_registry_entry(entry_of(rho=0.5), noise="DiscreteGaussian", **known)
    assert gaussian.scale == pytest.approx(math.sqrt(8.0))


@pytest.mark.parametrize(
    ("entry", "options", "message"),
    [
        (entry_of(rho=2.63), {"noise": "DiscreteGaussian"}, "no scale can be had"),
        (entry_of(rho=2.63), {"noise": "Laplace", "sensitivity": 1, "share": 1}, "state epsilon"),
        (
            entry_of(epsilon=1.0, delta=1e-6),
            {"noise": "Laplace", "sensitivity": 1.0, "share": 1.0},
            "state epsilon alone",
        ),
        (entry_of(rho=1.0), {"noise": "Gaussian", "sensitivity": 1.0, "share": 1.5}, "share"),
        (entry_of(rho=1.0), {"noise": "Gaussian", "sensitivity": 0.0, "share": 0.5}, "sensitivity"),
        (entry_of(rho="1"), {"noise": "Gaussian", "sensitivity": 1.0, "share": 0.5}, "rho"),
        (entry_of(rho=1.0), {"noise": "Tulap"}, "noise"),
        (
            entry_of(rho=1.0, delta=np.ones(2)),
            {"noise": "Gaussian", "sensitivity": 1.0, "share": 1.0},
            "state rho alone",
        ),
        (
            entry_of(rho=1.0),
            {"noise": "Gaussian", "sensitivity": 1.0, "share": np.ones(2)},
            "share must be",
        ),
        ({"deployment": {"privacy_loss": None}}, {"noise": "Laplace"}, "within each other"),
        ([], {"noise": "Laplace"}, "dictionary"),
    ],
)
def test_entries_without_a_scale_are_refused(entry, options, message):
    with pytest.raises(PrivacyError, match=message):
        pmp.from_registry_entry(entry, **options)


def test_an_entry_of_our_own_is_read_back():
    published = pmp.release([0, 1, 1], bounds=(0, 1), epsilon=0.5, neighbours="replace_one")
    entry = pmp.registry_entry(
        published, curators=["An office"], description="d", intended_use="i", region="r"
    )
    found = pmp.from_registry_entry(entry, noise="DiscreteLaplace", sensitivity=1.0, share=1)
    assert found.scale == 2.0
