"""Small experiments, importable by the workers of any executor, that leave a trace of each call."""

import os
import signal
import time
from pathlib import Path

import numpy as np


def note(folder, *words):
    """Append one line in one write, which the system does not interleave with others."""
    descriptor = os.open(Path(folder) / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())
    os.close(descriptor)


def calls(folder):
    path = Path(folder) / "calls"
    return path.read_text().splitlines() if path.exists() else []


def noisy_mean(rng, size, folder):
    """Return numbers that only the generator and the setting determine."""
    x = rng.normal(size=int(size))
    note(folder, size, f"{x[0]:.17g}")
    return {"mean": x.mean(), "first": x[:3], "positive": np.bool_(x.mean() > 0), "size_seen": size}


def slow(rng, index, folder):
    """Take a while, so that a run can be killed in the middle."""
    time.sleep(0.05)
    value = float(rng.random())
    note(folder, index, f"{value:.17g}")
    return {"value": value}


def fails_sometimes(rng, index):
    value = float(rng.random())
    if index % 3 == 1:
        raise ValueError(f"index {index} does not work")
    if index % 3 == 2:
        raise SystemExit(2)
    return {"value": value}


def returns_what_json_cannot_hold(rng, kind):
    return {"object": object()} if kind == "object" else [1, 2]


def returns_a_reserved_name(rng, index):
    return {"index": index}


def kills_its_worker_once(rng, index, folder):
    """Take the worker down, the first time that index 3 is run."""
    value = float(rng.random())
    marker = Path(folder) / "killed"
    if index == 3 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": value}


def kills_every_worker(rng, index):
    if index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": float(rng.random())}


class Unspeakable(Exception):
    """An error that cannot be printed."""

    def __str__(self):
        raise RuntimeError("no message")


def raises_what_cannot_be_printed(rng, index):
    if index == 1:
        raise Unspeakable
    if index == 2:
        raise BaseException("not even an Exception")
    return {"value": 1.0}


def hangs(rng, index):
    if index == 1:
        while True:
            time.sleep(0.01)
    return {"value": float(rng.random())}


def returns_names_that_collapse(rng, index):
    return [{1: 2, "1": 3}, {"deep": {1: 2, "1": 3}}, {1: 2}, {"fine": {1: 2, 2: 3}}][index]
