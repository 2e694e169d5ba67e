"""Count the files that making a step method goes through: `python scripts/trace_step.py`.

A reader who follows how `Interweave` is made for README's model opens these files. Functions that
are called while a module is imported do not count.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pymc as pm
import pytensor.tensor as pt

import pymc_privacy as pmp

PACKAGE = Path(pmp.__file__).parent


def readme_model() -> pm.Model:
    """Return the model that README begins with."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        sigma = pm.HalfNormal("sigma", 2)
        x = pm.Normal("x", mu, sigma, shape=1000)
        clipped = pt.clip(x, -5, 5)
        contributions = pt.stack([clipped, clipped**2], axis=1)
        noise = pmp.Laplace(epsilon=1.0, sensitivity=35.0, neighbours="replace_one")
        pmp.Privatized("moments", contributions, noise, observed=[412.7, 3105.2])
    return model


def files_of(make: Any) -> Counter[str]:
    """Return how many functions of each file of the package a call goes through."""
    seen: set[tuple[str, str, int]] = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            seen.add((code.co_filename, code.co_qualname, code.co_firstlineno))

    sys.setprofile(watch)
    try:
        make()
    finally:
        sys.setprofile(None)
    named = [(f, n) for f, n, _ in seen if n != "<module>"]
    return Counter(str(Path(f).relative_to(PACKAGE)) for f, _ in named)


if __name__ == "__main__":
    model = readme_model()
    found = files_of(lambda: pmp.Interweave(model=model))
    for name, functions in sorted(found.items()):
        print(f"{functions:4d}  {name}")
    print(f"{sum(found.values())} functions in {len(found)} files")
