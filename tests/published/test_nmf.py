"""Noisy measurement files are read back exactly, by a reference that is pyarrow alone."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import ReleaseError
from tests.stochastic import assert_mean

arrow = pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
pq = pytest.importorskip("pyarrow.parquet")

AXES = ["hhgq", "votingage", "hispanic", "cenrace"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nmf")
    truth = pmp.simulate_nmf(np.random.default_rng(5), folder, counties=2, tracts=3, aian=True)
    return folder, truth


def rows_of(folder, level, kind):
    files = sorted((folder / "US_Person_PL_PROD" / f"{level}.parquet" / kind).rglob("*.parquet"))
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


def variance_of(scale):
    """The variance of the discrete Gaussian law by its definition."""
    k = np.arange(-2000, 2001)
    p = np.exp(-0.5 * (k / scale) ** 2)
    return (k**2 * p).sum() / p.sum()


@pytest.mark.parametrize("level", ["State", "County", "Tract"])
def test_every_number_comes_back(level, written):
    folder, _ = written
    frame = pmp.read_nmf(folder, level=level)
    noisy = frame[frame["kind"] == "noisy"]
    assert set(frame["kind"]) == {"noisy", "exact", "at_least", "at_most"}
    seen = 0
    for row in rows_of(folder, level, "DPQuery"):
        query = row["query_name"].removesuffix("_dpq")
        found = noisy[(noisy["geocode"] == row["geocode"]) & (noisy["query"] == query)]
        np.testing.assert_array_equal(found["value"], row["value"])
        seen += len(found)
        # C order: the last axis runs fastest.
        cells = [np.asarray(c).ravel() for c in np.indices(row["query_shape"])]
        for axis, cell in zip(AXES, cells, strict=True):
            if row[axis] == "*":
                assert found[axis].isna().all()
            else:
                np.testing.assert_array_equal(found[axis].to_numpy(np.int64), cell)
        [scale] = set(found["scale"])
        assert variance_of(scale) == pytest.approx(row["variance"], rel=1e-6)
    assert seen == len(noisy)
    known = {
        (r["geocode"], r["query_name"], r["sign"]) for r in rows_of(folder, level, "Constraint")
    }
    signs = {"exact": "=", "at_least": ">=", "at_most": "<="}
    held = frame[frame["kind"] != "noisy"]
    assert known == {
        (g, f"{q}_con", signs[k])
        for g, q, k in zip(held["geocode"], held["query"], held["kind"], strict=True)
    }
    assert not held["scale"].any()
    assert set(held.loc[held["query"] == "nurse_nva_0", "recode"]) == {
        "hhgq=gqNursingTotal, votingage=nonvoting"
    }


def test_noise_is_what_the_scale_says_and_bounds_hold(written):
    folder, truth = written
    frame = pmp.read_nmf(
        folder, level="Tract", queries=["detailed", "hhgq_total_lb", "hhgq_total_ub"]
    )
    noisy = frame[frame["query"] == "detailed"]
    counts = np.concatenate([truth[g].ravel() for g in dict.fromkeys(noisy["geocode"])])
    z = (noisy["value"].to_numpy() - counts) / noisy["scale"].to_numpy()
    assert_mean(z, 0.0)
    assert_mean(z**2, 1.0)
    for row in frame[frame["kind"] != "noisy"].itertuples():
        people = truth[row.geocode][row.hhgq].sum()
        assert people >= row.value if row.kind == "at_least" else people <= row.value


def test_states_parents_and_parts(written):
    folder, _ = written
    both = pmp.read_nmf(folder, level="tract", queries=["total"], states=["50"])
    one = pmp.read_nmf(folder, level="Tract", queries=["total"], states=["150"])
    assert len(both) == 2 * len(one)
    assert one["aian"].all()
    assert set(both["parent"]) == {"05010001", "05010002", "15010001", "15010002"}
    assert set(pmp.read_nmf(folder, level="County", queries=["total"])["parent"]) == {"050", "150"}
    with pytest.raises(ReleaseError, match="must have measurements of the states"):
        pmp.read_nmf(folder, level="Tract", states=["06"])


def test_a_total_of_a_state_binds_both_parts(written, tmp_path):
    folder, _ = written
    frame = pmp.read_nmf(folder, level="State", queries=["total"], totals={"50": 99})
    [row] = frame[frame["kind"] == "exact"].to_dict("records")
    assert (row["geocode"], row["value"], row["scale"]) == ("050+150", 99, 0.0)
    pmp.simulate_nmf(np.random.default_rng(5), tmp_path, counties=1, tracts=1)
    with pytest.raises(
        ReleaseError, match=r"both together; 150 is missing.*give the total of '050'"
    ):
        pmp.read_nmf(tmp_path, level="State", totals={"50": 99})
    frame = pmp.read_nmf(tmp_path, level="State", queries=["total"], totals={"050": 99})
    assert list(frame["kind"]) == ["noisy", "exact"]
    with pytest.raises(ReleaseError, match='with level="State"'):
        pmp.read_nmf(tmp_path, level="Tract", totals={"50": 99})


def test_what_was_published_before_is_never_exact(written, tmp_path):
    folder, _ = written
    [file, *_] = sorted((folder / "US_Person_PL_PROD/Tract.parquet/Constraint").rglob("*.parquet"))
    table = pq.read_table(file, partitioning=None).to_pylist()
    table[0] |= {"query_name": "pl94_con", "sign": "="}
    target = tmp_path / "US_DHCP_PROD" / "Tract.parquet" / "Constraint" / "State=050"
    target.mkdir(parents=True)
    pq.write_table(arrow.Table.from_pylist(table), target / "part-0.parquet")
    frame = pmp.read_nmf(tmp_path, level="Tract")
    assert len(frame) > 0
    assert not frame["query"].str.contains("pl94").any()
    with pytest.raises(ReleaseError, match="and not exact counts"):
        pmp.read_nmf(tmp_path, level="Tract", queries=["pl94"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "Parish"}, "level must be"),
        ({"level": "Block"}, "must have one folder Block.parquet"),
        ({"level": "Tract", "queries": ["income"]}, "queries must be among those.*'income'"),
        ({"level": "Tract", "states": "Vermont"}, "a list of states by their codes"),
        ({"level": "State", "totals": {"50": -1}}, "total of '50'"),
    ],
)
def test_what_is_not_there_is_refused(options, message, written):
    with pytest.raises(ReleaseError, match=message):
        pmp.read_nmf(written[0], **options)


def test_files_of_another_kind_are_refused(tmp_path):
    with pytest.raises(ReleaseError, match="which is no folder"):
        pmp.read_nmf(tmp_path / "none", level="Tract")
    target = tmp_path / "Tract.parquet" / "DPQuery" / "State=050"
    target.mkdir(parents=True)
    pq.write_table(arrow.Table.from_pandas(pd.DataFrame({"a": [1]})), target / "part.parquet")
    with pytest.raises(ReleaseError, match=r"must have the columns.*geocode"):
        pmp.read_nmf(tmp_path, level="Tract")
    (target / "part.parquet").write_text("no parquet")
    with pytest.raises(ReleaseError, match=r"reading .* failed at"):
        pmp.read_nmf(tmp_path, level="Tract")


def test_from_a_file_to_intervals_for_all_tracts_takes_ten_lines():
    """The cell of the page, which is run by the checks of the docs."""
    page = (Path(__file__).parents[2] / "docs" / "census.md").read_text(encoding="utf-8")
    [cell] = re.findall(
        r"From the file to intervals.*?```\{code-cell\} ipython3\n(.*?)```", page, re.S
    )
    lines = [line for line in cell.splitlines() if line.strip()]
    assert len(lines) <= 10
    assert "pmp.read_nmf(" in lines[0]
    assert "az.summary(" in lines[-1]
    assert max(map(len, lines)) <= 100
