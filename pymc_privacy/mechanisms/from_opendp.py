"""The mechanism behind an OpenDP measurement, read from how it was constructed.

OpenDP's measurements do not tell their scale. They remember the function and the arguments that
made them, though, which is what is read here; nothing of OpenDP is imported. Its float noise is
drawn on a grid of 2^-1074 by default, so that the continuous law is exact for inference.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pymc_privacy.accounting import Neighbours
from pymc_privacy.arguments import names, positive, shown, text
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import AdditiveMechanism
from pymc_privacy.mechanisms.gaussian import DiscreteGaussian, Gaussian
from pymc_privacy.mechanisms.laplace import DiscreteLaplace, Laplace
from pymc_privacy.mechanisms.post_processed import Clamped

_FAMILIES: dict[tuple[str, bool], Any] = {
    ("make_laplace", False): Laplace,
    ("make_laplace", True): DiscreteLaplace,
    ("make_gaussian", False): Gaussian,
    ("make_gaussian", True): DiscreteGaussian,
    ("make_geometric", True): DiscreteLaplace,
}
_SUMMARY: dict[str, Any] = {
    "Float Laplace": Laplace,
    "Integer Laplace": DiscreteLaplace,
    "Float Gaussian": Gaussian,
    "Integer Gaussian": DiscreteGaussian,
}
_NEIGHBOURS: dict[str, Neighbours] = {
    "SymmetricDistance": "add_remove",
    "InsertDeleteDistance": "add_remove",
    "ChangeOneDistance": "replace_one",
    "HammingDistance": "replace_one",
}
# These say the same about the release in another measure of privacy; its noise is what it was.
_SAME_NOISE = (
    "make_pureDP_to_zCDP",
    "make_zCDP_to_approxDP",
    "make_approximate",
    "make_fix_delta",
    "make_fixed_approxDP_to_approxDP",
)
# A grid this much finer than the noise cannot be seen in any posterior.
_FINE = 2.0**-20


@dataclass(frozen=True)
class _Found:
    """What the constructors of a measurement say about it."""

    name: str
    arguments: dict[str, Any]
    transformation: Any = None
    sized: bool = False


def from_opendp(measurement: Any, *, d_in: float | None = None) -> AdditiveMechanism | Clamped:
    """Return the mechanism of an OpenDP measurement that adds Laplace or Gaussian noise.

    Parameters
    ----------
    measurement : opendp.Measurement
        Noise alone, or a chain of transformations and noise.
    d_in : float, optional
        How far apart two neighbouring databases are, in the measurement's input metric. With it
        the mechanism states its guarantee; without it only its scale is known. For noise alone
        it is the sensitivity itself.

    Returns
    -------
    AdditiveMechanism or Clamped
        Clamped where OpenDP keeps the noisy value within bounds.

    Raises
    ------
    MechanismError
        If the measurement does not say how it was made, adds other noise than Laplace or Gaussian,
        has a grid that is too coarse, or `d_in` is not > 0.

    See Also
    --------
    from_opendp_summary : The mechanisms of a query, by column.
    release : Publish, with OpenDP's sampler if wanted.

    Examples
    --------
    The examples need OpenDP, the extra ``opendp``:

    >>> import pymc_privacy as pmp
    >>> try:
    ...     import opendp.prelude as dp
    ... except ImportError:
    ...     mechanism = pmp.DiscreteLaplace(scale=2.0)
    ... else:
    ...     dp.enable_features("contrib")
    ...     integers = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    ...     mechanism = pmp.from_opendp(dp.m.make_laplace(*integers, scale=2.0))
    >>> mechanism.scale
    2.0
    """
    if d_in is not None:
        d_in = positive("d_in", d_in, meaning="how far neighbours are apart", error=MechanismError)
    try:
        found = _walk(measurement, _Found("", {}))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MechanismError(
            "A measurement must remember how it was made, as OpenDP's own do; reading this one "
            f"failed at {type(error).__name__}: {error}."
        ) from None
    noise = _FAMILIES.get((found.name, _is_integer(found)))
    if noise is None:
        raise MechanismError(
            f"An OpenDP measurement must add Laplace or Gaussian noise; got {found.name}, which "
            "is none of those that can be read."
        )
    scale = positive("scale", found.arguments.get("scale"), error=MechanismError)
    grid = found.arguments.get("k")
    if not noise.discrete and grid is not None and 2.0**grid > _FINE * scale:
        raise MechanismError(
            "The noise must lie on a grid much finer than its scale, to have a density; got a "
            f"grid of 2^{grid} with scale {scale}."
        )
    stated = {} if d_in is None else _stated(measurement, found, d_in)
    mechanism = noise(scale=scale, **stated)
    bounds = found.arguments.get("bounds")
    if bounds is None:
        return mechanism
    return Clamped(mechanism=mechanism, lower=bounds[0], upper=bounds[1])


def from_opendp_summary(
    frame: Any, *, unsigned: Collection[str] | Literal["all"] = ()
) -> dict[str, AdditiveMechanism | Clamped]:
    """Return the mechanism of each column of an OpenDP query, from its summary.

    Parameters
    ----------
    frame : DataFrame or sequence of dict
        What ``query.summarize()`` returned: columns ``column``, ``distribution`` and ``scale``.
        Columns that were released without noise are left out.
    unsigned : collection of str or "all"
        Columns whose noisy values were moved up to 0 where they were negative, as OpenDP does
        with ``dp.len()`` unless it is told ``signed=True``. The summary does not say.

    Returns
    -------
    dict
        By column.

    Raises
    ------
    MechanismError
        If the frame lacks a column, a distribution is not among those known, or `unsigned` names a
        column that is not there.

    See Also
    --------
    from_opendp : The mechanism of one measurement.
    Clamped : What a column in `unsigned` is.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> summary = [{"column": "len", "distribution": "Integer Laplace", "scale": 5.0}]
    >>> pmp.from_opendp_summary(summary)["len"].scale
    5.0
    """
    everything = isinstance(unsigned, str) and unsigned == "all"
    moved = names("unsigned", unsigned, error=MechanismError)
    mechanisms: dict[str, AdditiveMechanism | Clamped] = {}
    for row in _rows(frame):
        if row["distribution"] is None:
            continue
        column = text("column", row["column"], error=MechanismError)
        if not isinstance(row["distribution"], str) or row["distribution"] not in _SUMMARY:
            raise MechanismError(
                f"The noise of a column must be one of {', '.join(_SUMMARY)}; got "
                f"{shown(row['distribution'])} for {column!r}."
            )
        scale = positive("scale", row["scale"], meaning=f"of {column}", error=MechanismError)
        mechanism = _SUMMARY[row["distribution"]](scale=scale)
        if everything or column in moved:
            mechanism = Clamped(mechanism=mechanism, lower=0.0)
        mechanisms[column] = mechanism
    strangers = [] if everything else [name for name in moved if name not in mechanisms]
    if strangers:
        raise MechanismError(
            f"unsigned must name noisy columns of the summary, which has {', '.join(mechanisms)}; "
            f"got {', '.join(strangers)}."
        )
    return mechanisms


def _rows(frame: Any) -> list[dict[str, Any]]:
    needed = {"column", "distribution", "scale"}
    try:
        if hasattr(frame, "to_dicts"):
            frame = frame.to_dicts()
        elif hasattr(frame, "to_dict"):
            frame = frame.to_dict("records")
        rows = list(frame)
        complete = all(isinstance(row, Mapping) and needed <= set(row) for row in rows)
    except Exception:  # of a class of the caller's, which can raise anything
        complete = False
    if not complete:
        raise MechanismError(
            "A summary must be a table with the columns column, distribution and scale, as "
            f"OpenDP's summarize() returns it; got {type(frame).__name__}."
        )
    return rows


def _constructed(thing: Any) -> tuple[str, str, dict[str, Any]]:
    """Return the constructor of an OpenDP object, its module, and the live arguments."""
    made = getattr(thing, "__opendp_dict__", None)
    if not made:
        raise MechanismError(
            "A measurement must remember how it was made, as OpenDP's own do from version 0.13 "
            f"on; got {type(thing).__name__}, which does not (a user-defined one, perhaps)."
        )
    return made["__function__"], made["__module__"], made["__kwargs__"]


def _walk(thing: Any, found: _Found) -> _Found:
    name, module, arguments = _constructed(thing)
    if name == "make_chain_mt":
        found = _walk(arguments["transformation0"], found)
        found = replace(found, transformation=arguments["transformation0"])
        return _walk(arguments["measurement1"], found)
    if name == "make_chain_tt":
        return _walk(arguments["transformation1"], _walk(arguments["transformation0"], found))
    if name in _SAME_NOISE:
        return _walk(arguments.get("measurement") or arguments.get("m"), found)
    if module == "measurements":
        return replace(found, name=name, arguments=arguments)
    if module == "transformations":
        return replace(found, sized=found.sized or _is_sized(arguments.get("input_domain")))
    raise MechanismError(
        "An OpenDP measurement must be noise that is added to a transformation; got "
        f"{name}, whose release does not follow from one noise law."
    )


def _is_sized(domain: Any) -> bool:
    made = getattr(domain, "__opendp_dict__", None)
    return made is not None and made["__kwargs__"].get("size") is not None


def _is_integer(found: _Found) -> bool:
    domain = str(found.arguments.get("input_domain"))
    return "f64" not in domain and "f32" not in domain


def _stated(measurement: Any, found: _Found, d_in: float) -> dict[str, Any]:
    """Return sensitivity and neighbours, which are OpenDP's own."""
    if found.transformation is None:
        return {"sensitivity": d_in}
    metric = str(measurement.input_metric).split("(")[0]
    neighbours = _NEIGHBOURS.get(metric)
    if neighbours == "add_remove" and found.sized:
        if d_in < 2:
            raise MechanismError(
                "Databases of a known size must be neighbours by a replacement, which is 2 in "
                f"OpenDP's symmetric distance; got d_in={d_in!r}."
            )
        neighbours = "replace_one"
    return {"sensitivity": float(found.transformation.map(d_in)), "neighbours": neighbours}
