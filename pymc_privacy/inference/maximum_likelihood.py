"""`maximum_likelihood`: estimates from releases alone, without a prior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from pymc_privacy._compat import Model, get_random_generator, modelcontext
from pymc_privacy.algorithms.ascent import Step
from pymc_privacy.arguments import choice, flag, integer, positive
from pymc_privacy.errors import ArgumentError, RecordError, ReleaseError
from pymc_privacy.inference.direct import make_problem
from pymc_privacy.inference.fitting import Fitting, Watch
from pymc_privacy.inference.likelihood_fit import LikelihoodFit
from pymc_privacy.inference.problem import Problem
from pymc_privacy.inference.starting import starting_points
from pymc_privacy.model.assignment import assign_records
from pymc_privacy.model.database import check_data
from pymc_privacy.model.finite import refuse_single_precision
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.releases import is_release, released_contributions
from pymc_privacy.model.sized_records import is_open, sizes_of
from pymc_privacy.targets.ascent import (
    factors_apart,
    parameters_of,
    priors_of,
    without_likelihood,
)

METHODS = ("score", "saem", "em")


def maximum_likelihood(
    model: Any = None,
    *,
    method: str = "score",
    starts: int = 4,
    initvals: Any = None,
    tolerance: float = 0.05,
    max_sweeps: int = 50_000,
    penalty: str | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
) -> LikelihoodFit:
    """Maximise the likelihood of the releases over the parameters of a model.

    The likelihood is that of what was published: the density of the releases, averaged over all
    databases that the model may have had. Priors of continuous parameters are ignored, but that
    starts are drawn from them; the law of an unknown number of records is kept, and its
    parameters are estimated. Other observed variables belong to the likelihood.

    Parameters
    ----------
    model : pm.Model, optional
        The model on the context stack by default.
    method : {"score", "saem", "em"}
        ``"score"`` climbs on two scores of the likelihood, given the records and given what these
        are made of. ``"saem"`` averages the sums that the density of the records depends on.
        ``"em"`` is the published Monte Carlo EM, for comparison: under privacy it may need
        thousands of rounds. The distance that is left is measured for all of them.
    starts : int, default 4
        Ascents from draws of the prior. Those that come to the same place go on together.
    initvals : dict or sequence of dict, optional
        Where to start instead, by name, as the model has the parameters.
    tolerance : float, default 0.05
        How near to the maximum to come, in standard errors.
    max_sweeps : int, default 50_000
        At most so many sweeps through the records, over all starts.
    penalty : {None, "prior"}
        With ``"prior"`` the log prior is added: the estimate is the mode of the posterior density
        on the natural scale of the parameters, as the model writes them.
    random_seed : optional
    progressbar : bool, default True

    Returns
    -------
    LikelihoodFit
        With ``estimate``, ``log_likelihood`` and its error, ``converged``, ``distance``,
        ``at_boundary``, ``starts``, ``maxima``; and ``bootstrap``, ``interval``, ``profile``.

    Raises
    ------
    ReleaseError
        If the model has no release, or one is not observed.
    RecordError
        If there are no records or no continuous parameters, an integer is not a number of records,
        or the likelihood does not depend on a parameter.
    CertificateError
        If what was compiled disagrees with the model, or the two scores with each other.
    ArgumentError
        If an argument is not what it must be.

    See Also
    --------
    sample : Draw from the posterior instead.
    likelihood_ratio : Compare two fits.
    plot_ascent : Draw how the starts came to the maximum.
    plot_profile : Draw a profile of the likelihood.

    Notes
    -----
    A release is one observation, however many records are behind it. That an estimate is nearly
    Normal, and the curvature of the likelihood its precision, is therefore not to be taken for
    granted: intervals are made by parametric bootstrap.

    References
    ----------
    - Awan, J., Barrientos, A. F. and Ju, N. (2024), "Statistical inference for privatized data with
      unknown sample size", arXiv:2406.06231, section 5.2.
    - Polyak, B. T. and Juditsky, A. B. (1992), "Acceleration of stochastic approximation by
      averaging", SIAM Journal on Control and Optimization 30(4), 838-855.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=200)
    ...     s = pmp.Privatized("s", x, pmp.Laplace(scale=4.0), observed=63.7)
    ...     fit = pmp.maximum_likelihood(random_seed=1, progressbar=False)
    >>> fit.converged, round(float(fit.estimate["p"]), 2)
    (True, 0.32)
    """
    model = modelcontext(model)
    method = choice("method", method, METHODS, meaning="how to climb", error=ArgumentError)
    starts = integer("starts", starts, least=1)
    tolerance = positive("tolerance", tolerance, meaning="in standard errors")
    max_sweeps = integer("max_sweeps", max_sweeps, least=1000)
    if penalty is not None:
        penalty = choice(
            "penalty", penalty, ("prior",), meaning="what is added", error=ArgumentError
        )
    flag("progressbar", progressbar)
    check_model(model, penalised=penalty is not None)
    rng = get_random_generator(random_seed)
    fitting = Fitting(make_problem(model), method, penalty is not None, tolerance, max_sweeps)
    with _watching(progressbar) as watch:
        return fitting.run(_starts(fitting.problem, initvals, starts, rng), rng, watch)


def check_model(model: Model, *, penalised: bool) -> None:
    """Refuse a model that has no likelihood of releases, before anything is compiled."""
    if not any(is_release(rv) for rv in model.basic_RVs):
        raise ReleaseError(
            "Maximum likelihood from releases needs a model with a Privatized release; got a model "
            "without any. For other models, see pm.find_MAP."
        )
    by_group = [rv.name for rv in model.basic_RVs if is_release(rv) and rv.owner.op.groups]
    if by_group:
        raise ReleaseError(
            "The likelihood of releases by group is not climbed here; got by= for "
            f"{', '.join(map(repr, by_group))}. Use pymc_privacy.sample."
        )
    missing = [rv.name for rv in model.free_RVs if is_release(rv)]
    if missing:
        raise ReleaseError(
            "A release must be observed to have a likelihood; give observed= for "
            f"{', '.join(map(repr, missing))}."
        )
    assign_records(model, [], released_contributions(model))
    records = [rv for rv in model.free_RVs if is_record(rv)]
    if not records:
        raise RecordError(
            "Maximum likelihood needs confidential records behind a release; this model has none. "
            "What is released must be computed from record variables."
        )
    sizes = set(sizes_of(model))
    integers = [
        rv.name
        for rv in model.free_RVs
        if not is_record(rv) and rv not in sizes and np.dtype(rv.dtype).kind != "f"
    ]
    if integers:
        raise RecordError(
            "Parameters must be continuous to be climbed, but for a number of records; got "
            f"{', '.join(map(repr, integers))}, which are integers. Fix them with pm.do, and "
            "compare the fits, or sample."
        )
    endless = [rv.name for rv in records if is_open(rv)]
    if endless:
        names = ", ".join(map(repr, endless))
        raise RecordError(f"All sizes up to a largest are looked at; give capacity= to {names}.")
    refuse_single_precision()
    check_data(model)
    if not parameters_of(model):
        raise RecordError("There must be a continuous parameter to estimate; this model has none.")
    idle = [] if penalised else [rv.name for rv in without_likelihood(model)]
    if idle:
        raise RecordError(
            f"The likelihood does not depend on {', '.join(map(repr, idle))}, which only priors of "
            "other parameters see, and priors are ignored. Take them out, keep the prior with "
            'penalty="prior", or sample.'
        )


def _starts(
    problem: Problem, initvals: Any, starts: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return where to start, in coordinates without bounds."""
    if isinstance(initvals, Sequence) and not isinstance(initvals, str):
        starts = len(initvals)
    seed = int(rng.integers(2**30))
    # Records are drawn anew, so that a release may be impossible with those of a start.
    factors = [*priors_of(problem.twin), *factors_apart(problem.twin)]
    points = starting_points(
        problem.twin, initvals, chains=starts, random_seed=seed, quiet=True, factors=factors
    )
    return [np.clip(problem.values(point), *problem.settings.bounds) for point in points]


@contextmanager
def _watching(progressbar: bool) -> Iterator[Watch]:
    """Show how far the ascents have come."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(), disable=not progressbar, transient=True) as bar:
        task = bar.add_task("Climbing the likelihood", total=None)

        def watch(start: int, step: Step) -> None:
            if progressbar:
                bar.update(
                    task,
                    description=f"Start {start + 1}, {step.phase}: {step.sweeps} sweeps, distance "
                    f"{step.distance:.2f} standard errors",
                )

        yield watch
