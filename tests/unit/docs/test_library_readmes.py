"""Each library has a page beside its code, whose examples run and which names what it takes from the rest of netdra."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "netdra").rglob("README.md"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
(CONTRACT,) = (
    contract for contract in PROJECT["tool"]["importlinter"]["contracts"] if contract["name"].startswith("Libraries")
)


def package(page: Path) -> str:
    return ".".join(page.parent.relative_to(ROOT).parts)


@pytest.mark.parametrize("page", PAGES, ids=package)
def test_the_examples_run(page: Path) -> None:
    blocks = re.findall(r"^```python(.*?)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {"__name__": package(page)}
    assert blocks
    for title, code in blocks:
        compiled = compile(code, str(page), "exec")
        if "root" not in title:  # tests/kernel/kernel/test_readme.py runs it
            exec(compiled, names)


def test_each_library_has_a_page() -> None:
    libraries = {package(page) for page in PAGES}
    assert {name if name != "netdra.slices" else "netdra.slices.allocator" for name in CONTRACT["source_modules"]} == (
        libraries
    )


@pytest.mark.parametrize("page", PAGES, ids=package)
def test_a_library_readme_names_each_netdra_module_that_the_library_imports(page: Path) -> None:
    text = page.read_text()
    for source, _, target in (entry.partition(" -> ") for entry in CONTRACT["ignore_imports"]):
        if source.startswith(package(page)) and not target.endswith("*"):
            short = target.removeprefix("netdra.")
            assert f"`{short}`" in text or f"`netdra.{short.partition('.')[0]}`" in text


@pytest.mark.parametrize("page", PAGES, ids=package)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_wheel_has_no_pages() -> None:
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"] == ["netdra/**/README.md"]
