"""`NoisyCount`: a noisy count whose latent count is summed out exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_privacy._compat import (
    INTERPRETED,
    BernoulliRV,
    BetaBinomialRV,
    BinomialRV,
    CategoricalRV,
    Distribution,
    GeometricRV,
    NegBinomialRV,
    PoissonRV,
    TensorVariable,
    Variable,
    _logprob,
    _support_point,
    change_dist_size,
    check_new_name,
    compile_graph,
    modelcontext,
    support_point,
)
from pymc_privacy.arguments import probability, shown
from pymc_privacy.distributions.count_recurrence import has_recurrence, log_density_by_recurrence
from pymc_privacy.distributions.count_sums import (
    LARGEST_WINDOWS,
    cells_of,
    log_density_by_window,
    window_length,
)
from pymc_privacy.errors import MechanismError, RecordError, ReleaseError
from pymc_privacy.mechanisms import Mechanism, Suppressed
from pymc_privacy.mechanisms.count_windows import cells_of_noise, count_window
from pymc_privacy.model.releases import PrivatizedRV, check_release
from pymc_privacy.model.start import start_of

_NONNEGATIVE = (
    BernoulliRV,
    BetaBinomialRV,
    BinomialRV,
    CategoricalRV,
    GeometricRV,
    NegBinomialRV,
    PoissonRV,
)


class NoisyCountRV(PrivatizedRV):
    """The release of each cell, drawn by the mechanism from a count that is drawn before it."""

    name = "noisy_count"
    _print_name = ("NoisyCount", "\\operatorname{NoisyCount}")
    __props__ = (*PrivatizedRV.__props__, "tail", "recurrence")

    def __init__(self, *, tail: float, recurrence: bool, **props: Any):
        self.tail = tail
        self.recurrence = recurrence
        super().__init__(**props)


@_logprob.register(NoisyCountRV)
def _noisy_count_logprob(
    op: NoisyCountRV,
    values: Sequence[TensorVariable],
    rng: Variable,
    size: Variable,
    count: TensorVariable,
    **kwargs: Any,
) -> TensorVariable:
    [release] = values
    by = log_density_by_recurrence if op.recurrence else log_density_by_window
    return by(release, count, op.mechanism, op.tail)


@_support_point.register(NoisyCountRV)
def _noisy_count_support_point(
    op: NoisyCountRV, rv: TensorVariable, rng: Variable, size: Variable, count: TensorVariable
) -> TensorVariable:
    return support_point(count).astype(rv.dtype)


class NoisyCount(Distribution):
    r"""Noisy counts are observed; the counts are summed out, not sampled.

    The release of a cell is :math:`y = c + \text{noise}`, with c of any discrete law on
    0, 1, 2, … and noise that the mechanism adds. Its density
    :math:`\sum_c p(c) \eta(y - c)` has a gradient, so that NUTS samples the parameters alone. Use
    :func:`~pymc_privacy.posterior_counts` to get the counts back.

    The counts must be independent given the parameters, and each released once, on its own. For
    totals over cells use :class:`~pymc_privacy.LinearMeasurements`; for statistics of records
    that are not counts, :class:`~pymc_privacy.Privatized`.

    Parameters
    ----------
    name : str
    dist : TensorVariable
        The law of the counts, unnamed: ``pm.Poisson.dist(mu)``. One law for all cells is given
        the shape of the release.
    mechanism : AdditiveMechanism, PostProcessed or TableMechanism
        Noise, which may have been clamped from below, rounded or suppressed afterwards; or a table
        of probabilities, as from :func:`~pymc_privacy.read_ptable`.
    observed : array_like, optional
        The release, one number per cell; nan where it was suppressed.
    dims : str or sequence of str, optional
    tail : float, default 1e-12
        The share of a cell's density that may be left out, at any value of the parameters.

    Raises
    ------
    RecordError
        If `dist` is not the unnamed law of independent integers >= 0.
    MechanismError
        If the mechanism neither adds noise nor is a table, `tail` is not in (0, 1), or too many
        counts would be added up.
    ReleaseError
        If the release has not one value per cell, or the mechanism cannot have produced it.

    See Also
    --------
    posterior_counts : Draw the counts.
    window_error : What is left out of the sums.
    LinearMeasurements : Totals over several cells.
    Privatized : Statistics of records.

    Notes
    -----
    What is left out of each sum is proven to be at most the share ``tail``, however far the
    release is from all plausible counts; :func:`~pymc_privacy.window_error` says what this means
    for the posterior.

    Poisson, binomial and negative binomial counts with Laplace or Gaussian noise are summed by a
    recurrence that stops by itself, so that wide noise costs no more than the law of the count is
    wide. Other laws, and tables, are evaluated at every count within a distance h of the release,
    which grows with the misfit of the two: cells × (2 h + 1) numbers. Where these are more than 20
    million, the density is taken as 0.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model() as model:
    ...     rate = pm.Gamma("rate", 2.0, 0.1)
    ...     visits = pmp.NoisyCount(
    ...         "visits",
    ...         pm.Poisson.dist(rate),
    ...         pmp.DiscreteLaplace(epsilon=0.5, sensitivity=1.0),
    ...         observed=[17, 22, -1, 14],
    ...     )
    >>> model.free_RVs, visits.type.shape
    ([rate], (4,))
    """

    rv_type = NoisyCountRV

    def __new__(
        cls,
        name: str,
        dist: TensorVariable,
        mechanism: Any,
        *,
        observed: Any = None,
        dims: Any = None,
        tail: float = 1e-12,
    ) -> TensorVariable:
        """Add the release to the model on the context stack."""
        check_new_name(name, modelcontext(None), ReleaseError)
        _check_count(name, dist, modelcontext(None))
        _check_mechanism(mechanism, tail)
        if observed is not None:
            observed = _checked_release(name, observed, dist, mechanism)
        return super().__new__(
            cls,
            name,
            dist,
            mechanism,
            observed=observed,
            dims=dims,
            tail=tail,
            # The recurrence has no derivative by the release, which only a free one needs.
            recurrence=observed is not None and has_recurrence(dist, mechanism),
        )

    @classmethod
    def dist(
        cls,
        dist: TensorVariable,
        mechanism: Any,
        *,
        tail: float = 1e-12,
        recurrence: bool = False,
        shape: Any = None,
        **kwargs: Any,
    ) -> TensorVariable:
        """Make an unnamed noisy count; a shape gives every cell a count of its own."""
        _check_mechanism(mechanism, tail)
        if shape is None:
            shape = _broadcast(dist.type.shape, cells_of_noise(mechanism))
        count = change_dist_size(dist, shape) if shape is not None else dist
        if not recurrence:
            _check_windows(count, mechanism, tail)
        axes = ",".join(f"a{k}" for k in range(count.ndim))
        op = NoisyCountRV(
            mechanism=mechanism,
            local=True,
            tail=tail,
            recurrence=recurrence,
            signature=f"({axes})->({axes})",
            dtype=mechanism.release_dtype,
        )
        rng = kwargs.pop("rng", None) or pt.random.shared_rng(seed=None)
        _, release = op(count, rng=rng, return_next_rng=True, **kwargs)
        return release


def is_noisy_count(variable: TensorVariable) -> bool:
    """Tell whether a variable is a noisy count."""
    return variable.owner is not None and isinstance(variable.owner.op, NoisyCountRV)


def count_of(release: TensorVariable) -> TensorVariable:
    """Return the latent count behind a noisy count."""
    return release.owner.op.dist_params(release.owner)[0]


def _check_mechanism(mechanism: Any, tail: Any) -> None:
    why = "the probability of noise beyond the counts that are added up"
    probability("tail", tail, meaning=why, error=MechanismError)
    count_window(mechanism, math.log(tail))


def _check_count(name: str, count: Any, model: pm.Model) -> None:
    """Refuse what is not the law of independent counts >= 0 that are nobody else's."""
    unnamed = isinstance(count, TensorVariable) and count.owner is not None
    if not unnamed or count in model.basic_RVs or not hasattr(count.owner.op, "ndim_supp"):
        raise RecordError(
            f"The counts behind {name!r} must be given by their law, such as pm.Poisson.dist(mu), "
            f"because they are summed out of the model; got {shown(count)}."
        )
    if count.dtype not in ("int64", "int32", "int16", "int8", "bool"):
        raise RecordError(
            f"The counts behind {name!r} must be integers; got a law of {count.dtype} values."
        )
    if count.owner.op.ndim_supp > 0:
        raise RecordError(
            f"The counts behind {name!r} must be independent given the parameters, because each "
            f"is summed out on its own; got a law of whole vectors, {count.owner.op}. Cells of a "
            "table with a random total are independent Poisson counts; with a known one, use "
            "LinearMeasurements."
        )
    if not isinstance(count.owner.op, _NONNEGATIVE):
        below = pm.logp(count, -pt.ones_like(count))
        if any(np.any(density > -np.inf) for density in _at_some_points(model, below)):
            raise RecordError(
                f"The counts behind {name!r} must be >= 0; got a law that gives -1 a probability."
            )


def _at_some_points(model: pm.Model, graph: TensorVariable) -> list[np.ndarray]:
    """Return a graph where the model starts, and at some draws of its parameters."""
    [by_values] = model.replace_rvs_by_values([graph])
    function = compile_graph(
        model.value_vars, by_values, on_unused_input="ignore", mode=INTERPRETED
    )
    found = [function(*start_of(model).values())]
    # An improper prior cannot be drawn from.
    with suppress(NotImplementedError):
        found += list(pm.draw(graph, 16, random_seed=0, mode=INTERPRETED))
    return found


def _checked_release(name: str, observed: Any, count: TensorVariable, mechanism: Any) -> Any:
    """Return the observed release, which must be one that such counts and noise can give."""
    try:
        shape = observed.type.shape if isinstance(observed, Variable) else np.shape(observed)
    except Exception:  # a ragged list, say, which is refused below as no array of numbers
        shape = ()
    expected = _broadcast(count.type.shape, cells_of_noise(mechanism), shape)
    if expected is None or len(expected) != len(shape):
        raise ReleaseError(
            f"The release {name!r} must have one value per cell, so that counts of shape "
            f"{count.type.shape} and scales of shape {cells_of_noise(mechanism)} can be "
            f"broadcast to it; got observed of shape {shape}."
        )
    release = check_release(
        name, observed, pt.tensor(shape=shape, dtype="int64"), mechanism, local=True
    )
    if isinstance(mechanism, Suppressed) and not isinstance(observed, Variable):
        # PyMC would impute what is not a number; this is not missing, but known to be small.
        return np.where(np.isnan(release), -np.inf, release)
    return release


def _broadcast(*shapes: tuple[int | None, ...]) -> tuple[int | None, ...] | None:
    """Return the common shape, None in it where a length is not known; None if there is none."""
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes]
    lengths: list[int | None] = []
    for axis in zip(*padded, strict=True):
        known = {length for length in axis if length not in (None, 1)}
        if len(known) > 1:
            return None
        lengths.append(known.pop() if known else None if None in axis else 1)
    return tuple(lengths)


def _check_windows(count: TensorVariable, mechanism: Mechanism, tail: float) -> None:
    cells, length = cells_of(count), window_length(count, mechanism, tail)
    if cells * length > LARGEST_WINDOWS:
        raise MechanismError(
            f"Noise and cells must be few enough that at most {LARGEST_WINDOWS} counts are added "
            f"up; got {cells} cells and {length} counts within the noise's reach of each. "
            "Poisson, binomial and negative binomial counts have no such limit."
        )
