"""The same integer noise, drawn by OpenDP where it is installed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from pymc_privacy.errors import ReleaseError


class OpenDPNoise:
    """Noise of OpenDP's integer mechanisms, whose scale is ours and whose entropy is theirs."""

    def __init__(self) -> None:
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
        # The scale is a float already, so that nothing is rounded here.
        return [int(k) for k in make(domain, metric, scale=float(scale))([0] * count)]
