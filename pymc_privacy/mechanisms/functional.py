"""The functional mechanism: the coefficients of a polynomial loss are released with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pymc_privacy.accounting import Neighbours, PureDP
from pymc_privacy.arguments import flag, generator, integer, neighbours, refusal
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import AdditiveMechanism, Shape, real_statistic, settle_all
from pymc_privacy.mechanisms.engines import is_tensor, numeric, stack
from pymc_privacy.mechanisms.laplace import laplace_interval, laplace_log_density

_MOST = 10_000  # covariates: their pairs fill the memory long before


@dataclass(frozen=True, kw_only=True)
class FunctionalMechanism(AdditiveMechanism):
    """The coefficients of a regression's quadratic loss are released with Laplace noise.

    The loss of coefficients s is a polynomial whose coefficients are sums over records (Zhang et
    al., 2012). For least squares, (y - x·s)², these are y², -2 y x_j, and x_j x_k (twice for
    j < k). For logistic regression the loss is replaced by its Taylor polynomial at zero,
    log 2 + (1/2 - y) x·s + (x·s)² / 8, with coefficients (1/2 - y) x_j and x_j x_k / 8 (twice
    for j < k). Whoever minimises the noisy polynomial does post-processing; the release is its
    coefficients, and what one would do with them does not matter to a posterior.

    With x_j and y in [-1, 1] (y 0 or 1 for logistic regression), the absolute coefficients of one
    record add up to at most 1 + 2 p + p², or p / 2 + p² / 8. Replacing a record moves their total
    by at most twice as much, adding or removing one by once as much.

    Parameters
    ----------
    epsilon : float
    covariates : int
        p, the number of columns of x.
    logistic : bool, default False
        Logistic regression instead of least squares.
    neighbours : {"replace_one", "add_remove"}, default "replace_one"

    Raises
    ------
    MechanismError
        By the constructor, if epsilon is not > 0 and finite, covariates is not an integer from 1 to
        10,000, or neighbours are not stated.

    See Also
    --------
    ObjectivePerturbation : Release the coefficients of a logistic regression.
    Laplace : The noise inside.

    References
    ----------
    - Zhang, J., Zhang, Z., Xiao, X., Yang, Y. and Winslett, M. (2012), "Functional mechanism:
      regression analysis under differential privacy", Proceedings of the VLDB Endowment 5(11),
      1364-1375.

    Examples
    --------
    >>> from pymc_privacy import FunctionalMechanism
    >>> mechanism = FunctionalMechanism(epsilon=1.0, covariates=2)
    >>> mechanism.sensitivity, mechanism.scale
    (18.0, 18.0)
    """

    discrete: ClassVar[bool] = False
    formula = staticmethod(laplace_log_density)
    interval = staticmethod(laplace_interval)

    epsilon: float
    covariates: int
    logistic: bool = False
    neighbours: Neighbours = "replace_one"

    def __post_init__(self) -> None:
        settle_all(self, "epsilon")
        said: Any = {"meaning": "the number of columns of x", "error": MechanismError}
        covariates = integer("covariates", self.covariates, least=1, **said)
        if covariates > _MOST:
            raise refusal("covariates", f"an integer from 1 to {_MOST}", covariates, **said)
        object.__setattr__(self, "covariates", covariates)
        object.__setattr__(self, "logistic", flag("logistic", self.logistic, error=MechanismError))
        why = "the sensitivity follows from it"
        neighbours(self.neighbours, meaning=why, error=MechanismError)

    @property
    def sensitivity(self) -> float:
        """Return the largest L1 distance between the coefficients of neighbours."""
        p = self.covariates
        one = p / 2 + p * p / 8 if self.logistic else 1 + 2 * p + p * p
        return float(2 * one if self.neighbours == "replace_one" else one)

    @property
    def scale(self) -> float:  # type: ignore[override]
        """Return sensitivity / epsilon."""
        return self.sensitivity / self.epsilon

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Return b and log(2 b)."""
        return self.scale, math.log(2 * self.scale)

    @property
    def guarantee(self) -> PureDP:
        """Promise epsilon; that records keep to their bounds is not checked."""
        return PureDP(self.epsilon, neighbours=self.neighbours)

    def contributions(self, x: Any, y: Any) -> Any:
        """Return each record's coefficients, in the order of the class's docstring.

        Parameters
        ----------
        x : array_like or TensorVariable
            Shape (n, p), entries in [-1, 1].
        y : array_like or TensorVariable
            Shape (n,), in [-1, 1], or 0 and 1 for logistic regression.

        Examples
        --------
        >>> import numpy as np
        >>> from pymc_privacy import FunctionalMechanism
        >>> mechanism = FunctionalMechanism(epsilon=1.0, covariates=1)
        >>> mechanism.contributions(np.array([[0.5]]), np.array([0.2])).tolist()
        [[0.04000000000000001, -0.2, 0.25]]
        """
        x, y = numeric(x), numeric(y)
        known = not is_tensor(x) and not is_tensor(y)
        fits = x.ndim == 2 and (is_tensor(x) or x.shape[1] == self.covariates)
        if not fits or y.ndim > 1 or (known and y.shape not in ((), x.shape[:1])):
            raise MechanismError(
                f"x must have shape (n, {self.covariates}), one column for each covariate, and y "
                f"shape (n,); got {x.ndim} and {y.ndim} axes."
            )
        columns = [x[:, j] for j in range(self.covariates)]
        pairs = [(j, k) for j in range(len(columns)) for k in range(j, len(columns))]
        # Records beyond their bounds, which are not checked, may overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            squares = [(1.0 + (j < k)) * columns[j] * columns[k] for j, k in pairs]
            if self.logistic:
                return stack([*((0.5 - y) * c for c in columns), *(0.125 * s for s in squares)])
            return stack([y * y, *(-2.0 * y * c for c in columns), *squares])

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release; seedable, in floating point, and so not to be published."""
        return np.asarray(generator("rng", rng).laplace(real_statistic(statistic), self.scale))

    def release_shape(self, statistic: Shape) -> Shape:
        """Return the number of coefficients."""
        p = self.covariates
        width = p + p * (p + 1) // 2 + (not self.logistic)
        if len(statistic) != 1 or statistic[0] not in (None, width):
            raise MechanismError(
                f"FunctionalMechanism with {p} covariates needs contributions of shape "
                f"(n, {width}), as mechanism.contributions returns them; got a statistic of shape "
                f"{statistic}."
            )
        return (width,)

    def local_shape(self, contributions: Shape) -> Shape:
        """Return one polynomial per record."""
        return (*contributions[:-1], *self.release_shape(contributions[1:]))
