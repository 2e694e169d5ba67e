"""The only importer of PyMC's and PyTensor's internals, so that their changes land in one file."""

from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.distributions.distribution import Distribution, _support_point
from pymc.logprob.abstract import _logprob
from pymc.logprob.utils import replace_rvs_by_values
from pymc.model.core import ValueGradFunction, modelcontext
from pymc.pytensorf import collect_default_updates, rvs_in_graph
from pymc.pytensorf import compile as compile_graph
from pymc.sampling.mcmc import assign_step_methods
from pymc.step_methods import NUTS, STEP_METHODS
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator, get_value_vars_from_user_vars
from pytensor import In, Out
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import MvNormalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType, random_generator_type
from pytensor.tensor.variable import TensorVariable

__all__ = [
    "NUTS",
    "STEP_METHODS",
    "BlockedStep",
    "Competence",
    "DimShuffle",
    "Distribution",
    "FlatRV",
    "FunctionGraph",
    "HalfFlatRV",
    "In",
    "Join",
    "Mode",
    "MvNormalRV",
    "Out",
    "RandomGeneratorType",
    "RandomVariable",
    "SharedVariable",
    "StepMethodState",
    "TensorVariable",
    "ValueGradFunction",
    "Variable",
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
    "modelcontext",
    "numba_core_rv_funcify",
    "numba_njit",
    "random_generator_type",
    "replace_rvs_by_values",
    "rvs_in_graph",
]
