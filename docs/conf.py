"""Sphinx: MyST pages and notebooks, API from docstrings, examples that are run."""

import os
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.nodes import make_refnode

import jat_graph

# Examples are not installed: doctests find them on the path, notebooks in the environment.
repository = str(Path(__file__).resolve().parent.parent)
sys.path.insert(0, repository)
os.environ["PYTHONPATH"] = repository

project = "jat_graph"
author = "The jat_graph developers"
project_copyright = "2026, The jat_graph developers"
version = release = jat_graph.__version__

extensions = [
    "myst_nb",  # of MyST pages, too
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "notebooks/*.ipynb"]  # copies
myst_enable_extensions = ["dollarmath", "fieldlist"]
myst_heading_anchors = 3

nb_execution_raise_on_error = True
nb_execution_in_temp = True  # what notebooks write is no part of the docs
nb_execution_timeout = 300  # seconds a cell
nb_merge_streams = True
nb_output_stderr = "remove"  # bars of progress

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
add_module_names = False
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = [("Shapes", "params_style"), "Reference"]

copybutton_prompt_text = r">>> |\.\.\. "  # not copied, and nor is what Python answers
copybutton_prompt_is_regexp = True

# One file draws formulas in the reader's browser, without a network.
mathjax_path = "tex-svg.js"
mathjax = find_spec("sphinx-mathjax-offline").submodule_search_locations[0]
html_static_path = [str(Path(mathjax) / "static" / "mathjax" / mathjax_path)]

html_theme = "furo"
html_title = "jat_graph"


def link_names(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Link `jat_graph.name`, `Class` and `function()`; roles of Sphinx are raw text on GitHub."""
    found, kinds = app.env.get_domain("py").objects.items(), ("class", "function", "method")
    objects = {name: it for name, it in found if it.objtype in kinds and not it.aliased}
    ends = Counter(name.rpartition(".")[2] for name in objects)
    short = {end: name for name in objects if ends[end := name.rpartition(".")[2]] == 1}
    for literal in list(doctree.findall(nodes.literal)):
        text = literal.astext()
        name = text.removesuffix("()")
        if text.endswith("()") or name[:1].isupper():
            name = short.get(name, name)
        if name in objects and not isinstance(literal.parent, nodes.reference):
            place = (page, objects[name].docname, objects[name].node_id)
            link = make_refnode(app.builder, *place, literal.deepcopy(), title=name)
            literal.replace_self(link)


def setup(app: Sphinx) -> None:
    app.connect("doctree-resolved", link_names)
