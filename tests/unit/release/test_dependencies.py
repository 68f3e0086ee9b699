"""Dependencies are young or have a reason, their known vulnerabilities are found offline, and statements are true."""

from __future__ import annotations

import ast
import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from release import __main__ as commands
from release import ages, vex
from release.advisories import AdvisoryError, check, is_affected
from release.version import ROOT


def test_each_dependency_is_newer_than_a_year_or_has_a_reason() -> None:
    assert ages.problems() == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("aiohttp 3", "aiohttp 2", "requirements-cluster.dates has 2"),
        ("# Reviewed: 2026-11", "# Reviewed: 2029-11", "months old; update it, or write a reason"),
        ("# Reviewed: 2026-11", "# Reviewed: 2024-11", "is after the review, 2024-11"),
        ("# Reviewed: 2026-11", "", '"# Reviewed: YYYY-MM" not found'),
        ("\naiohttp ", "\nnobody-wants-it ", "aiohttp 3.14.5: no line in requirements-cluster.dates"),
    ],
)
def test_wrong_dates_are_reported(tmp_path: Path, old: str, new: str, problem: str) -> None:
    shutil.copy(ROOT / ages.LOCK, tmp_path)
    text = (ROOT / ages.DATES).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / ages.DATES).write_text(text.replace(old, new), encoding="utf-8")
    assert any(problem in each for each in ages.problems(tmp_path))


def advisory(name: str, *events: dict[str, str], **more: Any) -> dict[str, Any]:
    """An advisory of OSV for a package of PyPI."""
    affected = {"package": {"ecosystem": "PyPI", "name": name}, "ranges": [{"type": "ECOSYSTEM", "events": [*events]}]}
    return {
        "id": f"GHSA-{name}",
        "aliases": ["CVE-2026-1"],
        "summary": "Reads too much.",
        "affected": [affected],
        **more,
    }


@pytest.mark.parametrize(
    ("events", "version", "expected"),
    [
        ([{"introduced": "0"}, {"fixed": "3.14.6"}], "3.14.5", True),
        ([{"introduced": "0"}, {"fixed": "3.14.5"}], "3.14.5", False),
        ([{"introduced": "3.14.5"}], "3.14.5", True),
        ([{"introduced": "0"}, {"last_affected": "3.14.5"}], "3.14.5", True),
        ([{"introduced": "0"}, {"last_affected": "3.9"}], "3.14.5", False),
        ([{"fixed": "3.10"}, {"introduced": "0"}, {"introduced": "3.13"}, {"fixed": "3.14.5rc1"}], "3.14.4", True),
        ([{"introduced": "0"}, {"fixed": "3.10"}, {"introduced": "3.15"}], "3.14.5", False),
    ],
)
def test_the_last_event_before_a_version_decides(events: list[dict[str, str]], version: str, expected: bool) -> None:
    assert is_affected(advisory("aiohttp", *events)["affected"][0], version) is expected


def test_advisories_of_pinned_versions_are_found_in_a_folder_and_in_a_zip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = {"introduced": "0"}
    database = {
        "a": advisory("AIOHTTP", everything, {"fixed": "99"}),
        "b": advisory("aiohttp", everything, withdrawn="2026-01-01T00:00:00Z"),
        "c": advisory("requests", everything),
        "d": advisory("msgspec", everything) | {"affected": [{"package": {"ecosystem": "npm", "name": "msgspec"}}]},
    }
    (tmp_path / "folder").mkdir()
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name, content in database.items():
            archive.writestr(f"{name}.json", json.dumps(content))
            (tmp_path / "folder" / f"{name}.json").write_text(json.dumps(content))
    for place in (tmp_path / "folder", tmp_path / "all.zip"):
        monkeypatch.setattr("sys.argv", ["release", "advisories", str(place)])
        assert commands.main() == 1
        printed = capsys.readouterr()
        assert printed.out == "aiohttp 3.14.5: GHSA-AIOHTTP, CVE-2026-1: Reads too much.; fixed in 99\n"
        assert "4 advisories: 1 findings" in printed.err


@pytest.mark.parametrize("content", ["{}", "[]", "no JSON"])
def test_a_database_of_another_form_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(AdvisoryError):
        check(tmp_path, {})
    (tmp_path / "a.json").unlink()
    with pytest.raises(AdvisoryError, match="no advisory found"):
        check(tmp_path, {})


def replaced(value: Any) -> Iterator[Any]:
    """Copies of a JSON value in which one part, at any depth, is a value of another type."""
    yield from (other for other in (None, 5, "x!", [5], {"a": 5}, True) if type(other) is not type(value))
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: other} for other in replaced(inner))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from ([*value[:at], other, *value[at + 1 :]] for other in replaced(inner))


def test_a_wrong_part_of_an_advisory_is_an_error_that_names_it_or_changes_nothing(tmp_path: Path) -> None:
    right = advisory("aiohttp", {"introduced": "0"}, {"fixed": "99"})
    named = 0
    for wrong in replaced(right):
        (tmp_path / "a.json").write_text(json.dumps(wrong))
        try:
            check(tmp_path, {"aiohttp": "3.14.5"})
        except AdvisoryError as problem:
            named += "GHSA-aiohttp" in str(problem) or "a.json" in str(problem)
    assert named > 10


def test_a_lock_that_cannot_be_read_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(advisory("aiohttp")))
    (tmp_path / "empty").touch()
    for lock in ("missing", "empty"):
        monkeypatch.setattr("sys.argv", ["release", "advisories", str(tmp_path), "--lock", str(tmp_path / lock)])
        assert commands.main() == 1
        assert f"{tmp_path / lock}: " in capsys.readouterr().err


def test_no_module_calls_a_function_that_a_vex_statement_excludes() -> None:
    absent = {name for each in vex.statements() for name in each.absent}
    assert absent
    called = {
        node.func.attr
        for path in (ROOT / "netdra").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert len(called) > 500
    assert called & absent == set()


def test_the_vex_document_names_the_image_and_each_vulnerability() -> None:
    found = json.loads(vex.document("0.2.0", "sha256:12ab", 1_700_000_000))
    assert found["@context"] == "https://openvex.dev/ns/v0.2.0"
    assert found["timestamp"] == "2023-11-14T22:13:20Z"
    names = [each["vulnerability"]["name"] for each in found["statements"]]
    assert names == [name for each in vex.statements() for name in each.vulnerabilities]
    for each in found["statements"]:
        assert each["products"][0]["@id"] == "pkg:oci/netdra@sha256%3A12ab"
        assert each["status"] == "not_affected"
