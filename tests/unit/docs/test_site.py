"""The site's pages lead to each other and nowhere else, and its search knows tasks by the words of people."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from release.home import read
from testbed import site_sources
from tests.unit.release.test_home import EMPTY, FILLED, filled

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "docs" / "_static"
LINK = re.compile(r"\]\(((?!https?:|mailto:)[^)#\s]+)(?:#([^)\s]*))?\)")
CODE = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gathered pages of a project without a home."""
    folder = tmp_path_factory.mktemp("site")
    site_sources.gather(folder / "pages", filled(folder, EMPTY))
    return folder / "pages"


def tasks() -> list[dict[str, str | list[str]]]:
    text = (STATIC / "tasks.js").read_text(encoding="utf-8")
    found: list[dict[str, str | list[str]]] = json.loads(text.partition("window.netdraTasks =")[2].rstrip().rstrip(";"))
    return found


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_leads_to_a_page_of_the_site(site: Path) -> None:
    pages = sorted(site.rglob("*.md"))
    assert len(pages) > 150
    wrong = [
        f"{page.relative_to(site)}: {target}"
        for page in pages
        for target, _ in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))
        if not (page.parent / target).is_file()
    ]
    assert wrong == []


def test_examples_charts_and_the_projects_pages_are_pages(site: Path) -> None:
    for name in ("examples/first-pod", "examples/cookbook/1-sriov-vfs", "charts/netdra", "project/governance", "404"):
        assert (site / f"{name}.md").is_file(), name
    policy = (ROOT / "examples" / "first-pod" / "policy.yaml").read_text(encoding="utf-8").rstrip("\n")
    assert f"## policy.yaml\n\n````yaml\n{policy}\n````" in (site / "examples" / "first-pod.md").read_text(
        encoding="utf-8"
    )


def test_the_first_page_is_the_first_screen_of_the_readme(site: Path) -> None:
    text = (site / "index.md").read_text(encoding="utf-8")
    assert "## Figures" in text
    assert "## In a cluster" not in text
    assert "](dpdk.md)" in text


def test_a_file_that_is_not_a_page_is_linked_if_there_is_a_home(tmp_path: Path) -> None:
    known = site_sources.pages()
    text = "[protos](../protos), [code](../netdra/cli/plan.py#L1), [why](why.md#top), `[x](../protos)`"
    home = filled(tmp_path, FILLED)
    start = "https://git.example.org/netdra/blob/main/"
    assert site_sources.linked(text, "docs/releases.md", known, home).startswith(
        f"[protos]({start}protos), [code]({start}netdra/cli/plan.py#L1), [why](why.md#top)"
    )
    without = site_sources.linked(text, "docs/releases.md", known, filled(tmp_path, EMPTY))
    assert without.startswith("protos, code, [why](why.md#top)")


def test_the_page_with_all_messages_is_not_searched(site: Path) -> None:
    assert (site / "messages.md").read_text(encoding="utf-8").startswith("---\nnosearch: true\n---\n")
    assert not (site / "why.md").read_text(encoding="utf-8").startswith("---")


def test_no_page_of_a_project_without_a_home_links_to_a_host_of_the_project(site: Path) -> None:
    assert [str(page) for page in site.rglob("*.md") if "netdra.example" in page.read_text(encoding="utf-8")] == []
    assert read().source == "" or read().source.startswith("https://")


def test_each_task_of_the_search_leads_to_a_page_and_its_section(site: Path) -> None:
    for task in tasks():
        assert isinstance(task["page"], str)
        page, _, anchor = task["page"].partition("#")
        source = site / Path(page).with_suffix(".md")
        assert source.is_file(), page
        assert not anchor or anchor in anchors(source), task["page"]
        assert all(word == word.lower().strip() for word in task["words"])


@pytest.mark.parametrize("words", ["bond", "error", "quick start", "faq", "air-gapped", "grafana", "uninstall", "helm"])
def test_words_that_people_type_belong_to_a_task(words: str) -> None:
    assert any(words in task["words"] for task in tasks())


def test_scripts_and_styles_of_the_site_fetch_nothing() -> None:
    for path in STATIC.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\bfetch\(|XMLHttpRequest|import\(|@import|url\(", text), path.name
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)\S+", text) == [], path.name
