"""Replicates of a release: what a fitted model would have published.

Given the parameters, the records behind a replicate can be drawn afresh, or be those that were
imputed. The imputed ones were fitted to the release: a replicate made from them differs from the
release by little more than the noise, whatever the model, and is no check of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pymc_privacy._compat import Model, modelcontext
from pymc_privacy.arguments import choice
from pymc_privacy.distributions.measured_totals import LatticeCounts
from pymc_privacy.errors import PlotError, PrivacyError
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.releases import is_release
from pymc_privacy.results import record_names, stored_in, without_variables

REDRAWN = "redrawn"
FITTED = "fitted"
AS_GIVEN = "as given"


class Replicates(NamedTuple):
    """Replicates of each release, as a Dataset, and how their records came about."""

    draws: Any
    records: str


def replicates(
    result: Any,
    names: Sequence[str] | None,
    *,
    records: str = REDRAWN,
    model: Any = None,
    random_seed: Any = None,
) -> Replicates:
    """Return those that a tree has, if their records are as asked for, or draw them.

    Parameters
    ----------
    result : DataTree
    names : sequence of str, optional
        Releases; all of them by default.
    records : {"redrawn", "fitted"}
    model : pm.Model, optional
        That on the context stack by default. Not needed for replicates that are there.
    random_seed : optional
        Of replicates that have to be drawn.
    """
    why = "drawn given the parameters, a check of the model, or as they were imputed"
    records = choice("records", records, (REDRAWN, FITTED), meaning=why, error=PlotError)
    model = _model(model)
    latent = record_names(result) if model is None else _records(model)
    given = stored_in(result, "posterior_predictive")
    wanted = given if names is None else names
    kind = _kind(result, latent)
    if given and set(wanted) <= set(given) and kind in (records, AS_GIVEN):
        return Replicates(result["posterior_predictive"].dataset, str(kind))
    if model is None:
        raise PlotError(_why_not(result, records, latent))
    return Replicates(_drawn(result, names, records, model, latent or [], random_seed), records)


def _model(model: Any) -> Model | None:
    """Return the model, that on the context stack by default, or None."""
    try:
        return modelcontext(model)
    except (TypeError, PrivacyError):
        if model is not None:
            raise
        return None


def _records(model: Model) -> list[str]:
    """Return the names of all that stands for confidential data."""
    return [
        rv.name for rv in model.free_RVs if is_record(rv) or isinstance(rv.owner.op, LatticeCounts)
    ]


def _kind(result: Any, latent: Sequence[str] | None) -> str | None:
    """Say how the records behind the replicates of a tree came about; None where nobody knows."""
    posterior = stored_in(result, "posterior")
    if not posterior:
        # Nothing was fitted here: the replicates are somebody's own.
        return AS_GIVEN
    if latent is None:
        return None
    # What was drawn again on the way to a replicate is stored beside it.
    kept = set(latent) & set(posterior) - set(stored_in(result, "posterior_predictive"))
    return FITTED if kept else REDRAWN


def _why_not(result: Any, records: str, latent: Sequence[str] | None) -> str:
    asked = f"Replicates of a release whose records are {records}"
    if not stored_in(result, "posterior_predictive"):
        return (
            f"{asked} need the model, or a group `posterior_predictive`; got neither. Give "
            "model=, or call this where the model is on the context stack."
        )
    if latent is None:
        return (
            f"{asked} need the model, because this tree does not say which of its variables are "
            "records. Give model=, or call this where the model is on the context stack."
        )
    there = _kind(result, latent)
    return (
        f"{asked} need the model, because those in `posterior_predictive` have records that are "
        f'{there}. Give model=, or show what is there with records="{there}".'
    )


def _drawn(
    result: Any, names: Any, records: str, model: Model, latent: Sequence[str], random_seed: Any
) -> Any:
    import pymc as pm

    posterior = stored_in(result, "posterior")
    if not posterior:
        raise PlotError(
            "Replicates of a release need a DataTree with a group `posterior`; got "
            f"{', '.join(getattr(result, 'children', {})) or type(result).__name__}."
        )
    missing = [name for name in latent if name not in posterior]
    if records == FITTED and missing:
        raise PlotError(
            "Replicates from fitted records need these: sample with keep_records=True; got a "
            f"posterior without {', '.join(missing)}."
        )
    releases = [rv.name for rv in model.observed_RVs if is_release(rv)]
    wanted = releases if names is None else list(names)
    strangers = [name for name in wanted if name not in releases]
    if strangers or not wanted:
        raise PlotError(
            f"var_names must be among {', '.join(releases) or 'none'}; got "
            f"{', '.join(strangers) or 'none'}."
        )
    drawn = pm.sample_posterior_predictive(
        without_variables(result, latent if records == REDRAWN else ()),
        model=model,
        var_names=wanted,
        random_seed=random_seed,
        progressbar=False,
    )
    return drawn["posterior_predictive"].dataset
