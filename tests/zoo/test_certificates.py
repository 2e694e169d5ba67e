"""Every model of the zoo: what is compiled from it agrees with the model, without sampling.

Programs are evaluated by PyTensor's interpreter, which takes tenths of a second for each model
where machine code takes half a minute.
"""

import pytest

from pymc_privacy._compat import INTERPRETED
from pymc_privacy.certificate.base import Reference, prior_pairs
from pymc_privacy.certificate.parameters import compare_parameters
from pymc_privacy.certificate.records import compare_records
from pymc_privacy.densities.noise import noise_of
from pymc_privacy.model.assignment import assign_records
from pymc_privacy.model.database import find_databases
from pymc_privacy.model.marks import is_interwoven, is_record
from pymc_privacy.model.points import prior_points
from pymc_privacy.model.releases import released_contributions
from pymc_privacy.targets.interweave import compile_parameters
from pymc_privacy.targets.record_sweep import compile_records
from tests.zoo.models import recipes

RECIPES = recipes()


def compared(model):
    """Return everything that a step method would compare before its first draw."""
    assign_records(model, [], released_contributions(model))
    records = [rv for rv in model.free_RVs if is_record(rv)]
    parameters = [
        model.rvs_to_values[rv] for rv in model.free_RVs if is_interwoven(rv) and not is_record(rv)
    ]
    names = [value.name for value in parameters]
    databases = find_databases(model, records)
    reference = Reference(model)
    draws = prior_points(model, seed=11)
    pairs = prior_pairs(model, names, draws)
    program = compile_parameters(model, parameters, databases, mode=INTERPRETED)
    found = list(compare_parameters(program, databases, reference, pairs, draws))
    for database in databases:
        sweep = compile_records(database, {"mode": INTERPRETED})
        found += compare_records(sweep, database, noise_of(database), reference, pairs)
    return found


def by_cost():
    """Leave most of the zoo to the longer runs: one model takes two or three seconds.

    `make test` certifies as many as it takes to meet every part, the fast tests a quarter of these.
    """
    seen, chosen = set(), 0
    for recipe in RECIPES:
        marks = [pytest.mark.exhaustive]
        if not seen.issuperset(recipe.parts):
            seen.update(recipe.parts)
            marks = [pytest.mark.slow] if chosen % 4 else []
            chosen += 1
        yield pytest.param(recipe, marks=marks, id=recipe.name)


@pytest.mark.parametrize("recipe", by_cost())
def test_what_is_compiled_agrees_with_the_model(recipe):
    found = compared(recipe.build())
    assert any(comparison.is_informative for comparison in found)
    wrong = [str(comparison) for comparison in found if not comparison.agrees]
    assert not wrong, wrong[0]


def test_the_zoo_is_large_and_has_no_twins():
    names = [recipe.name for recipe in RECIPES]
    assert len(set(names)) == len(names) >= 200


def test_every_part_is_certified_before_a_change_is_merged():
    run = [case for case in by_cost() if pytest.mark.exhaustive not in case.marks]
    assert len(run) < len(RECIPES) / 3
    seen = {part for case in run for part in case.values[0].parts}
    assert seen == {part for recipe in RECIPES for part in recipe.parts}
