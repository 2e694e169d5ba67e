"""How often a proposal must be accepted, by what the releases of a model promise.

Proposition 3.1 of Ju et al. (2022) and Proposition 5.1 of Awan et al. (2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pymc_privacy._compat import Model, TensorVariable, ancestors, modelcontext
from pymc_privacy.accounting import PureDP
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.releases import contributions_of, is_release
from pymc_privacy.model.sized_records import is_sized, size_of


@dataclass(frozen=True)
class AcceptanceBounds:
    """Acceptance probabilities that no proposal falls below; None where nothing is promised.

    Parameters
    ----------
    record : float or None
        Of a fresh draw for one record: exp(-epsilon) where its replacement is promised, and
        exp(-2 epsilon) where adding and removing it is.
    birth_death : float or None
        Of a single birth or death, exp(-(epsilon_s + epsilon_n)), under a flat prior.
    least : float or None
        Of a birth at the least size, half of that.
    why : tuple of str
        What was taken for granted, and why a bound is missing.

    See Also
    --------
    acceptance_bounds : Reads them from a model.

    Examples
    --------
    >>> AcceptanceBounds(record=0.5).birth_death is None
    True
    """

    record: float | None = None
    birth_death: float | None = None
    least: float | None = None
    why: tuple[str, ...] = ()


def acceptance_bounds(model: Model | None = None) -> AcceptanceBounds:
    """Bound acceptance probabilities from below by the guarantees of a model's releases.

    The ratio of two densities of a release is at least exp(-epsilon) for neighbours, and epsilons
    of several releases add. Under add/remove a replacement is two steps. Neighbours that nobody has
    stated are those of the model: replace one record where the number of records is known, add or
    remove one where it is not. There is no bound where other data or potentials see the records.

    Parameters
    ----------
    model : pm.Model, optional
        The model on the context stack by default.

    Returns
    -------
    AcceptanceBounds

    See Also
    --------
    plot_acceptance : Draws acceptances beside their bounds.
    BirthDeath : Its single moves keep their smallest acceptance.

    References
    ----------
    - Ju, N., Awan, J., Gong, R. and Rao, V. (2022), "Data augmentation MCMC for Bayesian inference
      from privatized data", Advances in Neural Information Processing Systems 35.
    - Awan, J., Barrientos, A. F. and Ju, N. (2024), "Statistical inference for privatized data with
      unknown sample size", arXiv:2406.06231.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     n = pm.DiscreteUniform("n", 1, 200)
    ...     x = pmp.Records("x", pm.Bernoulli.dist(p), size=n)
    ...     noise = pmp.Laplace(epsilon=1.0, sensitivity=1.0, neighbours="add_remove")
    ...     yes = pmp.Privatized("yes", x, noise, observed=37.2)
    ...     n_dp = pmp.Privatized("n_dp", n, noise, observed=101.9)
    >>> bounds = pmp.acceptance_bounds(model)
    >>> round(bounds.record, 4), round(bounds.birth_death, 4), round(bounds.least, 4)
    (0.1353, 0.1353, 0.0677)
    """
    model = modelcontext(model)
    sized = [rv for rv in model.free_RVs if is_record(rv) and is_sized(rv)]
    relation = "add_remove" if sized else "replace_one"
    why: list[str] = []
    seen, other = releases_of_records(model)
    if not seen:
        return AcceptanceBounds(why=("no release sees a record",))
    if others := _other_factors(model):
        return AcceptanceBounds(why=(f"records are seen by {', '.join(others)} as well",))
    record = _total(seen, relation, why, replaced=True)
    if not sized:
        return AcceptanceBounds(_exp(record), why=tuple(dict.fromkeys(why)))
    step = _total([*seen, *other], relation, why, replaced=False)
    flat = all(_is_flat(size_of(rv)) for rv in sized)
    if not flat:
        why.append("the prior of the size is not flat, and its ratio is another factor")
    bound = _exp(step) if flat else None
    least = None if bound is None else bound / 2
    return AcceptanceBounds(_exp(record), bound, least, tuple(dict.fromkeys(why)))


def _sees_records(variable: TensorVariable, model: Model) -> bool:
    above = ancestors([variable], blockers=[rv for rv in model.free_RVs if is_record(rv)])
    return any(v in model.free_RVs and is_record(v) for v in above)


def _other_factors(model: Model) -> list[str]:
    """Return the names of data and potentials that see records and are no releases."""
    factors = [*(rv for rv in model.observed_RVs if not is_release(rv)), *model.potentials]
    return [str(factor.name) for factor in factors if _sees_records(factor, model)]


def releases_of_records(model: Model) -> tuple[list[TensorVariable], list[TensorVariable]]:
    """Return the releases that see records, and those of a size alone."""
    seen: list[TensorVariable] = []
    other: list[TensorVariable] = []
    for release in filter(is_release, model.observed_RVs):
        (seen if _sees_records(contributions_of(release), model) else other).append(release)
    return seen, other


def _total(
    releases: list[TensorVariable], relation: str, why: list[str], *, replaced: bool
) -> float | None:
    """Add up how far the log density of all releases can change, or return None."""
    whole = []
    for release in releases:
        promise = release.owner.op.mechanism.guarantee
        if not isinstance(promise, PureDP):
            said = "no guarantee" if promise is None else str(promise)
            why.append(f"{release.name} is not known to be pure DP ({said})")
            return None
        stated = promise.neighbours or relation
        if promise.neighbours is None and not release.owner.op.local:
            why.append(f"neighbours of {release.name} taken to be {relation}, as of the model")
        if release.owner.op.local:
            whole.append(promise.epsilon)
        elif not replaced and stated == "replace_one":
            why.append(f"{release.name} promises nothing about adding or removing a record")
            return None
        else:
            whole.append(promise.epsilon * (2 if replaced and stated == "add_remove" else 1))
    return math.fsum(whole)


def _exp(loss: float | None) -> float | None:
    return None if loss is None else math.exp(-loss)


def _is_flat(size: TensorVariable) -> bool:
    """Tell whether a size has a uniform prior."""
    name = type(getattr(size.owner, "op", None)).__name__
    return "DiscreteUniform" in name
