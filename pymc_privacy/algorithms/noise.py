"""The joint log density of all releases given the totals, as one jitable function.

Releases of one database are flattened into one vector of coordinates. Each release
brings a *law*: the scalar formula of an additive mechanism, applied to each of its
coordinates, or a `JointLaw`, applied to all of them at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

Law = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class JointLaw:
    """A release whose coordinates are not independent, or whose density is compiled elsewhere.

    ``function(release, statistic)`` takes two vectors, returns the log density, and can be
    called from jitted code.
    """

    function: Callable[..., Any]


class Noise(NamedTuple):
    """All releases of one database: their laws, and their public numbers.

    ``offsets[k]:offsets[k + 1]`` are the coordinates of release k in ``release``
    (length d) and ``parameters`` (d rows of scale and log normalizer).
    """

    laws: tuple[Law | JointLaw, ...]
    offsets: np.ndarray
    release: np.ndarray
    parameters: np.ndarray


def noise(laws: Sequence[Law | JointLaw], releases: Sequence[Any], parameters: Sequence) -> Noise:
    """Flatten several releases, or none, into one `Noise`."""
    if not laws:
        return Noise((), np.zeros(1, dtype=np.int64), np.empty(0), np.empty((0, 2)))
    values = [np.atleast_1d(np.asarray(value, dtype=np.float64)) for value in releases]
    rows = [
        np.stack([np.broadcast_to(p, value.shape) for p in pair], axis=1)
        for value, pair in zip(values, parameters, strict=True)
    ]
    offsets = np.cumsum([0, *(value.size for value in values)]).astype(np.int64)
    return Noise(tuple(laws), offsets, np.concatenate(values), np.concatenate(rows))


@cache
def log_density(laws: tuple[Law | JointLaw, ...]) -> Callable[..., float]:
    """Build ``f(offsets, release, total, parameters)``, the joint log density of all releases.

    The function unrolls the releases at compile time, so that laws of different types
    meet in one jitted call.
    """
    first = _joint(laws[0]) if isinstance(laws[0], JointLaw) else _coordinate_sum(laws[0])
    if len(laws) == 1:
        return first
    rest = log_density(laws[1:])

    @register_jitable
    def split(offsets, release, total, parameters):
        cut = offsets[1] - offsets[0]
        here = first(offsets, release[:cut], total[:cut], parameters[:cut])
        return here + rest(offsets[1:], release[cut:], total[cut:], parameters[cut:])

    return split


def _coordinate_sum(formula: Law) -> Callable[..., float]:
    # The compiler's disk cache knows the code of this function but not that of
    # formula; naming the fingerprint here makes an edited formula a cache miss.
    edition = fingerprint(formula)

    @register_jitable
    def additive(offsets, release, total, parameters):
        value = 0.0 * edition
        for j in range(release.size):
            value += formula(release[j], total[j], parameters[j, 0], parameters[j, 1])
        return value

    return additive


def _joint(law: JointLaw) -> Callable[..., float]:
    function = law.function

    @register_jitable
    def joint(offsets, release, total, parameters):
        return function(release, total)

    return joint


def fingerprint(function: Callable[..., Any]) -> int:
    """Return a number that changes whenever the function's code or constants do."""
    code = function.__code__
    return zlib.crc32(code.co_code + repr((code.co_consts, code.co_names)).encode())
