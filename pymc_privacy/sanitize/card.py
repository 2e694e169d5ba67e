"""The card of a release: everything a reader needs, as JSON, and as an entry of the registry.

The JSON form is complete: `read_card` gives the release back. The YAML form has the fields of the
OpenDP deployments registry, tier 3, filled in as far as the release itself knows them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

from pymc_privacy.accounting import ApproximateDP, PureDP
from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.calibrate import Calibration, Sensitivity
from pymc_privacy.sanitize.lattice import Lattice
from pymc_privacy.sanitize.plain import from_plain, to_plain
from pymc_privacy.sanitize.releases import NOT_PROTECTED, SIMULATED, Release

FORMAT = "pymc-privacy release card"
_UNITS = {
    "replace_one": "Adjacent data sets have the same number of records and differ in one of them.",
    "add_remove": "Adjacent data sets differ by one record that is added or removed.",
}


def release_card(release: Release) -> dict[str, Any]:
    """Return the card as a dictionary of plain values.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> published = pmp.release([0, 1, 1], bounds=(0, 1), epsilon=1.0, neighbours="replace_one")
    >>> pmp.release_card(published)["guarantee"]["epsilon"]
    1.0
    """
    calibration = release.calibration
    return {
        "format": FORMAT,
        "version": 1,
        "warning": SIMULATED if release.simulated else None,
        "name": release.name,
        "published": release.published,
        "integers": list(release.integers),
        "granularity": str(Fraction(release.lattice.granularity)),
        "value": _plain(release.value),
        "bounds": [list(pair) for pair in release.lattice.bounds],
        "scalar": release.lattice.scalar,
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


def write_card(release: Release, path: str | os.PathLike[str]) -> None:
    """Write the card as JSON.

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
    Path(path).write_text(json.dumps(release_card(release), indent=1) + "\n", encoding="utf-8")


def read_card(source: Any) -> Release:
    """Return the release that a card describes.

    Parameters
    ----------
    source : path_like or dict
        A file that `write_card` wrote, or the dictionary of `release_card`.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> published = pmp.release([0, 1, 1], bounds=(0, 1), epsilon=1.0, neighbours="replace_one")
    >>> pmp.read_card(pmp.release_card(published)) == published
    True
    """
    plain = source if isinstance(source, dict) else _loaded(source)
    if plain.get("format") != FORMAT or plain.get("version") != 1:
        raise ReleaseError(
            f"A card must have the format {FORMAT!r}, version 1; got {plain.get('format')!r}, "
            f"version {plain.get('version')!r}."
        )
    try:
        return _release(plain)
    except (KeyError, TypeError, AttributeError) as error:
        raise ReleaseError(
            f"A card must have all its fields, as they were written; it failed at {error}."
        ) from None


def _release(plain: dict[str, Any]) -> Release:
    noise = plain["noise"]
    calibration = Calibration(
        family=noise["family"].removeprefix("discrete "),
        scale=float(noise["scale"]),
        guarantee=from_plain(plain["guarantee"]),
        sensitivity=Sensitivity(**plain["sensitivity"]),
    )
    lattice = Lattice(
        bounds=tuple((float(low), float(high)) for low, high in plain["bounds"]),
        granularity=float(Fraction(plain["granularity"])),
        scalar=plain["scalar"],
    )
    return Release(
        name=plain["name"],
        integers=tuple(int(i) for i in plain["integers"]),
        lattice=lattice,
        calibration=calibration,
        size=plain["size"],
        published=plain["published"],
        sampler=noise["sampler"],
    )


def _loaded(path: Any) -> dict[str, Any]:
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, TypeError):
        plain = None
    if not isinstance(plain, dict):
        raise ReleaseError(f"A card must be a JSON object; got {path!r}, which is none.")
    return plain


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def registry_entry(
    release: Release,
    *,
    curators: Sequence[str],
    description: str,
    intended_use: str,
    region: str,
    authors: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the release as an entry of the OpenDP deployments registry, status "Draft".

    Parameters
    ----------
    release : Release
    curators : sequence of str
        Who publishes.
    description, intended_use, region : str
        What the product is, what it is for, and where its people live.
    authors : sequence of str, optional
        Who fills in the entry; the curators by default.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> published = pmp.release([0, 1, 1], bounds=(0, 1), epsilon=1.0, neighbours="replace_one")
    >>> entry = pmp.registry_entry(
    ...     published,
    ...     curators=["An office"],
    ...     description="Yes answers",
    ...     intended_use="An example",
    ...     region="Nowhere",
    ... )
    >>> entry["deployment"]["dp_variant"]["variant_name"]
    'Pure DP'
    """
    if release.simulated:
        raise ReleaseError(f"A registry lists what is published. {SIMULATED}")
    deployment = {
        "basic": {
            "name": release.name,
            "data_curators": list(curators),
            "intended_use": intended_use,
            "data_product_type": "Summary statistics",
            "data_product_region": region,
            "description": description,
            "publication_date": release.published,
        },
        "dp_variant": _variant(release),
        "privacy_loss": _privacy_loss(release),
        "deployment_model": {
            "model_name": "Central",
            "release_type": "One release",
            "access_type": "Non-interactive",
        },
        "accounting": {"post_processing": "None.", "composition": "One release; none."},
        "implementation": {"mechanisms": release.statement()},
        "administrative": {"registry_authors": list(authors or curators)},
    }
    slug = re.sub(r"[^a-z0-9]+", "-", f"{release.name} {release.published}".lower()).strip("-")
    return {"url_slug": slug, "status": "Draft", "tier": 3, "deployment": deployment}


def _variant(release: Release) -> dict[str, Any]:
    kinds = {PureDP: "Pure DP", ApproximateDP: "Approximate DP"}
    bounds = ", ".join(f"[{low:g}, {high:g}]" for low, high in release.lattice.bounds)
    public = f"The number of records, {release.size}." if release.size is not None else "None."
    return {
        "variant_name": kinds.get(type(release.guarantee), "Zero-concentrated DP"),
        "data_domain": f"Records whose contributions are clipped to {bounds}.",
        "unprotected_quantities": public,
    }


def _privacy_loss(release: Release) -> dict[str, Any]:
    plain = to_plain(release.guarantee)
    return {
        "privacy_unit": release.guarantee.unit,
        "privacy_unit_details": _UNITS[str(release.guarantee.neighbours)],
        "privacy_parameters": {k: plain[k] for k in ("epsilon", "delta", "rho") if k in plain},
        "privacy_parameters_details": str(release.sensitivity),
    }


def to_yaml(entry: Any, indent: int = 0) -> str:
    """Return nested dictionaries and lists as YAML; strings are quoted as in JSON, which is YAML.

    Examples
    --------
    >>> print(to_yaml({"tier": 3, "basic": {"data_curators": ["An office"]}}))
    tier: 3
    basic:
      data_curators:
        - "An office"
    """
    pad = " " * indent
    if isinstance(entry, dict):
        return "\n".join(
            f"{pad}{key}:\n{to_yaml(value, indent + 2)}"
            if isinstance(value, dict | list) and value
            else f"{pad}{key}: {_scalar(value)}"
            for key, value in entry.items()
        )
    return "\n".join(f"{pad}- {_scalar(item)}" for item in entry)


def _scalar(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Without a point YAML 1.1 takes 1e-06 for a word.
    return text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text
