"""What privacy says of the acceptance of a record's proposal: for certain, and on average."""

from __future__ import annotations

import math

from pymc_privacy.accounting.composition import check_composable, compose
from pymc_privacy.accounting.guarantees import Guarantee
from pymc_privacy.arguments import instance
from pymc_privacy.errors import GuaranteeError


def expected_acceptance(*guarantees: Guarantee) -> float:
    r"""Return what a record's proposal is accepted with at least, on average over releases.

    A record sweep proposes :math:`x_i'` from the record's own model and accepts it with probability
    :math:`\min(1, \eta(s \mid x') / \eta(s \mid x))`, where x and x' differ in record i. Under pure
    epsilon-DP that is at least exp(-epsilon), whatever s is (Ju et al. 2022, Proposition 3.1).
    Under zero-concentrated or Gaussian privacy no number above 0 is such a bound: of one record
    that is 1 with probability p, and Gaussian noise, the average acceptance given s tends to p as s
    grows, and p may be as small as one likes. *Averaged over releases* there is one. Let
    parameters, records and s come from the model, as they do in a chain that has converged, given
    each s, if s is drawn from the model. Then s has law :math:`\eta(\cdot \mid x)`, given
    parameters, x and x', and the average of the acceptance over it is

    .. math:: \int \min\left(\eta(s \mid x), \eta(s \mid x')\right) ds = 1 - TV
              \left(\eta(\cdot \mid x), \eta(\cdot \mid x')\right),

    which is at least 1 less the largest total variation between neighbours: 2 / (1 + exp(epsilon))
    for pure privacy, :math:`2 \Phi(-\mu / 2)` for Gaussian, and
    :math:`1 - \min(\sqrt{\rho / 2}, \sqrt{1 - e^{-\rho}})` for zero-concentrated privacy. The first
    two are attained, by randomized response and by Gaussian noise, where proposals always go as far
    as they can. By Markov's inequality the average acceptance given s is at least 1 - TV / q for
    all releases but a share q.

    It holds for every record, parameters and model, for a proposal of one record from its own
    model; not for proposals that know something of the release.

    Parameters
    ----------
    *guarantees : Guarantee
        Of all releases of the records. One of adding or removing a record is brought to
        replacement; one that does not state its neighbours is taken to be of replacement.

    Raises
    ------
    GuaranteeError
        If there is no guarantee, one is none, or neighbours or units differ.

    See Also
    --------
    RecordSweep : Its statistic ``record_sweep_accept`` is the average acceptance.
    plot_acceptance : Draw it beside the bound for pure privacy.

    References
    ----------
    - Ju, N., Awan, J., Gong, R. and Rao, V. (2022), "Data augmentation MCMC for Bayesian inference
      from privatized data", Advances in Neural Information Processing Systems 35.

    Examples
    --------
    >>> from pymc_privacy import GaussianDP, PureDP, ZeroConcentratedDP, expected_acceptance
    >>> round(expected_acceptance(PureDP(1.0)), 3)
    0.538
    >>> round(expected_acceptance(GaussianDP(1.0)), 3)
    0.617
    >>> round(expected_acceptance(ZeroConcentratedDP(0.5)), 3)
    0.5
    """
    for guarantee in guarantees:
        instance("A guarantee", guarantee, Guarantee, "such as PureDP(1.0)", error=GuaranteeError)
    known = tuple(g if g.neighbours is None else g.to_replace_one() for g in guarantees)
    check_composable(known)
    # Given the records releases are independent, and couplings of each give one of all.
    apart = math.prod(1 - guarantee.to_total_variation() for guarantee in known)
    try:
        together = 1 - compose(*known).to_total_variation()
    except GuaranteeError:  # kinds that have no sum without a delta
        together = 0.0
    return max(apart, together, 0.0)
