"""`read_card`: a card is made again from its own public numbers, and must come out the same.

The text is bounded, has no duplicate keys and no numbers that floats do not hold; all that is wrong
with it is one error, a `ReleaseError` in a sentence.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from pymc_privacy.arguments import path as checked_path
from pymc_privacy.errors import PrivacyError, ReleaseError
from pymc_privacy.sanitize.card import FORMATS, VERSION, release_card, same
from pymc_privacy.sanitize.composition_plan import CompositionPlan
from pymc_privacy.sanitize.compositions import CompositionRelease, GroupedComposition
from pymc_privacy.sanitize.families import OWN, SummaryBounds
from pymc_privacy.sanitize.group_labels import MOST_GROUPS
from pymc_privacy.sanitize.interval import PrivateInterval
from pymc_privacy.sanitize.lattice import Lattice
from pymc_privacy.sanitize.methods import METHODS
from pymc_privacy.sanitize.plain import from_plain
from pymc_privacy.sanitize.plan import ReleasePlan
from pymc_privacy.sanitize.quantiles import PrivateQuantile, QuantilePlan
from pymc_privacy.sanitize.releases import Release
from pymc_privacy.sanitize.summary_plan import SummaryPlan, SummaryRelease

_LONGEST = 2**24  # bytes of a file
_DEEPEST = 16  # cards within lists within cards
_LARGEST = 2**1024  # of an integer
_MOST_VALUES = 2**21  # a release of 2^16 columns has a sixth of them
_FAMILIES: dict[str, Any] = {kind.__name__: kind for kind in OWN}
_POWER = re.compile(r"1(?:/[0-9]{1,400})?|[0-9]{1,400}")


def read_card(source: Any) -> Any:
    """Return what a card describes: a release, a composition, a quantile or an interval.

    Everything that follows from other entries is computed again, the guarantee and its label
    above all, and a card that says otherwise is refused. That its numbers were really published is
    not checked, and cannot be.

    Parameters
    ----------
    source : path_like or dict
        A file that `write_card` wrote, or the dictionary of `release_card`.

    Raises
    ------
    ReleaseError
        If the file cannot be read, is no card, or contradicts itself.

    See Also
    --------
    write_card : Write one.
    Privatized.from_card : Put one into a model.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> published = pmp.release([0, 1, 1], bounds=(0, 1), epsilon=1.0, neighbours="replace_one")
    >>> pmp.read_card(pmp.release_card(published)) == published
    True
    """
    plain = source if isinstance(source, dict) else _loaded(source)
    _check_plain(plain)
    return _made(plain)


def _made(plain: Any) -> Any:
    kinds = {name: kind for kind, name in FORMATS.items()}
    found: Any = plain.get("format") if isinstance(plain, dict) else None
    known = isinstance(found, str) and found in kinds
    if not known or type(plain.get("version")) is not int or plain["version"] != VERSION:
        raise ReleaseError(
            f"A card must have the format {' or '.join(map(repr, kinds))}, version {VERSION}; got "
            f"{_shown(found)}, version {_shown(plain.get('version') if found else None)}."
        )
    try:
        made = _MAKERS[kinds[found]](plain)
        again = release_card(made)
    except KeyError as error:
        raise ReleaseError(
            f"A card must have all its fields, as they were written; it lacks {error}."
        ) from None
    except PrivacyError as error:
        raise ReleaseError(f"A card must describe what can be published; {error}") from None
    except (TypeError, AttributeError, ValueError, ArithmeticError):
        raise ReleaseError(
            "A card must have its fields as they were written; one is of another kind."
        ) from None
    if not same(again, plain):
        raise ReleaseError(
            "A card must say what follows from its own bounds, neighbours, granularity and "
            f"promise, and nothing else; it was altered at {_difference(again, plain)}."
        )
    return made


def _release(plain: dict[str, Any]) -> Release:
    lattice = Lattice(
        bounds=tuple(map(_pair, _list(plain["bounds"]))),
        granularity=_granularity(plain["granularity"]),
        scalar=plain["scalar"],
    )
    plan = ReleasePlan(
        name=plain["name"],
        lattice=lattice,
        guarantee=from_plain(plain["guarantee"]),
        whole=plain["whole"],
        stated=_optional(_float, plain["stated_sensitivity"]),
        moments=_optional(_text, plain["moments"]),
        words=tuple(map(_text, _list(plain["words"]))),
    )
    return Release(
        plan=plan,
        integers=tuple(_list(plain["integers"])),
        size=plain["size"],
        published=plain["published"],
        sampler=plain["noise"]["sampler"],
    )


def _quantile(plain: dict[str, Any]) -> PrivateQuantile:
    guarantee: Any = from_plain(plain["guarantee"])
    bounds, quantile = _pair(plain["bounds"]), _float(plain["quantile"])
    plan = QuantilePlan(plain["of"], quantile, bounds, guarantee, plain["name"])
    return PrivateQuantile(plan, plain["cell"], plain["published"])


def _summary(plain: dict[str, Any]) -> SummaryRelease:
    guarantee: Any = from_plain(plain["guarantee"])
    plan = SummaryPlan(
        name=plain["name"],
        guarantee=guarantee,
        support=_pair(plain["support"]),
        bounds=SummaryBounds(**{key: _float(v) for key, v in plain["sensitivities"].items()}),
        family=_optional(_family, plain["family"]),
        size=plain["size"],
        author=plain["author"],
    )
    first, second = _list(plain["integers"])
    return SummaryRelease(plan, (first, second), plain["published"], plain["sampler"])


def _interval(plain: dict[str, Any]) -> PrivateInterval:
    return PrivateInterval(
        lower=_float(plain["lower"]),
        upper=_float(plain["upper"]),
        prob=_float(plain["prob"]),
        method=plain["method"],
        label=plain["label"],
        assumptions=tuple(map(_text, _list(plain["assumptions"]))),
        guarantee=_optional(from_plain, plain["guarantee"]),
        claimed=_optional(from_plain, plain["claimed"]),
        supported=_optional(from_plain, plain["supported"]),
        why=tuple(map(_text, _list(plain["why"]))),
        releases=_evidence(plain),
        name=plain["name"],
        family=_optional(_family, plain["family"]),
    )


def _evidence(plain: dict[str, Any]) -> tuple[Any, ...]:
    """Return the releases of an interval, if they are of the kind and number of its method.

    This is looked at first, or a card of many could take hours to read.
    """
    method, listed = METHODS.get(_text(plain["method"])), _list(plain["releases"])
    wanted = FORMATS.get(method.kind) if method and method.kind else None
    kinds = {card["format"] if isinstance(card, dict) else None for card in listed}
    if method is None or len(listed) > method.most or not kinds <= {wanted}:
        raise ReleaseError("An interval must come with what its method takes; got other releases.")
    return tuple(map(_made, listed))


def _composition(plain: dict[str, Any]) -> CompositionRelease:
    fields = dict(plain["plan"])
    plan = CompositionPlan(
        name=fields.pop("name"),
        parts=fields.pop("parts"),
        guarantee=from_plain(fields.pop("guarantee")),  # type: ignore[arg-type]
        threshold=_optional(_float, fields.pop("threshold")),
        thresholds=_optional(_edges, fields.pop("thresholds")),
        grouped=fields.pop("grouped"),
        **{key: _float(value) for key, value in fields.items()},
    )
    releases = _cards(plain["releases"], Release, most=3)
    return CompositionRelease(plan, releases, _optional(_text, plain["group"]))


def _edges(plain: Any) -> tuple[float, ...]:
    return tuple(map(_float, _list(plain)))


def _groups(plain: dict[str, Any]) -> GroupedComposition:
    return GroupedComposition(_cards(plain["groups"], CompositionRelease, most=MOST_GROUPS))


def _cards(listed: Any, kind: type, *, most: int) -> tuple[Any, ...]:
    """Return what cards within a card describe, if they are of a kind and not too many."""
    formats = {card["format"] if isinstance(card, dict) else None for card in _list(listed)}
    if len(listed) > most or not formats <= {FORMATS[kind]}:
        raise ReleaseError("A card of several must hold those of its parts; got others.")
    return tuple(map(_made, listed))


_MAKERS: dict[type, Callable[[dict[str, Any]], Any]] = {
    Release: _release,
    PrivateQuantile: _quantile,
    SummaryRelease: _summary,
    PrivateInterval: _interval,
    CompositionRelease: _composition,
    GroupedComposition: _groups,
}


# ---------------------------------------------------------------- plain values


def _family(plain: dict[str, Any]) -> Any:
    fields = dict(plain)
    kind = _FAMILIES[_text(fields.pop("kind"))]
    return kind(**fields)


def _granularity(written: Any) -> float:
    """Return a power of two, from a fraction of bounded length."""
    if not isinstance(written, str) or not _POWER.fullmatch(written):
        raise ReleaseError(f"granularity must be written as 1/2^k or 2^k; got {_shown(written)}.")
    numerator, _, denominator = written.partition("/")
    if int(denominator or 1) == 0:
        raise ReleaseError(f"granularity must be a number; got {written!r}.")
    return float(Fraction(int(numerator), int(denominator or 1)))


def _pair(plain: Any) -> tuple[float, float]:
    low, high = map(_float, _list(plain))
    return low, high


def _float(plain: Any) -> float:
    if type(plain) not in (int, float):
        raise ReleaseError(f"A number must be written as one; got {_shown(plain)}.")
    return float(plain)


def _list(plain: Any) -> list[Any]:
    if not isinstance(plain, list):
        raise ReleaseError(f"A list must be written as one; got {_shown(plain)}.")
    return plain


def _text(plain: Any) -> str:
    if not isinstance(plain, str):
        raise ReleaseError(f"A text must be written as one; got {_shown(plain)}.")
    return plain


def _optional(kind: Callable[[Any], Any], plain: Any) -> Any:
    return None if plain is None else kind(plain)


def _check_plain(plain: Any) -> None:
    """Refuse what JSON does not hold, and what is too deep or too large for a card.

    Parts that a dictionary holds in several places count in each: they would be looked at in each.
    """
    level, count = [plain], 0
    for _ in range(_DEEPEST):
        parts: list[Any] = []
        for value in level:
            parts += _parts(value)
            if count + len(parts) > _MOST_VALUES:
                raise ReleaseError(f"A card must have at most {_MOST_VALUES} values; got more.")
        level, count = parts, count + len(parts)
    if level:
        raise ReleaseError(f"A card must not be nested deeper than {_DEEPEST}; got more.")


def _parts(plain: Any) -> list[Any]:
    """Return what a list or a dictionary holds, and nothing for a plain value."""
    if isinstance(plain, dict):
        if not all(isinstance(key, str) for key in plain):
            raise ReleaseError("The keys of a card must be strings; got others.")
        return list(plain.values())
    if isinstance(plain, list):
        return plain
    single = plain is None or isinstance(plain, bool | str)
    if not single and (type(plain) not in (int, float) or not abs(plain) < _LARGEST):
        raise ReleaseError(f"A card must hold plain finite values; got {_shown(plain)}.")
    return []


def _loaded(source: Any) -> dict[str, Any]:
    file = checked_path("card", source, error=ReleaseError)
    if file.exists() and not file.is_file():
        raise ReleaseError(
            f"A card must be a file that can be read; {file} cannot be: no ordinary file."
        )
    try:
        with file.open("rb") as stream:
            content = stream.read(_LONGEST + 1)
    except OSError as error:
        raise ReleaseError(
            f"A card must be a file that can be read; {file} cannot be: {error.strerror}."
        ) from None
    if len(content) > _LONGEST:
        raise ReleaseError(f"A card must have at most {_LONGEST} bytes; got more.")
    try:
        plain = json.loads(
            content.decode(),
            object_pairs_hook=_without_duplicates,
            parse_constant=_no_number,
            parse_float=_finite,
        )
    except (ValueError, RecursionError):
        plain = None
    if not isinstance(plain, dict):
        raise ReleaseError(
            f"A card must be a JSON object, with each key once and finite numbers; got {file}, "
            "which is none."
        )
    return plain


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key came twice")
    return dict(pairs)


def _no_number(word: str) -> float:
    raise ValueError(word)


def _finite(written: str) -> float:
    number = float(written)
    return number if math.isfinite(number) else _no_number(written)


def _difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    names = [key for key in (*ours, *theirs) if not same(ours.get(key), theirs.get(key))]
    named = [name for name in names if name != "checksum"] or names
    return ", ".join(_shown(name) for name in dict.fromkeys(named[:5])) or "some field"


def _shown(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 200:
        return "an integer of hundreds of bits"
    text = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."
