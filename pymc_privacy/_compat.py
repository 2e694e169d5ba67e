"""The only importer of PyMC's and PyTensor's internals, so that their changes land in one file."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pymc.backends import NDArray
from pymc.backends.base import MultiTrace
from pymc.distributions.continuous import (
    AsymmetricLaplaceRV,
    FlatRV,
    HalfCauchyRV,
    HalfFlatRV,
    HalfStudentTRV,
    KumaraswamyRV,
    MoyalRV,
    SkewNormalRV,
    TruncatedNormalRV,
    WeibullBetaRV,
)
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.distributions.distribution import (
    DiracDeltaRV,
    Distribution,
    SymbolicRandomVariable,
    _support_point,
    support_point,
)
from pymc.distributions.mixture import MixtureRV
from pymc.distributions.shape_utils import change_dist_size
from pymc.distributions.transforms import _default_transform
from pymc.distributions.truncated import TruncatedRV
from pymc.exceptions import NotConstantValueError
from pymc.initial_point import make_initial_point_fn
from pymc.logprob.abstract import _logprob, _logprob_helper
from pymc.logprob.utils import CheckParameterValue, replace_rvs_by_values
from pymc.model.core import Model, ValueGradFunction
from pymc.model.core import modelcontext as _modelcontext
from pymc.model.fgraph import clone_model
from pymc.pytensorf import (
    collect_default_updates,
    constant_fold,
    join_nonshared_inputs,
    rvs_in_graph,
)
from pymc.pytensorf import compile as compile_graph
from pymc.sampling.mcmc import assign_step_methods
from pymc.stats.convergence import (
    SamplerWarning,
    WarningType,
    log_warnings,
    run_convergence_checks,
)
from pymc.step_methods import NUTS, STEP_METHODS
from pymc.step_methods.compound import BlockedStep as _BlockedStep
from pymc.step_methods.compound import Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import _get_seeds_per_chain as get_seeds_per_chain
from pymc.util import get_random_generator as _get_random_generator
from pymc.util import get_value_vars_from_user_vars as _get_value_vars_from_user_vars
from pytensor import In, Out, config, function, shared
from pytensor import scalar as ps
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import NUMBA, Mode
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import (
    DisconnectedType,
    NullTypeGradError,
    disconnected_grad,
    grad,
    grad_not_implemented,
)
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.graph.replace import clone_replace, graph_replace, vectorize_graph
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS, compile_numba_function_src
from pytensor.link.numba.dispatch.basic import (
    numba_funcify_and_cache_key,
    numba_njit,
    register_funcify_and_cache_key,
)
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.link.numba.linker import NumbaLinker
from pytensor.scalar.basic import (
    Cast,
    Clip,
    Composite,
    ScalarConstant,
    ScalarMaximum,
    ScalarMinimum,
    ScalarOp,
    ScalarType,
    get_scalar_type,
)
from pytensor.tensor.basic import (
    Alloc,
    ARange,
    Join,
    Split,
    get_underlying_scalar_constant_value,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.solvers.core import SolveBase
from pytensor.tensor.math import Dot, variadic_add
from pytensor.tensor.random.basic import (
    BernoulliRV,
    BetaBinomialRV,
    BetaRV,
    BinomialRV,
    CategoricalRV,
    CauchyRV,
    DirichletRV,
    ExponentialRV,
    GammaRV,
    GeometricRV,
    GumbelRV,
    HalfNormalRV,
    InvGammaRV,
    LaplaceRV,
    LogisticRV,
    LogNormalRV,
    MvNormalRV,
    NegBinomialRV,
    NormalRV,
    ParetoRV,
    PoissonRV,
    StudentTRV,
    TriangularRV,
    UniformRV,
)
from pytensor.tensor.random.op import RandomVariable, RandomVariableWithCoreShape
from pytensor.tensor.random.type import RandomGeneratorType, random_generator_type
from pytensor.tensor.rewriting.fused_elemwise import FusedElemwise
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_privacy.arguments import check_step_options, instance, refusal, text
from pymc_privacy.errors import ArgumentError, PrivacyError, RecordError

# For graphs that are evaluated a few times.
INTERPRETED = Mode(linker="py", optimizer="fast_compile")
# For graphs that are evaluated so rarely that to simplify them takes longer.
AS_WRITTEN = Mode(linker="py", optimizer="minimum_compile")


def interpret(
    inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> Callable[..., list[np.ndarray]]:
    """Return a function that evaluates a graph node by node, as it stands."""
    return function(inputs, outputs, mode=AS_WRITTEN, on_unused_input="ignore", accept_inplace=True)


def law_parameters(variable: TensorVariable) -> tuple[Variable, ...]:
    """Return the parameters of a random variable's law.

    PyMC's general truncated law does not say which of its inputs these are; they are all but the
    generators.
    """
    node = variable.owner
    op = node.op
    if not hasattr(op, "dist_params"):
        return ()
    if isinstance(op, SymbolicRandomVariable) and op.extended_signature is None:
        return tuple(v for v in node.inputs if not isinstance(v.type, RandomGeneratorType))
    return tuple(op.dist_params(node))


__all__ = [
    "AS_WRITTEN",
    "CACHED_SRC_FUNCTIONS",
    "INTERPRETED",
    "NUMBA",
    "NUTS",
    "STEP_METHODS",
    "ARange",
    "AdvancedIncSubtensor",
    "AdvancedSubtensor",
    "Alloc",
    "Apply",
    "ArgSortOp",
    "AsymmetricLaplaceRV",
    "BernoulliRV",
    "BetaBinomialRV",
    "BetaRV",
    "BinomialRV",
    "BlockedStep",
    "Blockwise",
    "CAReduce",
    "Cast",
    "CategoricalRV",
    "CauchyRV",
    "CheckParameterValue",
    "Clip",
    "Competence",
    "Composite",
    "Constant",
    "CumOp",
    "DimShuffle",
    "DiracDeltaRV",
    "DirichletRV",
    "DisconnectedType",
    "DiscreteUniformRV",
    "Distribution",
    "Dot",
    "Elemwise",
    "ExponentialRV",
    "FlatRV",
    "FunctionGraph",
    "FusedElemwise",
    "GammaRV",
    "GeometricRV",
    "GumbelRV",
    "HalfCauchyRV",
    "HalfFlatRV",
    "HalfNormalRV",
    "HalfStudentTRV",
    "HasInnerGraph",
    "In",
    "IncSubtensor",
    "InvGammaRV",
    "Join",
    "KumaraswamyRV",
    "LaplaceRV",
    "LogNormalRV",
    "LogisticRV",
    "MergeOptimizer",
    "MixtureRV",
    "Mode",
    "MoyalRV",
    "MultiTrace",
    "MvNormalRV",
    "NDArray",
    "NegBinomialRV",
    "NormalRV",
    "NotConstantValueError",
    "NotScalarConstantError",
    "NullTypeGradError",
    "NumbaLinker",
    "Op",
    "OpFromGraph",
    "Out",
    "ParetoRV",
    "PoissonRV",
    "RandomGeneratorType",
    "RandomVariable",
    "RandomVariableWithCoreShape",
    "Reshape",
    "SamplerWarning",
    "ScalarConstant",
    "ScalarMaximum",
    "ScalarMinimum",
    "ScalarOp",
    "ScalarType",
    "Shape",
    "Shape_i",
    "SharedVariable",
    "SkewNormalRV",
    "SolveBase",
    "SortOp",
    "SpecifyShape",
    "Split",
    "StepMethodState",
    "StudentTRV",
    "Subtensor",
    "SymbolicRandomVariable",
    "TensorConstant",
    "TensorVariable",
    "TriangularRV",
    "TruncatedNormalRV",
    "TruncatedRV",
    "UniformRV",
    "ValueGradFunction",
    "Variable",
    "WarningType",
    "WeibullBetaRV",
    "_default_transform",
    "_logprob",
    "_logprob_helper",
    "_support_point",
    "ancestors",
    "assign_step_methods",
    "change_dist_size",
    "check_new_name",
    "clone_model",
    "clone_replace",
    "collect_default_updates",
    "compile_graph",
    "compile_numba_function_src",
    "config",
    "constant_fold",
    "dataclass_state",
    "disconnected_grad",
    "get_random_generator",
    "get_scalar_type",
    "get_seeds_per_chain",
    "get_underlying_scalar_constant_value",
    "get_value_vars_from_user_vars",
    "grad",
    "grad_not_implemented",
    "graph_inputs",
    "graph_replace",
    "indices_from_subtensor",
    "inline_ofg_node",
    "interpret",
    "join_nonshared_inputs",
    "law_parameters",
    "log_warnings",
    "make_initial_point_fn",
    "modelcontext",
    "numba_core_rv_funcify",
    "numba_funcify_and_cache_key",
    "numba_njit",
    "ps",
    "random_generator_type",
    "register_funcify_and_cache_key",
    "replace_rvs_by_values",
    "rewrite_graph",
    "run_convergence_checks",
    "rvs_in_graph",
    "shared",
    "support_point",
    "toposort",
    "variadic_add",
    "vectorize_graph",
]


def modelcontext(model: Any) -> Model:
    """Return a model, by default the one on the context stack."""
    if model is not None:
        return instance("model", model, Model, "a pm.Model", error=RecordError)
    try:
        return _modelcontext(None)
    except TypeError:
        raise RecordError(
            "There must be a model on the context stack, as inside `with pm.Model():`; got none."
        ) from None


def check_new_name(name: Any, model: Model, error: type[PrivacyError]) -> None:
    """Refuse what is no name, or that of another variable of the model."""
    text("name", name, error=error)
    if model.name_for(name) in model.named_vars:
        raise error(f"name must be that of no other variable of the model; got {name!r} again.")


def get_random_generator(rng: Any) -> np.random.Generator:
    """Return a generator for a seed or another generator."""
    try:
        return _get_random_generator(rng)
    except Exception:
        raise refusal("rng", "a seed or a np.random.Generator", rng, error=ArgumentError) from None


def get_value_vars_from_user_vars(variables: Any, model: Model) -> list[Variable]:
    """Return the value variables of some variables of a model."""
    try:
        return _get_value_vars_from_user_vars(variables, model)
    except (ValueError, TypeError, AttributeError):
        wanted = "free random variables of the model"
        raise refusal("vars", wanted, variables, error=RecordError) from None


class BlockedStep(_BlockedStep):
    """PyMC's base of step methods, for variables of a model, and options that are numbers."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuse what is no variable, no model and no option, before PyMC has to."""
        model = modelcontext(kwargs.get("model"))
        given = args[0] if args else kwargs.get("vars")
        if given is not None:
            several = given if isinstance(given, list | tuple) else [given]
            if not several or not all(isinstance(one, Variable) for one in several):
                raise refusal("vars", "variables of the model", given, error=RecordError)
        elif not model.value_vars:
            raise RecordError(
                f"{cls.__name__} needs a model with free random variables; got one without any."
            )
        check_step_options(kwargs)
        return super().__new__(cls, *args, **kwargs)
