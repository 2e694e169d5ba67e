"""What several releases promise together."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from pymc_privacy.accounting.guarantees import (
    ApproximateDP,
    GaussianDP,
    Guarantee,
    PureDP,
    ZeroConcentratedDP,
    checked,
    labels,
    left_after,
)
from pymc_privacy.accounting.parallel import at_each_order, simplest, weakest
from pymc_privacy.accounting.privacy_loss import composed
from pymc_privacy.accounting.profiles import gaussian_profile, least_epsilon, solve
from pymc_privacy.accounting.renyi import RenyiDP
from pymc_privacy.accounting.tradeoff import FDP
from pymc_privacy.arguments import flag, shown
from pymc_privacy.errors import GuaranteeError

_MOST_OUTCOMES = 2**14  # of randomized responses whose composition is listed in full


def compose(
    *guarantees: Guarantee, delta: float | None = None, parallel: bool = False
) -> Guarantee:
    """Return a guarantee that holds for all the releases together.

    Mechanisms may be chosen in view of earlier releases, their guarantees may not (not checked).

    Without `delta`, epsilons add (pure), epsilons and deltas add (approximate, with pure or not),
    rhos add (zero-concentrated; Bun & Steinke 2016, Lemma 1.7) and mus add in squares (Gaussian;
    Dong, Roth & Su 2022, Corollary 3.3). Renyi divergences add at each order (Mironov 2017,
    Proposition 1), those of other guarantees included. Trade-off functions are multiplied (Dong,
    Roth & Su 2022, Theorem 3.2) by the law of the privacy loss, on a grid, from the safe side.
    Other mixes, without an approximate guarantee, are summed as zCDP, which each of them implies.

    In parallel, each release has seen a part of the records of its own, and the weakest guarantee
    is that of all (McSherry 2009, Theorem 4). What must hold is not checked: the parts are pairwise
    disjoint; which one a record belongs to was fixed without looking at any other record; and a
    record that is exchanged stays in its part. For neighbours "add_remove", parts may therefore be
    defined by what a record says, as regions or age groups are. For "replace_one" they may not,
    since a replacement could then change two parts: there, parts are lists of row numbers, say.

    With `delta`, the answer is the `ApproximateDP` with the smallest epsilon among

    * the optimal composition of pure, approximate and Gaussian guarantees (Kairouz et al. 2015,
      Theorem 3.3; Murtagh & Vadhan 2016, Theorem 1.5; pairs that dominate also dominate composed,
      Zhu, Dong & Wang 2022, Theorem 10), left out beyond 16384 terms, as of 15 distinct epsilons;
    * the sum of all as zCDP;
    * the sum of the pure epsilons and the epsilon of the others.

    The delta_i of an approximate guarantee is the probability of a failure, and failures are paid
    first: 1 - delta = (1 - left) prod(1 - delta_i), and `left` is what the releases may use when
    none has failed. For the canonical pair, whose failures are visible, this is exact.

    Parameters
    ----------
    *guarantees : Guarantee
        All with the same neighbours and the same unit.
    delta : float, optional
        In (0, 1). Required where approximate guarantees meet Gaussian, zero-concentrated or Renyi
        ones.
    parallel : bool
        The releases are of pairwise disjoint parts of the records, as said above.

    Raises
    ------
    GuaranteeError
        If there is no guarantee, if neighbours or units differ, or if delta is needed and not
        given, or is less than what the guarantees already grant to failures.

    See Also
    --------
    Ledger : A budget on file, from which releases draw.
    joint_guarantee : For many noisy counts of posterior draws.
    size_gap : What a promise says of an unknown number of records.

    References
    ----------
    - Kairouz, P., Oh, S. and Viswanath, P. (2015), "The composition theorem for differential
      privacy", International Conference on Machine Learning (ICML).
    - Murtagh, J. and Vadhan, S. (2016), "The complexity of computing the optimal composition of
      differential privacy", Theory of Cryptography Conference (TCC).
    - Bun, M. and Steinke, T. (2016), "Concentrated differential privacy: simplifications,
      extensions, and lower bounds", Theory of Cryptography Conference (TCC).
    - Dong, J., Roth, A. and Su, W. J. (2022), "Gaussian differential privacy", Journal of the Royal
      Statistical Society, Series B 84(1), 3-37.
    - Mironov, I. (2017), "Renyi differential privacy", IEEE Computer Security Foundations Symposium
      (CSF).
    - McSherry, F. (2009), "Privacy integrated queries", ACM SIGMOD.
    - Doroshenko, V., Ghazi, B., Kamath, P., Kumar, R. and Manurangsi, P. (2022), "Connect the dots:
      tighter discrete approximations of privacy loss distributions", Proceedings on Privacy
      Enhancing Technologies.
    - Zhu, Y., Dong, J. and Wang, Y.-X. (2022), "Optimal accounting of differential privacy via
      characteristic function", International Conference on Artificial Intelligence and Statistics
      (AISTATS).

    Examples
    --------
    >>> compose(PureDP(0.5), PureDP(1.0))
    PureDP(epsilon=1.5, neighbours=None, unit='one record')
    >>> round(compose(*[PureDP(0.1)] * 100, delta=1e-6).epsilon, 3)
    4.775
    >>> compose(PureDP(0.5), PureDP(1.0), parallel=True)
    PureDP(epsilon=1.0, neighbours=None, unit='one record')
    """
    check_composable(guarantees)
    delta = None if delta is None else checked("delta", delta)
    if flag("parallel", parallel, error=GuaranteeError):
        return weakest(guarantees, delta)
    tradeoffs = any(isinstance(guarantee, FDP) for guarantee in guarantees)
    guarantees = tuple(map(simplest, guarantees))
    label = labels(guarantees[0])
    if tradeoffs and delta is None and all(isinstance(g, GaussianDP) for g in guarantees):
        return FDP.of(compose(*guarantees))
    if any(isinstance(g, FDP) for g in guarantees) or (tradeoffs and delta is None):
        whole = FDP(composed(_fewer(guarantees)), **label)
        return whole if delta is None else whole.to_approximate(delta)
    if delta is not None:
        return ApproximateDP(_composed_epsilon(guarantees, delta), delta, **label)
    kinds = {type(guarantee) for guarantee in guarantees}
    epsilon = math.fsum(_values(guarantees, PureDP | ApproximateDP, "epsilon"))
    if kinds == {PureDP}:
        return PureDP(epsilon, **label)
    if kinds == {GaussianDP}:
        return GaussianDP(math.hypot(*_values(guarantees, GaussianDP, "mu")), **label)
    if kinds <= {PureDP, ApproximateDP}:
        return ApproximateDP(
            epsilon, math.fsum(_values(guarantees, ApproximateDP, "delta")), **label
        )
    if ApproximateDP in kinds:
        raise GuaranteeError(
            "delta must be given where approximate guarantees meet Gaussian, zero-concentrated or "
            "Renyi ones (these have an epsilon for each delta, and one must be chosen); got None."
        )
    if RenyiDP in kinds:
        return at_each_order(guarantees, math.fsum)
    rhos = [guarantee.to_zero_concentrated().rho for guarantee in guarantees]
    return ZeroConcentratedDP(math.fsum(rhos), **label)


def _fewer(guarantees: tuple[Guarantee, ...]) -> list[Guarantee]:
    """Put together what adds up without a loss: Gaussian guarantees, and Renyi divergences."""
    kinds: list[Any] = [GaussianDP, ZeroConcentratedDP | RenyiDP]
    groups = [[g for g in guarantees if isinstance(g, kind)] for kind in kinds]
    rest = [g for g in guarantees if not isinstance(g, GaussianDP | ZeroConcentratedDP | RenyiDP)]
    return [*rest, *(compose(*group) for group in groups if group)]


def _composed_epsilon(guarantees: tuple[Guarantee, ...], delta: float) -> float:
    """Return the smallest epsilon of the three routes that `compose` names."""
    epsilons = [e for e in _values(guarantees, PureDP | ApproximateDP, "epsilon") if e > 0]
    mu = math.hypot(*_values(guarantees, GaussianDP, "mu"))
    rho = math.fsum(_values(guarantees, ZeroConcentratedDP, "rho"))
    failures = _values(guarantees, ApproximateDP, "delta")
    renyi = [g for g in guarantees if isinstance(g, RenyiDP)]
    left = left_after(failures, delta, needed=mu > 0 or rho > 0 or bool(renyi))
    if renyi:
        others = [g for g in guarantees if isinstance(g, GaussianDP | ZeroConcentratedDP)]
        pure = [PureDP(e, **labels(guarantees[0])) for e in epsilons]
        rest = at_each_order((*renyi, *others), math.fsum).to_approximate(left).epsilon
        whole = at_each_order((*renyi, *others, *pure), math.fsum).to_approximate(left).epsilon
        return min(math.fsum([*epsilons, rest]), whole)
    rest = 0.0
    if rho:
        rest = ZeroConcentratedDP(rho + mu * mu / 2).to_approximate(left).epsilon
    elif mu:
        rest = GaussianDP(mu).to_approximate(left).epsilon
    basic = math.fsum([*epsilons, rest])
    if not epsilons or not left:
        return basic
    rhos = [PureDP(e).to_zero_concentrated().rho for e in epsilons]
    total = ZeroConcentratedDP(math.fsum([*rhos, rho, mu * mu / 2]))
    best = min(basic, total.to_approximate(left).epsilon)
    if rho or math.prod(count + 1 for count in Counter(epsilons).values()) > _MOST_OUTCOMES:
        return best
    profile = _optimal_profile(epsilons, mu)
    return min(best, least_epsilon(profile, left, lambda: solve(profile, left, 2 * basic)))


def _optimal_profile(epsilons: list[float], mu: float) -> Callable[[float], float]:
    """Return the profile of randomized responses composed with N(0, 1) against N(mu, 1).

    Of n responses with one epsilon, l lie with binomial probability and leave the log-ratio
    (n - 2 l) epsilon. Given the log-ratio L of all responses, the Gaussian pair adds its profile
    at e - L, so that delta(e) = sum_L P(L) delta_mu(e - L).
    """
    probabilities, ratios = np.ones(1), np.zeros(1)
    for epsilon, n in Counter(epsilons).items():
        lies = np.arange(n + 1)
        probabilities = np.outer(probabilities, binom.pmf(lies, n, expit(-epsilon))).ravel()
        ratios = np.add.outer(ratios, (n - 2 * lies) * epsilon).ravel()

    def profile(epsilon: float) -> float:
        rest = epsilon - ratios
        # Without the Gaussian pair, nothing is hidden: max(0, 1 - exp(e - L)).
        each = gaussian_profile(rest, mu) if mu else -np.expm1(np.minimum(rest, 0.0))
        return float(probabilities @ each)

    return profile


def _values(guarantees: tuple[Guarantee, ...], kind: Any, name: str) -> list[float]:
    return [getattr(guarantee, name) for guarantee in guarantees if isinstance(guarantee, kind)]


def check_composable(guarantees: tuple[Guarantee, ...]) -> None:
    """Refuse what cannot be summed: nothing, what is no guarantee, other neighbours or units."""
    if not guarantees:
        raise GuaranteeError(
            "compose must be given a guarantee or more (without a release nothing is promised); "
            "got none."
        )
    for guarantee in guarantees:
        if not isinstance(guarantee, Guarantee):
            raise GuaranteeError(
                "compose must be given guarantees such as PureDP(1.0) (of a mechanism pass its "
                f".guarantee, of an epsilon say which kind it is); got {shown(guarantee)}."
            )
    relations = sorted({str(guarantee.neighbours) for guarantee in guarantees})
    if len(relations) > 1:
        raise GuaranteeError(
            "guarantees to compose must have the same neighbours (state neighbours= on each where "
            "one has None; bring add_remove to replace_one by to_replace_one()); got "
            f"{' and '.join(relations)}."
        )
    units = sorted({repr(guarantee.unit) for guarantee in guarantees})
    if len(units) > 1:
        raise GuaranteeError(
            "guarantees to compose must have the same unit (the sum protects one kind of record); "
            f"got {' and '.join(units)}."
        )
