"""A release as an entry of the OpenDP deployments registry, tier 3, and as YAML.

The fields are filled in as far as the release itself knows them.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pymc_privacy.accounting import ApproximateDP, PureDP
from pymc_privacy.arguments import instance, integer, real, refusal, text
from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.plain import to_plain
from pymc_privacy.sanitize.publication import SIMULATED
from pymc_privacy.sanitize.releases import Release

_WIDEST = 200  # spaces before a line
_MOST_LINES = 10**5
_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}  # not strings in YAML
_UNITS = {
    "replace_one": "Adjacent data sets have the same number of records and differ in one of them.",
    "add_remove": "Adjacent data sets differ by one record that is added or removed.",
}


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

    Raises
    ------
    ReleaseError
        If the release is none or only simulated, or a text or a list of names is not what it must
        be.

    See Also
    --------
    release_card : What this package writes about a release.
    release : Makes the release.

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
    instance("release", release, Release, "a Release", error=ReleaseError)
    if release.simulated:
        raise ReleaseError(f"A registry lists what is published. {SIMULATED}")
    deployment = {
        "basic": {
            "name": release.name,
            "data_curators": _names("curators", curators),
            "intended_use": text("intended_use", intended_use, error=ReleaseError),
            "data_product_type": "Summary statistics",
            "data_product_region": text("region", region, error=ReleaseError),
            "description": text("description", description, error=ReleaseError),
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
        "administrative": {"registry_authors": _names("authors", authors or curators)},
    }
    slug = re.sub(r"[^a-z0-9]+", "-", f"{release.name} {release.published}".lower()).strip("-")
    return {"url_slug": slug, "status": "Draft", "tier": 3, "deployment": deployment}


def _names(what: str, names: Any) -> list[str]:
    listed = isinstance(names, Sequence) and not isinstance(names, str | bytes) and len(names) > 0
    if not listed:
        raise refusal(what, "a list of names, one or more", names, error=ReleaseError)
    return [text(what, name, error=ReleaseError) for name in names]


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

    Parameters
    ----------
    entry : dict or list
        With strings for keys, and strings, finite numbers, True, False, None, dictionaries and
        lists for values.
    indent : int
        How many spaces come first in each line.

    Examples
    --------
    >>> print(to_yaml({"tier": 3, "basic": {"data_curators": ["An office"]}, "a: b": []}))
    tier: 3
    basic:
      data_curators:
        - "An office"
    "a: b": []
    """
    instance("entry", entry, (dict, list), "a dictionary or a list", error=ReleaseError)
    indent = integer("indent", indent, least=0, most=_WIDEST, error=ReleaseError)
    lines = list(itertools.islice(_lines(entry, indent), _MOST_LINES + 1))
    if len(lines) > _MOST_LINES:
        raise ReleaseError(f"entry must have at most {_MOST_LINES} values; got more.")
    return "\n".join(lines) if entry else " " * indent + _scalar(entry)


def _lines(entry: Any, indent: int) -> Iterator[str]:
    if indent > _WIDEST:
        raise ReleaseError(f"entry must be nested {_WIDEST // 2} deep at most; got more.")
    items = [("-", item) for item in entry]
    if isinstance(entry, dict):
        items = [(f"{_key(key)}:", value) for key, value in entry.items()]
    for start, value in items:
        nested = isinstance(value, dict | list) and value
        yield " " * indent + (start if nested else f"{start} {_scalar(value)}")
        if nested:
            yield from _lines(value, indent + 2)


def _key(key: Any) -> str:
    """Return a key as it is where YAML takes it for a word, and quoted elsewhere."""
    instance("A key of entry", key, str, "a string", error=ReleaseError)
    plain = re.fullmatch("[a-z]+(_[a-z]+)*", key) and key not in _YAML_WORDS
    return str(key) if plain else _quoted(key)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if not isinstance(value, bool | None | dict | list):
        # Real numbers that are no plain ones, as those of NumPy, are refused.
        kinds, wanted = (int, float), "a string, a finite number, True, False, None, or a list"
        instance("A value of entry", value, kinds, wanted, error=ReleaseError)
        real("A number of entry", value, error=ReleaseError)
    text = json.dumps(value)
    # Without a point YAML 1.1 takes 1e-06 for a word.
    return text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text


def _quoted(line: str) -> str:
    """Return a string in quotes; what cannot be printed YAML would take for spaces, or refuse."""
    quoted = json.dumps(line, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
