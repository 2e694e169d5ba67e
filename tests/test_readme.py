"""What the README, the demo and the documentation show is true of the package as it is."""

import re
import runpy
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SOURCE = re.compile(r"`(\w+/\w+\.py|\w+\.py)`")


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
        return sample(100, **kwargs | {"tune": 100, "chains": 2, "progressbar": False})

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


def test_the_files_named_in_the_architecture_page_exist():
    named = set(SOURCE.findall((ROOT / "docs" / "architecture.md").read_text()))
    assert named
    assert not [name for name in named if not (ROOT / "pymc_privacy" / name).exists()]
