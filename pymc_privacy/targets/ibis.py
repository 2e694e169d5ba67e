"""The law of one record and the prior of its parameters, compiled from a model for many particles.

A particle is one row: the values of all parameters, in the coordinates in which PyMC samples them.
What is publicly known of a user, the data of the model that were given for them and which entry of
a record they were asked for, is a row beside it. All programs are compiled once.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_privacy._compat import (
    CauchyRV,
    FlatRV,
    GumbelRV,
    HalfFlatRV,
    LaplaceRV,
    LogisticRV,
    Model,
    MvNormalRV,
    NormalRV,
    RandomVariable,
    SharedVariable,
    TensorVariable,
    Variable,
    ancestors,
    compile_graph,
    graph_inputs,
    graph_replace,
    vectorize_graph,
)
from pymc_privacy.arguments import integer, reals, shown
from pymc_privacy.errors import RecordError
from pymc_privacy.functions.generators import in_value_coordinates
from pymc_privacy.model.factors import in_double, joint_log_density

LOCATION_SCALE = {
    NormalRV: "normal",
    LaplaceRV: "laplace",
    LogisticRV: "logistic",
    CauchyRV: "cauchy",
    GumbelRV: "gumbel",
}
"""Laws of records that are m + c z, with parameters m and c and z of one law."""


class ParticleTarget:
    """What is compiled of a model: the prior, the law of a record, and ways to and from particles.

    Implements `RecordLaw`.

    Parameters
    ----------
    model : pm.Model
    record : TensorVariable
        The one free variable of the model that is not a parameter.
    """

    def __init__(self, model: Model, record: TensorVariable):
        check_stream_model(model, record)
        self.model, self.record = model, record
        self.parameters = [rv for rv in model.free_RVs if rv is not record]
        self._check_parameters()
        self.discrete = np.dtype(record.dtype).kind != "f"
        self.length = _length(record)
        self._values = [model.rvs_to_values[rv] for rv in self.parameters]
        start = model.initial_point()
        self._shapes = [np.shape(start[value.name]) for value in self._values]
        self._start_row = np.concatenate([np.ravel(start[v.name]) for v in self._values])[None]
        self._sizes = [int(np.prod(shape)) for shape in self._shapes]
        self.size = sum(self._sizes)
        self._point = pt.vector("point", shape=(self.size,), dtype="float64")
        self._public = self._public_data()
        self._user = pt.vector("user", shape=(self.columns,), dtype="float64")
        self._law = self._of_one_entry()
        self._functions: dict[str, Callable[..., Any]] = {}
        self._located: tuple[Any, Any] = None, None
        self._refuse_without_density()

    # -- what is known of users -----------------------------------------------------------------

    @property
    def columns(self) -> int:
        """Return how many numbers are known of a user."""
        known = sum(int(np.size(data.get_value(borrow=True))) for data in self._public)
        return known + (self.length or 0)

    @property
    def covariates(self) -> list[str]:
        """Return the names of the model's data on which the law of a record depends."""
        return [str(data.name) for data in self._public]

    def user(self, coordinate: int | None, covariates: Mapping[str, Any]) -> tuple[float, ...]:
        """Return what is known of a user as numbers: data that were not given are the model's."""
        if unknown := set(covariates) - set(self.covariates):
            raise RecordError(
                "covariates must be named after data of the model on which the record depends, "
                f"{', '.join(self.covariates) or 'of which there are none'}; got "
                f"{', '.join(sorted(unknown))}."
            )
        numbers: list[float] = []
        for data in self._public:
            own = data.get_value(borrow=True)
            said: Any = {"meaning": "what is known of a user", "error": RecordError}
            value = reals(str(data.name), covariates.get(str(data.name), own), **said)
            if value.shape != own.shape:
                raise RecordError(
                    f"The covariate {data.name} must have shape {own.shape}, as in the model; got "
                    f"{value.shape}."
                )
            numbers += value.ravel().tolist()
        if coordinate is not None:
            meaning = "which entry of a vector is asked for"
            coordinate = integer("coordinate", coordinate, meaning=meaning, error=RecordError)
        if self.length is None:
            if coordinate is not None:
                raise RecordError(
                    f"coordinate must be left out, since a record {self.record.name} is one "
                    f"number; got {coordinate}."
                )
            return tuple(numbers)
        if coordinate is None or not 0 <= coordinate < self.length:
            raise RecordError(
                f"coordinate must be one of 0, ..., {self.length - 1}: a record "
                f"{self.record.name} is a vector, and a user is asked for one entry, with all of "
                f"epsilon; got {coordinate}."
            )
        return (*numbers, *np.eye(self.length)[coordinate].tolist())

    # -- the law of a record --------------------------------------------------------------------

    def log_density(self, points: np.ndarray, users: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the log density of records, of shape (rows, k)."""
        return self._at_values("log_density", points, users, values)

    def log_cdf(self, points: np.ndarray, users: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the log of their distribution function, of shape (rows, k)."""
        return self._at_values("log_cdf", points, users, values)

    def normal(self, points: np.ndarray, users: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return mean and standard deviation, or None where records are not Normal."""
        return self.location_scale(points, users) if self.family == "normal" else None

    @cached_property
    def family(self) -> str | None:
        """Return which location-scale family records are of, if any."""
        op = self.record.owner.op
        if isinstance(op, MvNormalRV):
            return "normal"
        return next((name for kind, name in LOCATION_SCALE.items() if isinstance(op, kind)), None)

    def location_scale(
        self, points: np.ndarray, users: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return m and c of records m + c z, of shape (rows,).

        Particles stay as they are between moves, and so does what was computed of them. Whoever
        moves them makes a new array.
        """
        kept, known = self._located
        if kept is not None and kept() is points and self.columns == 0:
            return known
        function = self._compiled("location_scale", lambda: self._location_and_scale())
        m, c = (np.broadcast_to(one, len(points)) for one in function(points, users))
        self._located = ref(points), (m, c)
        return m, c

    # -- parameters -----------------------------------------------------------------------------

    def log_prior(self, points: np.ndarray) -> np.ndarray:
        """Return the log density of the parameters, of shape (rows,)."""
        function = self._compiled("log_prior", self._prior, users=False)
        with np.errstate(all="ignore"):
            [logs] = function(points)
        return np.where(np.isnan(logs), -np.inf, logs)

    def draw_prior(self, rng: np.random.Generator, draws: int) -> np.ndarray:
        """Return draws of the parameters from their prior, one in each row."""
        graphs = [in_value_coordinates(self.model, rv) for rv in self.parameters]
        seed = int(rng.integers(2**31))
        try:
            drawn = pm.draw(graphs, draws=draws, random_seed=seed)
        except NotImplementedError as error:
            raise RecordError(
                "Every parameter must have a prior that can be drawn from, since particles start "
                f"there; got one that cannot ({error})."
            ) from None
        return np.column_stack([np.reshape(one, (draws, -1)) for one in drawn]).astype(float)

    def natural(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """Return parameters and what the model computes from them, by name: rows on axis 0."""
        found = self._compiled("natural", lambda: self._naturals(), users=False)(points)
        names = [*(rv.name for rv in self.parameters), *(rv.name for rv in self._computed)]
        return dict(zip(names, map(np.asarray, found), strict=True))

    def signature(self) -> list[float]:
        """Return numbers by which the model is known again: densities at a few points."""
        start = self._start_row
        points = np.concatenate([start, start + 0.1, start - 0.2])
        user = self.user(None if self.length is None else 0, {})
        users = np.broadcast_to(np.array(user, dtype=float), (3, self.columns))
        at = np.broadcast_to([-1.0, 0.0, 1.0, 10.0], (3, 4))
        # Densities too: far from these values all distribution functions are alike.
        law = [np.exp(self.log_cdf(points, users, at)), self.log_density(points, users, at)]
        return [*self.log_prior(points).tolist(), *np.nan_to_num(law).ravel().tolist()]

    # -- how all this is written as graphs ------------------------------------------------------

    def _at_values(
        self, name: str, points: np.ndarray, users: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        write = pm.logp if name == "log_density" else pm.logcdf
        function = self._compiled(name, lambda: [self._evaluated(write)], values=True)
        with np.errstate(all="ignore"):
            [found] = function(points, users, np.ascontiguousarray(values))
        return np.asarray(found)

    def _compiled(
        self,
        name: str,
        write: Callable[[], Sequence[TensorVariable]],
        *,
        users: bool = True,
        values: bool = False,
    ) -> Callable[..., Any]:
        """Compile graphs of one particle and one user for rows of them, when first asked for."""
        if name not in self._functions:
            self._functions[name] = self._for_rows(write(), users=users, values=values)
        return self._functions[name]

    def _for_rows(
        self, graphs: Sequence[TensorVariable], *, users: bool, values: bool
    ) -> Callable[..., Any]:
        points = pt.matrix("points", shape=(None, self.size), dtype="float64")
        given = pt.matrix("users", shape=(None, self.columns), dtype="float64")
        at = pt.matrix("values", dtype="float64")
        # One row of parameters goes with all values of its row.
        rows: dict[Variable, Variable] = {self._point: points[:, None] if values else points}
        rows[self._user] = given[:, None] if values else given
        if values:
            rows[self._at] = at
        inside = self._in_terms_of_rows(graphs)
        outputs = vectorize_graph(inside, replace=rows)
        inputs = [points, *([given] if users else []), *([at] if values else [])]
        return compile_graph(inputs, outputs, on_unused_input="ignore")

    def _in_terms_of_rows(self, graphs: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Replace parameters by parts of a point, and data by parts of what is known of a user."""
        by_values = in_double(self.model.replace_rvs_by_values(list(graphs)), [])
        parts: dict[Variable, Variable] = {}
        start = 0
        for value, shape, size in zip(self._values, self._shapes, self._sizes, strict=True):
            part = _cut(self._point, start, shape)
            parts[value], start = value.type.filter_variable(part), start + size
        start = 0
        for data in self._public:
            shape = np.shape(data.get_value(borrow=True))
            size = int(np.prod(shape))
            part = _cut(self._user, start, shape).astype(data.dtype)
            parts[data], start = data.type.filter_variable(part), start + size
        return graph_replace(by_values, parts, strict=False)

    @cached_property
    def _at(self) -> TensorVariable:
        return pt.scalar("at", dtype="float64")

    def _evaluated(self, write: Callable[..., TensorVariable]) -> TensorVariable:
        """Return a log density or distribution function of the entry asked for, at one value."""
        value = pt.cast(pt.floor(self._at), "int64") if self.discrete else self._at
        if self._law.ndim == 0:
            return self._written(write, value)
        each = self._written(write, pt.full((self.length,), value))
        return pt.where(self._entry > 0, each, 0.0).sum()

    def _written(
        self, write: Callable[..., TensorVariable], value: TensorVariable
    ) -> TensorVariable:
        """Write it of the law given the parameters' values, and see that nothing is drawn in it.

        PyMC derives some laws from a copy of what they are made of, in which parameters would be
        drawn anew at every evaluation.
        """
        node = self._law.owner
        given = self.model.replace_rvs_by_values([v for v in node.inputs if _is_tensor(v)])
        known = iter(given)
        inputs = [next(known) if _is_tensor(v) else v for v in node.inputs]
        law = node.clone_with_new_inputs(inputs).outputs[node.outputs.index(self._law)]
        found = write(law, value)
        if any(v.owner and isinstance(v.owner.op, RandomVariable) for v in ancestors([found])):
            raise NotImplementedError("it would have to be drawn")
        return found

    @property
    def _entry(self) -> TensorVariable:
        return self._user[self.columns - (self.length or 0) :]

    def _of_one_entry(self) -> TensorVariable:
        """Return the law of a record or, of a Normal vector, that of the entry asked for."""
        if not isinstance(self.record.owner.op, MvNormalRV):
            return self.record
        mean, covariance = self.record.owner.op.dist_params(self.record.owner)
        variance = (pt.diagonal(covariance) * self._entry).sum()
        return pm.Normal.dist((mean * self._entry).sum(), pt.sqrt(variance))

    def _location_and_scale(self) -> list[TensorVariable]:
        both = self._law.owner.op.dist_params(self._law.owner)
        if self._law.ndim == 0:
            return [pt.as_tensor(one).astype("float64") for one in both]
        wide = [pt.broadcast_to(one, (self.length,)) for one in both]
        return [(one * self._entry).sum() for one in wide]

    def _prior(self) -> list[TensorVariable]:
        return [joint_log_density(self.model, self.parameters)]

    @cached_property
    def _computed(self) -> list[TensorVariable]:
        """Return the model's deterministic variables that follow from the parameters alone."""
        hidden = {self.record, *self._public}
        return [one for one in self.model.deterministics if not hidden & set(ancestors([one]))]

    def _naturals(self) -> list[TensorVariable]:
        return [*self.parameters, *self._computed]

    def _public_data(self) -> list[SharedVariable]:
        named = set(self.model.data_vars)
        found = [v for v in graph_inputs([self.record]) if v in named]
        return [v for v in found if isinstance(v, SharedVariable)]

    # -- what is refused ------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        if not self.parameters:
            raise RecordError(
                "The law of a record must have unknown parameters with priors, which are what is "
                f"estimated; got a model of which {self.record.name} is the only free variable."
            )
        for rv in self.parameters:
            if np.dtype(rv.dtype).kind != "f":
                raise RecordError(
                    "Every parameter must be continuous, because particles are moved in "
                    f"continuous steps; got {rv.name}, which takes integers."
                )
            if isinstance(rv.owner.op, FlatRV | HalfFlatRV):
                raise RecordError(
                    "Every parameter must have a proper prior, from which particles are drawn; "
                    f"got {rv.name}, which is flat."
                )
            if self.record in set(ancestors([rv])):
                raise RecordError(
                    f"No parameter may depend on the record; got {rv.name}, which depends on "
                    f"{self.record.name}."
                )

    def _refuse_without_density(self) -> None:
        """Try both functions where the sampler would start, before anything is asked."""
        row = self._start_row
        known = np.array([self.user(None if self.length is None else 0, {})], dtype=float)
        for what, function in (("log density", self.log_density), ("log cdf", self.log_cdf)):
            try:
                function(row, known.reshape(1, -1), np.zeros((1, 1)))
            except (NotImplementedError, TypeError, ValueError) as error:
                raise RecordError(
                    f"The law of a record must have a {what} that PyMC knows, by which the record "
                    f"is integrated out; got {self.record.name} ~ "
                    f"{self.record.owner.op} ({shown(str(error))})."
                ) from None


def model_of(record: Any, model: Any) -> Model:
    """Return the model that a variable is part of: the one given, or whichever holds it."""
    if not isinstance(record, TensorVariable) or record.owner is None:
        raise RecordError(
            "record must be a random variable of a PyMC model, the law of one record; got "
            f"{shown(record)}."
        )
    if model is not None:
        return model
    with_context = pm.modelcontext(None) if Model.get_context(error_if_none=False) else None
    if with_context is not None and record in set(with_context.basic_RVs):
        return with_context
    if (known := _models.get(record)) is not None and (found := known()) is not None:
        return found
    # A variable does not know its model, and a stream is often opened after the model is written.
    # By type(): what else is alive may answer isinstance by a function of its own.
    alive = [one for one in gc.get_objects() if issubclass(type(one), Model)]
    holding = [one for one in alive if any(rv is record for rv in one.basic_RVs)]
    if len({id(one) for one in holding}) != 1:
        raise RecordError(
            "record must be a random variable of one PyMC model, or model= must say of which; got "
            f"{shown(record.name)}, a variable of {len(holding)}."
        )
    _models[record] = ref(holding[0])
    return holding[0]


# To look for a model among all that is alive takes a good part of a second.
_models: WeakKeyDictionary[TensorVariable, ref[Model]] = WeakKeyDictionary()


def check_stream_model(model: Model, record: TensorVariable) -> None:
    """Refuse a model that has data, or more than one record."""
    if record not in set(model.basic_RVs):
        raise RecordError(
            "record must be a random variable of the model, the law of one record; got "
            f"{shown(record.name)}, which the model has not drawn itself."
        )
    if record in set(model.observed_RVs):
        raise RecordError(
            f"The record {record.name} must not be observed: it is each user's own, and what is "
            "observed are the releases, which update() takes; got data."
        )
    if model.observed_RVs or model.potentials:
        others = [rv.name for rv in (*model.observed_RVs, *model.potentials)]
        raise RecordError(
            "The model of a stream must have priors and the law of one record, and nothing "
            f"observed, because particles start from the prior; got {', '.join(others)}."
        )


def _is_tensor(variable: Variable) -> bool:
    return isinstance(variable, TensorVariable)


def _cut(vector: TensorVariable, start: int, shape: Sequence[int]) -> TensorVariable:
    """Return a part of a vector in a shape; a reshape would forget which axes are 1."""
    if not shape:
        return vector[start]
    if len(shape) == 1:
        return vector[start : start + shape[0]]
    size = int(np.prod(shape[1:]))
    return pt.stack([_cut(vector, start + k * size, shape[1:]) for k in range(shape[0])])


def _length(record: TensorVariable) -> int | None:
    """Return how many entries a record has, or None where it is one number."""
    op = record.owner.op
    scalar = getattr(op, "ndim_supp", 0) == 0
    if record.ndim == 0 and scalar:
        return None
    if record.ndim != 1 or not (scalar or isinstance(op, MvNormalRV)):
        raise RecordError(
            "A record must be one number, or a vector whose entries have laws of their own that "
            f"PyMC knows (any of independent entries, or a Normal one); got {record.name} ~ {op} "
            f"with {record.ndim} dimensions."
        )
    length = record.type.shape[0]
    if length is None:
        length = int(record.shape[0].eval())
    return int(length)
