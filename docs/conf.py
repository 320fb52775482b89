"""How these pages become a site (`make docs`). Nothing here reads the network, and neither does the site."""

from __future__ import annotations

import posixpath
import re
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from docutils.nodes import Element, TextElement
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.util.nodes import make_refnode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `benchmarks`, which is not installed
sys.path.insert(0, str(Path(__file__).parent))
from declared import fill
from state_picture import DrawStates

project = "analytic-secagg"
release = installed_version(project)
copyright = "the authors of analytic-secagg, Apache-2.0"
exclude_patterns = ["_build"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]

html_theme = "furo"
html_title = f"{project} {release}"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["wrap.css"]

# Local links: a page, heading or file that is not there fails the strict build. Links to other hosts are looked up by
# `python -m sphinx -b linkcheck docs build/linkcheck`, by hand: CI does not run it, since it has no network.
myst_heading_anchors = 4
linkcheck_timeout = 20
linkcheck_anchors = False  # a code host draws its anchors with scripts

default_role = "code"  # single backticks, as in Markdown
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True

# Every name in a signature or under "Raises:" must be something. These are other packages', whose inventories would
# have to be downloaded.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(np|numpy|collections|fractions|pathlib|sklearn|torch|click|enum|logging)\..*"),
    ("py:.*", r"NDArray|Module"),  # numpy.typing's and torch.nn's
    ("py:.*", r"(pydantic|annotated_types)\..*|FieldInfo|NoneType|M(in|ax)Len|[GL][te]"),  # fields of pydantic models
]


_LINK = re.compile(r"\[(?P<text>[^]\[]+)]\((?P<target>(\.\./)+[^)#]+)[^)]*\)")

_PIPE = re.compile(r"(?P<literal>``.*?``)|\|")
"""Norms are written |x|, which reStructuredText would take for substitutions."""

_ARRAY = re.compile(r"~?numpy\.ndarray\[tuple\[~?typing\.Any, \.\.\.], ~?numpy\.dtype\[(?P<type>[^][]+(\[[^][]+])?)]]")


PACKAGES = ("secagg", "analytic", "analytic_secagg", "simulations")


def setup(app: Sphinx) -> None:
    """Hand Sphinx what it cannot know: how our docstrings, arrays and diagrams read, and what a short name means."""
    app.add_post_transform(DrawStates)
    app.connect("source-read", hand_out_files)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("missing-reference", find_by_short_name)


def hand_out_files(app: Sphinx, page: str, source: list[str]) -> None:
    """Fill in what is declared, and turn links that leave this folder into downloads: the site stands alone."""

    def rewrite(link: re.Match[str]) -> str:
        leaves = posixpath.normpath(posixpath.join(posixpath.dirname(page), link["target"])).startswith("..")
        return f"{{download}}`{link['text'].strip('`')} <{link['target']}>`" if leaves else link[0]

    glossary = posixpath.relpath("reference/glossary", posixpath.dirname(page) or ".")
    words = f"\n\n---\n\n[The words of this project: glossary]({glossary}.md)\n"
    is_markdown = Path(app.env.doc2path(page)).suffix == ".md" and page != "reference/glossary"
    source[0] = _LINK.sub(rewrite, fill(source[0])) + (words if is_markdown else "")


def read_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn "Args:" and "Raises:" into fields.

    The extension `napoleon` would do it alone, but takes what stands before a colon in a property's docstring for its
    type; so its reader is called here, and properties are read like methods.
    """
    text = _PIPE.sub(lambda found: found["literal"] or r"\|", "\n".join(lines))
    kind = what if what in ("module", "class", "exception") else "method"
    lines[:] = GoogleDocstring(text, Config(napoleon_use_rtype=False), app, kind, name, obj, options).lines()


def shorten_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, arguments: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Write arrays as the code does, without the shape that numpy's types do not know, and fresh defaults as `...`."""
    if getattr(obj, "_is_protocol", False):
        return "", None  # nobody calls an interface
    shorter = [
        text and _ARRAY.sub(r"NDArray[\g<type>]", text).replace("<factory>", "...") for text in (arguments, returned)
    ]
    return shorter[0], shorter[1]


def find_by_short_name(app: Sphinx, env: BuildEnvironment, node: Element, shown: TextElement) -> Element | None:
    """The place of a name without its module, such as those under "Raises:"; None (a warning) where there is none.

    A name is in the reference where a package hands it on and not where it is made, so the last part of a full name
    decides. Names of the same package come first: `secagg` and `analytic` may both have one. What exists but is not in
    the reference, since few programs need it, stays without a link.
    """
    if node.get("refdomain") != "py":
        return None
    wanted, here = node["reftarget"], node.get("py:module") or ""
    package, short = (wanted if exists(wanted) else here).partition(".")[0], wanted.rpartition(".")[2]
    known = env.domains.python_domain.objects
    found = [name for name in known if name.endswith(f".{short}") and known[name].objtype not in ("method", "property")]
    near = [name for name in found if name.startswith(f"{package}.")] or found
    if len(near) != 1:
        return shown if exists(wanted) or is_made_in(package, wanted) else None
    entry = known[near[0]]
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, shown, near[0])


@cache
def is_made_in(package: str, name: str) -> bool:
    """Whether a module of this package that is loaded has this name, such as a type of a private module."""
    return any(hasattr(module, name) for path, module in list(sys.modules.items()) if path.startswith(f"{package}."))


@cache
def exists(name: str) -> bool:
    """Whether one of our modules has this name."""
    module, _, attribute = name.rpartition(".")
    return module.partition(".")[0] in PACKAGES and hasattr(import_module(module), attribute)
