"""Split a density into sums over the records, and functions of the parameters.

Expanded as a polynomial,

    log f(x | theta) = sum_k a_k(theta) t_k(x),

the density of all records is sum_k a_k(theta) T_k with T_k = sum_i t_k(x_i): once these
are computed, it costs the same for a thousand records as for a million. Exponential
families and linear regressions have this form, written as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce, singledispatch
from itertools import product
from typing import Any, NamedTuple

import pytensor.tensor as pt

from pymc_privacy._compat import Constant, Elemwise, TensorVariable, ancestors, ps, toposort
from pymc_privacy.graph.rows import RowExpressions

MOST_TERMS = 100


class NotSufficient(Exception):
    """A density is not a short polynomial in functions of the records."""


class Term(NamedTuple):
    """One product: functions of a record, times a function of the parameters."""

    atoms: tuple[Any, ...]
    coefficient: Any
    guarded: bool
    """Whether a factor may be infinite where the other is 0, and then counts nothing."""


class Sufficient(NamedTuple):
    """Sums over the records, and the density as a function of their values."""

    statistics: list[TensorVariable]
    density: Callable[[TensorVariable], TensorVariable]
    """From the vector of the sums' values."""


def sufficient(expressions: Iterable[Any], rows: RowExpressions) -> Sufficient:
    """Split the sum over the records of some expressions; raise `NotSufficient` if it is none."""
    expansion = Expansion(rows.columns, rows.constants)
    terms = _collected([term for part in expressions for term in expansion.terms(part)])
    if not rows.columns:
        raise NotSufficient("there is nothing to sum")
    known = {**rows.columns, **rows.constants}
    size = next(iter(rows.columns.values())).shape[0].astype("float64")
    statistics, coefficients = [], []
    for term in terms:
        if term.atoms:
            [column] = _as_tensors([reduce(lambda a, b: a * b, term.atoms)], known)
            statistics.append(column.astype("float64").sum())
        else:
            statistics.append(size)
        coefficients += _as_tensors([term.coefficient], known)

    def density(totals: TensorVariable) -> TensorVariable:
        products = [
            _guarded_product(c, totals[k]) if term.guarded else c * totals[k]
            for k, (c, term) in enumerate(zip(coefficients, terms, strict=True))
        ]
        return reduce(pt.add, products, pt.constant(0.0))

    return Sufficient(statistics, density)


def _guarded_product(coefficient: TensorVariable, total: TensorVariable) -> TensorVariable:
    nothing = pt.eq(coefficient, 0.0) | pt.eq(total, 0.0)
    return pt.switch(nothing, 0.0, coefficient * total)


def _as_tensors(scalars: list[Any], known: dict[Any, TensorVariable]) -> list[TensorVariable]:
    """Return expressions of scalars as the same expressions of tensors."""
    made: dict[Any, Any] = dict(known)
    for node in toposort(scalars):
        inputs = [_tensor(made, part) for part in node.inputs]
        outputs = Elemwise(node.op)(*inputs, return_list=True)
        made.update(zip(node.outputs, outputs, strict=True))
    return [_tensor(made, scalar) for scalar in scalars]


def _tensor(made: dict[Any, Any], scalar: Any) -> Any:
    return pt.constant(scalar.data) if isinstance(scalar, Constant) else made[scalar]


class Expansion:
    """Expand scalar expressions of a record's columns and of constants, the parameters."""

    def __init__(self, columns: Iterable[Any], constants: Iterable[Any]):
        self._columns, self._constants = set(columns), set(constants)
        self._known: dict[Any, list[Term]] = {}
        self._leaves: dict[Any, tuple[bool, bool]] = {}

    def kinds(self, expression: Any) -> tuple[bool, bool]:
        """Tell whether an expression depends on the record, and whether on parameters."""
        if expression not in self._leaves:
            above = set(ancestors([expression]))
            self._leaves[expression] = bool(above & self._columns), bool(above & self._constants)
        return self._leaves[expression]

    def terms(self, expression: Any) -> list[Term]:
        """Return the terms whose sum an expression is."""
        if expression not in self._known:
            found = _collected(self._expanded(expression))
            if len(found) > MOST_TERMS:
                raise NotSufficient(f"{len(found)} terms")
            self._known[expression] = found
        return self._known[expression]

    def _expanded(self, expression: Any) -> list[Term]:
        of_record, of_parameters = self.kinds(expression)
        if not of_record:
            return [Term((), expression, guarded=False)]
        if not of_parameters:
            return [Term((expression,), ps.constant(1.0), guarded=False)]
        node = expression.owner
        return expand(node.op, self, *node.inputs)


def _collected(terms: Iterable[Term]) -> list[Term]:
    """Add up the coefficients of equal products."""
    together: dict[tuple[tuple[Any, ...], bool], list[Any]] = {}
    for term in terms:
        together.setdefault((term.atoms, term.guarded), []).append(term.coefficient)
    return [
        Term(atoms, reduce(ps.add, coefficients), guarded)
        for (atoms, guarded), coefficients in together.items()
    ]


def _times(left: Iterable[Term], right: Iterable[Term]) -> list[Term]:
    return [
        Term(
            tuple(sorted(a.atoms + b.atoms, key=id)),
            a.coefficient * b.coefficient,
            a.guarded or b.guarded,
        )
        for a, b in product(left, right)
    ]


def _scaled(terms: Iterable[Term], change: Callable[[Any], Any]) -> list[Term]:
    return [term._replace(coefficient=change(term.coefficient)) for term in terms]


@singledispatch
def expand(op: Any, expansion: Expansion, *inputs: Any) -> list[Term]:
    """Return the terms of an operation that mixes records and parameters."""
    raise NotSufficient(f"{op} mixes records and parameters")


@expand.register(ps.basic.Add)
def _sum(op, expansion, *inputs):
    return [term for part in inputs for term in expansion.terms(part)]


@expand.register(ps.basic.Sub)
def _difference(op, expansion, left, right):
    return [*expansion.terms(left), *_scaled(expansion.terms(right), lambda c: -c)]


@expand.register(ps.basic.Neg)
def _negative(op, expansion, part):
    return _scaled(expansion.terms(part), lambda c: -c)


@expand.register(ps.basic.Mul)
def _product(op, expansion, *inputs):
    return reduce(_times, (expansion.terms(part) for part in inputs))


@expand.register(ps.basic.Sqr)
def _square(op, expansion, part):
    terms = expansion.terms(part)
    return _times(terms, terms)


@expand.register(ps.basic.Pow)
def _power(op, expansion, part, exponent):
    if not isinstance(exponent, Constant) or exponent.data not in (1, 2, 3, 4):
        raise NotSufficient("a power is not a small number")
    return reduce(_times, [expansion.terms(part)] * int(exponent.data))


@expand.register(ps.basic.TrueDiv)
def _ratio(op, expansion, part, divisor):
    of_record, of_parameters = expansion.kinds(divisor)
    if not of_record:
        return _scaled(expansion.terms(part), lambda c: c / divisor)
    if not of_parameters:
        inverse = [Term((1.0 / divisor,), ps.constant(1.0), guarded=False)]
        return _times(expansion.terms(part), inverse)
    raise NotSufficient("a divisor mixes records and parameters")


@expand.register(ps.basic.Cast)
@expand.register(ps.basic.Identity)
def _same(op, expansion, part):
    return expansion.terms(part)


@expand.register(ps.basic.Second)
def _second(op, expansion, _, part):
    return expansion.terms(part)


@expand.register(ps.basic.Switch)
def _choice(op, expansion, condition, left, right):
    of_record, of_parameters = expansion.kinds(condition)
    if not of_record:
        return [
            *_scaled(expansion.terms(left), lambda c: ps.switch(condition, c, 0.0)),
            *_scaled(expansion.terms(right), lambda c: ps.switch(condition, 0.0, c)),
        ]
    if of_parameters:
        return _mixed_choice(expansion, condition, left, right)
    return [
        *(_where(condition, term) for term in expansion.terms(left)),
        *(_where(ps.eq(condition, False), term) for term in expansion.terms(right)),
    ]


def _where(condition: Any, term: Term) -> Term:
    """Let a term count only for records that meet a condition."""
    value = reduce(lambda a, b: a * b, term.atoms, ps.constant(1.0))
    return Term((ps.switch(condition, value, 0.0),), term.coefficient, guarded=True)


def _mixed_choice(expansion, condition, left, right):
    """Take apart "both hold" where one condition is on the record, one on the parameters."""
    parts = condition.owner.inputs if condition.owner else ()
    both = isinstance(condition.owner.op, ps.basic.Mul | ps.basic.AND) if parts else False
    if not both or len(parts) != 2:
        raise NotSufficient("a condition mixes records and parameters")
    kinds = [expansion.kinds(part) for part in parts]
    if sorted(kinds) != [(False, True), (True, False)]:
        raise NotSufficient("a condition mixes records and parameters")
    on_parameters, on_record = parts if kinds[0] == (False, True) else parts[::-1]
    inner = ps.switch(on_record, left, right)
    return expansion.terms(ps.switch(on_parameters, inner, right))
