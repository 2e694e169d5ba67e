"""A server that learns from private answers, and clients who give them, over HTTP on this machine.

The server holds the model and no record. A client gets a query, computes its answer by itself, and
sends that back: the record never leaves it. A ticket ties an answer to its query, and can be used
once.

    python examples/private_answers.py [--users 60] [--epsilon 2] [--path FOLDER]

This shows who says what to whom, and is no server to put on a network: there is neither encryption
nor any check of who answers.
"""

from __future__ import annotations

import argparse
import json
import logging
import secrets
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pymc as pm

import pymc_privacy as pmp
from pymc_privacy.errors import PrivacyError

LONGEST = 10_000  # bytes of what a client may send


class Server(HTTPServer):
    """Hand out queries and take answers; one request at a time, as a stream wants it."""

    def __init__(self, stream: pmp.Stream, address: tuple[str, int] = ("127.0.0.1", 0)):
        super().__init__(address, Handler)
        self.stream = stream
        self.asked: dict[str, pmp.Query] = {}

    @property
    def url(self) -> str:
        """Return where the server listens."""
        host, port = self.server_address[:2]
        return f"http://{host}:{port}"


class Handler(BaseHTTPRequestHandler):
    """GET /query returns a ticket and a query; POST /answer takes a ticket and its answer."""

    server: Server

    def do_GET(self) -> None:
        """Ask."""
        if self.path != "/query":
            return self._say(404, {"error": "There is /query, and nothing else to get."})
        ticket, query = secrets.token_urlsafe(16), self.server.stream.query()
        self.server.asked[ticket] = query
        return self._say(200, {"ticket": ticket, "query": json.loads(query.to_json())})

    def do_POST(self) -> None:
        """Take an answer in."""
        try:
            length = min(int(self.headers.get("Content-Length", 0)), LONGEST)
            sent = json.loads(self.rfile.read(length))
            ticket, answer = sent["ticket"], sent["answer"]
            query = self.server.asked[ticket]
        except (ValueError, KeyError, TypeError):
            return self._say(400, {"error": "An answer is a ticket that was given out, once."})
        try:
            self.server.stream.update(query, answer)
        except PrivacyError as error:
            return self._say(400, {"error": str(error)})
        # Only now: an answer that was refused may be sent again.
        del self.server.asked[ticket]
        return self._say(200, {"size": self.server.stream.size})

    def log_message(self, format: str, *args: Any) -> None:
        """Keep no log of who came when."""

    def _say(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def answer(url: str, record: float, most: float) -> int:
    """Be a client: look at the promise, answer one query for one record, return the server's size.

    A client trusts nobody: it reads from the query itself what it would be promised.
    """
    with urllib.request.urlopen(f"{url}/query") as reply:
        asked = json.load(reply)
    query = pmp.Query.from_json(json.dumps(asked["query"]))
    guarantee = query.guarantee
    if not isinstance(guarantee, pmp.PureDP) or guarantee.epsilon > most:
        raise PermissionError(f"A client answers up to epsilon {most}; asked for {guarantee}.")
    sent = {"ticket": asked["ticket"], "answer": query.release(record)}
    request = urllib.request.Request(f"{url}/answer", json.dumps(sent).encode(), method="POST")
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["size"]


def opened(epsilon: float, path: str | None = None) -> pmp.Stream:
    """Return the stream behind the server."""
    with pm.Model():
        mu = pm.Normal("mu", 0, 50)
        x = pm.Normal("x", mu, pm.HalfNormal("sigma", 20))
    return pmp.online(x, epsilon=epsilon, draws=400, random_seed=1, path=path)


def main() -> None:
    """Serve, and be all the clients."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=60)
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--path", default=None, help="a folder, to go on where it was stopped")
    options = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    with opened(options.epsilon, options.path) as stream:
        server = Server(stream)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        records = np.random.default_rng(stream.size + 1).normal(40.0, 5.0, options.users)
        for record in records:
            answer(server.url, float(record), most=options.epsilon)
        server.shutdown()
        thread.join()
        server.server_close()
        posterior = stream.result().posterior
        print(f"{stream.size} answers, epsilon {options.epsilon:g} each.")
        for name, draws in posterior.data_vars.items():
            print(f"{name}: {float(draws.mean()):.2f} ± {float(draws.std()):.2f}")


if __name__ == "__main__":
    main()
