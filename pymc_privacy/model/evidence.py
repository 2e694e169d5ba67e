"""Whether the densities of a model's variables are those of probabilities."""

from __future__ import annotations

import numpy as np

from pymc_privacy._compat import Model
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.points import conditional_sampler
from pymc_privacy.model.start import start_of

# So many draws of a vector that is to be ordered are not all in order by chance.
_DRAWS = 24


def why_no_evidence(model: Model) -> str | None:
    """Say why the integral of a model's density is no probability of its data; None if it is.

    That each distribution is normalised is taken for granted, but not what a model adds to them.
    """
    potentials = [potential.name for potential in model.potentials]
    if potentials:
        return (
            "The evidence is not defined, and is nan, because this model multiplies its density by "
            f"the potential {', '.join(map(repr, potentials))}, which no constant belongs to. The "
            "draws are from the posterior all the same."
        )
    cut = _cut_off(model)
    if cut:
        return (
            "The evidence is not defined, and is nan: the transform of "
            f"{', '.join(map(repr, cut))} leaves out a part of its law, as an order does, "
            "so that the prior does not add up to one. The draws are from the posterior all the "
            "same."
        )
    return None


def _cut_off(model: Model) -> list[str]:
    """Return the parameters whose transform does not reach all of their law."""
    found = []
    start = start_of(model)
    for rv in model.free_RVs:
        if is_record(rv) or model.rvs_to_transforms[rv] is None:
            continue
        draw = conditional_sampler(model, [rv])
        with np.errstate(all="ignore"):
            drawn = [draw(rng, start)[0] for rng in np.random.default_rng(5).spawn(_DRAWS)]
        if np.isnan(drawn).any():
            found.append(rv.name)
    return found
