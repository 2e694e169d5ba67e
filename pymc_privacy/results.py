"""What is attached to, and read from, a sampled `DataTree`: the only file that touches xarray."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from arviz_stats import ess, rhat
from arviz_stats.base import array_stats

from pymc_privacy._compat import Model, MultiTrace, NDArray
from pymc_privacy.accounting import PureDP, compose
from pymc_privacy.errors import (
    CapacityError,
    CapacityWarning,
    GuaranteeError,
    MixingWarning,
)
from pymc_privacy.mechanisms import Mechanism
from pymc_privacy.model.acceptance_bounds import acceptance_bounds
from pymc_privacy.model.group_sizes import rows_of_groups
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.releases import is_release
from pymc_privacy.model.sized_records import is_sized, size_of
from pymc_privacy.sanitize.queries import Query

RHAT_LIMIT = 1.05
ESS_PER_CHAIN = 25
# Of a thousand draws, so many that touch the capacity are too many.
OFTEN = 1e-3


def attach_privacy(result: xr.DataTree, model: Model) -> None:
    """Add a ``privacy`` group: each release, its mechanism, and what is promised.

    ``guarantee`` is what all releases promise together, ``guarantee_of_each`` what each does.
    """
    releases = [rv for rv in model.observed_RVs if is_release(rv)]
    mechanisms = [rv.owner.op.mechanism for rv in releases]
    result["privacy"] = xr.DataTree(
        xr.Dataset(
            {
                "mechanism": ("release", np.array([repr(m) for m in mechanisms], dtype=str)),
                "guarantee": ((), np.array(_joint_promise(mechanisms), dtype=str)),
                "guarantee_of_each": (
                    "release",
                    np.array([_promise(m) for m in mechanisms], dtype=str),
                ),
                "local": ("release", np.array([rv.owner.op.local for rv in releases])),
            },
            coords={"release": np.array([rv.name for rv in releases], dtype=str)},
            attrs={
                "records": json.dumps([rv.name for rv in model.free_RVs if is_record(rv)]),
                "target": "p(parameters | releases), by exact data augmentation",
                "acceptance_bounds": json.dumps(asdict(acceptance_bounds(model))),
            },
        )
    )


def stream_result(
    model: Model,
    record: Any,
    values: Mapping[str, np.ndarray],
    statistics: Mapping[str, np.ndarray],
    answers: Sequence[tuple[Query, float]],
    numbers: Mapping[str, float],
) -> xr.DataTree:
    """Return the posterior of a stream: draws (chain, draw, ...), and what each release did.

    Parameters
    ----------
    model, record
    values
        Draws of parameters and of what the model computes from them.
    statistics
        Of shape (chain, release).
    answers
        Queries and their releases.
    numbers
        Attributes of the posterior.
    """
    queries, releases = [query for query, _ in answers], [release for _, release in answers]
    mechanisms = _each(str, [query.mechanism for query in queries])
    guarantees = _each(str, [query.guarantee for query in queries])
    number = {"release": np.arange(len(answers))}
    groups = {
        "posterior": labelled_draws(model, values, ("chain", "draw")).assign_attrs(**numbers),
        "sample_stats": xr.Dataset(
            {name: (("chain", "release"), value) for name, value in statistics.items()},
            coords=number,
        ),
        "observed_data": xr.Dataset({"released": ("release", np.array(releases))}, coords=number),
        "constant_data": xr.Dataset(
            {"query": ("release", np.array([q.to_json() for q in queries], dtype=str))},
            coords=number,
        ),
        "privacy": xr.Dataset(
            {
                "mechanism": ("release", np.array(mechanisms, dtype=str)),
                "guarantee": ((), np.array(_weakest(queries), dtype=str)),
                "guarantee_of_each": ("release", np.array(guarantees, dtype=str)),
                "local": ("release", np.ones(len(answers), dtype=bool)),
            },
            coords=number,
            attrs={
                "records": json.dumps([record.name]),
                "target": "p(parameters | releases), the records integrated out",
                "users": "one release each; presence and order are public",
            },
        ),
    }
    return xr.DataTree.from_dict(groups)


def _each(function: Callable[[Any], str], values: Sequence[Any]) -> list[str]:
    """Apply a function that takes its time; most values are equal to some other."""
    known = {value: function(value) for value in set(values)}
    return [known[value] for value in values]


def _weakest(queries: Sequence[Query]) -> str:
    """Return what is promised to every user, who has answered one of the queries."""
    guarantees = {query.guarantee for query in queries}
    pure = [one for one in guarantees if isinstance(one, PureDP)]
    if pure and len(pure) == len(guarantees):
        return str(max(pure, key=lambda one: one.epsilon))
    return "; or ".join(sorted(map(str, guarantees))) or "nothing was released"


class Weighed(NamedTuple):
    """Draws that were weighed, and taken so that all of them count alike."""

    names: Sequence[str]
    """The variables to store."""
    points: Iterable[Mapping[str, np.ndarray]]
    log_weights: np.ndarray
    statistics: dict[str, float]


def weighed_tree(model: Model, weighed: Weighed) -> xr.DataTree:
    """Return draws as `pm.sample` would: one chain, whose statistics are attributes as well."""
    import pymc as pm

    # As functions of values: a random variable itself would be drawn anew from its prior.
    stored = [graph for graph in model.unobserved_value_vars if graph.name in weighed.names]
    trace = NDArray(model=model, vars=stored)
    trace.setup(len(weighed.log_weights), 0, [{"importance_log_weight": np.float64}])
    for point, log_weight in zip(weighed.points, weighed.log_weights, strict=True):
        trace.record(point, [{"importance_log_weight": log_weight}], in_warmup=False)
    tree = pm.to_inference_data(MultiTrace([trace]), model=model, save_warmup=False)
    found = {name: np.asarray(value) for name, value in weighed.statistics.items()}
    tree["importance"] = xr.DataTree(xr.Dataset({name: ((), v) for name, v in found.items()}))
    for place in (tree, tree["posterior"], tree["sample_stats"]):
        place.attrs |= weighed.statistics
    return tree


def pareto_k(log_weights: np.ndarray) -> float:
    """Return the shape of the tail of weights, by Pareto smoothing."""
    finite = log_weights[np.isfinite(log_weights)]
    # Nothing is spread where all weights are alike.
    if np.ptp(finite) < 1e-12:
        return -np.inf
    # What it smooths are weights of leave-one-out, the inverse of what it is given.
    _, k = array_stats.psislw(-finite)
    return float(k)


def posterior_draws(source: Any, var_names: Any = None) -> dict[str, np.ndarray]:
    """Return the draws of scalar parameters by name, chains joined; of a tree or of a mapping."""
    if hasattr(source, "children"):
        if "posterior" not in source.children:
            raise GuaranteeError(
                "A posterior must be a DataTree with a group `posterior`; got groups "
                f"{', '.join(source.children) or 'none'}."
            )
        source = source["posterior"].to_dataset()
    if isinstance(source, xr.Dataset):
        scalars = [str(name) for name, v in source.data_vars.items() if v.ndim == 2]
        draws = {name: source[name].transpose("chain", "draw").values.ravel() for name in scalars}
    elif isinstance(source, Mapping):
        draws = {str(name): np.asarray(values) for name, values in source.items()}
    else:
        raise GuaranteeError(
            "Draws must be a one-dimensional array, a mapping of names to such arrays, or a "
            f"DataTree with a posterior; got {type(source).__name__}."
        )
    wanted = list(draws) if var_names is None else list(np.atleast_1d(var_names))
    missing = [name for name in wanted if name not in draws]
    if missing or not wanted:
        raise GuaranteeError(
            f"var_names must be scalar parameters of the posterior, which has "
            f"{', '.join(draws) or 'none'}; got {', '.join(missing) or 'none'}."
        )
    return {str(name): draws[name] for name in wanted}


def observed_values(result: xr.DataTree) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the observed variables of a posterior, and the names of its other data."""
    groups = getattr(result, "children", {})
    if "observed_data" not in groups:
        raise GuaranteeError(
            "A posterior must be a DataTree with a group `observed_data`, as `pm.sample` returns "
            f"it; got {', '.join(groups) or type(result).__name__}."
        )
    observed = result["observed_data"].to_dataset()
    constant = result["constant_data"].to_dataset() if "constant_data" in groups else {}
    return {str(k): v.values for k, v in observed.data_vars.items()}, [str(k) for k in constant]


def _promise(mechanism: Mechanism) -> str:
    return "not stated" if mechanism.guarantee is None else str(mechanism.guarantee)


def record_names(result: xr.DataTree) -> list[str] | None:
    """Return the record variables of the model behind a result, or None where it does not say."""
    if "privacy" not in getattr(result, "children", {}):
        return None
    return json.loads(result["privacy"].attrs["records"])


def stored_in(result: Any, group: str) -> list[str]:
    """Return the variables of a group, none where there is no such group."""
    if group not in getattr(result, "children", {}):
        return []
    return [str(name) for name in result[group].dataset.data_vars]


def without_variables(result: xr.DataTree, names: Collection[str]) -> xr.DataTree:
    """Return the posterior of a result alone, without some of its variables."""
    posterior = result["posterior"].to_dataset().drop_vars([*names], errors="ignore")
    return xr.DataTree.from_dict({"posterior": posterior})


def _joint_promise(mechanisms: list) -> str:
    """Return what the releases promise together, as if all were of the same records."""
    guarantees = [mechanism.guarantee for mechanism in mechanisms]
    if None in guarantees:
        return "not stated"
    try:
        return str(compose(*guarantees))
    except GuaranteeError as error:
        return f"not stated for all releases together: {error}"


def without_records(result: xr.DataTree, names: Collection[str]) -> xr.DataTree | None:
    """Return the result with the parameters' draws alone, or None where there are none."""
    posterior = result["posterior"].to_dataset().drop_vars([*names])
    if not posterior.data_vars:
        return None
    return result.assign({"posterior": xr.DataTree(posterior)})


def warn_unless_mixed(result: xr.DataTree) -> None:
    """Warn, with advice, when chains disagree or have hardly moved."""
    posterior: Any = result["posterior"].to_dataset()
    chains = posterior.sizes["chain"]
    if posterior.sizes["draw"] < 4:
        return
    slow = {
        name: value
        for name, value in _worst(ess(posterior), np.nanmin).items()
        if value < ESS_PER_CHAIN * chains
    }
    apart = {}
    if chains > 1:
        apart = {
            name: value
            for name, value in _worst(rhat(posterior), np.nanmax).items()
            if value > RHAT_LIMIT
        }
    if slow or apart:
        warnings.warn(_advice(slow, apart), MixingWarning, stacklevel=3)


def check_capacity(result: xr.DataTree) -> None:
    """Warn when there was no room for some proposals, and refuse when that was not rare.

    Draws are from the posterior given that there are no more records than the capacity. A size
    that seldom comes near has next to nothing beyond.
    """
    statistics = result["sample_stats"].dataset if "sample_stats" in result.children else {}
    if "birth_death_capacity_hits" not in statistics:
        return
    hits = statistics["birth_death_capacity_hits"]
    touched = float((hits > 0).mean())
    if not touched:
        return
    message = (
        f"In {touched:.2%} of the draws a proposal was refused for want of room: the number of "
        "records came near capacity=, and the prior allows more."
    )
    if touched > OFTEN:
        raise CapacityError(
            f"{message} The draws are those of a size cut off there, not the posterior. Give a "
            "larger capacity; the draws are in the attribute `result` of this error.",
            result,
        )
    warnings.warn(message, CapacityWarning, stacklevel=3)


def blank_absent_records(result: xr.DataTree, model: Model) -> None:
    """Make rows that do not exist not a number, wherever records and their sizes are kept."""
    for group in ("posterior", "prior", "predictions", "posterior_predictive"):
        if group not in result.children:
            continue
        kept = result[group].to_dataset()
        for rv in model.free_RVs:
            if is_sized(rv) and rv.name in kept and size_of(rv).name in kept:
                rows = kept[rv.name].dims[2]
                there = xr.DataArray(np.arange(kept.sizes[rows]), dims=rows)
                kept[rv.name] = kept[rv.name].where(there < kept[size_of(rv).name])
        for records, sizes in rows_of_groups(model).items():
            if records.name in kept and sizes.size.name in kept:
                there = sizes.rank < kept[sizes.size.name].values[..., sizes.group]
                rows = kept[records.name]
                exists = xr.DataArray(there, dims=rows.dims[:3])
                kept[records.name] = rows.where(exists)
        result[group] = xr.DataTree(kept)


MOVES = {
    "parameters given records": ("interweave_centred_accept", "interweave_centred_scale"),
    "parameters with records": ("interweave_noncentred_accept", "interweave_noncentred_scale"),
    "parameters given counts": ("count_states_centred_accept", "count_states_centred_scale"),
    "parameters with counts": ("count_states_noncentred_accept", "count_states_noncentred_scale"),
    "parameters given the records there are": ("birth_death_centred_accept", None),
    "parameters and size with records": (
        "birth_death_noncentred_accept",
        "birth_death_noncentred_scale",
    ),
    "jumps of the size": ("birth_death_jump_accept", "birth_death_jump_scale"),
    "records one by one": ("record_sweep_accept", None),
}


def describe_moves(result: xr.DataTree) -> str:
    """Say in one line which moves were made, how often accepted, and how long their steps were."""
    statistics = result["sample_stats"].dataset if "sample_stats" in result.children else {}
    parts = []
    for move, (accept, scale) in MOVES.items():
        if accept in statistics and not np.isnan(statistics[accept]).all():
            step = f", step {float(statistics[scale].mean()):.2g}" if scale in statistics else ""
            parts.append(f"{move} (accepted {float(statistics[accept].mean()):.2f}{step})")
    return f"Moves: {'; '.join(parts)}." if parts else ""


def _worst(diagnostic: xr.Dataset, reduce: Callable[[Any], Any]) -> dict[str, float]:
    return {str(name): float(reduce(value)) for name, value in diagnostic.data_vars.items()}


def _advice(slow: dict[str, float], apart: dict[str, float]) -> str:
    found = [f"r_hat of {name} is {value:.2f}" for name, value in apart.items()]
    found += [f"{name} has {value:.0f} effective draws" for name, value in slow.items()]
    return (
        f"The chains have not mixed: {'; '.join(found)}. Until they have, the draws are not the "
        "posterior. Where parameters cannot move together with their records, they move in "
        "steps of about 1/sqrt(records), and a noisy release of many records takes many sweeps: "
        "raise draws= and tune= tenfold, or, when all records are continuous, sample the same "
        "model with step=pm.NUTS(model.free_RVs)."
    )


def labelled(model: Model, values: Mapping[str, np.ndarray]) -> xr.Dataset:
    """Return the values of some variables of a model with its dimensions, in its order."""
    return labelled_draws(model, values)


def labelled_draws(
    model: Model, values: Mapping[str, np.ndarray], leading: str | Sequence[str] | None = None
) -> xr.Dataset:
    """Return the same of several draws, which are counted by one or more first dimensions."""
    variables, coords = {}, {}
    first = (leading,) if isinstance(leading, str) else tuple(leading or ())
    for rv in (*model.free_RVs, *model.deterministics):
        if rv.name not in values:
            continue
        value = np.asarray(values[rv.name])
        shape = value.shape[len(first) :]
        dims = model.named_vars_to_dims.get(rv.name) or [None] * len(shape)
        names = [dim or f"{rv.name}_dim_{k}" for k, dim in enumerate(dims)]
        variables[rv.name] = ((*first, *names), value)
        for dim in filter(None, dims):
            if model.coords.get(dim) is not None:
                coords[dim] = np.asarray(model.coords[dim])
    return xr.Dataset(variables, coords=coords)


def labelled_intervals(
    model: Model, ends: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> xr.Dataset:
    """Return lower and upper ends of variables of a model, along a dimension ``bound``."""
    stacked = {name: np.stack(pair) for name, pair in ends.items()}
    return labelled_draws(model, stacked, "bound").assign_coords(bound=["lower", "upper"])
