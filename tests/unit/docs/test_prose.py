"""The check of English finds texts wherever they are, and names their places."""

from __future__ import annotations

from testbed.prose import Remark, excess, pages, texts


def test_texts_of_each_source_are_checked() -> None:
    files = {each.file for each in texts()}
    assert {"CHANGELOG.md", "charts/netdra/templates/NOTES.txt", "netdra/cli/plan.py"} <= files
    assert any(file.startswith("charts/netdra/files/crds/") for file in files)
    assert {"README.md", "policies.md"} <= {path.name for path in pages()}


def test_a_description_has_the_path_of_its_field() -> None:
    places = {each.place for each in texts() if each.file.endswith("deviceexposurepolicies.networking.dra.io.yaml")}
    assert any(place.endswith("selector") for place in places)


def test_a_file_may_contain_as_many_findings_as_are_recorded_and_no_more() -> None:
    remarks = [
        Remark("a.md", "line 1", "r", "t"),
        Remark("a.md", "line 2", "r", "t"),
        Remark("b.md", "line 1", "r", "t"),
    ]
    assert excess(remarks, {"a.md": 2}) == remarks[2:]
    assert excess(remarks, {"a.md": 1, "b.md": 1}) == remarks[:2]
