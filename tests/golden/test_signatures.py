"""What users call stays as it is; whoever changes it writes the file anew, and says why."""

import json

import pytest

import pymc_privacy as pmp
from tests.golden.signatures import SIGNATURES, signatures

STORED = json.loads(SIGNATURES.read_text(encoding="utf-8"))


def test_no_public_name_is_gone_or_new():
    assert sorted(STORED) == sorted(pmp.__all__)


@pytest.mark.parametrize("name", pmp.__all__)
def test_signatures_stay(name):
    assert signatures()[name] == STORED[name]
