"""Write graphs of records for another number of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pymc_privacy._compat import Variable, clone_replace, graph_replace


def with_rows(graphs: Sequence[Variable], replacements: Mapping[Variable, Variable]) -> list[Any]:
    """Return graphs of other variables, whose lengths may differ from those that they replace.

    The number of rows is part of the types, so that all nodes are made anew, draws included: a
    replacement must not contain a draw that is needed once (see `with_rows_of_draws`). What does
    not fit any more raises TypeError, ValueError or AssertionError.
    """
    return clone_replace(list(graphs), dict(replacements), rebuild_strict=False)


def with_rows_of_draws(
    graphs: Sequence[Variable], replacements: Mapping[Variable, Variable]
) -> list[Any]:
    """Do the same with replacements that are drawn: each stays one draw wherever it is used."""
    # Variables of the same types stand for these while all else is copied.
    stand_ins = {old: new.type() for old, new in replacements.items()}
    rebuilt = with_rows(graphs, stand_ins)
    back = {stand_ins[old]: new for old, new in replacements.items()}
    return graph_replace(rebuilt, back, strict=False)
