"""The only importer of PyMC's and PyTensor's internals, so that their changes land in one file."""

from pymc.distributions.continuous import (
    FlatRV,
    HalfCauchyRV,
    HalfFlatRV,
    MoyalRV,
    WeibullBetaRV,
)
from pymc.distributions.distribution import Distribution, _support_point
from pymc.logprob.abstract import _logprob
from pymc.logprob.utils import replace_rvs_by_values
from pymc.model.core import ValueGradFunction, modelcontext
from pymc.pytensorf import collect_default_updates, join_nonshared_inputs, rvs_in_graph
from pymc.pytensorf import compile as compile_graph
from pymc.sampling.mcmc import assign_step_methods
from pymc.step_methods import NUTS, STEP_METHODS
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator, get_value_vars_from_user_vars
from pytensor import In, Out
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.scalar.basic import Cast
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import (
    BernoulliRV,
    CategoricalRV,
    CauchyRV,
    ExponentialRV,
    GammaRV,
    GeometricRV,
    GumbelRV,
    HalfNormalRV,
    LaplaceRV,
    LogisticRV,
    LogNormalRV,
    MvNormalRV,
    NormalRV,
    ParetoRV,
    StudentTRV,
    UniformRV,
)
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType, random_generator_type
from pytensor.tensor.variable import TensorVariable

__all__ = [
    "CACHED_SRC_FUNCTIONS",
    "NUTS",
    "STEP_METHODS",
    "BernoulliRV",
    "BlockedStep",
    "Cast",
    "CategoricalRV",
    "CauchyRV",
    "Competence",
    "DimShuffle",
    "Distribution",
    "ExponentialRV",
    "FlatRV",
    "FunctionGraph",
    "GammaRV",
    "GeometricRV",
    "GumbelRV",
    "HalfCauchyRV",
    "HalfFlatRV",
    "HalfNormalRV",
    "In",
    "Join",
    "LaplaceRV",
    "LogNormalRV",
    "LogisticRV",
    "Mode",
    "MoyalRV",
    "MvNormalRV",
    "NormalRV",
    "NullTypeGradError",
    "Out",
    "ParetoRV",
    "RandomGeneratorType",
    "RandomVariable",
    "SharedVariable",
    "StepMethodState",
    "StudentTRV",
    "TensorVariable",
    "UniformRV",
    "ValueGradFunction",
    "Variable",
    "WeibullBetaRV",
    "_logprob",
    "_support_point",
    "ancestors",
    "assign_step_methods",
    "collect_default_updates",
    "compile_graph",
    "dataclass_state",
    "get_random_generator",
    "get_value_vars_from_user_vars",
    "graph_replace",
    "join_nonshared_inputs",
    "modelcontext",
    "numba_core_rv_funcify",
    "numba_njit",
    "random_generator_type",
    "replace_rvs_by_values",
    "rvs_in_graph",
]
