"""The check of English finds texts wherever they are, and names their places."""

from __future__ import annotations

import pytest

from testbed.prose import Text, pages, texts


@pytest.fixture(scope="module")
def found() -> tuple[Text, ...]:
    return tuple(texts())


def test_texts_of_each_source_are_checked(found: tuple[Text, ...]) -> None:
    files = {each.file for each in found}
    assert {"CHANGELOG.md", "charts/netdra/templates/NOTES.txt", "netdra/cli/plan.py"} <= files
    assert any(file.startswith("charts/netdra/files/crds/") for file in files)
    assert {"README.md", "policies.md"} <= {path.name for path in pages()}


def test_a_description_has_the_path_of_its_field(found: tuple[Text, ...]) -> None:
    places = {each.place for each in found if each.file.endswith("deviceexposurepolicies.networking.dra.io.yaml")}
    assert any(place.endswith("selector") for place in places)
