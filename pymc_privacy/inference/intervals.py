"""`posterior_interval`: the two halves meet; what was released securely is read by the sampler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pymc_privacy.arguments import instance, refusal, text
from pymc_privacy.errors import GuaranteeError
from pymc_privacy.results import observed_values, posterior_draws
from pymc_privacy.sanitize import PrivateInterval, Release
from pymc_privacy.sanitize.budget import together
from pymc_privacy.sanitize.interval import Label, checked_prob
from pymc_privacy.sanitize.methods import OF_CHAINS
from pymc_privacy.sanitize.publication import SIMULATED


def posterior_interval(
    idata: Any,
    releases: Mapping[str, Release],
    *,
    prob: float = 0.95,
    var_names: Any = None,
    public: Iterable[str] = (),
) -> dict[str, PrivateInterval]:
    """Return intervals of a posterior that saw the records through secure releases alone.

    What is computed from releases is as private as they are together, whatever the model and
    however well the chains have mixed. It is checked that every observed variable of the model is
    one of the releases, with the very values that were published, and that other data are declared
    public. What a model holds as plain constants cannot be seen, and is not checked: constants
    taken from the records are a choice made after a look at them, which no label covers.

    Parameters
    ----------
    idata : DataTree
        From `pymc_privacy.sample` or `pm.sample`.
    releases : mapping of str to Release
        For each observed variable of the model its release.
    prob : float
    var_names : sequence of str, optional
        Scalar parameters; all by default.
    public : iterable of str
        Names of data containers, and of observed variables, that are public.

    Returns
    -------
    dict of str to PrivateInterval
        As the releases are: proven if all of them are; conditional if a sensitivity was stated,
        or other data were declared public; nominal if a release was only simulated.

    Raises
    ------
    GuaranteeError
        If an observed variable is neither a release with the values that were published nor public,
        if the releases do not compose, or if `prob` or `var_names` is not what it must be.

    See Also
    --------
    noise_aware_interval : The same without PyMC, for some families.
    release : Makes the releases.
    Privatized.from_card : Puts one into a model.
    write_card : Publish the interval with its evidence.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> answers = [0, 1, 1, 0, 1] * 20
    >>> published = pmp.release(answers, bounds=(0, 1), epsilon=1.0, neighbours="replace_one")
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=100)
    ...     yes = pmp.Privatized.from_card("yes", x, published)
    ...     idata = pmp.sample(500, tune=500, chains=2, random_seed=1, progressbar=False)
    >>> intervals = pmp.posterior_interval(idata, {"yes": published})
    >>> intervals["p"].label
    'proven'
    """
    prob = checked_prob(prob)
    _check_releases(releases)
    declared = _names(public)
    trusted = _check_observed(idata, releases, declared)
    total = together([release.guarantee for release in releases.values()])
    simulated = any(release.simulated for release in releases.values())
    assumptions = tuple(
        dict.fromkeys(words for release in releases.values() for words in release.assumptions)
    )
    if trusted:
        assumptions += (f"Public, as stated by the curator: {', '.join(sorted(trusted))}.",)
    label: Label = "nominal" if simulated else "conditional" if assumptions else "proven"
    tail = (1 - prob) / 2
    intervals = {}
    for name, draws in posterior_draws(idata, var_names).items():
        lower, upper = np.quantile(draws, [tail, 1 - tail])
        intervals[name] = PrivateInterval(
            lower=float(lower),
            upper=float(upper),
            prob=prob,
            method="noise-aware posterior",
            label=label,
            assumptions=(*assumptions, OF_CHAINS),
            guarantee=None if simulated else total,
            claimed=total if simulated else None,
            why=(SIMULATED,) if simulated else (),
            releases=tuple(releases.values()),
            name=name,
        )
    return intervals


def _check_releases(releases: Any) -> None:
    """Refuse what is not a release, or is one release under two names."""
    if not isinstance(releases, Mapping) or not releases:
        raise GuaranteeError(
            "A private posterior must come from a release or more, a mapping of names to Release; "
            f"got {'none' if isinstance(releases, Mapping) else type(releases).__name__}."
        )
    for name, release in releases.items():
        text("The name of a release", name, error=GuaranteeError)
        instance(f"The release {name!r}", release, Release, "a Release", error=GuaranteeError)


def _names(public: Any) -> set[str]:
    wanted = "a list of names of variables and data containers"
    try:
        names = [public] if isinstance(public, str) else list(public)
    except Exception:  # of a class of the caller's, which can raise anything
        raise refusal("public", wanted, public, error=GuaranteeError) from None
    if isinstance(public, str) or not all(isinstance(name, str) for name in names):
        raise refusal("public", wanted, public, error=GuaranteeError)
    return set(names)


def _check_observed(idata: Any, releases: Mapping[str, Release], public: set[str]) -> set[str]:
    """Refuse a posterior that may have seen the records in another way than through releases.

    Return what it saw besides them, which was declared public.
    """
    observed, constant = observed_values(idata)
    unknown = [name for name in (*observed, *constant) if name not in releases]
    if set(unknown) - public:
        raise GuaranteeError(
            "Every observed variable of the model must be one of the releases, and other data must "
            "be declared public=, or the posterior may have seen the records themselves; got "
            f"{', '.join(sorted(set(unknown) - public))}."
        )
    for name, release in releases.items():
        if name not in observed or not np.array_equal(observed[name], release.value):
            raise GuaranteeError(
                f"The release {name!r} must be what the model observed; it was published as "
                f"{release.value}; got {observed.get(name, 'no such variable')}."
            )
    return set(unknown)
