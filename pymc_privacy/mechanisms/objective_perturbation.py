"""Objective perturbation: the minimiser of a loss with a random linear term is released."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy import special

from pymc_privacy.accounting import ApproximateDP, Neighbours, PureDP
from pymc_privacy.arguments import choice, generator, probability, real, reals
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import Mechanism, Shape, measured, settle
from pymc_privacy.mechanisms.engines import (
    exp,
    is_tensor,
    log,
    log_determinant,
    log_normal_tail,
    numeric,
    stack,
    where,
)
from pymc_privacy.mechanisms.objective_losses import LOSSES, Bounds, Loss, Perturbed, minimum
from pymc_privacy.mechanisms.objective_privacy import failure, largest_mu, least_epsilon

_MEANINGS = {
    "bound": "the largest norm of a record's covariates",
    "scale": "beta or sigma, the scale of b",
    "ridge": "gamma, of the ridge",
    "response": "the largest size of a record's response",
}
_SLACK = 1 + 1e-9  # of bounds that records are compared with
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation(Mechanism):
    r"""Coefficients minimise a regression's loss + ridge + a random linear term, and are released.

    The release s minimises
    :math:`\sum_i \ell(x_i \cdot s; y_i) + \frac{\gamma}{2} |s|^2 + b \cdot s` with noise b. Losses
    are ``"logistic"``, :math:`\log(1 + e^t) - y t` for y in {0, 1}; ``"linear"``,
    :math:`(y - t)^2 / 2`; and ``"poisson"``, :math:`e^t - y t` for counts y. At the minimum
    :math:`b = -\sum_i \ell'(x_i \cdot s; y_i) x_i - \gamma s`, so s has density

    .. math:: f_b(b(s)) \det\left(\sum_i \ell''(x_i \cdot s; y_i) x_i x_i^T + \gamma I\right).

    Both sums are over records, at the released s, which is known. `contributions` gives their
    terms: p gradient coordinates, then the p (p + 1) / 2 entries on and above the diagonal of the
    Hessian, row by row.

    **Laplace-like noise**, of density :math:`\propto \exp(-|b| / \beta)`, for logistic regression
    (Chaudhuri, Monteleoni and Sarwate, 2011). Let :math:`|x| \le R`, and replace one record. The
    gradient moves by less than 2 R, so :math:`f_b` changes by a factor of at most
    :math:`e^{2 R / \beta}`. The determinants differ by one term of rank one each, and

    .. math:: \frac{\det(A + w x x^T)}{\det(A + w' x' x'^T)} =
              \frac{1 + w x^T A^{-1} x}{1 + w' x'^T A^{-1} x'} \le 1 + \frac{R^2}{4 \gamma},

    as A is at least :math:`\gamma I` and w at most 1/4. Hence
    :math:`\epsilon = 2 R / \beta + \log(1 + R^2 / (4 \gamma))`.

    **Gaussian noise**, of variance :math:`\sigma^2`, for all three losses (Kifer, Smith and
    Thakurta, 2012): with ``delta=``, the release is (epsilon, delta)-DP. Linear and Poisson
    regression need a ``box`` that coefficients are constrained to, and a bound on the
    ``response``, for else no gradient is bounded. A constrained minimum may lie on the boundary,
    with positive probability: with G the gradient plus gamma s, a coordinate at its upper end
    stands for all :math:`b_j \le -G_j`, one at its lower end for all :math:`b_j \ge -G_j`, and
    density and determinant are those of the coordinates inside. With zeta the largest norm of one
    record's gradient and lambda of its Hessian, the loss of privacy is at most
    :math:`\log(1 + \lambda / \gamma) + \mu \chi + \mu^2 / 2`, where mu is 2 zeta / sigma for a
    replacement and zeta / sigma for an addition, and chi² is chi-square with at most two degrees
    of freedom; `failure` is the delta that follows. `mechanisms/objective_privacy.py` has the
    proof. Less noise is needed than by the theorem of Kifer et al.

    Both assume that s is the exact minimum; an optimiser that stops early is not covered.

    Parameters
    ----------
    epsilon : float, optional
        The privacy loss. The noise is given a share of it, gamma the rest:
        gamma = lambda / (exp((1 - share) epsilon) - 1), where lambda is R² / 4, R² or
        R² exp(reach) for the three losses, and reach = R |s| the largest predictor in the box.
    bound : float, optional
        R, the largest Euclidean norm of a record's covariates; taken on trust in a model, checked
        by `simulate`.
    share : float, default 0.5
        The part of epsilon that the noise is given; the rest goes to the determinant.
    scale : float, optional
        beta or sigma, instead of epsilon.
    ridge : float, optional
        gamma, instead of epsilon, or a larger one than needed.
    neighbours : {"replace_one", "add_remove"}, default "replace_one"
        The second for Gaussian noise only.
    delta : float, optional
        Of (epsilon, delta)-DP; makes the noise Gaussian.
    loss : {"logistic", "linear", "poisson"}, default "logistic"
    response : float, optional
        The largest |y|, for linear and Poisson regression; taken on trust in a model, checked by
        `simulate`.
    box : sequence of pair of float, optional
        Lower and upper end of each coefficient.
    noise : {"laplace", "gaussian"}, optional
        Gaussian if delta is given, or if the loss is not logistic.

    Raises
    ------
    MechanismError
        By the constructor, if neither epsilon and bound nor scale and ridge are given, or they
        disagree, if the ridge is too small for epsilon, if Laplace-like noise comes with
        neighbours "add_remove", a box, a delta or another loss, or if linear or Poisson
        regression are to keep a promise without box and response.

    See Also
    --------
    FunctionalMechanism : Release a polynomial in place of the loss.
    KNormGradientRegression : Release coefficients where a gradient is small.

    References
    ----------
    - Chaudhuri, K., Monteleoni, C. and Sarwate, A. D. (2011), "Differentially private empirical
      risk minimization", Journal of Machine Learning Research 12, 1069-1109.
    - Kifer, D., Smith, A. and Thakurta, A. (2012), "Private convex empirical risk minimization and
      high-dimensional regression", Conference on Learning Theory (COLT).
    - Redberg, R., Koskela, A. and Wang, Y.-X. (2023), "Improving the privacy and practicality of
      objective perturbation for differentially private linear learners", Advances in Neural
      Information Processing Systems 36.

    Examples
    --------
    >>> from pymc_privacy import ObjectivePerturbation
    >>> mechanism = ObjectivePerturbation(epsilon=2.0, bound=1.0)
    >>> mechanism.scale, round(mechanism.ridge, 4)
    (2.0, 0.1455)
    >>> linear = ObjectivePerturbation(
    ...     epsilon=2.0, delta=1e-6, bound=1.0, loss="linear", response=1.0, box=[(-1, 1), (-1, 1)]
    ... )
    >>> round(linear.scale, 2), round(linear.ridge, 4)
    (22.8, 0.582)
    """

    discrete: ClassVar[bool] = False

    epsilon: float | None = None
    bound: float | None = None
    share: float = 0.5
    scale: float = None  # type: ignore[assignment]
    ridge: float = None  # type: ignore[assignment]
    neighbours: Neighbours | None = "replace_one"
    delta: float | None = None
    loss: Literal["logistic", "linear", "poisson"] = "logistic"
    response: float | None = None
    box: tuple[tuple[float, float], ...] | None = None
    noise: Literal["laplace", "gaussian"] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        settle(self, "epsilon", "delta")
        said: Any = {"error": MechanismError}
        choice("loss", self.loss, tuple(LOSSES), **said)
        choice("noise", self.noise, (None, "laplace", "gaussian"), **said)
        if self.noise is None:
            plain = self.delta is None and self.loss == "logistic"
            object.__setattr__(self, "noise", "laplace" if plain else "gaussian")
        why: Any = {"meaning": "the part of epsilon that the noise is given"}
        object.__setattr__(self, "share", probability("share", self.share, **why, **said))
        if self.delta is not None:
            object.__setattr__(self, "delta", probability("delta", self.delta, **said))
        for name, meaning in _MEANINGS.items():
            if getattr(self, name) is not None:
                object.__setattr__(self, name, measured(name, getattr(self, name), meaning))
        if self.box is not None:
            object.__setattr__(self, "box", _box(self.box))
        if self.noise == "laplace":
            self._refuse_beside_laplace()
        if self.epsilon is not None:
            self._calibrate(self.epsilon)
        for name in ("scale", "ridge"):
            if getattr(self, name) is None:
                raise MechanismError(
                    "Objective perturbation needs epsilon= and bound=, or scale= and ridge=; "
                    f"got no {name}."
                )
            measured(name, getattr(self, name), _MEANINGS[name])

    def _refuse_beside_laplace(self) -> None:
        if self.neighbours == "add_remove":
            raise MechanismError(
                "Objective perturbation with Laplace-like noise is analysed for the replacement of "
                f"a record (with delta= the noise is Gaussian); got neighbours={self.neighbours!r}."
            )
        for name, value in (("delta", self.delta), ("box", self.box)):
            if value is not None:
                raise MechanismError(
                    f"Laplace-like noise promises a pure epsilon, of a minimum that is nowhere "
                    f'constrained; noise="gaussian" takes {name}=; got {name}={value!r}.'
                )
        if self.loss != "logistic":
            raise MechanismError(
                "Laplace-like noise is analysed for logistic regression, whose gradient is bounded "
                f'everywhere; noise="gaussian" is for others; got loss={self.loss!r}.'
            )

    def _calibrate(self, epsilon: float) -> None:
        if self.bound is None:
            raise MechanismError(
                "epsilon= needs bound= (the largest norm of a record's covariates), because noise "
                "and ridge are calibrated to it; got no bound."
            )
        curvature = self._largest_curvature()
        # Beyond e^700 the exact ridge is no float, and this one is larger than needed.
        least = curvature / math.expm1(min((1 - self.share) * epsilon, 700.0))
        if self.ridge is not None and not self.ridge >= least:
            raise MechanismError(
                f"ridge must be at least {least:.6g} for this epsilon and share (else the "
                f"determinant tells more); got {self.ridge!r}."
            )
        scale = self._least_scale(epsilon)
        if self.scale is not None and not math.isclose(self.scale, scale, rel_tol=1e-9):
            raise MechanismError(
                "scale= and epsilon= must describe the same noise; got scale="
                f"{self.scale!r}, while the others give {scale!r}. Leave one of the two out."
            )
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "ridge", least if self.ridge is None else self.ridge)

    def _least_scale(self, epsilon: float) -> float:
        """Return the scale with which the noise keeps to its share of epsilon."""
        share = self.share * epsilon
        if self.noise == "laplace":
            return self._moved() / share
        if self.delta is None:
            raise MechanismError(
                "epsilon= needs delta= (the probability allowed to escape that bound), because "
                "Gaussian noise promises no epsilon for certain; got no delta."
            )
        return self._moved() / largest_mu(share, self.delta, self._planar)

    def _moved(self) -> float:
        """Return how far one record can move the gradient, at any s."""
        zeta = LOSSES[self.loss].largest_slope(self._known())
        if zeta is None:
            raise MechanismError(
                f"A promise needs box= and response= for loss={self.loss!r}, because its gradient "
                f"is not bounded elsewhere; got box={self.box!r} and response={self.response!r}."
            )
        return zeta if self.neighbours == "add_remove" else 2 * zeta

    def _largest_curvature(self) -> float:
        """Return lambda, the largest eigenvalue of one record's Hessian."""
        largest = LOSSES[self.loss].largest_curvature(self._known())
        if largest is None:
            raise MechanismError(
                f"A promise needs box= for loss={self.loss!r}, because its curvature is not "
                "bounded elsewhere; got box=None."
            )
        return largest

    def _known(self) -> Bounds:
        """Return what bounds records."""
        assert self.bound is not None
        reach = None
        if self.box is not None:
            reach = self.bound * float(np.linalg.norm(np.abs(self.box).max(axis=1)))
        return Bounds(self.bound, reach, self.response)

    @property
    def _planar(self) -> bool:
        """Whether gradients of neighbours differ in a plane, and not along a line."""
        line = self.box is not None and len(self.box) == 1
        return self.neighbours != "add_remove" and not line

    @property
    def guarantee(self) -> PureDP | ApproximateDP | None:
        """Promise what it was calibrated for, or what follows from scale, ridge and bounds.

        None where bounds or delta are not known.
        """
        if self.bound is None:
            return None
        label: Any = {"neighbours": self.neighbours}
        if self.noise == "laplace":
            determinant = math.log1p(self._largest_curvature() / self.ridge)
            return PureDP(self.epsilon or self._moved() / self.scale + determinant, **label)
        if self.delta is None:
            return None
        if self.epsilon is not None:
            return ApproximateDP(self.epsilon, self.delta, **label)
        if self.loss != "logistic" and (self.box is None or self.response is None):
            return None
        determinant = math.log1p(self._largest_curvature() / self.ridge)
        rest = least_epsilon(self._moved() / self.scale, self.delta, self._planar)
        return ApproximateDP(determinant + rest, self.delta, **label)

    def failure(self, epsilon: float) -> float:
        """Bound the delta of any epsilon, for Gaussian noise.

        Parameters
        ----------
        epsilon : float

        Examples
        --------
        >>> from pymc_privacy import ObjectivePerturbation
        >>> fit = ObjectivePerturbation(epsilon=2.0, delta=1e-6, bound=1.0)
        >>> fit.failure(2.0) <= 1e-6 < fit.failure(1.9)
        True
        """
        epsilon = real(
            "epsilon", epsilon, meaning="the privacy loss", least=0, error=MechanismError
        )
        if self.noise == "laplace" or self.bound is None:
            raise MechanismError(
                "A delta follows from Gaussian noise and from bound=; got "
                f"noise={self.noise!r} and bound={self.bound!r}."
            )
        determinant = math.log1p(self._largest_curvature() / self.ridge)
        return failure(epsilon - determinant, self._moved() / self.scale, self._planar)

    def contributions(self, release: Any, x: Any, y: Any) -> Any:
        """Return each record's gradient and Hessian at the release, shape (n, p + p (p + 1) / 2).

        Parameters
        ----------
        release : array_like
            The published coefficients, p numbers.
        x : array_like or TensorVariable
            Covariates, shape (n, p), with a column of ones if there is an intercept.
        y : array_like or TensorVariable
            Responses, shape (n,): 0 or 1, numbers, or counts, as the loss says.

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
        loss = LOSSES[self.loss]
        # Records beyond their bounds, which are not checked, may overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            line = sum(c * value for c, value in zip(columns, s, strict=True))
            slope, curvature = loss.slope(line, y), loss.curvature(line)
            gradient = [slope * c for c in columns]
            hessian = [
                curvature * columns[j] * columns[k] for j in range(s.size) for k in range(j, s.size)
            ]
            return stack([*gradient, *hessian])

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Return log f_b(b(s)) + log det(Hessian + gamma I), a single number.

        At an end of the box it is the probability of all noise that ends there. So the density is
        one on the box's inside, on each of its faces, and so on down to its corners.

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
        slope = statistic[:p] + self.ridge * release[:p]
        if self.noise == "laplace":
            return self._log_laplace(slope, p) + log_determinant(self._hessian(statistic, p))
        return self._log_gaussian(release, slope, statistic, p)

    def _log_laplace(self, noise: Any, p: int) -> Any:
        square = (noise * noise).sum()
        # At zero the norm has no derivative, and no release is there.
        norm = where(square > 0, exp(0.5 * log(where(square > 0, square, 1.0))), 0.0)
        volume = math.log(2) + 0.5 * p * math.log(math.pi) - special.gammaln(p / 2)
        normalizer = volume + special.gammaln(p) + p * math.log(self.scale)
        return -norm / self.scale - normalizer

    def _log_gaussian(self, release: Any, slope: Any, statistic: Any, p: int) -> Any:
        z = slope / self.scale
        inside = -0.5 * z * z - _HALF_LOG_TWO_PI - math.log(self.scale)
        hessian = self._hessian(statistic, p)
        if self.box is None:
            return inside.sum() + log_determinant(hessian)
        self._check_width(p)
        lower, upper = np.array(self.box).T
        at_lower, at_upper = release <= lower, release >= upper
        # At the lower end b_j >= -slope, of probability Phi(slope / sigma); at the upper b_j <= it.
        held = where(at_lower, log_normal_tail(-z), log_normal_tail(z))
        free = where(at_lower | at_upper, 0.0, 1.0)
        both = free[:, None] * free[None, :]
        # What is held leaves a one in the diagonal, which the determinant does not see.
        matrix = hessian * both + (1.0 - free)[:, None] * np.eye(p)
        beyond = where((release < lower) | (release > upper), 1.0, 0.0).sum() > 0
        value = where(free > 0, inside, held).sum() + log_determinant(matrix)
        return where(beyond, -np.inf, value)

    def _check_width(self, p: int) -> None:
        if self.box is not None and len(self.box) != p:
            raise MechanismError(
                f"box must have a pair for each coefficient, {len(self.box)} of them; got "
                f"{p} coefficients."
            )

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
        if records.ndim < 2 or records.shape[-1] < 2:
            raise MechanismError(_need_records(LOSSES[self.loss], records))
        x, y = records[..., :-1], records[..., -1]
        self._check_records(x, y, records)
        shape = (*x.shape[:-2], x.shape[-1])
        if self.noise == "laplace":
            direction = rng.normal(size=shape)
            radius = rng.gamma(shape[-1], self.scale, size=(*shape[:-1], 1))
            noise = radius * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
        else:
            noise = rng.normal(0.0, self.scale, size=shape)
        ends = np.full((2, shape[-1]), np.inf) * [[-1], [1]]
        box = ends if self.box is None else np.array(self.box).T
        return minimum(Perturbed(LOSSES[self.loss], x, y, noise, self.ridge, box))

    def _check_records(self, x: np.ndarray, y: np.ndarray, records: np.ndarray) -> None:
        """Refuse responses of another kind, and records beyond the bounds of the promise."""
        self._check_width(x.shape[-1])
        whole = self.loss == "linear" or np.all((y >= 0) & (y == np.rint(y)))
        if not whole or (self.loss == "logistic" and np.any(y > 1)):
            raise MechanismError(_need_records(LOSSES[self.loss], records))
        for name, limit, size in (
            ("bound", self.bound, np.linalg.norm(x, axis=-1)),
            ("response", self.response, np.abs(y)),
        ):
            if limit is not None and size.size and size.max() > limit * _SLACK:
                raise MechanismError(
                    f"{name} must hold for all records ({_MEANINGS[name]}, by which noise was "
                    f"calibrated; clip them first); got {name}={limit!r} and a record beyond it."
                )

    def release_shape(self, statistic: Shape) -> Shape:
        """Return (p,) from p + p (p + 1) / 2 contributions."""
        if len(statistic) != 1:
            raise MechanismError(
                "ObjectivePerturbation needs contributions of shape (n, p + p (p + 1) / 2), as "
                f"mechanism.contributions returns them; got a statistic of shape {statistic}."
            )
        p = _dimension(statistic)
        self._check_width(p)
        return (p,)

    def local_shape(self, contributions: Shape) -> Shape:
        """Refuse: one record has no regression."""
        raise MechanismError(
            "ObjectivePerturbation releases one fit to all records; got local=True."
        )

    def impossible(self, release: np.ndarray, statistic: Shape) -> str | None:
        """Say so if the release is out of the box."""
        lower, upper = np.array(self.box).T if self.box is not None else (-np.inf, np.inf)
        if np.all(np.isfinite(release) & (release >= lower) & (release <= upper)):
            return None
        return "be finite" if self.box is None else f"be in the box {self.box}"


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


def _box(value: Any) -> tuple[tuple[float, float], ...]:
    """Return pairs of finite numbers in hashable form."""
    wanted = "pairs (lower, upper) of finite numbers with lower < upper, one per coefficient"
    box = reals("box", value, shapes=[("p", 2)], wanted=wanted, error=MechanismError)
    if not len(box) or not np.all(box[:, 0] < box[:, 1]):
        raise MechanismError(f"box must be {wanted}; got {value!r}.")
    return tuple((low, high) for low, high in box.tolist())


def _need_records(loss: Loss, records: np.ndarray) -> str:
    return (
        "Drawing a release of ObjectivePerturbation needs the records themselves, of shape "
        f"(n, p + 1), the last column {loss.responses}, because contributions belong to one "
        f"release; got shape {records.shape}."
    )
