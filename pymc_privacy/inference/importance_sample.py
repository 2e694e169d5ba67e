"""`importance_sample`: independent draws from the posterior, and the evidence of a model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pymc_privacy._compat import FlatRV, HalfFlatRV, Model, get_random_generator, modelcontext
from pymc_privacy.algorithms import importance
from pymc_privacy.algorithms.importance import Batch, Proposal
from pymc_privacy.arguments import flag, integer, refusal
from pymc_privacy.errors import (
    ArgumentError,
    RecordError,
    ReleaseError,
    SamplingError,
    WeightWarning,
)
from pymc_privacy.inference.weighing import Weighing, chunk_of, records_behind, weighing_of
from pymc_privacy.mechanisms import AdditiveMechanism, PostProcessed
from pymc_privacy.model.assignment import assign_records
from pymc_privacy.model.database import Database, check_data, find_databases
from pymc_privacy.model.evidence import why_no_evidence
from pymc_privacy.model.finite import refuse_single_precision
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.releases import is_release, released_contributions
from pymc_privacy.model.sized_records import sizes_of
from pymc_privacy.reparameterise import reparameterisation_of
from pymc_privacy.results import Weighed, attach_privacy, pareto_k, weighed_tree
from pymc_privacy.targets.base import MOST_GUIDED

# Draws of a pilot, and for each parameter more; how many pilots there are at least and at most.
PILOT, PILOT_PER_PARAMETER, LEAST_PILOTS, MOST_PILOTS = 500, 50, 3, 8
# A pilot whose draws are worth so much each needs no other one.
GOOD = 0.25
# Proposals that one task of an executor makes.
CHUNK = 250
# Draws of the second look, and by how many errors and by how much its evidence may be larger.
LOOK, LOOK_ERRORS, LOOK_MORE = 1500, 4.0, 0.05
# Above this, the error of a mean of weights is not known (Vehtari et al., 2024).
PARETO_LIMIT = 0.7
LEAST_WORTH = 25


def importance_sample(
    draws: int = 4000,
    *,
    model: Any = None,
    random_seed: Any = None,
    executor: Executor | None = None,
    progressbar: bool = True,
    max_proposals: int | None = None,
    keep_records: bool = False,
) -> Any:
    """Draw independently from the posterior given the releases, and estimate the evidence.

    No chain is run. Base variates of records are drawn afresh for every draw, parameters where
    these base variates say that they are likely to be, and exact weights make up for the
    difference: the result is exact as the number of draws grows, whatever the proposal. It
    applies where all records can be carried along by their parameters, their number is known, and
    the noise is additive. The mean weight is the evidence, the probability density of what was
    observed, p(releases), which compares models.

    Parameters
    ----------
    draws : int, default 4000
        Draws of equal weight to return.
    model : pm.Model, optional
        The model on the context stack by default.
    random_seed : optional
        The same seed gives the same draws on every executor.
    executor : concurrent.futures.Executor, optional
        Where proposals are made: processes, threads, Dask's ``client.get_executor()``, or any
        other. In this process by default. Each process compiles the model once.
    progressbar : bool, default True
    max_proposals : int, optional
        At most so many weighted proposals; by default 25 for each draw. As many are made as the
        draws need, by what a pilot says.
    keep_records : bool, default False
        Store the records behind each draw too.

    Returns
    -------
    xarray.DataTree
        Group ``posterior`` with one chain of independent draws of equal weight, in random order;
        ``sample_stats``, with ``importance_log_weight`` of each before they were made equal;
        ``observed_data`` and ``privacy`` as from `sample`. Group ``importance`` has, and the tree
        has as attributes: ``log_evidence`` and ``log_evidence_error``, its standard error;
        ``pareto_k``, the tail of the weights; ``effective_draws``, how many draws without
        repetition are worth as much as those returned; ``proposals``, how many were weighed, and
        ``effective_proposals``, what these are worth.

    Raises
    ------
    ReleaseError
        If the model has no release, one is not observed, or its noise is not additive.
    RecordError
        If there are no records, their number is unknown, they cannot be carried along, something
        else than central releases is known of single records, a parameter is an integer or has an
        improper prior, or there are no parameters, or more than 60.
    CertificateError
        If what was compiled disagrees with the model; nothing was drawn.
    SamplingError
        If no draw had any weight, or it was stopped before the first one.
    ArgumentError
        If an argument is not what it must be.

    See Also
    --------
    sample : Draw by chains: for any model.
    maximum_likelihood : Compare models at their best parameters instead.

    Notes
    -----
    A `WeightWarning` says if the Pareto shape of the weights is above 0.7, so that neither their
    mean nor its error can be trusted; if they are worth few draws; if a second search from other
    draws of the prior finds more evidence than the first, so that a part of the posterior was
    missed; or if there is no evidence, as for a model with a potential, which has no constant: then
    it is nan.

    Evidence depends on the prior, and is that of all observed variables of the model together. exp
    of the difference of two values for the same data is a Bayes factor. A distribution of one's own
    (``pm.CustomDist``) is taken to have a normalised log density.

    References
    ----------
    - Cappé, O., Douc, R., Guillin, A., Marin, J.-M. and Robert, C. P. (2008), "Adaptive importance
      sampling in general mixture classes", Statistics and Computing 18, 447-459.
    - Veach, E. and Guibas, L. J. (1995), "Optimally combining sampling techniques for Monte Carlo
      rendering", Proceedings of SIGGRAPH 95, 419-428.
    - Vehtari, A., Simpson, D., Gelman, A., Yao, Y. and Gabry, J. (2024), "Pareto smoothed
      importance sampling", Journal of Machine Learning Research 25(72).

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=50)
    ...     s = pmp.Privatized("s", x, pmp.Laplace(epsilon=1.0, sensitivity=1.0), observed=31.4)
    ...     idata = pmp.importance_sample(1000, random_seed=1, progressbar=False)

    With a uniform prior each of the 51 totals is equally likely, so that the evidence is nearly
    1 / 51:

    >>> bool(abs(idata.attrs["log_evidence"] + 3.93) < 0.1)
    True
    """
    model, draws = modelcontext(model), integer("draws", draws, least=1)
    flag("progressbar", progressbar)
    keep_records = flag("keep_records", keep_records)
    most = 25 * draws if max_proposals is None else max_proposals
    most = integer("max_proposals", most, least=draws)
    if executor is not None and not callable(getattr(executor, "submit", None)):
        wanted = "a concurrent.futures executor, or None for this process"
        raise refusal("executor", wanted, executor, error=ArgumentError)
    databases = check_model(model)
    rng = get_random_generator(random_seed)
    with weighing_of(model, databases) as weighing, _bar(progressbar) as told:
        run = _Run(weighing, executor, rng, told)
        proposal = run.learn()
        found = run.weigh(proposal, draws, most)
        said = run.look_again(found)
        return _result(run, found, draws, said, keep_records)


def check_model(model: Model) -> list[Database]:
    """Refuse a model that importance sampling does not apply to; return its databases."""
    if not any(is_release(rv) for rv in model.basic_RVs):
        raise ReleaseError(
            "importance_sample needs a model with a Privatized release; got a model without any. "
            "Use pm.sample, or pm.sample_smc for its evidence."
        )
    missing = [rv.name for rv in model.free_RVs if is_release(rv)]
    if missing:
        raise ReleaseError(
            "A release must be observed before anything can be inferred from it; give observed= "
            f"for {_listed(missing)}."
        )
    assign_records(model, [], released_contributions(model))
    records = [rv for rv in model.free_RVs if is_record(rv)]
    if not records:
        raise RecordError(
            "importance_sample needs confidential records behind a release; this model has none. "
            "What is released must be computed from record variables."
        )
    if sizes_of(model):
        raise RecordError(
            "importance_sample needs a known number of records; that of this model is random. Use "
            "pymc_privacy.sample."
        )
    _refuse_parameters(model)
    refuse_single_precision()
    check_data(model)
    unknown = [rv.name for rv in records if reparameterisation_of(rv) is None]
    if unknown:
        raise RecordError(
            "importance_sample carries records along with their parameters, as x = T(parameters, "
            f"u); how that is done is not known for {_listed(unknown)}. Use pymc_privacy.sample, "
            "or register a form with pymc_privacy.reparameterise."
        )
    databases = find_databases(model, records)
    _refuse_factors(databases)
    return databases


def _refuse_parameters(model: Model) -> None:
    others = [rv for rv in model.free_RVs if not is_record(rv)]
    integers = [rv.name for rv in others if np.dtype(rv.dtype).kind != "f"]
    if integers:
        raise RecordError(
            f"importance_sample needs continuous parameters; got {_listed(integers)}, which are "
            "integers. Use pymc_privacy.sample, or fix them with pm.do, and weigh the values by "
            "the evidence of each."
        )
    improper = [rv.name for rv in others if isinstance(rv.owner.op, FlatRV | HalfFlatRV)]
    if improper:
        raise RecordError(
            "importance_sample needs proper priors, that draws can be made from: with an improper "
            f"one there is no evidence; got {_listed(improper)}."
        )
    size = sum(int(np.prod(rv.shape.eval())) for rv in others)
    if not 1 <= size <= MOST_GUIDED:
        raise RecordError(
            f"importance_sample needs between 1 and {MOST_GUIDED} parameters, because the space to "
            f"hit grows with each; got {size}. Use pymc_privacy.sample."
        )


def _refuse_factors(databases: Sequence[Database]) -> None:
    for database in databases:
        names = [rv.name for rv in database.records]
        if database.record_factors:
            known = [factor.name for factor in database.record_factors]
            raise RecordError(
                "importance_sample draws all records afresh, which seldom hits what is known of "
                f"single ones; but {_listed(known)} says something of each of {_listed(names)}. "
                "Local releases and observed variables of the records are for pymc_privacy.sample."
            )
        others = [m for m in database.mechanisms if not _is_additive(m)]
        if others:
            raise ReleaseError(
                "importance_sample needs noise that is added to a statistic, of a known scale; got "
                f"{', '.join(type(m).__name__ for m in others)}. Use pymc_privacy.sample."
            )


def _is_additive(mechanism: Any) -> bool:
    return isinstance(mechanism, AdditiveMechanism | PostProcessed)


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(repr(str(name)) for name in names)


Told = Callable[[str, int, int], None]


@contextmanager
def _bar(shown: bool) -> Iterator[Told]:
    """Show what is being done, and how much of it is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(), disable=not shown, transient=True) as bar:
        task = bar.add_task("Looking for the posterior", total=None)

        def told(what: str, done: int, total: int) -> None:
            if shown:
                bar.update(task, description=what, completed=done, total=total)

        yield told


class Found(NamedTuple):
    """All draws that count, and how to make them again."""

    batch: Batch
    proposal: Proposal
    seeds: Sequence[np.random.SeedSequence]
    sizes: Sequence[int]


class _Run:
    """One run: a search, pilots, the draws that count, and a second look."""

    def __init__(
        self, weighing: Weighing, executor: Executor | None, rng: np.random.Generator, told: Told
    ):
        self.weighing, self._executor, self._told = weighing, executor, told
        # A Generator may have been made without a SeedSequence that can spawn.
        self._seeds = np.random.SeedSequence(rng.integers(2**32, size=4).tolist())
        self.rng = np.random.default_rng(self._seeds.spawn(1)[0])

    def learn(self) -> Proposal:
        """Find the posterior, and learn from pilots where and how to draw."""
        landscape = self.weighing.landscape(seed=1)
        points = importance.descents(self.rng, landscape, len(landscape.prior))
        proposal = importance.first(points if len(points) else landscape.prior, landscape)
        number = PILOT + PILOT_PER_PARAMETER * landscape.prior.shape[1]
        for k in range(MOST_PILOTS):
            self._told("Learning where to draw", k, MOST_PILOTS)
            batch = self._pilot(proposal, number)
            worth = importance.estimate(batch.log_weights).effective / number
            if k + 1 >= LEAST_PILOTS and worth >= GOOD:
                break
            if k + 1 < MOST_PILOTS:
                proposal = importance.learn_where(batch, landscape)
        return self._settled(proposal, number)

    def _settled(self, proposal: Proposal, number: int) -> Proposal:
        """Learn how to leap from the references, which stay."""
        return importance.learn_how(self._pilot(proposal, number), proposal)

    def _pilot(self, proposal: Proposal, number: int) -> Batch:
        batch = self.weighing.draw(self.rng, proposal, number)
        if not np.isfinite(batch.log_weights).any():
            raise SamplingError(
                "Some draws must have a density that is not zero, or none can be weighed; none of "
                f"{number} had. Check that the releases are possible under the prior, or use "
                "pymc_privacy.sample."
            )
        return batch

    def weigh(self, proposal: Proposal, draws: int, most: int) -> Found:
        """Make as many proposals as the draws need, by what one more pilot says."""
        number = 2 * PILOT
        worth = importance.estimate(self._pilot(proposal, number).log_weights).effective / number
        total = min(max(math.ceil(1.2 * draws / max(worth, 1e-3)), 2 * PILOT), most)
        sizes = [CHUNK] * (total // CHUNK) + [total % CHUNK] * (total % CHUNK > 0)
        seeds = self._seeds.spawn(len(sizes))
        batches: list[Batch] = []
        try:
            for batch in self._chunks(proposal, seeds, sizes):
                batches.append(batch)
                self._told("Weighing draws", len(batches), len(sizes))
        except KeyboardInterrupt:
            if not batches:
                raise SamplingError(
                    "Sampling was stopped before the first draws, so there is nothing to return."
                ) from None
        parts = zip(*batches, strict=True)
        batch = Batch(*(np.concatenate(part) for part in parts))
        return Found(batch, proposal, seeds, sizes)

    def _chunks(
        self, proposal: Proposal, seeds: Sequence[np.random.SeedSequence], sizes: Sequence[int]
    ) -> Iterator[Batch]:
        calls = zip(seeds, sizes, strict=True)
        if self._executor is None:
            for seed, size in calls:
                yield chunk_of(self.weighing, proposal, seed, size)
            return
        futures = [
            self._executor.submit(chunk_of, self.weighing, proposal, seed, size)
            for seed, size in calls
        ]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()

    def look_again(self, found: Found) -> str | None:
        """Search once more from other draws of the prior; say so where there is more evidence."""
        self._told("Looking for what was missed", 0, 1)
        landscape = self.weighing.landscape(seed=2)
        points = importance.descents(self.rng, landscape, len(landscape.prior))
        if not len(points):
            return None
        proposal = importance.first(points, landscape)
        looked = self.weighing.draw(self.rng, proposal, LOOK)
        there = importance.estimate(looked.log_weights)
        here = importance.estimate(found.batch.log_weights)
        if there.effective < LEAST_WORTH:
            return None
        more = there.log_evidence.value - here.log_evidence.value
        error = math.hypot(there.log_evidence.error, here.log_evidence.error)
        if more < LOOK_MORE or more < LOOK_ERRORS * error:
            return None
        return (
            "A part of the posterior was probably missed, such as a second mode: a search from "
            f"other draws of the prior finds exp({more:.2f}) times the evidence, "
            f"{more / error:.1f} errors more. Compare with pymc_privacy.sample."
        )


def _result(run: _Run, found: Found, draws: int, missed: str | None, keep_records: bool) -> Any:
    """Make draws of equal weight, and say how good they are."""
    weighing, log_weights = run.weighing, found.batch.log_weights
    model = weighing.model
    whole = importance.estimate(log_weights)
    if not np.isfinite(whole.log_evidence.value):
        raise SamplingError(
            f"None of {len(log_weights)} draws had any weight. Use pymc_privacy.sample."
        )
    taken = importance.resampled(run.rng, log_weights, draws)
    undefined = why_no_evidence(model)
    evidence = whole.log_evidence
    k = pareto_k(log_weights)
    statistics = {
        "log_evidence": evidence.value if undefined is None else math.nan,
        "log_evidence_error": evidence.error if undefined is None else math.nan,
        "pareto_k": k,
        "effective_draws": min(importance.effective_draws(taken), whole.effective),
        "proposals": len(log_weights),
        "effective_proposals": whole.effective,
    }
    records = records_behind(weighing, found, taken) if keep_records else None
    names = weighing.stored_names(keep_records)
    tree = weighed_tree(
        model,
        Weighed(
            names,
            weighing.points(found.batch.q[taken], records),
            log_weights[taken] - evidence.value,
            statistics,
        ),
    )
    attach_privacy(tree, model)
    _warn(k, statistics, missed, undefined)
    return tree


def _warn(
    k: float, statistics: dict[str, float], missed: str | None, undefined: str | None
) -> None:
    said = [missed] if missed else []
    if not k <= PARETO_LIMIT:
        said.append(
            f"The weights have Pareto shape {k:.2f}, above {PARETO_LIMIT}: a few draws decide, and "
            "neither the evidence nor its error can be trusted. Use pymc_privacy.sample, or more "
            "draws."
        )
    if statistics["effective_draws"] < LEAST_WORTH:
        said.append(
            f"All draws together are worth {statistics['effective_draws']:.0f} independent ones. "
            "Raise max_proposals=, or use pymc_privacy.sample."
        )
    if undefined:
        said.append(undefined)
    for sentence in said:
        warnings.warn(sentence, WeightWarning, stacklevel=4)


__all__ = ["importance_sample"]
