"""Scale and variance of discrete Gaussian noise, which are not each other's square and root."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq

from pymc_privacy.arguments import reals
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import LARGEST, SMALLEST

# From here on they differ by less than exp(-2 pi² 25) of themselves.
_WIDE = 5.0
_INTEGERS = np.arange(1, 100)


def discrete_gaussian_variance(scale: Any) -> Any:
    """Return the variance of discrete Gaussian noise of a scale; it is less than scale².

    Parameters
    ----------
    scale : array_like
        Sigma in the probabilities, proportional to exp(-k² / 2 sigma²).

    Raises
    ------
    MechanismError
        If a scale is not > 0 and finite.

    See Also
    --------
    discrete_gaussian_scale : The other direction.
    DiscreteGaussian : The mechanism of this scale.

    References
    ----------
    - Canonne, C. L., Kamath, G. and Steinke, T. (2020), "The discrete Gaussian for differential
      privacy", Advances in Neural Information Processing Systems 33.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> pmp.discrete_gaussian_variance([0.4893, 3.0]).round(4).tolist()
    [0.2, 9.0]
    """
    sigma = _checked("scale", scale)
    narrow = np.minimum(sigma, _WIDE)[..., None]
    weight = np.exp(-((_INTEGERS / narrow) ** 2) / 2)
    variance = 2 * (weight * _INTEGERS**2).sum(-1) / (1 + 2 * weight.sum(-1))
    return np.where(sigma < _WIDE, variance, sigma**2)[()]


def discrete_gaussian_scale(variance: Any) -> Any:
    """Return the scale of discrete Gaussian noise that has a variance.

    The noisy measurement files of the 2020 census publish the variance of the noise of each
    row, not sigma²; below about 1 they differ.

    Parameters
    ----------
    variance : array_like

    Returns
    -------
    ndarray or float
        What ``DiscreteGaussian(scale=...)`` takes.

    Raises
    ------
    MechanismError
        If a variance is not > 0 and finite.

    See Also
    --------
    discrete_gaussian_variance : The other direction.
    DiscreteGaussian : The mechanism of this scale.
    LinearMeasurements : Totals of counts with such noise.

    References
    ----------
    - Canonne, C. L., Kamath, G. and Steinke, T. (2020), "The discrete Gaussian for differential
      privacy", Advances in Neural Information Processing Systems 33.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> pmp.discrete_gaussian_scale([0.2, 9.0]).round(4).tolist()
    [0.4893, 3.0]
    """
    wanted = _checked("variance", variance)

    def one(v: float) -> float:
        root = np.sqrt(v)
        if root >= _WIDE:
            return root
        # Canonne, Kamath and Steinke (2020), Corollary 9: the variance is at most sigma².
        return brentq(
            lambda s: float(discrete_gaussian_variance(s)) - v,
            max(root, 0.02) * (1 - 1e-12),
            root + 1,
            xtol=1e-14,
        )

    distinct, where = np.unique(wanted, return_inverse=True)
    return np.array([one(v) for v in distinct])[where].reshape(wanted.shape)[()]


def _checked(name: str, value: Any) -> np.ndarray:
    # Squares of both must be floats, too.
    said: Any = {"meaning": "of discrete Gaussian noise", "error": MechanismError}
    return reals(name, value, least=SMALLEST, most=LARGEST, wanted="finite and > 0", **said)
