"""What is attached to, and read from, a sampled `DataTree`: the only file that touches xarray."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import xarray as xr
from arviz_stats import ess, rhat

from pymc_privacy.distributions.marking import is_marked
from pymc_privacy.errors import MixingWarning
from pymc_privacy.graph.database import is_release

RHAT_LIMIT = 1.05
ESS_PER_CHAIN = 25


def attach_privacy(result: xr.DataTree, model) -> None:
    """Add a ``privacy`` group: for each release its mechanism, and what that promises."""
    releases = [rv for rv in model.observed_RVs if is_release(rv)]
    mechanisms = [rv.owner.op.mechanism for rv in releases]
    result["privacy"] = xr.DataTree(
        xr.Dataset(
            {
                "mechanism": ("release", np.array([repr(m) for m in mechanisms], dtype=str)),
                "guarantee": ("release", np.array([_promise(m) for m in mechanisms], dtype=str)),
                "local": ("release", np.array([rv.owner.op.local for rv in releases])),
            },
            coords={"release": np.array([rv.name for rv in releases], dtype=str)},
            attrs={
                "records": json.dumps([rv.name for rv in model.free_RVs if is_marked(rv)]),
                "target": "p(parameters | releases), by exact data augmentation",
            },
        )
    )


def _promise(mechanism) -> str:
    return "not stated" if mechanism.guarantee is None else str(mechanism.guarantee)


def warn_unless_mixed(result: xr.DataTree) -> None:
    """Warn, with advice, when chains disagree or have hardly moved."""
    posterior: Any = result["posterior"].to_dataset()
    chains = posterior.sizes["chain"]
    if not posterior.data_vars or posterior.sizes["draw"] < 4:
        return
    slow = {
        name: value
        for name, value in _worst(ess(posterior), np.nanmin).items()
        if value < ESS_PER_CHAIN * chains
    }
    apart = {}
    if chains > 1:
        apart = {
            name: value
            for name, value in _worst(rhat(posterior), np.nanmax).items()
            if value > RHAT_LIMIT
        }
    if slow or apart:
        warnings.warn(_advice(slow, apart), MixingWarning, stacklevel=3)


def _worst(diagnostic: xr.Dataset, reduce) -> dict[str, float]:
    return {str(name): float(reduce(value)) for name, value in diagnostic.data_vars.items()}


def _advice(slow: dict[str, float], apart: dict[str, float]) -> str:
    found = [f"r_hat of {name} is {value:.2f}" for name, value in apart.items()]
    found += [f"{name} has {value:.0f} effective draws" for name, value in slow.items()]
    return (
        f"The chains have not mixed: {'; '.join(found)}. Until they have, the draws are not the "
        "posterior. Where parameters cannot move together with their records, they move in "
        "steps of about 1/sqrt(records), and a noisy release of many records takes many sweeps: "
        "raise draws= and tune= tenfold, or, when all records are continuous, sample the same "
        "model with step=pm.NUTS(model.free_RVs)."
    )
