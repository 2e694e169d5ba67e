"""What the README, the demo and the documentation show is true of the package as it is."""

import re
import runpy
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_privacy as pmp

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_every_python_fence_of_the_readme_runs(capsys):
    namespace = {}
    for code in FENCE.findall((ROOT / "README.md").read_text()):
        exec(compile(code, "README.md", "exec"), namespace)
    assert list(namespace["idata"].posterior) == ["mu", "sigma"]
    assert "1-DP (pure)" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pymc_privacy.errors.MixingWarning")
def test_the_demo_prints_its_table_and_draws_its_picture(monkeypatch, tmp_path, capsys):
    sample, picture = pm.sample, tmp_path / "demo.png"

    def few_draws(draws=1000, **kwargs):
        return sample(100, **kwargs | {"tune": 100, "progressbar": False})

    monkeypatch.setattr(pm, "sample", few_draws)
    monkeypatch.setattr("sys.argv", ["survey.py", "--output", str(picture)])
    runpy.run_path(str(ROOT / "examples" / "survey.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "privatized" in printed
    assert "The naive 95% intervals contain" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_sensitivity_of_the_demo_is_the_largest_distance_between_two_contributions():
    survey = runpy.run_path(str(ROOT / "examples" / "survey.py"))
    answers = survey["recode"](np.linspace(-10, 60, 701))
    moves = np.abs(answers[:, None] - answers) + np.abs(answers[:, None] ** 2 - answers**2)
    assert moves.max() == pytest.approx(survey["MECHANISM"].sensitivity)


def test_the_picture_of_the_readme_is_there_and_small():
    assert (ROOT / "docs" / "images" / "survey.png").stat().st_size < 150_000


def test_the_names_and_links_of_the_readme_are_there():
    text = (ROOT / "README.md").read_text()
    names = set(re.findall(r"`pmp\.(\w+)", text))
    assert {"Records", "NoisyCount", "Study", "plot_posteriors", "release"} <= names
    assert not [name for name in names if not hasattr(pmp, name)]
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert len(links) > 5
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_commands_of_the_readme_are_in_the_makefile():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = set(re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert {"demo", "test", "docs"} <= used & targets


def test_the_readme_has_what_a_newcomer_looks_for_in_this_order():
    text = (ROOT / "README.md").read_text()
    parts = [
        "survey.png",
        "## Quickstart",
        "## If you have",
        "## Two commands",
        "## What it is not",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_every_page_of_the_documentation_is_in_the_contents():
    listed = (ROOT / "docs" / "index.md").read_text().split("```{toctree}")[1]
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert not [page for page in pages if f"\n{page}\n" not in listed]


def test_everything_public_is_in_the_reference():
    reference = (ROOT / "docs" / "api.md").read_text()
    missing = [name for name in pmp.__all__ if not re.search(rf":: {name}\b", reference)]
    assert not missing
