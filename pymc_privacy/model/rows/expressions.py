"""Write what a tensor says of one record as an expression of scalars.

A density of n independent records is a sum of n equal expressions of a record's own values
and of parameters. Written out for one record, it can be summed in a single loop
(`sums`), differentiated in it, or split into statistics of the records and
functions of the parameters (`sufficient`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce, singledispatchmethod
from typing import Any

import pytensor.tensor as pt

from pymc_privacy._compat import (
    AdvancedSubtensor,
    Alloc,
    Apply,
    CAReduce,
    CheckParameterValue,
    Constant,
    DimShuffle,
    Dot,
    Elemwise,
    Join,
    NotScalarConstantError,
    SpecifyShape,
    Subtensor,
    TensorVariable,
    Variable,
    ancestors,
    get_scalar_type,
    get_underlying_scalar_constant_value,
    indices_from_subtensor,
    ps,
    rewrite_graph,
)

MOST_UNROLLED = 32
ROW = "row"
Index = tuple[Any, ...]


class NotByRows(Exception):
    """A tensor is not made of one scalar expression per record that is known here."""


class NotAligned(NotByRows):
    """A tensor has other rows than the records."""


def simplified(tensors: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Rewrite log(exp(x)) and the like, which a loop over scalars would compute as they stand."""
    return list(rewrite_graph(list(tensors), include=("canonicalize", "stabilize"), clone=True))


class RowExpressions:
    """Scalar expressions of one record, and the tensors that their inputs stand for.

    Parameters
    ----------
    leaves
        Tensors with the records on their first axis.
    parameters
        Tensors that change while the records do not. What does not depend on them may be any
        function of records and data: where it cannot be written out, it becomes a column.

    Attributes
    ----------
    columns : dict
        Vectors over the records, by the scalar that stands for one of their elements.
    constants : dict
        Tensors without dimensions, the same for every record, by the scalar that stands
        for them.
    """

    def __init__(self, leaves: Iterable[TensorVariable], parameters: Iterable[Variable]):
        self._leaves = set(leaves)
        self._parameters = set(parameters)
        self._depends: dict[Variable, bool] = {}
        self._known: dict[tuple[Variable, Index], Any] = {}
        self.columns: dict[Any, TensorVariable] = {}
        self.constants: dict[Any, TensorVariable] = {}

    def depends_on_records(self, variable: Variable) -> bool:
        """Tell whether a variable is a function of the leaves."""
        if variable not in self._depends:
            self._depends[variable] = bool(self._leaves & set(ancestors([variable])))
        return self._depends[variable]

    def of(self, tensor: TensorVariable) -> Any:
        """Return one record's sum over all coordinates of a tensor (n, …), as a scalar."""
        if tensor.ndim == 0:
            raise NotByRows(f"{tensor} has no rows")
        width = tensor.type.shape[1:]
        _small(width)
        return reduce(ps.add, [self.trace(tensor, (ROW, *index)) for index in _every_index(width)])

    def trace(self, variable: TensorVariable, index: Index) -> Any:
        """Return an element of a tensor as a scalar; `ROW` stands for the record's own row."""
        index = tuple(
            0 if flat else entry
            for entry, flat in zip(index, variable.type.broadcastable, strict=True)
        )
        key = (variable, index)
        if key not in self._known:
            self._known[key] = self._traced(variable, index)
        return self._known[key]

    def _traced(self, variable: TensorVariable, index: Index) -> Any:
        if ROW not in index:
            if self.depends_on_records(variable):
                raise NotByRows(f"{variable} mixes records")
            return self._constant(variable, index)
        if variable.owner is None:
            return self._column(variable, index)
        try:
            return self._through(variable.owner.op, variable.owner, variable, index)
        except NotAligned:
            raise
        except NotByRows:
            return self._column(variable, index)

    def _constant(self, variable: TensorVariable, index: Index) -> Any:
        element = variable[index] if index else variable
        try:
            value = get_underlying_scalar_constant_value(element)
        except NotScalarConstantError:
            scalar = get_scalar_type(variable.dtype)()
            self.constants[scalar] = element
            return scalar
        return ps.constant(value, dtype=variable.dtype)

    def _column(self, variable: TensorVariable, index: Index) -> Any:
        # A column has no derivative by the parameters, and is no statistic of the records.
        if self._parameters & set(ancestors([variable])):
            raise NotByRows(f"{variable} moves, and has a value of its own for each record")
        if variable in self._leaves and index[0] is not ROW:
            raise NotByRows(f"{variable} has its records on another axis")
        if index.count(ROW) != 1:
            raise NotByRows(f"{variable} pairs records")
        scalar = get_scalar_type(variable.dtype)()
        self.columns[scalar] = variable[tuple(slice(None) if i is ROW else i for i in index)]
        return scalar

    @singledispatchmethod
    def _through(self, op: Any, node: Apply, variable: TensorVariable, index: Index) -> Any:
        raise NotByRows(f"{op} is not applied to each element alone")

    @_through.register
    def _(self, op: Elemwise, node: Apply, variable: TensorVariable, index: Index) -> Any:
        inputs = _apart([self.trace(part, index) for part in node.inputs])
        return op.scalar_op.make_node(*inputs).outputs[node.outputs.index(variable)]

    @_through.register
    def _(self, op: DimShuffle, node: Apply, variable: TensorVariable, index: Index) -> Any:
        [part] = node.inputs
        entries: list[Any] = [0] * part.ndim
        for entry, source in zip(index, op.new_order, strict=True):
            if source != "x":
                entries[source] = entry
        return self.trace(part, tuple(entries))

    @_through.register
    def _(self, op: Subtensor, node: Apply, variable: TensorVariable, index: Index) -> Any:
        part, *parameters = node.inputs
        chosen = list(indices_from_subtensor(parameters, op.idx_list))
        chosen += [slice(None)] * (part.ndim - len(chosen))
        rest = iter(index)
        return self.trace(part, tuple(_position(c, rest) for c in chosen))

    @_through.register
    def _(self, op: AdvancedSubtensor, node: Apply, variable: TensorVariable, index: Index) -> Any:
        """Look a row up in a table that is the same for all records."""
        table, *parameters = node.inputs
        first, *others = indices_from_subtensor(parameters, op.idx_list)
        plain = isinstance(first, Variable) and first.ndim == 1 and first.dtype != "bool"
        if not plain or others or self.depends_on_records(table) or index[0] is not ROW:
            raise NotByRows("a table is looked up in more than one dimension")
        length = table.type.shape[0]
        _small([length])
        place = self.trace(first, (ROW,))
        if not (isinstance(first, Constant) and (first.data >= 0).all()):
            # A negative place is counted from the end.
            place = ps.switch(ps.lt(place, 0), place + length, place)
        rows = [self.trace(table, (k, *index[1:])) for k in range(length)]
        found = rows[-1]
        for k in range(length - 1):
            found = ps.switch(ps.eq(place, k), rows[k], found)
        return found

    @_through.register
    def _(self, op: Join, node: Apply, variable: TensorVariable, index: Index) -> Any:
        place = index[op.axis]
        if place is ROW:
            raise NotAligned("records are joined")
        for part in node.inputs:
            width = part.type.shape[op.axis]
            if width is None:
                break
            if place < width:
                return self.trace(part, (*index[: op.axis], place, *index[op.axis + 1 :]))
            place -= width
        raise NotByRows("the widths of what is joined are not known")

    @_through.register
    def _(self, op: Alloc, node: Apply, variable: TensorVariable, index: Index) -> Any:
        part = node.inputs[0]
        return self.trace(part, index[len(index) - part.ndim :])

    @_through.register
    def _(self, op: SpecifyShape, node: Apply, variable: TensorVariable, index: Index) -> Any:
        return self.trace(node.inputs[0], index)

    @_through.register
    def _(
        self, op: CheckParameterValue, node: Apply, variable: TensorVariable, index: Index
    ) -> Any:
        part, *conditions = node.inputs
        holds = reduce(ps.and_, [self.trace(pt.as_tensor(c), ()) for c in conditions])
        return ps.switch(holds, self.trace(part, index), ps.constant(-float("inf")))

    @_through.register
    def _(self, op: CAReduce, node: Apply, variable: TensorVariable, index: Index) -> Any:
        [part] = node.inputs
        axes = range(part.ndim) if op.axis is None else op.axis
        widths = [part.type.shape[axis] for axis in axes]
        _small(widths)
        terms = []
        for summed in _every_index(widths):
            rest, places = iter(index), dict(zip(axes, summed, strict=True))
            where = tuple(places[k] if k in places else next(rest) for k in range(part.ndim))
            # The sum of truth values is a number, which only its type says.
            terms.append(_as_type(self.trace(part, where), variable.dtype))
        return reduce(op.scalar_op, terms)

    @_through.register
    def _(self, op: Dot, node: Apply, variable: TensorVariable, index: Index) -> Any:
        left, right = node.inputs
        width = left.type.shape[-1] or right.type.shape[0]
        _small([width])
        pairs = [
            _as_type(self.trace(left, (index[0], k)), variable.dtype)
            * _as_type(self.trace(right, (k, index[1])), variable.dtype)
            for k in range(width)
        ]
        return reduce(ps.add, pairs)


def _as_type(scalar: Any, dtype: str) -> Any:
    return scalar if scalar.dtype == dtype else ps.cast(scalar, dtype)


def _apart(scalars: Sequence[Any]) -> list[Any]:
    """Give a scalar that is used twice another name: the derivative of a product asks for it."""
    seen: set[Any] = set()
    different = []
    for scalar in scalars:
        different.append(ps.identity(scalar) if scalar in seen else scalar)
        seen.add(scalar)
    return different


def _position(chosen: Any, rest: Any) -> Any:
    """Return where an index into a slice of a dimension points in the dimension itself."""
    if not isinstance(chosen, slice):
        return _number(chosen)
    entry = next(rest)
    if entry is ROW:
        if chosen != slice(None):
            raise NotAligned("only some records are taken, or in another order")
        return ROW
    start = 0 if chosen.start is None else _number(chosen.start)
    step = 1 if chosen.step is None else _number(chosen.step)
    if start < 0 or step < 0:
        raise NotByRows("a dimension is counted from its end")
    return start + step * entry


def _number(constant: Any) -> int:
    if not isinstance(constant, Constant):
        raise NotByRows("an index is not constant")
    number = int(constant.data)
    if number < 0:
        raise NotByRows("a dimension is counted from its end")
    return number


def _small(widths: Sequence[int | None]) -> None:
    size = 1
    for width in widths:
        if width is None:
            raise NotByRows("the number of coordinates is not known")
        size *= width
    if not 0 < size <= MOST_UNROLLED:
        raise NotByRows(f"{size} coordinates are too many to write out")


def _every_index(widths: Sequence[int]) -> list[tuple[int, ...]]:
    indices: list[tuple[int, ...]] = [()]
    for width in widths:
        indices = [(*index, k) for index in indices for k in range(width)]
    return indices
