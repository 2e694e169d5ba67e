"""Compare the log densities of numbers of records with the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pymc_privacy.certificate.base import Comparison, Pair, Reference, log_density_change
from pymc_privacy.model.group_sizes import GroupSizes
from pymc_privacy.targets.group_sizes import SizesProgram


def compare_sizes(
    program: SizesProgram, sizes: GroupSizes, reference: Reference, pairs: Sequence[Pair]
) -> Iterator[Comparison]:
    """Compare the change of the model's log density with that of the table, for other numbers."""
    groups = np.arange(sizes.capacity.size)
    for turn, (label, here, _) in enumerate(pairs):
        table, now = program.log_weights(here), here[program.size]
        elsewhere = pairs[(turn + 1) % len(pairs)].here[program.size]
        for moves in (groups % 2 == 0, groups % 2 == 1):
            beside = np.where(now > 0, now - 1, now + 1)
            other = np.where(elsewhere == now, beside, elsewhere)
            then = np.where(moves, np.minimum(other, sizes.capacity), now).astype(now.dtype)
            points = (here | {program.size: number} for number in (now, then))
            before, after = map(reference.terms, points)
            with np.errstate(invalid="ignore"):
                change = float((table[then, groups] - table[now, groups]).sum())
            what = f"the change of the log density of {program.size!r} ({label})"
            yield log_density_change(what, before, after, list(reference.factors), change)
