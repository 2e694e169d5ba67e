"""A study on a Dask cluster, of which workers die."""

import pytest

from tests.studies import experiments
from tests.studies.test_study import results, study_of

distributed = pytest.importorskip(
    "distributed", reason="Dask is not installed; install pymc-privacy[dask] to run these tests"
)
pytestmark = [
    pytest.mark.slow,
    # The cluster says in the log and in warnings that workers died, which is what is tested.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def client():
    import dask

    settings = {"distributed.scheduler.allowed-failures": 1, "distributed.admin.tick.limit": "1h"}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_worker_killed_in_the_middle_costs_nothing(client, tmp_path):
    folder = str(tmp_path)
    study = study_of(experiments.kills_its_worker_once, tmp_path / "r.jsonl", 40, folder=folder)
    rows = study.run(client.get_executor(), progressbar=False)
    assert (tmp_path / "killed").exists(), "no worker was killed"
    assert [row["index"] for row in rows] == list(range(40))
    assert all(row["error"] is None for row in rows)
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 40, "a row was written twice"
    # Nobody dies when index 3 is run a second time: the same rows, here and one by one.
    here = study_of(experiments.kills_its_worker_once, tmp_path / "here.jsonl", 40, folder=folder)
    assert results(here.run(progressbar=False)) == results(rows)


def test_a_replicate_that_kills_every_worker_is_a_row_with_its_error(client, tmp_path):
    study = study_of(experiments.kills_every_worker, tmp_path / "r.jsonl", 4)
    rows = study.run(client.get_executor(), progressbar=False)
    assert [row["index"] for row in rows] == [0, 1, 2, 3]
    assert [row["error"] is None for row in rows] == [True, False, True, True]
    assert rows[1]["error"].startswith("KilledWorker")
