"""The package keeps its shape: an order of layers, a pure half, one door to PyMC, small files."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pymc.step_methods import STEP_METHODS

import pymc_privacy as pmp
from pymc_privacy import step_methods

PACKAGE = Path(pmp.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
PURE = ("accounting", "algorithms", "arguments", "errors", "mechanisms", "published", "sanitize")
PPL = {"pymc", "pytensor", "arviz", "arviz_base", "arviz_stats", "arviz_plots", "xarray"}
LABELLED = {"arviz", "arviz_base", "arviz_stats", "arviz_plots", "xarray"}
OPEN_DOORS = {"pymc", "pytensor.tensor"}  # what anyone may import, as `pm` and `pt`
LONGEST = 600

each_file = pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))


def module_of(path):
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


def is_pure(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0] in PURE


def imported(path):
    """Every module that a file imports, at the top or inside a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide which layer is meant"
            yield node.module
            # `from package import module` imports the module as well.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(module):
    """Return the first name below the package, or None for a module of somebody else."""
    parts = module.split(".")
    return parts[1] if parts[0] == "pymc_privacy" and len(parts) > 1 else None


# An import may only point to a line above its own.
LAYERS = (
    "errors",
    "arguments",
    "_compat",
    "accounting",
    "mechanisms",
    "sanitize",
    "published",
    "algorithms",
    "reparameterise",
    "functions",
    "model",
    "distributions",
    "densities",
    "targets",
    "certificate",
    "step_methods",
    "results",
    "studies",
    "inference",
    "plots",
)


def test_every_room_has_its_place_in_the_order():
    rooms = {path.relative_to(PACKAGE).with_suffix("").parts[0] for path in FILES} - {"__init__"}
    assert rooms == set(LAYERS)


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.parent != PACKAGE or path.name != "__init__.py"],
    ids=lambda p: str(p.relative_to(PACKAGE)),
)
def test_imports_point_to_layers_above(path):
    own = LAYERS.index(layer(module_of(path)))
    modules = {module for module in imported(path) if layer(module) in LAYERS}
    assert "pymc_privacy" not in set(imported(path)), "the whole package is below every layer"
    below = {module for module in modules if LAYERS.index(layer(module)) > own}
    assert not below, f"{layer(module_of(path))} may not import {below}"


def test_no_modules_import_each_other_in_a_circle():
    names = {module_of(path) for path in FILES}
    left = {module_of(path): {m for m in imported(path) if m in names} for path in FILES}
    # A package is imported with any of its modules, and its own __init__ imports these.
    left = {m: found - {m, m.rpartition(".")[0]} for m, found in left.items()}
    while free := {module for module, found in left.items() if not found & left.keys()}:
        left = {module: found for module, found in left.items() if module not in free}
    assert not left


def test_each_sampler_is_one_stem_in_three_rooms():
    targets = {path.stem for path in (PACKAGE / "targets").glob("*.py")}
    # An ascent draws no posterior, a stream has its own loop, independent draws need none; fresh
    # databases, effects and sizes of groups are part of Interweave: these have no step method.
    without = {"ascent", "ibis", "importance", "refresh", "group_effects", "group_sizes"}
    samplers = targets - {"__init__", "base", "by_address"} - without
    assert without <= {path.stem for path in (PACKAGE / "algorithms").glob("*.py")}
    assert samplers == {"record_sweep", "interweave", "count_states", "birth_death", "lattice_walk"}
    for room in ("algorithms", "step_methods"):
        assert samplers <= {path.stem for path in (PACKAGE / room).glob("*.py")}


@pytest.mark.parametrize("path", filter(is_pure, FILES), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_the_pure_half_knows_neither_pymc_nor_the_other_half(path):
    modules = set(imported(path))
    assert not {module.split(".")[0] for module in modules} & PPL
    assert {layer(module) for module in modules} - {None} <= set(PURE)
    assert "pymc_privacy" not in modules


IMPORT_THE_PURE_HALF = """
import importlib, sys, types
package = types.ModuleType("pymc_privacy")
package.__path__ = [sys.argv[1]]
sys.modules["pymc_privacy"] = package
for name in sys.argv[2:]:
    importlib.import_module(name)
print("\\n".join(sorted({name.split(".")[0] for name in sys.modules})))
"""


def test_the_pure_half_imports_without_pymc():
    # A stand-in for the package, so that its __init__, which is the other half, is not run.
    modules = [module_of(path) for path in FILES if is_pure(path)]
    assert "pymc_privacy.mechanisms.laplace" in modules
    command = [sys.executable, "-c", IMPORT_THE_PURE_HALF, str(PACKAGE), *modules]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" in found
    assert not PPL & set(found)


@each_file
def test_only_compat_imports_internals_of_pymc(path):
    internals = {
        module
        for module in imported(path)
        if module.split(".")[0] in {"pymc", "pytensor"} and module not in OPEN_DOORS
    }
    if path.name == "_compat.py":
        assert internals
    else:
        assert not internals


@each_file
def test_only_results_touches_xarray(path):
    labelled = {module.split(".")[0] for module in imported(path)} & LABELLED
    if path.name == "results.py":
        assert labelled
    else:
        assert not labelled


@each_file
def test_files_are_short_and_named_after_what_they_hold(path):
    length = len(path.read_text(encoding="utf-8").splitlines())
    assert length <= LONGEST, f"{length} lines"
    names = path.relative_to(PACKAGE).with_suffix("").parts
    assert not {"utils", "helpers", "common", "misc"} & set(names)


def test_step_methods_carry_and_do_no_more():
    """What grows here beyond this is mathematics, or reads a model: there are rooms for both."""
    files = (PACKAGE / "step_methods").glob("*.py")
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= 1250


@each_file
def test_every_file_says_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@each_file
def test_nothing_draws_from_the_global_generator(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    drawn = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and ast.unparse(node.value) in {"np.random", "numpy.random"}
    }
    assert drawn <= {"Generator", "default_rng", "SeedSequence"}


ROOT = PACKAGE.parent


def test_the_page_on_architecture_names_files_that_exist():
    if not (ROOT / "docs").is_dir():
        pytest.skip("The docs are not beside the package.")
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    # A file without its room names none: several are called interweave.py.
    named = set(re.findall(r"`([\w/]+\.py)`", page))
    assert len(named) > 50
    assert not {n for n in named if not (PACKAGE / n).exists() and not (ROOT / n).exists()}


def test_the_picture_of_the_layers_is_up_to_date():
    script = ROOT / "scripts" / "draw_house.py"
    if not script.exists():
        pytest.skip("The scripts are not beside the package.")
    assert subprocess.run([sys.executable, script, "--check"], check=False).returncode == 0


def test_registering_again_changes_nothing():
    before = list(STEP_METHODS)
    step_methods.register_step_methods()
    importlib.reload(step_methods)
    importlib.reload(pmp)
    assert before == STEP_METHODS
    assert before.count(pmp.RecordSweep) == 1


@pytest.mark.parametrize("name", pmp.__all__)
def test_public_names_are_explained_by_an_example(name):
    public = getattr(pmp, name)
    text = inspect.getdoc(public)
    assert text, "no docstring"
    assert public.__doc__ is not None, "the docstring is inherited"
    assert "Examples\n--------" in text
    assert ">>>" in text


def test_public_names_are_sorted_and_complete():
    # Names in capitals come first, as Ruff sorts them.
    assert pmp.__all__ == sorted(pmp.__all__, key=lambda name: (not name.isupper(), name))
    public = {
        name
        for name, value in vars(pmp).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public - {"register_step_methods"} == set(pmp.__all__)


CACHES = {"algorithms/machine_code/caching.py", "algorithms/machine_code/binding.py"}


@each_file
def test_machine_code_is_kept_by_fingerprint_only(path):
    """The compiler's own disk cache would go on using an edited callee's old code."""
    if str(path.relative_to(PACKAGE)) in CACHES:
        return
    keywords = (
        keyword.arg
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and "jit" in ast.unparse(node.func)
        for keyword in node.keywords
    )
    assert "cache" not in keywords
