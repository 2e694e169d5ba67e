"""The card of what was published: everything a reader needs, as JSON.

There is one card for each kind: a release, a quantile, a summary, a composition with the cards of
its parts, and an interval with those of what it was computed from. A card is complete: `read_card`
makes the plan again from its public numbers, and refuses a card that says anything else than that
plan does. So a guarantee that is read was recomputed. The ends of an interval are computed again as
well, unless its method draws at random; then the card lists them under `publishers_word`. The
checksum is against accidents; it has no key, and is no signature: whoever can write a whole card
can write another one, of a release that never was.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from pymc_privacy.arguments import flag, instance
from pymc_privacy.arguments import path as checked_path
from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.compositions import CompositionRelease, GroupedComposition
from pymc_privacy.sanitize.interval import PrivateInterval
from pymc_privacy.sanitize.plain import to_plain
from pymc_privacy.sanitize.publication import NOT_PROTECTED, SIMULATED
from pymc_privacy.sanitize.quantiles import PrivateQuantile
from pymc_privacy.sanitize.releases import Release
from pymc_privacy.sanitize.summary_plan import SummaryRelease

VERSION = 2
FORMATS = {
    Release: "pymc-privacy release card",
    PrivateQuantile: "pymc-privacy quantile card",
    SummaryRelease: "pymc-privacy summary card",
    PrivateInterval: "pymc-privacy interval card",
    CompositionRelease: "pymc-privacy composition card",
    GroupedComposition: "pymc-privacy grouped composition card",
}


def release_card(release: Any) -> dict[str, Any]:
    """Return the card as a dictionary of plain values.

    Parameters
    ----------
    release : Release, CompositionRelease, PrivateQuantile or PrivateInterval
        Or a `GroupedComposition`, or the summary that an interval of centre and scale was computed
        from.

    Raises
    ------
    ReleaseError
        If it is not something that has a card.

    See Also
    --------
    write_card : Write it to a file.
    read_card : Read it again.
    registry_entry : The release in the format of a registry.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> published = pmp.release([0, 1, 1], bounds=(0, 1), epsilon=1.0, neighbours="replace_one")
    >>> card = pmp.release_card(published)
    >>> card["guarantee"]["epsilon"], card["label"]
    (1.0, 'proven')
    """
    kinds = tuple(FORMATS)
    wanted = "a Release, a CompositionRelease, a PrivateQuantile or a PrivateInterval"
    instance("release", release, kinds, wanted, error=ReleaseError)
    [kind] = [kind for kind in kinds if isinstance(release, kind)]
    fields = {"format": FORMATS[kind], "version": VERSION, **_FIELDS[kind](release)}
    return {**fields, "checksum": _checksum(fields)}


def _of_release(release: Release) -> dict[str, Any]:
    plan, calibration = release.plan, release.calibration
    return {
        "warning": SIMULATED if release.simulated else None,
        "name": release.name,
        "published": release.published,
        "label": release.label,
        "assumptions": list(release.assumptions),
        "integers": list(release.integers),
        "granularity": str(Fraction(release.lattice.granularity)),
        "value": _plain(release.value),
        "bounds": [list(pair) for pair in release.lattice.bounds],
        "scalar": release.lattice.scalar,
        "whole": plan.whole,
        "moments": plan.moments,
        "stated_sensitivity": plan.stated,
        "words": list(plan.words),
        "size": release.size,
        "noise": {
            "family": f"discrete {calibration.family}",
            "scale": calibration.scale,
            "sampler": release.sampler,
        },
        "guarantee": to_plain(release.guarantee),
        "sensitivity": asdict(release.sensitivity),
        "not_protected": list(NOT_PROTECTED),
    }


def _of_quantile(quantile: PrivateQuantile) -> dict[str, Any]:
    plan = quantile.plan
    return {
        "name": plan.name,
        "published": quantile.published,
        "label": quantile.label,
        "of": plan.of,
        "quantile": plan.quantile,
        "bounds": list(plan.bounds),
        "cell": quantile.cell,
        "value": float(quantile),
        # What the choice was made with: a promise that is edited alone contradicts it.
        "mechanism": {"family": "exponential", "rate": plan.guarantee.epsilon / 2},
        "guarantee": to_plain(plan.guarantee),
        "not_protected": list(NOT_PROTECTED),
    }


def _of_summary(summary: SummaryRelease) -> dict[str, Any]:
    plan = summary.plan
    return {
        "name": plan.name,
        "published": summary.published,
        "label": summary.label,
        "assumptions": list(summary.assumptions),
        "family": _of_family(plan.family),
        "author": plan.author,
        "size": plan.size,
        "support": list(plan.support),
        "sensitivities": asdict(plan.bounds),
        "integers": list(summary.integers),
        "value": list(summary.value),
        "scale": plan.scale,
        "sampler": summary.sampler,
        "guarantee": to_plain(plan.guarantee),
        "not_protected": list(NOT_PROTECTED),
    }


def _of_family(family: Any) -> dict[str, Any] | None:
    return family and {"kind": type(family).__name__, **_listed(asdict(family))}


def _of_interval(interval: PrivateInterval) -> dict[str, Any]:
    promises = {
        key: None if promise is None else to_plain(promise)
        for key, promise in (
            ("guarantee", interval.guarantee),
            ("claimed", interval.claimed),
            ("supported", interval.supported),
        )
    }
    return {
        "name": interval.name,
        "method": interval.method,
        "prob": interval.prob,
        "lower": interval.lower,
        "upper": interval.upper,
        "label": interval.label,
        "assumptions": list(interval.assumptions),
        **promises,
        "why": list(interval.why),
        "family": _of_family(interval.family),
        "publishers_word": list(interval.unchecked),
        "releases": [release_card(release) for release in interval.releases],
        "not_protected": list(NOT_PROTECTED),
    }


def _of_composition(composition: CompositionRelease) -> dict[str, Any]:
    return {
        **_of_plan(composition),
        "group": composition.group,
        "size": composition.size,
        "threshold": composition.threshold,
        "releases": [release_card(release) for release in composition.releases],
        "not_protected": list(NOT_PROTECTED),
    }


def _of_groups(grouped: GroupedComposition) -> dict[str, Any]:
    return {
        **_of_plan(grouped),
        "groups": [release_card(one) for one in grouped.groups],
        "not_protected": list(NOT_PROTECTED),
    }


def _of_plan(published: CompositionRelease | GroupedComposition) -> dict[str, Any]:
    plan = asdict(published.plan)
    return {
        "warning": SIMULATED if published.simulated else None,
        "name": published.name,
        "published": published.published,
        "label": published.label,
        "assumptions": list(published.assumptions),
        "plan": {**_listed(plan), "guarantee": to_plain(published.guarantee)},
        "guarantee": to_plain(published.guarantee),
    }


_FIELDS: dict[type, Any] = {
    Release: _of_release,
    PrivateQuantile: _of_quantile,
    SummaryRelease: _of_summary,
    PrivateInterval: _of_interval,
    CompositionRelease: _of_composition,
    GroupedComposition: _of_groups,
}


def write_card(release: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write the card as JSON.

    Parameters
    ----------
    release : Release, CompositionRelease, PrivateQuantile or PrivateInterval
        Or a `GroupedComposition`.
    path : path_like
    overwrite : bool
        Whether a file that is there may be lost; a card is all that is left of a release.

    Raises
    ------
    ReleaseError
        If it is not something that has a card, or the file exists or cannot be written.

    See Also
    --------
    read_card : Read it again.
    release_card : The card as a dictionary.
    Privatized.from_card : Put a card into a model.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pymc_privacy as pmp
    >>> published = pmp.release([0, 1, 1], bounds=(0, 1), epsilon=1.0, neighbours="replace_one")
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "card.json"
    >>> pmp.write_card(published, path)
    >>> pmp.read_card(path) == published
    True
    """
    file = checked_path("path", path, error=ReleaseError)
    mode = "w" if flag("overwrite", overwrite, error=ReleaseError) else "x"
    text = json.dumps(release_card(release), indent=1) + "\n"
    try:
        with file.open(mode, encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise ReleaseError(
            f"A card must not take the place of another file, unless overwrite=True says so; got "
            f"{file}, which exists."
        ) from None
    except FileNotFoundError:
        raise ReleaseError(
            f"The folder of a card must exist; got {file}, whose folder does not."
        ) from None
    except OSError as error:
        raise ReleaseError(
            f"A card must be written where this process may write; {file} cannot be: "
            f"{error.strerror}."
        ) from None


def same(ours: Any, theirs: Any) -> bool:
    """Return whether two plain values are the same; 1 and 1.0 are, 1 and True are not."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        pairs = zip(ours, theirs, strict=False)
        return len(ours) == len(theirs) and all(same(a, b) for a, b in pairs)
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return ours is theirs
    if isinstance(ours, int | float) and isinstance(theirs, int | float):
        return ours == theirs
    return type(ours) is type(theirs) and ours == theirs


def _checksum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _listed(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: list(v) if isinstance(v, tuple) else v for key, v in fields.items()}
