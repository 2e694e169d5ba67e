"""`sample`: `pm.sample` with good defaults for models of confidential records."""

from __future__ import annotations

import gc
import logging
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pymc_privacy._compat import (
    NUTS,
    Model,
    TensorVariable,
    ValueGradFunction,
    Variable,
    ancestors,
    assign_step_methods,
    config,
    log_warnings,
    modelcontext,
    run_convergence_checks,
)
from pymc_privacy.arguments import flag, integer
from pymc_privacy.errors import ComparisonWarning, RecordError, ReleaseError
from pymc_privacy.inference.interruption import stopped_in_a_sentence
from pymc_privacy.inference.starting import starting_points
from pymc_privacy.model.assignment import assign_records
from pymc_privacy.model.database import Database, check_data, factors_given_records
from pymc_privacy.model.factors import factors_of, joint_log_density, log_densities
from pymc_privacy.model.finite import refuse_single_precision
from pymc_privacy.model.kept import KeptOnce, digest_of_data
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.releases import is_release, released_contributions
from pymc_privacy.model.sized_records import is_open
from pymc_privacy.model.start import start_of
from pymc_privacy.results import (
    attach_privacy,
    blank_absent_records,
    check_capacity,
    describe_moves,
    warn_unless_mixed,
    without_records,
)
from pymc_privacy.step_methods import BirthDeath, CountStates, Interweave, RecordSweep

_NO_LOO = (
    "Leave-one-out (az.loo, az.compare) does not apply to a release: it is one observation of all "
    "records, and its density given imputed records, which were fitted to it, compares no models. "
    "Compare prior predictive densities of the release, or look at plot_release."
)


def sample(
    draws: int = 1000, *, model: Any = None, keep_records: bool = False, **kwargs: Any
) -> Any:
    """Draw from the posterior given the releases, exactly.

    It is `pm.sample` with other defaults: chains start at draws from the prior, our own steps
    come first, NUTS (where it is needed) is given a density without the releases, which are
    constant given the records, records are not stored, and the result says what was released
    and how well the sampler did.

    Parameters
    ----------
    draws : int, default 1000
    model : pm.Model, optional
        The model on the context stack by default.
    keep_records : bool, default False
        Store the imputed records too: chains × draws × records numbers for each. They are stored
        anyway where the model has no other variable.
    **kwargs
        Passed on to `pm.sample`. ``step=``, ``initvals=`` and ``var_names=`` take precedence
        over the defaults above. Where ``step=`` is left out, a dictionary under the name of a step
        method has options for it: ``interweave={"noncentred_steps": 0}``, and likewise
        ``record_sweep=``, ``count_states=``, ``birth_death=``, ``lattice_walk=`` and ``nuts=``.
        Those of a method that is not chosen for the model are refused by `pm.sample`.

    Returns
    -------
    xarray.DataTree
        As from `pm.sample`, with a group ``privacy``.

    Raises
    ------
    RecordError
        If the model has no release, its data are not numbers, or its records cannot be updated one
        by one.
    ReleaseError
        If a release is not observed, or its log likelihood is asked for without
        ``keep_records=True``.
    CertificateError
        If what was compiled disagrees with the model; nothing was drawn.
    CapacityError
        If the size came near the capacity too often; its ``result`` has the draws.
    SamplingError
        If sampling was interrupted before the first draw after tuning.
    ArgumentError
        If `draws`, `keep_records` or an option of a step method is not what it must be.

    See Also
    --------
    pm.sample : What it calls, and what its other arguments mean.
    Interweave : The step for records and their parameters.
    RecordSweep : The step for records alone.
    plot_release : Compare the release with its predictive law.

    References
    ----------
    - Ju, N., Awan, J., Gong, R. and Rao, V. (2022), "Data augmentation MCMC for Bayesian inference
      from privatized data", Advances in Neural Information Processing Systems 35.
    - Awan, J., Barrientos, A. F. and Ju, N. (2024), "Statistical inference for privatized data with
      unknown sample size", arXiv:2406.06231.
    - Yu, Y. and Meng, X.-L. (2011), "To center or not to center: that is not the question. An
      ancillarity-sufficiency interweaving strategy (ASIS) for boosting MCMC efficiency", Journal of
      Computational and Graphical Statistics 20(3), 531-570.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=50)
    ...     s = pmp.Privatized("s", x, pmp.Laplace(epsilon=1.0, sensitivity=1.0), observed=31.4)
    ...     idata = pmp.sample(500, tune=500, chains=2, random_seed=1, progressbar=False)
    >>> bool(0.5 < idata.posterior["p"].mean() < 0.7)
    True
    >>> "x" in idata.posterior
    False
    """
    import pymc as pm

    model, draws = modelcontext(model), integer("draws", draws, least=1)
    keep_records = flag("keep_records", keep_records)
    # What was written after a release may have made parameters of what looked like records.
    assign_records(model, [], released_contributions(model))
    records = [rv for rv in model.free_RVs if is_record(rv)]
    if not any(is_release(rv) for rv in model.basic_RVs):
        raise RecordError(
            "pymc_privacy.sample needs a model with a Privatized release; got a model without "
            "any. Use pm.sample."
        )
    refuse_single_precision()
    check_data(model)
    names = {rv.name for rv in records}
    others = [rv.name for rv in model.unobserved_RVs if rv not in records]
    # Without any other variable there would be nothing to store.
    if kwargs.get("var_names") is None and not keep_records and others:
        kwargs["var_names"] = others
    stored = names & {*(kwargs.get("var_names") or names)}
    _check_log_likelihood(kwargs, names - stored)
    parts: list[Any] = []
    # Nobody asks where the nodes of our graphs were written, which takes long to find out.
    with config.change_flags(traceback__limit=0):
        kwargs |= _with_starts(model, kwargs)
        if kwargs.get("step") is None and records:
            kwargs |= _default_steps(model, kwargs, parts)
    _make_room(model, kwargs, records)
    checks, quiet = kwargs.get("compute_convergence_checks", True), kwargs.get("quiet", False)
    if not kwargs.get("return_inferencedata", True):
        with stopped_in_a_sentence(), _leaving_records_alone(model, kwargs, records):
            result = pm.sample(draws, model=model, **kwargs)
        _steps.keep(parts, kwargs.get("step"))
        return result
    # Of thousands of records some have a large r_hat by chance.
    kwargs["compute_convergence_checks"] = checks and not stored
    with stopped_in_a_sentence(), _leaving_records_alone(model, kwargs, records):
        result = pm.sample(draws, model=model, **kwargs)
    _steps.keep(parts, kwargs.get("step"))
    attach_privacy(result, model)
    if checks and (parameters := without_records(result, stored)) is not None:
        if stored and not quiet:
            log_warnings(run_convergence_checks(parameters, model))
        warn_unless_mixed(parameters)
    blank_absent_records(result, model)
    if not quiet and (line := describe_moves(result)):
        logging.getLogger("pymc").info(line)
    check_capacity(result)
    return result


# Of the model that was sampled last: sampled again, it is not compiled again.
_steps: KeptOnce[Any] = KeptOnce()


@contextmanager
def _said_to_compile(quiet: bool) -> Iterator[None]:
    """Say that something is being compiled, and how long it took."""
    log, start = logging.getLogger("pymc"), time.perf_counter()
    if not quiet:
        log.info("Compiling the model; machine code is kept on disk for the next time.")
    # What compilers make stays: to look for garbage among it takes a tenth of the time.
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
    if not quiet:
        log.info("Compiled in %.1f seconds.", time.perf_counter() - start)


def _default_steps(model: Model, kwargs: dict[str, Any], parts: list[Any]) -> dict[str, Any]:
    """Put our own steps first, and give NUTS a density without the constant releases.

    All that the steps depend on is added to ``parts``, unless the user has options of their own.
    """
    compile_kwargs, quiet = kwargs.get("compile_kwargs"), kwargs.get("quiet", False)
    _, chosen = assign_step_methods(model)
    methods = [m for m in (BirthDeath, CountStates, Interweave, RecordSweep) if m in chosen]
    given = {method: kwargs.pop(method.name, {}) for method in methods}
    if compile_kwargs is None and not any(given.values()):
        graphs = [*factors_of(model), *model.rvs_to_values.values()]
        moved = [v for method in methods for v in (method, *chosen[method])]
        transforms = model.rvs_to_transforms.values()
        parts += [model, *moved, *graphs, *transforms, digest_of_data(graphs)]
    ours = _steps.take(parts)
    if ours is None:
        with _said_to_compile(quiet):
            ours = [
                method(chosen[method], model=model, compile_kwargs=compile_kwargs, **options)
                for method, options in given.items()
            ]
    defaults: dict[str, Any] = {"step": ours}
    if NUTS in chosen:
        databases = [database for step in ours for database in step.databases]
        density = _parameter_density(model, databases, chosen[NUTS], compile_kwargs or {})
        defaults["nuts"] = {"logp_dlogp_func": density, **kwargs.get("nuts", {})}
    return defaults


@contextmanager
def _leaving_records_alone(
    model: Model, kwargs: dict[str, Any], records: Sequence[TensorVariable]
) -> Iterator[None]:
    """Draw records that are integrated out only where something depends on them.

    Something that is stored, or a variable that another step moves given the records.
    """
    above = set(ancestors(_stored(model, kwargs)))
    seen = bool(set(records) & above) or kwargs.get("callback") is not None
    steps = _given_steps(kwargs, Interweave)
    for step in steps:
        step.leaves_records = not seen and not _others_see_records(model, step)
    try:
        yield
    finally:
        # A step may be used once more where records are looked at.
        for step in steps:
            step.leaves_records = False


def _stored(model: Model, kwargs: dict[str, Any]) -> list[TensorVariable]:
    """Return the variables whose draws are kept."""
    names = kwargs.get("var_names")
    return [rv for rv in model.unobserved_RVs if names is None or rv.name in names]


def _given_steps(kwargs: dict[str, Any], kind: type) -> list[Any]:
    """Return the steps of one kind that are about to sample."""
    given = kwargs.get("step")
    return [
        step for step in (given if isinstance(given, list) else [given]) if isinstance(step, kind)
    ]


def _others_see_records(model: Model, step: Interweave) -> bool:
    """Tell whether a variable that another step moves enters a density of the records."""
    factors = {f for d in step.databases for f in (*d.records, *d.record_factors)}
    above = set(ancestors(log_densities(model, list(factors))))
    return any(value in above for value in model.value_vars if value not in step.vars)


def _make_room(model: Model, kwargs: dict[str, Any], records: Sequence[TensorVariable]) -> None:
    """Let records without a capacity be as many as they are, where one step alone reads them."""
    stored = _stored(model, kwargs)
    for step in _given_steps(kwargs, BirthDeath):
        moved = {model.values_to_rvs[value] for value in step.vars}
        others = [rv for rv in model.free_RVs if rv not in moved]
        releases = [rv for rv in model.observed_RVs if set(records) & set(ancestors([rv]))]
        read = set(records) & set(ancestors([*stored, *others]))
        depends = set(others) & set(ancestors([*records, *releases]))
        alone = not (read or depends or kwargs.get("callback"))
        step.make_room([rv for rv in records if is_open(rv)] if alone else [])


def _parameter_density(
    model: Model,
    databases: Sequence[Database],
    parameters: Sequence[Variable],
    compile_kwargs: dict,
) -> ValueGradFunction:
    """Compile the log density of the parameters given everything else, and its gradient."""
    density = joint_log_density(model, factors_given_records(model, databases, parameters))
    point = start_of(model)
    above = set(ancestors([density]))
    held = [v for v in model.value_vars if v in above and v not in set(parameters)]
    function = ValueGradFunction(
        [density],
        list(parameters),
        {value: point[value.name] for value in held},
        model=model,
        initial_point=point,
        ravel_inputs=True,
        **compile_kwargs,
    )
    function.set_extra_values(point)
    function.trust_input = True
    return function


def _check_log_likelihood(kwargs: dict[str, Any], missing: set[str]) -> None:
    """Say that the density of a release given imputed records compares no models."""
    if not (kwargs.get("idata_kwargs") or {}).get("log_likelihood"):
        return
    if missing:
        raise ReleaseError(
            f"log_likelihood needs stored records, keep_records=True, because a release has its "
            f"density given these; {', '.join(sorted(missing))} would not be stored. {_NO_LOO}"
        )
    warnings.warn(_NO_LOO, ComparisonWarning, stacklevel=3)


def _with_starts(model: Model, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Say where chains start, and so how many there are."""
    cores = kwargs.get("cores") or min(4, os.cpu_count() or 1)
    chains = kwargs.get("chains") or max(2, cores)
    starts = starting_points(
        model,
        kwargs.get("initvals"),
        chains=chains,
        random_seed=kwargs.get("random_seed"),
        quiet=kwargs.get("quiet", False),
    )
    return {"chains": chains, "initvals": starts}


__all__ = ["sample"]
