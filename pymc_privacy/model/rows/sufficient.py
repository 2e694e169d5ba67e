"""Split a density into sums over the records, and functions of the parameters.

Expanded as a polynomial,

    log f(x | theta) = sum_k a_k(theta) t_k(x),

the density of all records is sum_k a_k(theta) T_k with T_k = sum_i t_k(x_i): once these
are computed, it costs the same for a thousand records as for a million. Exponential
families and linear regressions have this form, written as they are.

Functions of a record are expanded around their means: far from zero, the sum of (x - mu)² would
be a small difference of large numbers, and

    sum (x_i - mu)² = sum (x_i - r)² + 2 (r - mu) sum (x_i - r) + n (r - mu)²

is not, with r the mean of the x_i or anything near it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce, singledispatch
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import Constant, Elemwise, TensorVariable, ancestors, ps, toposort
from pymc_privacy.model.rows.expressions import RowExpressions
from pymc_privacy.model.rows.products import MANY_SUMS
from pymc_privacy.model.rows.sums import row_sums

# A linear regression on 20 covariates has 231.
MOST_TERMS = 300


class NotSufficient(Exception):
    """A density is not a short polynomial in functions of the records."""


class Atom(NamedTuple):
    """A function of a record."""

    number: int
    """In the order in which they were met, which is the same whenever the model is read."""
    expression: Any


class Term(NamedTuple):
    """One product: functions of a record, times a function of the parameters."""

    atoms: tuple[Atom, ...]
    coefficient: Any
    guarded: bool
    """Whether a factor may be infinite where the other is 0, and then counts nothing."""


class Sufficient(NamedTuple):
    """Sums over the records, and the density as a function of their values."""

    statistics: list[TensorVariable]
    """The means that functions of a record are expanded around, and the sums of products."""
    density: Callable[[TensorVariable], TensorVariable]
    """From the vector of these values."""


def sufficient(expressions: Iterable[Any], rows: RowExpressions) -> Sufficient:
    """Split the sum over the records of some expressions; raise `NotSufficient` if it is none."""
    expansion = Expansion(rows.columns, rows.constants)
    terms = _collected([term for part in expressions for term in expansion.terms(part)])
    if not rows.columns:
        raise NotSufficient("there is nothing to sum")
    known = {**rows.columns, **rows.constants}
    size = next(iter(rows.columns.values())).shape[0].astype("float64")
    means = [_mean(part, size) for part in _as_tensors(list(expansion.means.values()), known)]
    known |= dict(zip(expansion.means, means, strict=True))
    sums = _sums_of([term.atoms for term in terms], rows, expansion, known, size)

    def density(totals: TensorVariable) -> TensorVariable:
        given = rows.constants | {r: totals[k] for k, r in enumerate(expansion.means)}
        coefficients = _as_tensors([term.coefficient for term in terms], given)
        products = [
            _guarded_product(c, totals[k]) if term.guarded else c * totals[k]
            for k, (c, term) in enumerate(zip(coefficients, terms, strict=True), start=len(means))
        ]
        return reduce(pt.add, products, pt.constant(0.0))

    return Sufficient([*means, *sums], density)


def _sums_of(
    products: Sequence[tuple[Atom, ...]],
    rows: RowExpressions,
    expansion: Expansion,
    known: dict[Any, TensorVariable],
    size: TensorVariable,
) -> list[TensorVariable]:
    """Return the sum of each product over the records: many of them in one loop."""
    several = [atoms for atoms in products if atoms]
    if len(several) < MANY_SUMS:
        return [size if not atoms else _sum_of(atoms, known) for atoms in products]
    constants = rows.constants | {mean: known[mean] for mean in expansion.means}
    expressions = [_product_of(atoms) for atoms in several]
    sums = iter(row_sums(expressions, rows.columns, constants))
    return [next(sums) if atoms else size for atoms in products]


def _mean(column: TensorVariable, size: TensorVariable) -> TensorVariable:
    """Return a value near all others, or 0 where some are infinite or there are none."""
    mean = column.astype("float64").sum() / pt.maximum(size, 1.0)
    return pt.switch(pt.isinf(mean) | pt.isnan(mean), 0.0, mean)


def _sum_of(atoms: Iterable[Atom], known: dict[Any, TensorVariable]) -> TensorVariable:
    [column] = _as_tensors([_product_of(atoms)], known)
    return column.astype("float64").sum()


def _product_of(atoms: Iterable[Atom]) -> Any:
    return reduce(lambda a, b: a * b, [atom.expression for atom in atoms])


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
    """Expand scalar expressions of a record's columns and of constants, the parameters.

    Attributes
    ----------
    means : dict
        Functions of a record, by the scalar that stands for their mean.
    """

    def __init__(self, columns: Iterable[Any], constants: Iterable[Any]):
        self._columns, self._constants = set(columns), set(constants)
        self._known: dict[Any, list[Term]] = {}
        self._leaves: dict[Any, tuple[bool, bool]] = {}
        self._centred: dict[Any, list[Term]] = {}
        self._atoms: dict[Any, Atom] = {}
        self.means: dict[Any, Any] = {}

    def kinds(self, expression: Any) -> tuple[bool, bool]:
        """Tell whether an expression depends on the record, and whether on parameters."""
        if expression not in self._leaves:
            above = set(ancestors([expression]))
            self._leaves[expression] = bool(above & self._columns), bool(above & self._constants)
        return self._leaves[expression]

    def terms(self, expression: Any) -> list[Term]:
        """Return the terms whose sum an expression is."""
        if expression not in self._known:
            of_record, of_parameters = self.kinds(expression)
            if not of_record:
                found = [Term((), expression, guarded=False)]
            elif not of_parameters:
                found = [Term((self.atom(expression),), ps.constant(1.0), guarded=False)]
            else:
                found = _collected(self._expanded(expression))
            if len(found) > MOST_TERMS:
                raise NotSufficient(f"{len(found)} terms")
            self._known[expression] = found
        return self._known[expression]

    def parts(self, expression: Any) -> list[Term]:
        """Return the terms of what is mixed with parameters: around its mean, if of the record."""
        if self.kinds(expression) != (True, False) or expression.dtype == "bool":
            return self.terms(expression)
        if expression not in self._centred:
            mean = ps.float64()
            self.means[mean] = expression
            self._centred[expression] = [
                Term((self.atom(expression - mean),), ps.constant(1.0), guarded=False),
                Term((), mean, guarded=False),
            ]
        return self._centred[expression]

    def atom(self, expression: Any) -> Atom:
        """Return a function of the record under its number."""
        return self._atoms.setdefault(expression, Atom(len(self._atoms), expression))

    def _expanded(self, expression: Any) -> list[Term]:
        # Smaller types wrap around or are rounded, and truth values do not add up.
        if expression.dtype not in ("float64", "int64"):
            raise NotSufficient(f"records and parameters are mixed as {expression.dtype}")
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
            tuple(sorted(a.atoms + b.atoms, key=lambda atom: atom.number)),
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
def _sum(op: Any, expansion: Expansion, *inputs: Any) -> list[Term]:
    return [term for part in inputs for term in expansion.parts(part)]


@expand.register(ps.basic.Sub)
def _difference(op: Any, expansion: Expansion, left: Any, right: Any) -> list[Term]:
    return [*expansion.parts(left), *_scaled(expansion.parts(right), lambda c: -c)]


@expand.register(ps.basic.Neg)
def _negative(op: Any, expansion: Expansion, part: Any) -> list[Term]:
    return _scaled(expansion.parts(part), lambda c: -c)


@expand.register(ps.basic.Mul)
def _product(op: Any, expansion: Expansion, *inputs: Any) -> list[Term]:
    return reduce(_times, (expansion.parts(part) for part in inputs))


@expand.register(ps.basic.Sqr)
def _square(op: Any, expansion: Expansion, part: Any) -> list[Term]:
    terms = expansion.parts(part)
    return _times(terms, terms)


@expand.register(ps.basic.Pow)
def _power(op: Any, expansion: Expansion, part: Any, exponent: Any) -> list[Term]:
    if not isinstance(exponent, Constant) or exponent.data not in (1, 2, 3, 4):
        raise NotSufficient("a power is not a small number")
    return reduce(_times, [expansion.parts(part)] * int(exponent.data))


@expand.register(ps.basic.TrueDiv)
def _ratio(op: Any, expansion: Expansion, part: Any, divisor: Any) -> list[Term]:
    of_record, of_parameters = expansion.kinds(divisor)
    if not of_record:
        return _scaled(expansion.parts(part), lambda c: c / divisor)
    if not of_parameters:
        return _times(expansion.parts(part), expansion.parts(1.0 / divisor))
    raise NotSufficient("a divisor mixes records and parameters")


@expand.register(ps.basic.Cast)
def _cast(op: Any, expansion: Expansion, part: Any) -> list[Term]:
    if not np.can_cast(part.dtype, op.o_type.dtype, casting="safe"):
        raise NotSufficient(f"a mix of records and parameters is rounded to {op.o_type.dtype}")
    return expansion.parts(part)


@expand.register(ps.basic.Identity)
def _same(op: Any, expansion: Expansion, part: Any) -> list[Term]:
    return expansion.parts(part)


@expand.register(ps.basic.Second)
def _second(op: Any, expansion: Expansion, _: Any, part: Any) -> list[Term]:
    return expansion.parts(part)


@expand.register(ps.basic.Switch)
def _choice(op: Any, expansion: Expansion, condition: Any, left: Any, right: Any) -> list[Term]:
    of_record, of_parameters = expansion.kinds(condition)
    if not of_record:
        return [
            *_scaled(expansion.parts(left), lambda c: ps.switch(condition, c, 0.0)),
            *_scaled(expansion.parts(right), lambda c: ps.switch(condition, 0.0, c)),
        ]
    if of_parameters:
        return _mixed_choice(expansion, condition, left, right)
    return [
        *(_where(expansion, condition, term) for term in expansion.parts(left)),
        *(_where(expansion, ps.eq(condition, False), term) for term in expansion.parts(right)),
    ]


def _where(expansion: Expansion, condition: Any, term: Term) -> Term:
    """Let a term count only for records that meet a condition."""
    value = _product_of(term.atoms) if term.atoms else ps.constant(1.0)
    atom = expansion.atom(ps.switch(condition, value, 0.0))
    return Term((atom,), term.coefficient, guarded=True)


def _mixed_choice(expansion: Expansion, condition: Any, left: Any, right: Any) -> list[Term]:
    """Take apart "both hold" where one condition is on the record, one on the parameters."""
    parts: Sequence[Any] = condition.owner.inputs if condition.owner else ()
    both = isinstance(condition.owner.op, ps.basic.Mul | ps.basic.AND) if parts else False
    if not both or len(parts) != 2:
        raise NotSufficient("a condition mixes records and parameters")
    kinds = [expansion.kinds(part) for part in parts]
    if sorted(kinds) != [(False, True), (True, False)]:
        raise NotSufficient("a condition mixes records and parameters")
    on_parameters, on_record = parts if kinds[0] == (False, True) else parts[::-1]
    inner = ps.switch(on_record, left, right)
    return expansion.parts(ps.switch(on_parameters, inner, right))
