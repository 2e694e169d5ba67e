"""What the package imports is declared, and what is declared is imported."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import pymc_privacy as pmp

PACKAGE = Path(pmp.__file__).parent
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
INSTALLED = packages_distributions()
# Nobody who uses the package installs these.
NOT_FOR_USERS = {"test", "docs"}
GUARDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Try, ast.TryStar)


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements):
    return {normalised(re.match(r"[\w.-]+", line).group()) for line in requirements}


REQUIRED = names(PROJECT["dependencies"])
OPTIONAL = set().union(
    *(
        names(lines)
        for extra, lines in PROJECT["optional-dependencies"].items()
        if extra not in NOT_FOR_USERS
    )
)


def distributions(module):
    """Return what provides a module; one that is not installed is taken to be called like it."""
    return {normalised(name) for name in INSTALLED.get(module, [module])}


def imported(node, *, guarded=False):
    """Yield each top-level module, and whether the file can be imported without it."""
    if isinstance(node, ast.Import):
        yield from ((alias.name.partition(".")[0], guarded) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0:
        yield node.module.partition(".")[0], guarded
    for child in ast.iter_child_nodes(node):
        yield from imported(child, guarded=guarded or isinstance(node, GUARDS))


def third_party(path):
    for module, guarded in imported(ast.parse(path.read_text(encoding="utf-8"))):
        if module not in sys.stdlib_module_names and module != PACKAGE.name:
            yield module, guarded


def undeclared(path):
    return {
        module
        for module, guarded in third_party(path)
        if not distributions(module) & (REQUIRED | OPTIONAL if guarded else REQUIRED)
    }


def test_every_import_is_declared():
    missing = {str(path.relative_to(PACKAGE)): undeclared(path) for path in PACKAGE.rglob("*.py")}
    missing = {name: modules for name, modules in missing.items() if modules}
    assert not missing, f"pyproject.toml does not declare {missing}"


def test_every_dependency_is_imported():
    used = {module for path in PACKAGE.rglob("*.py") for module, _ in third_party(path)}
    unused = REQUIRED - set().union(*map(distributions, used))
    assert not unused, f"nothing imports {sorted(unused)}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import made_up_module", {"made_up_module"}),
        ("from made_up_module.part import name", {"made_up_module"}),
        ("def f():\n    import made_up_module", {"made_up_module"}),
        ("try:\n    import made_up_module\nexcept ImportError:\n    pass", {"made_up_module"}),
        ("class C:\n    import matplotlib", {"matplotlib"}),
        ("def f():\n    import pytest", {"pytest"}),
        ("def f():\n    import matplotlib.pyplot as plt", set()),
        ("try:\n    import opendp\nexcept ImportError:\n    pass", set()),
        ("import json\nimport numpy.linalg\nfrom arviz_stats import ess", set()),
    ],
)
def test_an_undeclared_import_is_noticed(tmp_path, source, expected):
    path = tmp_path / "made_up.py"
    path.write_text(source)
    assert undeclared(path) == expected


def test_annotations_are_offered_to_type_checkers():
    assert (PACKAGE / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["classifiers"]
