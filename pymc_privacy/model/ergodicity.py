"""Which published conditions for convergence a model meets, as far as it says so itself.

Theorems 3.3 and 3.4 of Ju et al. (2022), where the number of records is known; Propositions 5.3 and
5.4 of Awan et al. (2024), where it is not. All are sufficient: a condition that fails leaves the
question open. A condition is said to hold or to fail only where the laws of the model are known to
the tables below; else it is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pymc_privacy._compat import (
    Model,
    TensorVariable,
    Variable,
    ancestors,
    law_parameters,
    modelcontext,
)
from pymc_privacy.accounting import GaussianDP, PureDP, ZeroConcentratedDP
from pymc_privacy.errors import RecordError
from pymc_privacy.mechanisms import (
    AdditiveMechanism,
    LocalSum,
    Mechanism,
    PostProcessed,
    TruncatedLaplace,
    Tulap,
)
from pymc_privacy.model.marks import is_record, law_class
from pymc_privacy.model.releases import is_release
from pymc_privacy.model.sized_records import is_sized, law_of, size_of
from pymc_privacy.model.support import finite_support, support

# Laws by what their support depends on: nothing, as long as their parameters are possible;
FIXED_SUPPORT = {
    *("NormalRV", "StudentTRV", "LaplaceRV", "CauchyRV", "LogisticRV", "GumbelRV", "SkewNormalRV"),
    *("HalfCauchyRV", "HalfStudentTRV", "ExponentialRV", "GammaRV", "InvGammaRV", "LogNormalRV"),
    *("WeibullBetaRV", "BetaRV", "PoissonRV", "GeometricRV", "NegBinomialRV", "MvNormalRV"),
    "DirichletRV",
}
# or some of their parameters, by position.
ENDS = {
    "HalfNormalRV": (0,),
    "UniformRV": (0, 1),
    "DiscreteUniformRV": (0, 1),
    "TruncatedNormalRV": (2, 3),
    "BinomialRV": (0,),
    "BetaBinomialRV": (0,),
}
# Discrete laws whose support shrinks where a probability is 0 or 1, given by position.
CHANCES = {"BernoulliRV": 0, "BinomialRV": 1, "CategoricalRV": 0}
IMPROPER = {"FlatRV", "HalfFlatRV"}
# Continuous laws that are bounded if these parameters are fixed: scales, and what is one.
SCALES = {
    "NormalRV": (1,),
    "StudentTRV": (2,),
    "LaplaceRV": (1,),
    "CauchyRV": (1,),
    "LogisticRV": (1,),
    "GumbelRV": (1,),
    "HalfNormalRV": (1,),
    "HalfCauchyRV": (0,),
    "ExponentialRV": (0,),
    "UniformRV": (0, 1),
}
MEANING = {
    True: "holds",
    False: "fails",
    None: "not known",
}


@dataclass(frozen=True)
class Condition:
    """One condition of a theorem, and whether the model meets it.

    Parameters
    ----------
    name : str
        What must hold.
    holds : bool or None
        None if the model does not say.
    why : str
        What this was read from.

    See Also
    --------
    ergodicity : Returns them.

    Examples
    --------
    >>> print(Condition("p(theta) is proper", True, "mu has a Normal law"))
    holds: p(theta) is proper (mu has a Normal law)
    """

    name: str
    holds: bool | None
    why: str

    def __str__(self) -> str:
        return f"{MEANING[self.holds]}: {self.name} ({self.why})"


@dataclass(frozen=True)
class Ergodicity:
    """What is known of the convergence of the published algorithm on a model.

    Parameters
    ----------
    theorem : str
        Where the conditions are from.
    conditions : tuple of Condition
        For ergodicity: averages over the chain tend to posterior means, from nearly every start.
    geometric_conditions : tuple of Condition
        The further ones for geometric ergodicity: the distance from the posterior falls like a
        power, so that averages have a central limit theorem and Monte Carlo errors mean something.

    See Also
    --------
    ergodicity : Reads them from a model.

    Examples
    --------
    >>> Ergodicity("Theorem 3.3", (Condition("a", True, "b"),), ()).ergodic
    True
    """

    theorem: str
    conditions: tuple[Condition, ...]
    geometric_conditions: tuple[Condition, ...]

    @property
    def ergodic(self) -> bool:
        """Whether all conditions are known to hold; if not, the theorem says nothing."""
        return all(condition.holds for condition in self.conditions)

    @property
    def geometric(self) -> bool:
        """Whether those of the geometric rate are known to hold as well."""
        return self.ergodic and all(condition.holds for condition in self.geometric_conditions)

    def __str__(self) -> str:
        shown = "is shown" if self.ergodic else "is not shown by this theorem"
        rate = "is shown" if self.geometric else "is not shown"
        lines = [f"{self.theorem}: ergodicity {shown}; a geometric rate {rate}."]
        lines += [f"  {condition}" for condition in self.conditions]
        lines += [f"  for the rate, {condition}" for condition in self.geometric_conditions]
        return "\n".join(lines)


def ergodicity(model: Model | None = None) -> Ergodicity:
    """Say which published conditions for convergence a model meets.

    The theorems are about Algorithm 1 of either paper, which is `RecordSweep` with parameters drawn
    given the records, or ``BirthDeath(single=True, noncentred_steps=0)``. The moves that are made
    by default keep the posterior too; of their rate nothing is said. Conditions are sufficient and
    not necessary: most models of real-valued records miss those of a geometric rate, whose density
    must be above some a > 0 everywhere. Then there are r_hat and effective draws to look at.

    Parameters
    ----------
    model : pm.Model, optional
        The model on the context stack by default.

    Returns
    -------
    Ergodicity

    Raises
    ------
    RecordError
        If the model has no records behind a release.

    See Also
    --------
    acceptance_bounds : What the acceptance of a proposal is at least.
    size_matters : Whether it matters that the number of records is private.

    References
    ----------
    - Ju, N., Awan, J., Gong, R. and Rao, V. (2022), "Data augmentation MCMC for Bayesian inference
      from privatized data", Advances in Neural Information Processing Systems 35.
    - Awan, J., Barrientos, A. F. and Ju, N. (2024), "Statistical inference for privatized data with
      unknown sample size", arXiv:2406.06231.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model() as model:
    ...     p = pm.Uniform("p", 0.05, 0.95)
    ...     x = pm.Bernoulli("x", p, shape=50)
    ...     noise = pmp.Laplace(epsilon=1.0, sensitivity=1.0)
    ...     yes = pmp.Privatized("yes", x, noise, observed=31.4)
    >>> found = pmp.ergodicity(model)
    >>> found.ergodic, found.geometric
    (True, False)
    >>> print(found.conditions[0])
    holds: p(theta) is proper and positive (p: Uniform)
    """
    model = modelcontext(model)
    records = [rv for rv in model.free_RVs if is_record(rv)]
    releases = [rv for rv in model.observed_RVs if is_release(rv)]
    if not records or not releases:
        raise RecordError(
            "Convergence is asked for a model with records behind an observed release; got a model "
            f"with {len(records)} record variables and {len(releases)} observed releases."
        )
    sizes = {size_of(rv) for rv in records if is_sized(rv)}
    laws = [law_of(rv) if is_sized(rv) else rv for rv in records]
    others = [rv for rv in model.free_RVs if rv not in {*records, *sizes}]
    mechanisms = {str(rv.name): rv.owner.op.mechanism for rv in releases}
    proper = _proper(model, others)
    same_support, positive = _support_of_records(records, laws, model), _positive(mechanisms)
    pure, below = _pure(mechanisms), _bounded_below(laws, records, model)
    if not sizes:
        rate = (
            Condition(
                "parameters are drawn from their law given the records",
                None,
                "a question of the sampler: so it is where that law is conjugate and drawn from",
            ),
            pure,
            below,
            _bounded("f(x | theta) is bounded", laws, records, model),
        )
        return Ergodicity("Ju et al., Theorems 3.3 and 3.4", (proper, same_support, positive), rate)
    conditions = (
        Condition("the state space is countably generated", True, "finitely many real numbers"),
        _bounded("p(theta) is bounded", others, (), model),
        _bounded("p(x | theta) is bounded", laws, records, model),
        _bounded_release(mechanisms),
        _no_gaps(sizes),
        same_support,
        positive,
    )
    rate = (proper, pure, below, _finite(sizes))
    return Ergodicity("Awan et al., Propositions 5.3 and 5.4", conditions, rate)


def _family(rv: TensorVariable) -> str:
    return law_class(rv).__name__


def _short(rv: TensorVariable) -> str:
    return _family(rv).removesuffix("RV")


def _all_of(values: Iterable[bool | None]) -> bool | None:
    """Return False if anything fails, else None if anything is not known."""
    found = list(values)
    return False if False in found else None if None in found else True


def _condition(name: str, found: Sequence[tuple[bool | None, str]]) -> Condition:
    holds = _all_of(verdict for verdict, _ in found)
    reasons = [why for verdict, why in found if verdict is holds]
    return Condition(name, holds, "; ".join(dict.fromkeys(reasons)) or "there is none")


def _proper(model: Model, parameters: Sequence[TensorVariable]) -> Condition:
    found: list[tuple[bool | None, str]] = []
    for rv in parameters:
        proper = False if _family(rv) in IMPROPER else True if _is_known(rv) else None
        found.append((proper, f"{rv.name}: {_short(rv)}"))
    if model.potentials:
        names = ", ".join(str(p.name) for p in model.potentials)
        found.append((None, f"potentials ({names}) may make it anything"))
    return _condition("p(theta) is proper and positive", found)


def _is_known(rv: TensorVariable) -> bool:
    return _family(rv) in FIXED_SUPPORT | set(ENDS) | set(CHANCES)


def _is_constant(value: Variable, model: Model, records: Sequence[TensorVariable] = ()) -> bool:
    """Tell whether no parameter enters a value; ``records`` may."""
    above = set(ancestors([value], blockers=list(records)))
    return not any(rv in above for rv in model.free_RVs if rv not in set(records))


def _support_of_records(
    records: Sequence[TensorVariable], laws: Sequence[TensorVariable], model: Model
) -> Condition:
    found: list[tuple[bool | None, str]] = []
    for rv, law in zip(records, laws, strict=True):
        family, parameters = _family(law), law_parameters(law)
        said = f"{rv.name}: {_short(law)}"
        if family in CHANCES and not _inside(parameters[CHANCES[family]], model):
            found.append((None, f"{said}, whose probabilities may be 0"))
        elif family in ENDS or family in CHANCES:
            ends = [parameters[k] for k in ENDS.get(family, ())]
            fixed = all(_is_constant(end, model, records) for end in ends)
            found.append((fixed, said + ("" if fixed else ", whose ends are parameters")))
        else:
            found.append((True if family in FIXED_SUPPORT else None, said))
    return _condition("which records are possible does not depend on parameters", found)


def _bare(value: Variable) -> Variable:
    """Return what a value is a cast, a copy or a broadcast of."""
    while value.owner is not None:
        op = value.owner.op
        inner = type(getattr(op, "scalar_op", op)).__name__
        if inner in ("Cast", "DimShuffle", "Alloc", "Identity", "TensorFromScalar"):
            value = value.owner.inputs[0]
        elif inner == "Second":
            value = value.owner.inputs[1]
        else:
            break
    return value


def _inside(p: Variable, model: Model) -> bool:
    """Tell whether a probability is surely inside (0, 1): it is a parameter of such a law.

    A law on (0, 1) gives its ends no probability, and they are left out of the parameters' space.
    """
    p = _bare(p)
    if p in model.free_RVs:
        return _family(p) in ("BetaRV", "UniformRV", "DirichletRV")
    op = getattr(p.owner, "op", None)
    if type(getattr(op, "scalar_op", None)).__name__ == "Sigmoid":
        return True
    value = _value(p, model)
    return value is not None and bool(np.all((value > 0) & (value < 1)))


def _value(variable: Variable, model: Model) -> np.ndarray | None:
    """Return the number of what depends on no variable of the model."""
    if not _is_constant(variable, model):
        return None
    return np.asarray(variable.eval(mode="FAST_COMPILE"))


def _positive(mechanisms: dict[str, Mechanism]) -> Condition:
    """Ju et al., A3: pure, concentrated and Gaussian privacy imply it, and so does such noise."""
    found: list[tuple[bool | None, str]] = []
    for name, mechanism in mechanisms.items():
        inner = mechanism.mechanism if isinstance(mechanism, PostProcessed) else mechanism
        said = f"{name}: {type(inner).__name__}"
        if isinstance(inner, TruncatedLaplace):
            found.append((False, f"{said} has bounded reach"))
        elif isinstance(inner, Tulap):
            reach = inner.delta > 0
            found.append((not reach, f"{said}, delta = {inner.delta:g}"))
        elif isinstance(inner, AdditiveMechanism | LocalSum):
            found.append((True, said))
        else:
            promise = inner.guarantee
            implied = isinstance(promise, PureDP | ZeroConcentratedDP | GaussianDP)
            found.append((True if implied else None, f"{said}, {promise or 'without guarantee'}"))
    return _condition("every database can have led to what was released", found)


def _pure(mechanisms: dict[str, Mechanism]) -> Condition:
    found: list[tuple[bool | None, str]] = []
    for name, mechanism in mechanisms.items():
        promise = mechanism.guarantee
        holds = None if promise is None else isinstance(promise, PureDP)
        found.append((holds, f"{name}: {promise or 'no guarantee is stated'}"))
    return _condition("releases are epsilon-DP", found)


def _bounded_release(mechanisms: dict[str, Mechanism]) -> Condition:
    found: list[tuple[bool | None, str]] = []
    for name, mechanism in mechanisms.items():
        bounded = isinstance(mechanism, AdditiveMechanism | LocalSum | PostProcessed)
        found.append((True if bounded else None, f"{name}: {type(mechanism).__name__}"))
    return _condition("p(s | x) is bounded", found)


def _bounded(
    name: str, laws: Sequence[TensorVariable], records: Sequence[TensorVariable], model: Model
) -> Condition:
    return _condition(name, [_bound_of(law, records, model) for law in laws])


def _bound_of(
    law: TensorVariable, records: Sequence[TensorVariable], model: Model
) -> tuple[bool | None, str]:
    """Tell whether the density of a law is bounded over all values and parameters."""
    family, parameters = _family(law), law_parameters(law)
    said = f"{law.name or 'records'}: {_short(law)}"
    if np.dtype(law.dtype).kind in "iub":
        return True, f"{said}, probabilities"
    if family in SCALES:
        if all(_is_constant(parameters[k], model) for k in SCALES[family]):
            return True, f"{said} of fixed scale"
        # A scale that may be as small as it likes leaves no bound; some are bounded below.
        return None, f"{said}, bounded only if its scale is bounded below"
    shapes = {"GammaRV": (0,), "BetaRV": (0, 1), "DirichletRV": (0,), "WeibullBetaRV": (0,)}
    if family in shapes:
        values = [_value(v, model) for v in parameters]
        if any(v is None for v in values):
            return None, f"{said}, bounded only for some parameters"
        large = all(np.all(values[k] >= 1) for k in shapes[family])  # type: ignore[operator]
        return bool(large), f"{said}, {'no' if large else 'a'} pole"
    if family in ("InvGammaRV", "LogNormalRV", "TruncatedNormalRV", "SkewNormalRV", "MvNormalRV"):
        fixed = all(_is_constant(v, model) for v in parameters[: 4 if "Trunc" in family else None])
        return (True if fixed else None), f"{said}{' of fixed parameters' if fixed else ''}"
    return None, said


def _bounded_below(
    laws: Sequence[TensorVariable], records: Sequence[TensorVariable], model: Model
) -> Condition:
    found: list[tuple[bool | None, str]] = []
    for rv, law in zip(records, laws, strict=True):
        family, parameters = _family(law), law_parameters(law)
        said = f"{rv.name}: {_short(law)}"
        ends = ENDS.get(family, ())
        if family in ("UniformRV", "DiscreteUniformRV"):
            fixed = all(_is_constant(parameters[k], model) for k in ends)
            found.append((True if fixed else None, said))
        elif family in CHANCES:
            found.append(_chances(parameters[CHANCES[family]], model, said))
        elif family == "TruncatedNormalRV":
            found.append((None, f"{said}, if its parameters are bounded"))
        elif family in FIXED_SUPPORT - {"BetaRV", "DirichletRV"} or family == "HalfNormalRV":
            found.append((False, f"{said}, of unbounded values: densities tend to 0"))
        else:
            found.append((None, said))
    return _condition("f(x | theta) >= a > 0 for all x and theta", found)


def _chances(p: Variable, model: Model, said: str) -> tuple[bool | None, str]:
    """Tell whether probabilities stay away from 0 and 1."""
    value = _value(p, model)
    if value is not None:
        return bool(np.all((value > 0) & (value < 1))), f"{said} of fixed probabilities"
    p = _bare(p)
    family = _family(p) if p in model.free_RVs else ""
    if family in ("BetaRV", "DirichletRV"):
        return False, f"{said}, whose probabilities come as near to 0 as they like"
    if family == "UniformRV":
        low, high = (_value(end, model) for end in law_parameters(p))
        if low is not None and high is not None:
            inside = bool(np.all(low > 0) and np.all(high < 1))
            return inside, f"{said}, probabilities from {np.min(low):g} to {np.max(high):g}"
    return None, said


def _no_gaps(sizes: Iterable[TensorVariable]) -> Condition:
    found: list[tuple[bool | None, str]] = []
    known = ("DiscreteUniform", "Poisson", "Geometric", "NegBinomial", "Binomial", "BetaBinomial")
    for size in sizes:
        whole = any(_family(size).startswith(name) for name in known)
        found.append((True if whole else None, f"{size.name}: {_short(size)}"))
    return _condition("the prior of the size has no gaps", found)


def _finite(sizes: Iterable[TensorVariable]) -> Condition:
    found: list[tuple[bool | None, str]] = []
    for size in sizes:
        most = float(np.max(support(size)[1]))
        if finite_support(size) is not None:
            found.append((True, f"{size.name}: at most {most:g}"))
        elif _family(size) in ("PoissonRV", "GeometricRV", "NegBinomialRV") and math.isinf(most):
            found.append(
                (
                    False,
                    f"{size.name}: {_short(size)} has no end; with a capacity it does, which is "
                    "then a part of the model",
                )
            )
        else:
            found.append((None, f"{size.name}: {_short(size)}"))
    return _condition("the size has finitely many values", found)
