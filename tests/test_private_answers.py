"""The example of a server and its clients: it learns, and no record leaves a client."""

import json
import runpy
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import pymc_privacy as pmp

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def example():
    if not (ROOT / "examples").is_dir():
        pytest.skip("The examples are not beside the package.")
    return runpy.run_path(str(ROOT / "examples" / "private_answers.py"))


@pytest.fixture
def server(example):
    made = example["Server"](example["opened"](2.0))
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def post(server, content):
    request = urllib.request.Request(f"{server.url}/answer", content, method="POST")
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


def refused(server, content):
    """Return the status with which something is refused."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(server, content)
    caught.value.close()
    return caught.value.code


def test_clients_answer_and_the_server_learns(example, server):
    sizes = [example["answer"](server.url, 40.0, 2.0) for _ in range(30)]
    assert sizes == list(range(1, 31))
    posterior = server.stream.result().posterior
    assert abs(float(posterior["mu"].mean()) - 40) < 6 * float(posterior["mu"].std())
    assert float(posterior["mu"].std()) < 25, "less than half of the prior's"
    assert not server.asked


def test_a_client_answers_no_more_than_it_wants_to(example, server):
    with pytest.raises(PermissionError, match="up to epsilon 1"):
        example["answer"](server.url, 40.0, 1.0)
    assert server.stream.size == 0


@pytest.mark.parametrize("sent", [b"", b"{}", b"[1]", b'{"ticket": "none", "answer": 1}'])
def test_what_is_no_answer_is_refused(server, sent):
    assert refused(server, sent) == 400
    assert server.stream.size == 0


def test_a_ticket_is_for_one_answer_to_one_query(server):
    with urllib.request.urlopen(f"{server.url}/query") as reply:
        asked = json.load(reply)
    query = pmp.Query.from_json(json.dumps(asked["query"]))
    ticket = asked["ticket"]
    assert refused(server, json.dumps({"ticket": ticket, "answer": 99}).encode()) == 400
    sent = json.dumps({"ticket": ticket, "answer": query.release(1.0)}).encode()
    assert post(server, sent) == {"size": 1}
    assert refused(server, sent) == 400
    assert server.stream.size == 1
