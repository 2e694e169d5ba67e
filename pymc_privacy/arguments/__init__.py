"""The one door for numbers, names and choices: what passes is what its type says, and no more.

A number is real and finite, and is not a bool, a string, a date, a duration, a complex number, a
mask or a container. Python would take most of these for numbers, and a promise computed from one
is about nothing. Every public constructor and function sends its arguments through here before it
does anything else; what is behind trusts them. Each function returns the value in plain form, or
raises the caller's own error in a sentence: what must hold, what it means, what came.
"""

from pymc_privacy.arguments.names import (
    Neighbours,
    choice,
    function,
    generator,
    instance,
    names,
    neighbours,
    path,
    sentences,
    text,
    title,
)
from pymc_privacy.arguments.numbers import (
    Shape,
    flag,
    has_mask,
    integer,
    integers,
    numbers,
    pair,
    positive,
    probability,
    real,
    reals,
)
from pymc_privacy.arguments.sentences import kind_of, refusal, shown
from pymc_privacy.arguments.step_options import check_step_options

__all__ = [
    "Neighbours",
    "Shape",
    "check_step_options",
    "choice",
    "flag",
    "function",
    "generator",
    "has_mask",
    "instance",
    "integer",
    "integers",
    "kind_of",
    "names",
    "neighbours",
    "numbers",
    "pair",
    "path",
    "positive",
    "probability",
    "real",
    "reals",
    "refusal",
    "sentences",
    "shown",
    "text",
    "title",
]
