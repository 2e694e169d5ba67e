"""Every notebook is short, asks, shows and answers; and it runs, as every page of the docs does."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

nbformat = pytest.importorskip("nbformat", reason="install pymc-privacy[test] to run notebooks")
nbclient = pytest.importorskip("nbclient", reason="install pymc-privacy[test] to run notebooks")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_twelve():
    assert len(NOTEBOOKS) == 12


@each_notebook
def test_a_notebook_is_short_asks_shows_and_answers(path):
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    words = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert len(notebook.cells) <= 25
    assert notebook.cells[0].source.startswith("# ")
    assert "**Question.**" in words
    assert "answer" in words.lower()
    assert path.stat().st_size < 150_000


@each_notebook
def test_the_stored_results_are_those_of_one_clean_run(path):
    cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs), "no picture"


@each_notebook
def test_every_notebook_is_on_the_site(path):
    page = (ROOT / "docs" / "notebooks.md").read_text()
    assert f"(notebooks/{path.name})" in page
    assert f"\nnotebooks/{path.stem}\n" in page
    assert f"(images/gallery/{path.stem}.png)" in page


@each_notebook
def test_the_gallery_shows_each_by_its_own_last_figure(path):
    from scripts import draw_gallery

    picture = ROOT / "docs" / "images" / "gallery" / f"{path.stem}.png"
    assert picture.stat().st_size < 20_000
    with draw_gallery.Image.open(picture) as stored:
        shown = np.asarray(stored.convert("RGB"), dtype=float)
    [*_, last] = draw_gallery.figures(json.loads(path.read_text()))
    drawn = np.asarray(draw_gallery.thumbnail(last).convert("RGB"), dtype=float)
    # Colours are chosen a little differently by another version of Pillow.
    assert np.abs(shown - drawn).mean() < 4.0, "python scripts/draw_gallery.py"


PAGES = sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def cells_of(page):
    """Return the code of a page of the docs, without the options of its cells."""
    found = CELL.findall(page.read_text())
    return [re.sub(r"\A(:[^\n]*\n)+", "", cell) for cell in found]


def run(notebook, folder, monkeypatch):
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", search)
    client = nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3")
    client.resources = {"metadata": {"path": str(folder)}}
    client.execute()


@pytest.mark.filterwarnings("ignore")  # of the notebook machinery; the kernel has its own
@pytest.mark.parametrize(
    "path",
    [
        # One shows that notebooks run at all; `make docs` runs every one, and so does `test-all`.
        pytest.param(path, id=path.stem, marks=pytest.mark.exhaustive if k else pytest.mark.slow)
        for k, path in enumerate(NOTEBOOKS)
    ],
)
def test_a_notebook_runs(path, monkeypatch):
    run(nbformat.read(path, 4), path.parent, monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "page", [p for p in PAGES if cells_of(p)], ids=lambda p: str(p.relative_to(ROOT / "docs"))
)
def test_the_cells_of_a_page_run(page, monkeypatch):
    cells = [nbformat.v4.new_code_cell(source) for source in cells_of(page)]
    run(nbformat.v4.new_notebook(cells=cells), page.parent, monkeypatch)


def test_no_cell_of_a_page_is_overlooked():
    assert sum(p.read_text().count("```{code-cell}") for p in PAGES) == sum(
        len(cells_of(p)) for p in PAGES
    )
