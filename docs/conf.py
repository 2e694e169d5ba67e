"""How the documentation is built: every code cell is run, and a warning is an error."""

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
