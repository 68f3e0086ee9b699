"""The check of English finds texts wherever they are, and names their places."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.messages import ROOT
from testbed.prose import Text, comments, pages, texts


@pytest.fixture(scope="module")
def found() -> tuple[Text, ...]:
    return tuple(texts())


def test_texts_of_each_source_are_checked(found: tuple[Text, ...]) -> None:
    files = {each.file for each in found}
    assert {"CHANGELOG.md", "charts/netdra/templates/NOTES.txt", "netdra/cli/plan.py"} <= files
    assert any(file.startswith("charts/netdra/files/crds/") for file in files)
    assert {"README.md", "policies.md"} <= {path.name for path in pages()}


@pytest.mark.parametrize(
    "page",
    [
        "CONTRIBUTING.md",
        "SECURITY.md",
        ".github/PULL_REQUEST_TEMPLATE.md",
        "charts/netdra/README.md",
        "docs/decisions/README.md",
        "docs/decisions/D01-api-level.md",
        "examples/cookbook/1-sriov-vfs/README.md",
        "netdra/kernel/README.md",
    ],
)
def test_a_page_in_any_folder_is_checked(page: str) -> None:
    assert ROOT / page in pages()


@pytest.mark.parametrize("page", ["docs/messages.md", "docs/fields.md", "CHANGELOG.md"])
def test_a_page_with_texts_of_other_files_is_not_checked_twice(page: str) -> None:
    assert ROOT / page not in pages()


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("charts/netdra/values.schema.json", ""),
        ("charts/netdra/templates/node.yaml", "line"),
        ("examples/worker-1/policies/11-exclude-management.yaml", "line 1"),
        ("Makefile", "help"),
        ("bench/__main__.py", "_arguments"),
        ("release/__main__.py", "main"),
        ("netdra/kernel/monitor.py", "line"),
    ],
)
def test_texts_in_a_file_of_any_kind_are_checked(found: tuple[Text, ...], file: str, place: str) -> None:
    assert any(each.file == file and each.place.startswith(place) for each in found)


def test_consecutive_comments_are_one_text() -> None:
    text = "# One\n# two.\n#\n# Three.\nkey: value  # not read in YAML\n  # Four.\n"
    assert list(comments(text, "a.yaml")) == [
        Text("a.yaml", "line 1", "One two."),
        Text("a.yaml", "line 4", "Three."),
        Text("a.yaml", "line 6", "Four."),
    ]


def test_a_comment_after_python_code_is_a_text_alone() -> None:
    text = 'A = "# no comment"  # one\nB = 2  # two\n# Three\n# four.\nC = 3  # noqa: S105\n'
    assert list(comments(text, "a.py")) == [
        Text("a.py", "line 1", "one"),
        Text("a.py", "line 2", "two"),
        Text("a.py", "line 3", "Three four."),
    ]


def test_a_description_has_the_path_of_its_field(found: tuple[Text, ...]) -> None:
    places = {each.place for each in found if each.file.endswith("deviceexposurepolicies.networking.dra.io.yaml")}
    assert any(place.endswith("selector") for place in places)


def test_comments_of_tests_are_not_checked(found: tuple[Text, ...]) -> None:
    commented = (each for each in found if each.place.startswith("line "))
    assert not any(Path(each.file).parts[0] == "tests" for each in commented)
