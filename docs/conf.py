"""How the documentation is built: every code cell is run, and a warning is an error."""

from pathlib import Path

import pymc_privacy

project = "pymc-privacy"
author = "The pymc-privacy developers"
copyright = author
release = version = pymc_privacy.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    # Formulas can be read without a network.
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build", "jupyter_execute"]
# Single backticks in docstrings are code.
default_role = "code"

nb_execution_mode = "force"
# Notebooks are shown with the results that are stored in them; a check runs them.
nb_execution_excludepatterns = ["notebooks/*"]
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 2

autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = "pymc-privacy"
html_static_path = ["_static"]
html_css_files = ["custom.css"]


def bring_notebooks(app):
    """Copy the notebooks to where Sphinx looks for pages; links to pages lose their folder."""
    target = Path(app.srcdir) / "notebooks"
    target.mkdir(exist_ok=True)
    for source in (Path(__file__).parents[1] / "notebooks").glob("*.ipynb"):
        (target / source.name).write_text(source.read_text().replace("../docs/", "../"))


def setup(app):
    """Let Sphinx call what is above."""
    app.connect("builder-inited", bring_notebooks)
