"""`sample`: `pm.sample` with good defaults for models of confidential records."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pymc_privacy._compat import (
    NUTS,
    FlatRV,
    HalfFlatRV,
    ValueGradFunction,
    Variable,
    ancestors,
    assign_step_methods,
    log_warnings,
    modelcontext,
    run_convergence_checks,
)
from pymc_privacy.arguments import flag, integer
from pymc_privacy.distributions.linear_measurements import LatticeCounts
from pymc_privacy.distributions.marking import is_marked
from pymc_privacy.distributions.starts import starts_of_sizes
from pymc_privacy.errors import RecordError
from pymc_privacy.graph.database import Database, factors_given_records, is_release
from pymc_privacy.results import (
    attach_privacy,
    blank_absent_records,
    check_capacity,
    describe_moves,
    warn_unless_mixed,
    without_records,
)
from pymc_privacy.step_methods import BirthDeath, CountStates, Interweave, RecordSweep


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
        Store the imputed records too: chains × draws × records numbers for each.
    **kwargs
        Passed on to `pm.sample`. ``step=``, ``initvals=`` and ``var_names=`` take precedence
        over the defaults above.

    Returns
    -------
    xarray.DataTree
        As from `pm.sample`, with a group ``privacy``.

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
    records = [rv for rv in model.free_RVs if is_marked(rv)]
    if not any(is_release(rv) for rv in model.basic_RVs):
        raise RecordError(
            "pymc_privacy.sample needs a model with a Privatized release; got a model without "
            "any. Use pm.sample."
        )
    if kwargs.get("step") is None and records:
        kwargs |= _default_steps(model, kwargs)
    kwargs["initvals"] = _starts(model, kwargs.get("initvals"))
    if kwargs.get("var_names") is None and not keep_records:
        kwargs["var_names"] = [rv.name for rv in model.unobserved_RVs if rv not in records]
    names = {rv.name for rv in records}
    stored = names & {*(kwargs.get("var_names") or names)}
    checks, quiet = kwargs.get("compute_convergence_checks", True), kwargs.get("quiet", False)
    if not kwargs.get("return_inferencedata", True):
        return pm.sample(draws, model=model, **kwargs)
    # Of thousands of records some have a large r_hat by chance.
    kwargs["compute_convergence_checks"] = checks and not stored
    result = pm.sample(draws, model=model, **kwargs)
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


def _default_steps(model, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Put our own steps first, and give NUTS a density without the constant releases."""
    compile_kwargs = kwargs.get("compile_kwargs")
    _, chosen = assign_step_methods(model)
    ours = [
        method(
            chosen[method],
            model=model,
            compile_kwargs=compile_kwargs,
            **kwargs.pop(method.name, {}),
        )
        for method in (BirthDeath, CountStates, Interweave, RecordSweep)
        if method in chosen
    ]
    defaults: dict[str, Any] = {"step": ours}
    if NUTS in chosen:
        databases = [database for step in ours for database in step.databases]
        density = _parameter_density(model, databases, chosen[NUTS], compile_kwargs or {})
        defaults["nuts"] = {"logp_dlogp_func": density, **kwargs.get("nuts", {})}
    return defaults


def _parameter_density(
    model, databases: Sequence[Database], parameters: Sequence[Variable], compile_kwargs: dict
) -> ValueGradFunction:
    """Compile the log density of the parameters given everything else, and its gradient."""
    density = model.logp(vars=factors_given_records(model, databases, parameters))
    point = model.initial_point(random_seed=0)
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


def _starts(model, initvals: Any) -> Any:
    """Start from the prior wherever the user did not say, and the prior can be drawn from."""
    if initvals is not None and not isinstance(initvals, dict):
        return [_starts(model, chain or {}) for chain in initvals]
    given = initvals or {}
    names = {key if isinstance(key, str) else key.name for key in given}
    sizes = {name: start for name, start in starts_of_sizes(model).items() if name not in names}
    names |= set(sizes)
    return (
        given
        | sizes
        | {
            rv.name: "prior"
            for rv in model.free_RVs
            # Counts start where their exact totals are.
            if not isinstance(rv.owner.op, FlatRV | HalfFlatRV | LatticeCounts)
            # A start may be named after the variable or after its transformed value.
            and not names & {rv.name, model.rvs_to_values[rv].name}
        }
    )


__all__ = ["sample"]
