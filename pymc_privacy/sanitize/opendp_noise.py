"""The same integer noise, drawn by OpenDP where it is installed and cannot saturate."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from pymc_privacy.errors import ReleaseError

# OpenDP adds noise to integers of 64 bits and stops at the ends. Noise of this scale gets there
# with a probability below exp(-2^10); noise of a wider one would show the total beside the end.
WIDEST = 2.0**53


class OpenDPNoise:
    """Noise of OpenDP's integer mechanisms, whose scale is ours and whose entropy is theirs.

    Parameters
    ----------
    widest : float
        The largest scale that will be asked for, in units of the lattice.
    """

    def __init__(self, widest: float) -> None:
        if widest > WIDEST:
            raise ReleaseError(
                'The scale of noise with sampler="opendp" must be at most 2^53 cells of the '
                "lattice, since OpenDP's integers have 64 bits and saturate, which would show the "
                f"total; got {widest:g} cells. Leave sampler= at its default, or give a coarser "
                "granularity=."
            )
        try:
            import opendp.prelude as dp
        except ImportError:
            raise ReleaseError(
                'sampler="opendp" needs OpenDP, which is not installed; install '
                "pymc-privacy[opendp], or leave sampler= at its default. Both draw exact noise."
            ) from None
        dp.enable_features("contrib")
        self._dp = dp

    def laplace(self, scale: Fraction, count: int) -> list[int]:
        """Draw discrete Laplace noise."""
        return self._noise(self._dp.m.make_laplace, self._dp.l1_distance(T="i64"), scale, count)

    def gaussian(self, scale: Fraction, count: int) -> list[int]:
        """Draw discrete Gaussian noise."""
        return self._noise(self._dp.m.make_gaussian, self._dp.l2_distance(T="f64"), scale, count)

    def _noise(self, make: Any, metric: Any, scale: Fraction, count: int) -> list[int]:
        domain = self._dp.vector_domain(self._dp.atom_domain(T="i64"), size=count)
        try:
            # The scale is a float already, so that nothing is rounded here.
            return [int(k) for k in make(domain, metric, scale=float(scale))([0] * count)]
        except Exception as error:
            raise ReleaseError(
                f"OpenDP must be able to draw noise of scale {float(scale):g}; it says: {error}"
            ) from None
