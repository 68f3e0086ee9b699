"""The documentation site, which `make site` builds with Sphinx: every page of this folder, in the order of README.md.

README.md is the site's first page, and its sections are the site's navigation. Nothing is fetched when a page is read:
theme, fonts and the search index are files of the site.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.errors import ExtensionError

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from release import home  # noqa: E402
from release.version import tree_version  # noqa: E402 (the path is needed first)

project = "netdra"
release = tree_version()
root_doc = "README"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"netdra {release}"
html_copy_source = False
html_show_sphinx = False
html_permalinks_icon = "#"
templates_path: list[str] = []
# Blocks of several languages in one fence, and netdra's own output, have no lexer.
suppress_warnings = ["misc.highlighting_failure"]

_HOME = home.read()
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_PAGE = re.compile(r"\]\(([\w/-]+)\.md\)")
_OUTSIDE = re.compile(r"\]\(\.\./((?!\.\.)[^)#]*)([^)]*)\)")
_DECISIONS = "decisions/README"
_RESOURCE = re.compile(r"""<(?:script|link(?! rel="canonical")|img|iframe)[^>]*(?:src|href)="((?:https?:)?//[^"]*)\"""")
_OUTSIDE_OF_DECISIONS = re.compile(r"\]\(\.\./\.\./([^)#]*)([^)]*)\)")


def navigation(text: str) -> str:
    """The site's navigation: a table of contents for each section of the first page, with the pages that it links."""
    _, *parts = _SECTION.split(text)
    trees = []
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        pages = "\n".join(dict.fromkeys(_PAGE.findall(body)))
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n")
    return "\n".join(trees)


def with_source_links(text: str, name: str) -> str:
    """A page whose links to files beside this folder lead to the project's sources."""
    pattern = _OUTSIDE_OF_DECISIONS if name.startswith("decisions/") else _OUTSIDE
    return pattern.sub(rf"]({_HOME.source}/\1\2)", text)


def _read(_app: Any, name: str, source: list[str]) -> None:
    text = with_source_links(source[0], name)
    if name == root_doc:
        text = f"{text}\n{navigation(text)}"
    elif name == _DECISIONS:
        text = f"{text}\n```{{toctree}}\n:hidden:\n:glob:\n\nD*\n```\n"
    source[0] = text


def external_resources(page: str) -> list[str]:
    """The addresses that a browser would fetch from elsewhere to show a page."""
    return _RESOURCE.findall(page)


def _finish(app: Any, problem: Exception | None) -> None:
    """Name the first page index.html, too, and fail if a page fetches anything."""
    if problem is not None:
        return
    folder = Path(app.outdir)
    (folder / "index.html").write_bytes((folder / f"{root_doc}.html").read_bytes())
    fetched = {str(path): found for path in folder.rglob("*.html") if (found := external_resources(path.read_text()))}
    if fetched:
        raise ExtensionError(f"pages must not fetch anything: {fetched}")


def setup(app: Any) -> None:
    """Prepare each page, and check the site."""
    app.connect("source-read", _read)
    app.connect("build-finished", _finish)
