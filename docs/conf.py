"""The documentation site, which `make site` builds with Sphinx of the folder that `testbed.site_sources` gathers.

`index` is the site's first page; the sections of docs/README.md, which is the list of all pages, are its navigation.
Nothing is fetched when a page is read: theme, fonts and the search index are files of the site.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.errors import ExtensionError

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from release import home  # noqa: E402 (the path is needed first)
from release.version import version as build_version  # noqa: E402

project = "netdra"
release = build_version()
root_doc = "index"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"netdra {release}"
html_copy_source = False
html_show_sphinx = False
html_permalinks_icon = "#"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["site.css"]
html_js_files = ["versions.js", "tasks.js", "site.js"]
templates_path: list[str] = []
# Blocks of several languages in one fence, and netdra's own output, have no lexer.
suppress_warnings = ["misc.highlighting_failure"]

_HOME = home.read()
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_PAGE = re.compile(r"\]\(([\w./-]+)\.md\)")
_LISTED = {"decisions/README": "D*", "codes": "codes/*", "examples/index": "*", "examples/cookbook": "cookbook/*"}
"""Pages that list others, which are below them in the navigation."""
_RESOURCE = re.compile(r"""<(?:script|link(?! rel="canonical")|img|iframe)[^>]*(?:src|href)="((?:https?:)?//[^"]*)\"""")
_NOT_FOUND = "404"


def navigation(text: str) -> str:
    """The site's navigation: a table of contents for each section of the list of pages, with each page once."""
    _, *parts = _SECTION.split(text)
    trees = [_tree("All pages", ["README"])]
    seen: set[str] = set()
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        pages = [page for page in dict.fromkeys(_PAGE.findall(body)) if page not in seen]
        seen.update(pages)
        trees.append(_tree(title, pages))
    return "\n".join(trees)


def _tree(title: str, pages: list[str]) -> str:
    lines = "\n".join(pages)
    return f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n"


def _read(app: Any, name: str, source: list[str]) -> None:
    if name == root_doc:
        listed = (Path(app.srcdir) / "README.md").read_text(encoding="utf-8")
        source[0] = f"{source[0]}\n{navigation(listed)}"
    elif name in _LISTED:
        source[0] = f"{source[0]}\n```{{toctree}}\n:hidden:\n:glob:\n\n{_LISTED[name]}\n```\n"


def external_resources(page: str) -> list[str]:
    """The addresses that a browser would fetch from elsewhere to show a page."""
    return _RESOURCE.findall(page)


def _context(_app: Any, name: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """Link a page of docs/ to its source, and let the page for missing ones find its files, if there is a home."""
    if _HOME.edit and (ROOT / "docs" / f"{name}.md").is_file():
        context["theme_source_edit_link"] = _HOME.edit.replace("{path}", f"docs/{name}.md")
    if name == _NOT_FOUND and _HOME.docs:
        context["metatags"] = f'<base href="{_HOME.docs}/">\n{context.get("metatags", "")}'


def _finish(app: Any, problem: Exception | None) -> None:
    """Fail if a page fetches anything."""
    if problem is not None:
        return
    pages = Path(app.outdir).rglob("*.html")
    fetched = {str(path): found for path in pages if (found := external_resources(path.read_text(encoding="utf-8")))}
    if fetched:
        raise ExtensionError(f"pages must not fetch anything: {fetched}")


def setup(app: Any) -> None:
    """Prepare each page, and check the site."""
    app.connect("source-read", _read)
    app.connect("html-page-context", _context)
    app.connect("build-finished", _finish)
