"""Call the compiled functions of a model by their addresses.

A move that calls a density by name is compiled with it, once for every model, and that takes far
longer than the density itself. Called by its address, a density is a number to the move, which is
then compiled once for all models.

Such functions have one form, (q, out, context): they read the parameters q, and all else by way of
the context; they fill ``out``, and return a number. A draw reads a generator first. A context is a
list of integers, and a move is given the address where it begins. It begins with those named below.

The other functions stand for those of a model, and are bound to what templates call.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import carray
from numba.core import types
from numba.extending import intrinsic

from pymc_privacy.algorithms.machine_code.caching import compiled

FUNCTION, OUT, OUT_SIZE, SIZE, FREE = range(5)


@intrinsic
def pointer(typingctx, address):
    """Return an integer as a pointer."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(address), generate


@intrinsic
def call_at(typingctx, address, q, out, context):
    """Call a function of q."""
    return types.float64(address, q, out, context), _calling


@intrinsic
def call_with_at(typingctx, address, rng, q, out, context):
    """Call a function of a generator and q."""
    return types.float64(address, rng, q, out, context), _calling


def _calling(context, builder, signature, arguments):
    address, *given = arguments
    kinds = [context.get_value_type(kind) for kind in signature.args[1:]]
    function = ir.FunctionType(context.get_value_type(signature.return_type), kinds)
    return builder.call(builder.inttoptr(address, function.as_pointer()), given)


@compiled
def opened(address):
    """Return a context, and the vector that its function fills."""
    size = carray(pointer(address), (FREE,), np.int64)[SIZE]
    context = carray(pointer(address), (size,), np.int64)
    return context, carray(pointer(context[OUT]), (context[OUT_SIZE],), np.float64)


@compiled
def call(q, address):
    """Return the number of a function, and the vector that it filled, until its next call."""
    context, out = opened(address)
    return call_at(context[FUNCTION], q, out, context), out


@compiled
def call_with(rng, q, address):
    """Return the number of a draw, and the vector that it filled, until its next call."""
    context, out = opened(address)
    return call_with_at(context[FUNCTION], rng, q, out, context), out


@compiled
def statistics(q, records, address):
    """Fill in sums over the records, and return them."""
    return (call(q, address)[1],)


@compiled
def statistics_where_they_are(q, records, keep, address):
    """Do the same for records that may have moved: first they are put where functions look."""
    call(records, keep)
    return (call(q, address)[1],)


@compiled
def centred(q, records, totals, address):
    """Return a log density given records, and its gradient if it has one."""
    value, gradient = call(q, address)
    return np.array(value), gradient


@compiled
def others(q, records, address):
    """Return a log density of all but the records."""
    return (np.array(call(q, address)[0]),)


@compiled
def refresh(rng, q, address):
    """Draw all records given q; return the density of all others there, and them."""
    value, records = call_with(rng, q, address)
    return np.array(value), records.copy()


@compiled
def base(rng, q, records, address):
    """Leave the base variates of the records where functions of them will look."""
    call_with(rng, q, address)
    return ()


@compiled
def fresh(rng, q, address):
    """Leave base variates of fresh records where functions of them will look."""
    call_with(rng, q, address)
    return ()


@compiled
def weight(q, address):
    """Return the log density of base variates, up to a function of these."""
    return (np.array(call(q, address)[0]),)


@compiled
def unweighted(q, address):
    """Return a log density given base variates, without theirs."""
    return (np.array(call(q, address)[0]),)


@compiled
def noncentred(q, address):
    """Return a log density given base variates, and its gradient if it has one."""
    value, gradient = call(q, address)
    return np.array(value), gradient


@compiled
def forward(q, address):
    """Return the records that base variates stand for."""
    return (call(q, address)[1].copy(),)


@compiled
def released(q, address):
    """Return by how much the statistic differs from what was released."""
    return (call(q, address)[1].copy(),)


@compiled
def given_counts(q, counts, address):
    """Return a log density given the counts of records, and its gradient if it has one."""
    value, gradient = call(q, address)
    return np.array(value), gradient


@compiled
def law(q, address):
    """Return a log density of the parameters, and the probabilities of all cells."""
    value, probabilities = call(q, address)
    return np.array(value), probabilities.copy()


@compiled
def noise(totals, address):
    """Return a log density of what was released, given the totals."""
    return (np.array(call(totals, address)[0]),)


FUNCTIONS = {
    function.__name__: function
    for function in (
        statistics,
        centred,
        others,
        refresh,
        base,
        noncentred,
        forward,
        released,
        fresh,
        weight,
        unweighted,
    )
}
