"""Objective perturbation: the minimiser of a loss with a random linear term is released."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from pymc_privacy.accounting import Neighbours, PureDP
from pymc_privacy.arguments import generator, probability, reals
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import Mechanism, Shape, measured, settle
from pymc_privacy.mechanisms.engines import (
    exp,
    is_tensor,
    log,
    log_determinant,
    numeric,
    stack,
    where,
)

_MEANINGS = {
    "bound": "the largest norm of a record's covariates",
    "scale": "beta, the scale of b",
    "ridge": "gamma, of the ridge",
}
_MOST_STEPS = 200


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation(Mechanism):
    r"""Logistic coefficients minimise loss + ridge + a random linear term, and are released.

    The release s minimises :math:`\sum_i \ell(s; x_i, y_i) + \frac{\gamma}{2} |s|^2 + b \cdot s`,
    with :math:`\ell = \log(1 + e^{x \cdot s}) - y\, x \cdot s`, y in {0, 1}, and noise b of density
    :math:`\propto \exp(-|b| / \beta)` (Chaudhuri, Monteleoni and Sarwate, 2011). At the minimum
    :math:`b = -\sum_i (p_i - y_i) x_i - \gamma s`, with :math:`p_i = 1 / (1 + e^{-x_i \cdot s})`,
    so s has density

    .. math:: f_b(b(s)) \det\left(\sum_i p_i (1 - p_i) x_i x_i^T + \gamma I\right).

    Both sums are over records, at the released s, which is known. `contributions` gives their
    terms: p gradient coordinates, then the p (p + 1) / 2 entries on and above the diagonal of the
    Hessian, row by row.

    Let :math:`|x| \le R`, and replace one record. The gradient moves by less than 2 R, so
    :math:`f_b` changes by a factor of at most :math:`e^{2 R / \beta}`. The determinants differ by
    one term of rank one each, and

    .. math:: \frac{\det(A + w x x^T)}{\det(A + w' x' x'^T)} =
              \frac{1 + w x^T A^{-1} x}{1 + w' x'^T A^{-1} x'} \le 1 + \frac{R^2}{4 \gamma},

    as A is at least :math:`\gamma I` and w at most 1/4. Hence
    :math:`\epsilon = 2 R / \beta + \log(1 + R^2 / (4 \gamma))`. It assumes that s is the exact
    minimum; an optimiser that stops early is not covered.

    Parameters
    ----------
    epsilon : float, optional
        The privacy loss; then beta = 2 R / (share epsilon), and
        gamma = R² / (4 (exp((1 - share) epsilon) - 1)).
    bound : float, optional
        R, the largest Euclidean norm of a record's covariates; taken on trust.
    share : float, default 0.5
        The part of epsilon that the noise is given; the rest goes to the determinant.
    scale : float, optional
        beta, instead of epsilon.
    ridge : float, optional
        gamma, instead of epsilon, or a larger one than needed.
    neighbours : {"replace_one"}, default "replace_one"

    Raises
    ------
    MechanismError
        By the constructor, if neither epsilon and bound nor scale and ridge are given, or they
        disagree, if the ridge is too small for epsilon, or if neighbours are "add_remove".

    See Also
    --------
    FunctionalMechanism : Release a polynomial in place of the loss.
    KNormGradient : Release one number where a gradient is small.

    References
    ----------
    - Chaudhuri, K., Monteleoni, C. and Sarwate, A. D. (2011), "Differentially private empirical
      risk minimization", Journal of Machine Learning Research 12, 1069-1109.

    Examples
    --------
    >>> from pymc_privacy import ObjectivePerturbation
    >>> mechanism = ObjectivePerturbation(epsilon=2.0, bound=1.0)
    >>> mechanism.scale, round(mechanism.ridge, 4)
    (2.0, 0.1455)
    """

    discrete: ClassVar[bool] = False

    epsilon: float | None = None
    bound: float | None = None
    share: float = 0.5
    scale: float = None  # type: ignore[assignment]
    ridge: float = None  # type: ignore[assignment]
    neighbours: Neighbours | None = "replace_one"

    def __post_init__(self) -> None:
        settle(self, "epsilon")
        if self.neighbours == "add_remove":
            raise MechanismError(
                "Objective perturbation is analysed for the replacement of a record; "
                f"got neighbours={self.neighbours!r}."
            )
        why: Any = {"meaning": "the part of epsilon that the noise is given"}
        share = probability("share", self.share, **why, error=MechanismError)
        object.__setattr__(self, "share", share)
        for name, meaning in _MEANINGS.items():
            if getattr(self, name) is not None:
                object.__setattr__(self, name, measured(name, getattr(self, name), meaning))
        if self.epsilon is not None:
            self._calibrate(self.epsilon)
        for name in ("scale", "ridge"):
            if getattr(self, name) is None:
                raise MechanismError(
                    "Objective perturbation needs epsilon= and bound=, or scale= and ridge=; "
                    f"got no {name}."
                )
            measured(name, getattr(self, name), _MEANINGS[name])

    def _calibrate(self, epsilon: float) -> None:
        if self.bound is None:
            raise MechanismError(
                "epsilon= needs bound= (the largest norm of a record's covariates), because noise "
                "and ridge are calibrated to it; got no bound."
            )
        scale = 2 * self.bound / (self.share * epsilon)
        # Beyond e^700 the exact ridge is no float, and this one is larger than needed.
        least = self.bound**2 / (4 * math.expm1(min((1 - self.share) * epsilon, 700.0)))
        if self.scale is not None and not math.isclose(self.scale, scale, rel_tol=1e-9):
            raise MechanismError(
                "scale= and epsilon= must describe the same noise; got scale="
                f"{self.scale!r}, while the others give {scale!r}. Leave one of the two out."
            )
        if self.ridge is not None and not self.ridge >= least:
            raise MechanismError(
                f"ridge must be at least {least:.6g} for this epsilon and share (else the "
                f"determinant tells more); got {self.ridge!r}."
            )
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "ridge", least if self.ridge is None else self.ridge)

    @property
    def guarantee(self) -> PureDP | None:
        """Promise 2 R / beta + log(1 + R² / 4 gamma), or the epsilon it was calibrated for."""
        if self.bound is None:
            return None
        determinant = math.log1p(self.bound**2 / (4 * self.ridge))
        epsilon = self.epsilon or 2 * self.bound / self.scale + determinant
        return PureDP(epsilon, neighbours=self.neighbours)

    def contributions(self, release: Any, x: Any, y: Any) -> Any:
        """Return each record's gradient and Hessian at the release, shape (n, p + p (p + 1) / 2).

        Parameters
        ----------
        release : array_like
            The published coefficients, p numbers.
        x : array_like or TensorVariable
            Covariates, shape (n, p), with a column of ones if there is an intercept.
        y : array_like or TensorVariable
            Responses, 0 or 1, shape (n,).

        Examples
        --------
        >>> import numpy as np
        >>> from pymc_privacy import ObjectivePerturbation
        >>> mechanism = ObjectivePerturbation(epsilon=1.0, bound=1.0)
        >>> mechanism.contributions([0.0], np.array([[0.8]]), np.array([1])).round(2).tolist()
        [[-0.4, 0.16]]
        """
        said: Any = {
            "wanted": "a vector of finite coefficients",
            "meaning": "contributions are evaluated there",
            "error": MechanismError,
        }
        s = reals("release", release, shapes=[("p",)], **said)
        x, y = numeric(x), numeric(y)
        known = not is_tensor(x) and not is_tensor(y)
        fits = x.ndim == 2 and (is_tensor(x) or x.shape[1] == s.size) and s.size
        if not fits or y.ndim > 1 or (known and y.shape not in ((), x.shape[:1])):
            raise MechanismError(
                f"x must have shape (n, {s.size}), one column for each coefficient, and y shape "
                f"(n,); got {x.ndim} and {y.ndim} axes."
            )
        columns = [x[:, j] for j in range(s.size)]
        p = 1 / (1 + exp(-sum(c * value for c, value in zip(columns, s, strict=True))))
        gradient = [(p - y) * c for c in columns]
        curvature = p * (1 - p)
        hessian = [
            curvature * columns[j] * columns[k] for j in range(s.size) for k in range(j, s.size)
        ]
        return stack([*gradient, *hessian])

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Return log f_b(b(s)) + log det(Hessian + gamma I), a single number.

        Parameters
        ----------
        release : array_like or TensorVariable
            s, p numbers.
        statistic : array_like or TensorVariable
            Total gradient and Hessian at s, as `contributions` orders them.
        """
        release, statistic = numeric(release), numeric(statistic)
        if release.ndim != 1 or statistic.ndim != 1:
            raise MechanismError(
                "release and statistic must be vectors, p coefficients and the totals that belong "
                f"to them; got {release.ndim} and {statistic.ndim} axes."
            )
        p = _dimension(statistic.type.shape if hasattr(statistic, "type") else statistic.shape)
        if isinstance(release, np.ndarray) and len(release) != p:
            raise MechanismError(
                f"release must be {p} coefficients, as the gradient has; got {len(release)}."
            )
        noise = statistic[:p] + self.ridge * release[:p]
        square = (noise * noise).sum()
        # At zero the norm has no derivative, and no release is there.
        norm = where(square > 0, exp(0.5 * log(where(square > 0, square, 1.0))), 0.0)
        volume = math.log(2) + 0.5 * p * math.log(math.pi) - special.gammaln(p / 2)
        normalizer = volume + special.gammaln(p) + p * math.log(self.scale)
        return -norm / self.scale - normalizer + log_determinant(self._hessian(statistic, p))

    def _hessian(self, statistic: Any, p: int) -> Any:
        """Return the matrix, from its entries on and above the diagonal."""
        places = iter(range(p, p + p * (p + 1) // 2))
        entries = {(j, k): statistic[next(places)] for j in range(p) for k in range(j, p)}
        rows = [
            stack([entries[min(j, k), max(j, k)] + self.ridge * (j == k) for k in range(p)])
            for j in range(p)
        ]
        return stack(rows)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release from the records: rows of p covariates and a response, shape (n, p + 1).

        The law of the release is not a function of gradients at another point, so that the
        statistic behind a given release does not do. Leading axes are independent draws. Seedable,
        and so not to be published.

        Examples
        --------
        >>> import numpy as np
        >>> from pymc_privacy import ObjectivePerturbation
        >>> records = np.array([[1.0, 0.5, 1], [1.0, -0.5, 0], [1.0, 0.1, 1]])
        >>> mechanism = ObjectivePerturbation(epsilon=1.0, bound=1.2)
        >>> mechanism.simulate(np.random.default_rng(1), records).shape
        (2,)
        """
        rng = generator("rng", rng)
        records = reals("records", statistic, flags=True, error=MechanismError)
        table = records.ndim >= 2 and records.shape[-1] >= 2
        if not table or not np.all(np.isin(records[..., -1], (0, 1))):
            raise MechanismError(
                "Drawing a release of ObjectivePerturbation needs the records themselves, of shape "
                "(n, p + 1), the last column 0 or 1, because contributions belong to one release; "
                f"got shape {records.shape}."
            )
        x, y = records[..., :-1], records[..., -1]
        shape = (*x.shape[:-2], x.shape[-1])
        direction = rng.normal(size=shape)
        radius = rng.gamma(shape[-1], self.scale, size=(*shape[:-1], 1))
        noise = radius * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
        return _minimum(x, y, noise, self.ridge)

    def release_shape(self, statistic: Shape) -> Shape:
        """Return (p,) from p + p (p + 1) / 2 contributions."""
        if len(statistic) != 1:
            raise MechanismError(
                "ObjectivePerturbation needs contributions of shape (n, p + p (p + 1) / 2), as "
                f"mechanism.contributions returns them; got a statistic of shape {statistic}."
            )
        return (_dimension(statistic),)

    def local_shape(self, contributions: Shape) -> Shape:
        """Refuse: one record has no regression."""
        raise MechanismError(
            "ObjectivePerturbation releases one fit to all records; got local=True."
        )


def _dimension(shape: Shape) -> int:
    """Return p, where p + p (p + 1) / 2 is the number of contributions."""
    width = shape[-1]
    p = 0 if width is None else (math.isqrt(9 + 8 * width) - 3) // 2
    if width is None or p < 1 or p + p * (p + 1) // 2 != width:
        raise MechanismError(
            "ObjectivePerturbation needs p + p (p + 1) / 2 contributions of each record, its "
            f"gradient and its Hessian (see mechanism.contributions); got {width}."
        )
    return p


def _minimum(x: np.ndarray, y: np.ndarray, b: np.ndarray, ridge: float) -> np.ndarray:
    """Minimise perturbed losses, by Newton's method with a line search, to rounding.

    The losses are strictly convex, so that each has one minimum. Leading axes are independent.
    """

    def at(s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        t = np.einsum("...np,...p->...n", x, s)
        loss = np.logaddexp(0, t) - y * t
        return t, loss.sum(-1) + 0.5 * ridge * (s * s).sum(-1) + (b * s).sum(-1)

    with np.errstate(over="ignore", invalid="ignore"):
        found = _newton(at, x, y, b, ridge)
    if found is None:
        raise MechanismError(
            "The perturbed loss must have a minimum that can be found; it was not found after "
            f"{_MOST_STEPS} steps of Newton's method, for covariates up to {np.abs(x).max():g}."
        )
    return found


def _newton(at: Any, x: np.ndarray, y: np.ndarray, b: np.ndarray, ridge: float) -> Any:
    """Return the minimum, or None where it is not reached."""
    s = np.zeros(b.shape)
    t, now = at(s)
    for _ in range(_MOST_STEPS):
        if not np.all(np.isfinite(now)):
            return None
        p = special.expit(t)
        slope = np.einsum("...np,...n->...p", x, p - y) + ridge * s + b
        if np.all(np.abs(slope) < 1e-10 * (1 + np.abs(b))):
            return s
        hessian = np.einsum("...n,...np,...nq->...pq", p * (1 - p), x, x)
        try:
            inverse = np.linalg.solve(hessian + ridge * np.eye(b.shape[-1]), slope[..., None])
        except np.linalg.LinAlgError:
            return None
        step = -inverse[..., 0]
        decrease = (slope * step).sum(-1)
        length = np.ones(now.shape)
        for _ in range(40):
            t, then = at(s + length[..., None] * step)
            worse = then > now + 1e-4 * length * decrease + 1e-12 * np.abs(now)
            if not np.any(worse):
                break
            length = np.where(worse, length / 2, length)
        s, now = s + length[..., None] * step, then
    return None
