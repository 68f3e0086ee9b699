"""The check of English finds texts wherever they are, and names their places."""

from __future__ import annotations

from testbed.prose import pages, texts


def test_texts_of_each_source_are_checked() -> None:
    files = {each.file for each in texts()}
    assert {"CHANGELOG.md", "charts/netdra/templates/NOTES.txt", "netdra/cli/plan.py"} <= files
    assert any(file.startswith("charts/netdra/files/crds/") for file in files)
    assert {"README.md", "policies.md"} <= {path.name for path in pages()}


def test_a_description_has_the_path_of_its_field() -> None:
    places = {each.place for each in texts() if each.file.endswith("deviceexposurepolicies.networking.dra.io.yaml")}
    assert any(place.endswith("selector") for place in places)
