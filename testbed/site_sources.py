"""Gathers the pages of the site into one folder, in `make site`: `python -m testbed.site_sources FOLDER`.

The pages of docs/, the first page of README.md, the project's other pages, the charts' values, a page for each example
with its files, and a page with the codes of errors for each part of netdra. A link between them leads to the page; one
to another file leads to the sources if the project has a home (`release/home.toml`), and is a text without one.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from release.home import Home, read
from testbed.codes_pages import coded_parts, list_of_pages, page_of_codes

ROOT = Path(__file__).parents[1]
END_OF_FIRST_PAGE = "<!-- The first page of the site ends here. -->"
PROJECT = (
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "GOVERNANCE.md",
    "MAINTAINERS.md",
    "ROADMAP.md",
    "SECURITY.md",
)
NOT_SEARCHED = frozenset({"messages.md"})
"""Pages with so many texts that every search would find them first."""
CODES = "docs/codes/"
"""Where the pages of codes would be among the sources, so that pages link to them."""
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*)\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_PICTURES = frozenset({".svg", ".webp", ".png"})
_LANGUAGES = {".yaml": "yaml", ".json": "json", ".sh": "sh", ".py": "python"}
_NOT_FOUND = """---
orphan: true
nosearch: true
---
# Page not found

The page was moved or never existed. Search for it, or begin at the [list of all pages](README.md), the
[questions](faq.md) or [troubleshooting](troubleshooting.md).
"""
_MOST_BYTES = 20_000
"""Of a file that an example's page shows; a longer one is only named."""


def pages() -> dict[str, str]:
    """The page of the site for each file of the sources that is one: `docs/why.md` is `why.md`."""
    docs = ROOT / "docs"
    found = {f"docs/{path.relative_to(docs)}": str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    found |= {"README.md": "index.md"} | {name: f"project/{name.lower()}" for name in PROJECT}
    found |= {f"charts/{path.parent.name}/README.md": f"charts/{path.parent.name}.md" for path in _charts()}
    found |= {f"examples/{name}": f"examples/{name}.md" for name in _examples()}
    found |= {"examples/cookbook": "examples/cookbook.md", "examples": "examples/index.md"}
    found |= {f"{CODES}{part}.md": f"codes/{part}.md" for part in coded_parts()}
    return found


def _charts() -> list[Path]:
    return sorted((ROOT / "charts").glob("*/README.md"))


def _examples() -> list[str]:
    """The folders of examples, and those of the cookbook, from the folder of examples on."""
    top = ROOT / "examples"
    folders = [path for path in [*top.iterdir(), *(top / "cookbook").iterdir()] if path.is_dir()]
    return sorted(str(path.relative_to(top)) for path in folders if path.name != "cookbook")


def gather(folder: Path, home: Home) -> None:
    """Write all pages and pictures into a folder, which is made again."""
    shutil.rmtree(folder, ignore_errors=True)
    known = pages()
    for source, page in known.items():
        text = linked(_text(source), source, known, home)
        is_searched = page not in NOT_SEARCHED and not source.startswith(CODES)
        _write(folder / page, text if is_searched else _without_search(text))
    _write(folder / "404.md", _NOT_FOUND)
    for picture in (
        path for path in (ROOT / "docs").rglob("*") if path.suffix in _PICTURES and path.parent.name != "_static"
    ):
        target = folder / picture.relative_to(ROOT / "docs")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, target)


def _text(source: str) -> str:
    path = ROOT / source
    if source == "README.md":
        return path.read_text(encoding="utf-8").partition(END_OF_FIRST_PAGE)[0]
    if source == "examples":
        return _list_of_examples()
    if source.startswith(CODES):
        return page_of_codes(source.removeprefix(CODES).removesuffix(".md"))
    if source == "docs/codes.md":
        return path.read_text(encoding="utf-8") + list_of_pages()
    return path.read_text(encoding="utf-8") if path.is_file() else _example(path)


def _list_of_examples() -> str:
    rows = "".join(f"- [{name}]({name})\n" for name in _examples() if not name.startswith("cookbook/"))
    return (
        f"# Examples\n\nThe [cookbook](cookbook) has ten use cases with a page each. Examples of other pages:\n\n{rows}"
    )


def _example(path: Path) -> str:
    """A page of an example: its README, or its name, and its files."""
    readme = path / "README.md"
    title = f"# Example: {path.name}\n\nThe files of `examples/{path.name}`.\n"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else title
    parts = [text.rstrip("\n")]
    for file in sorted(each for each in path.iterdir() if each.is_file() and each != readme):
        content = file.read_text(encoding="utf-8").rstrip("\n")
        shown = content if len(content) <= _MOST_BYTES else f"# {len(content):,} bytes, in the sources"
        parts.append(f"## {file.name}\n\n````{_LANGUAGES.get(file.suffix, '')}\n{shown}\n````")
    return "\n\n".join(parts) + "\n"


def linked(text: str, source: str, known: Mapping[str, str], home: Home) -> str:
    """A page with the links of the site instead of those of the sources; code is left as it is.

    Args:
        text: the page.
        source: its file or folder, from the top of the sources.
        known: `pages`.
        home: the place of other files.
    """
    is_folder = not source.endswith(".md")
    start = source if is_folder else str(Path(source).parent)

    def replaced(found: re.Match[str]) -> str:
        target, hash_, anchor = found["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        path = os.path.normpath(Path(start) / target)
        here = Path(known[source]).parent
        if found["image"]:
            return f"![{found['text']}]({_relative(path.removeprefix('docs/'), here)})"
        page = _page_of(path, known)
        if page:
            return f"[{found['text']}]({_relative(page, here)}{hash_}{anchor})"
        address = home.page(path)
        return f"[{found['text']}]({address}{hash_}{anchor})" if address else found["text"]

    parts, last = [], 0
    for code in _CODE.finditer(text):
        parts += [_LINK.sub(replaced, text[last : code.start()]), code[0]]
        last = code.end()
    return "".join([*parts, _LINK.sub(replaced, text[last:])])


def _page_of(path: str, known: Mapping[str, str]) -> str:
    """The page of a file or a folder: a file of an example is on the example's page."""
    example = (str(Path(path).parent),) if path.startswith("examples/") else ()
    return next((known[name] for name in (path, f"{path}/README.md", *example) if name in known), "")


def _relative(page: str, here: Path) -> str:
    return os.path.relpath(page, here)


def _without_search(text: str) -> str:
    return f"---\nnosearch: true\n---\n{text}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    gather(Path(sys.argv[1]), read())
