"""A sum of values that each record's own noise was added to: the noise of the sum is n-fold.

Of n records the release is sum_i (t(x_i) + N_i), and its noise N_1 + … + N_n has a law that depends
on n: Normal of variance n sigma², or, for Laplace noise, the law of the difference of two gamma
variables of shape n. The number of records is a coordinate of the statistic here, a sum of ones,
so that it may be as unknown as the sum is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar, cast

import numpy as np

from pymc_privacy.accounting import Guarantee
from pymc_privacy.arguments import generator, reals, refusal, shown
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import Mechanism, Scale, Shape, beside
from pymc_privacy.mechanisms.engines import (
    equal,
    is_tensor,
    log,
    log1p,
    numeric,
    pick,
    stack,
    where,
)
from pymc_privacy.mechanisms.gaussian import Gaussian
from pymc_privacy.mechanisms.laplace import Laplace

# Up to so many the density of Laplace noise is a polynomial; beyond, a series in 1 / n.
_FEW = 16
_TERMS = 6  # of the series, which leave a relative error of 3e-10 at n = 17
# In scales. Beyond, a polynomial is as nothing beside exp(-z); nearer to 0, all powers are 0.
_NEAREST, _FURTHEST = 1e-20, 1e12


@dataclass(frozen=True, kw_only=True)
class LocalSum(Mechanism):
    r"""The release is a sum of values, to each of which noise of its own was added.

    Everybody adds noise to a value of their own, and only the sum becomes known: the noise of n
    people adds up. Its law depends on n, which may be known or not (with `Records`).

    Parameters
    ----------
    noise : Laplace or Gaussian
        What each record added. Its sensitivity is the largest distance between two values that one
        record may have.

    Raises
    ------
    MechanismError
        By the constructor, if the noise is not `Laplace` or `Gaussian`, since the law of a sum is
        not known in closed form for others; or if it is stated for adding or removing a record.

    See Also
    --------
    Laplace : With ``local=True``, if the noisy values themselves were released.
    Records : Records of an unknown number.

    Notes
    -----
    What each record's noise promises for replacing its value holds of the sum as well, by
    post-processing; that others add noise too is not counted, because it is not known how many
    can be trusted to. Nothing is promised about adding or removing a record: one noisy value more
    has a wider law, whose tail is beyond all bounds above that without it.

    For Laplace noise of scale b and z = \|noise\| / b the density is
    :math:`e^{-z} \theta_{n-1}(z) / (b\, 2^n (n-1)!)`, with the reverse Bessel polynomials
    :math:`\theta_n = (2n - 1) \theta_{n-1} + z^2 \theta_{n-2}`, :math:`\theta_0 = 1`,
    :math:`\theta_1 = 1 + z`; all terms are positive. For more than 16 records it is the uniform
    expansion of :math:`K_{n - 1/2}` (Olver), with a relative error below 3e-10.

    References
    ----------
    - Awan, J., Barrientos, A. F. and Ju, N. (2024), "Statistical inference for privatized data with
      unknown sample size", arXiv:2406.06231, Lemma A.4.
    - Kotz, S., Kozubowski, T. J. and Podgórski, K. (2001), "The Laplace distribution and
      generalizations", Birkhäuser, section 2.3.
    - Olver, F. W. J. (1974), "Asymptotics and special functions", Academic Press, chapter 10.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> noise = pmp.LocalSum(noise=pmp.Laplace(epsilon=1.0, sensitivity=1.0))
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     n = pm.DiscreteUniform("n", 1, 200)
    ...     x = pmp.Records("x", pm.Bernoulli.dist(p), size=n)
    ...     total = pmp.Privatized("total", noise.contributions(x), noise, observed=41.3)
    >>> print(noise.guarantee)
    1-DP (pure), neighbours: replace one record, unit: one record
    """

    discrete: ClassVar[bool] = False

    noise: Laplace | Gaussian

    def __post_init__(self) -> None:
        if not isinstance(self.noise, Laplace | Gaussian):
            raise MechanismError(
                "noise must be Laplace or Gaussian, because the law of a sum of others is not "
                f"known in closed form; got {shown(self.noise)}."
            )
        if self.noise.neighbours == "add_remove":
            raise refusal(
                "neighbours of the noise",
                "'replace_one', or left out",
                "add_remove",
                meaning="a sum of noisy values hides what a value is, not that there is one",
                error=MechanismError,
            )

    @property
    def scale(self) -> Scale:
        """Return the scale of each record's noise."""
        return self.noise.scale

    @property
    def guarantee(self) -> Guarantee | None:
        """Promise to each record what its own noise does, for replacing its value."""
        promised = self.noise.guarantee
        if promised is None:
            return None
        return cast(Guarantee, replace(cast(Any, promised), neighbours="replace_one"))

    def contributions(self, values: Any) -> Any:
        """Return each record's values with a one behind, shape (n, d + 1).

        Parameters
        ----------
        values : array_like or TensorVariable
            What noise was added to, shape (n,) or (n, d).

        Examples
        --------
        >>> from pymc_privacy import Gaussian, LocalSum
        >>> LocalSum(noise=Gaussian(scale=1.0)).contributions([0.5, 2.0]).tolist()
        [[0.5, 1.0], [2.0, 1.0]]
        """
        values = numeric(values)
        shape = (values.type if is_tensor(values) else values).shape
        if len(shape) not in (1, 2) or (len(shape) == 2 and not shape[1]):
            raise MechanismError(
                "values must have shape (n,) or (n, d), one row for each record, with d known; got "
                f"shape {shape}."
            )
        columns = [values] if len(shape) == 1 else [values[:, j] for j in range(shape[1])]
        # A one for each record, whatever its values are.
        return stack([*columns, where(equal(columns[0], columns[0]), 1.0, 1.0)])

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Return the log density of each coordinate; of no records, minus infinity.

        Parameters
        ----------
        release : array_like or TensorVariable
            One number, or d of them.
        statistic : array_like or TensorVariable
            The d totals and the number of records, on the last axis.
        """
        release, statistic = numeric(release), numeric(statistic)
        total, size = self._parts(statistic)
        release, total, size, scale = beside(release, total, size, np.asarray(self.scale))
        with np.errstate(over="ignore", invalid="ignore"):
            several = where(size > 0, size, 1.0)
            law = _log_laplace_sum if isinstance(self.noise, Laplace) else _log_normal_sum
            value = law(abs(release - total) / scale, several) - log(scale)
        return where(size > 0, value, -np.inf)

    def _parts(self, statistic: Any) -> tuple[Any, Any]:
        """Return the totals and the number of records, without an axis for a single total."""
        shape = (statistic.type if is_tensor(statistic) else statistic).shape
        if self.release_shape(shape[-1:]) == ():
            return statistic[..., 0], statistic[..., 1]
        return statistic[..., :-1], statistic[..., -1:]

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release; seedable, in floating point, and so not to be published."""
        rng = generator("rng", rng)
        said: Any = {"meaning": "the totals, and the number of records", "error": MechanismError}
        statistic = reals("statistic", statistic, **said)
        total, size = self._parts(statistic)
        if np.any(size < 0) or np.any(size != np.rint(size)):
            wanted = "totals, and behind them a number of records"
            raise refusal("statistic", wanted, statistic, error=MechanismError)
        total, size, scale = beside(total, size, np.asarray(self.scale))
        shape = np.broadcast_shapes(total.shape, size.shape, scale.shape)
        if isinstance(self.noise, Laplace):
            noise = rng.gamma(size, size=shape) - rng.gamma(size, size=shape)
        else:
            noise = rng.normal(size=shape) * np.sqrt(size)
        return np.asarray(total + scale * noise)

    def release_shape(self, statistic: Shape) -> Shape:
        """Return () for one total, and (d,) for d of them."""
        if len(statistic) != 1 or (statistic[0] is not None and statistic[0] < 2):
            raise MechanismError(
                "LocalSum needs contributions of shape (n, d + 1), the values of each record and a "
                f"one, as mechanism.contributions returns them; got a statistic of shape "
                f"{statistic}."
            )
        scales, [width] = np.shape(self.scale), statistic
        if scales and width is not None and scales[0] != width - 1:
            raise MechanismError(
                "A vector of scales must have one entry for each value of a record; got "
                f"{scales[0]} scales for {width - 1} values."
            )
        return (None,) if width is None else () if width == 2 else (width - 1,)

    def local_shape(self, contributions: Shape) -> Shape:
        """Refuse: what is released is a sum."""
        raise MechanismError(
            "LocalSum is of a sum over records; got local=True. If the noisy values themselves "
            "were released, give their noise and local=True."
        )


def _log_normal_sum(z: Any, size: Any) -> Any:
    """Return the log density of n standard Normal variables' sum."""
    return -0.5 * z * z / size - 0.5 * log(2 * math.pi * size)


def _log_laplace_sum(z: Any, size: Any) -> Any:
    """Return the log density of n standard Laplace variables' sum, at z >= 0 and n >= 1."""
    return where(size <= _FEW, _of_few(z, size), _of_many(z, where(size > _FEW, size, _FEW + 1.0)))


def _of_few(z: Any, size: Any) -> Any:
    """Return -z + log(theta_{n-1}(z) / (2^n (n-1)!)), of n <= 16."""
    near = where(z < _FURTHEST, where(z > _NEAREST, z, _NEAREST), _FURTHEST)
    power = np.arange(_FEW)
    row = where(size <= _FEW, size, 1.0)[..., None] - 1
    coefficients = pick(_bessel(_FEW).ravel(), row * _FEW + power)
    return log((coefficients * near[..., None] ** power).sum(axis=-1)) - z


@cache
def _bessel(most: int) -> np.ndarray:
    """Return the coefficients of theta_{n-1} / (2^n (n-1)!), n = 1, …, one row for each n."""
    rows = np.zeros((most, most))
    rows[0, 0] = 0.5
    rows[1, :2] = 0.25
    for n in range(3, most + 1):
        rows[n - 1] = (n - 1.5) / (n - 1) * rows[n - 2]
        rows[n - 1, 2:] += rows[n - 3, :-2] / (4 * (n - 1) * (n - 2))
    return rows


def _of_many(z: Any, size: Any) -> Any:
    """Return the same by Olver's expansion of K of order v = n - 1/2, and Stirling's of n!.

    With t = z / v, w = sqrt(1 + t²) and h = (w - 1) / 2, powers of t cancel, and what is left is
    v (log(1 + h) - 2 h) - log(4 pi v w) / 2 + log sum_k (-1)^k U_k(1 / w) / v^k, and Stirling's
    series 1 / 24 v - 7 / 2880 v³ + 31 / 40320 v⁵.
    """
    v = size - 0.5
    t = z / v
    w = (1 + t * t) ** 0.5
    h = 0.5 * t * t / (1 + w)
    p, u = 1 / w, 1 / v
    coefficient, order, power = _debye(_TERMS)
    terms = coefficient * (-p * u)[..., None] ** order * (p * p)[..., None] ** power
    series = terms.sum(axis=-1)
    stirling = u * (1 / 24 - u * u * (7 / 2880 - u * u * 31 / 40320))
    return v * (log1p(h) - 2 * h) - 0.5 * log(4 * math.pi * v * w) + stirling + log(series)


@cache
def _debye(terms: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the coefficients of U_k(p) / p^k, with k and the powers of p² (Olver, 10.7.10).

    U_{k+1} = p² (1 - p²) U_k' / 2 + (integral from 0 to p of (1 - 5 t²) U_k(t)) / 8.
    """
    rows: list[tuple[float, int, int]] = []
    polynomial = {0: Fraction(1)}
    for k in range(terms + 1):
        rows += [(float(c), k, (power - k) // 2) for power, c in polynomial.items()]
        following: dict[int, Fraction] = {}
        for power, c in polynomial.items():
            up = c * (Fraction(power, 2) + Fraction(1, 8 * (power + 1)))
            down = c * (Fraction(power, 2) + Fraction(5, 8 * (power + 3)))
            following[power + 1] = following.get(power + 1, Fraction(0)) + up
            following[power + 3] = following.get(power + 3, Fraction(0)) - down
        polynomial = following
    coefficients, orders, powers = zip(*rows, strict=True)
    return np.array(coefficients), np.array(orders), np.array(powers)
