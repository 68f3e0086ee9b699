"""A folder with the sites of several releases: each knows all versions, and the first page leads to the newest."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

import release.__main__
from release.site import LIST, SiteError, add

EMPTY = "window.netdraVersions = [];\n"


def packed(folder: Path, version: str, *pages: str, **files: str) -> Path:
    """The archive of a site with these pages and further files."""
    path = folder / f"netdra-{version}-site.tar.gz"
    contents = {str(LIST): EMPTY, **dict.fromkeys(pages, "<p>A page</p>"), **files}
    with tarfile.open(path, "w:gz") as archive:
        for name, text in contents.items():
            member = tarfile.TarInfo(f"netdra-{version}-site/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def listed(site: Path) -> list[dict[str, object]]:
    """The versions that a site lists."""
    text = (site / LIST).read_text(encoding="utf-8").partition(" = ")[2].rstrip(";\n")
    found: list[dict[str, object]] = json.loads(text)
    return found


def test_every_site_lists_all_versions_with_their_pages_newest_first(tmp_path: Path) -> None:
    public = tmp_path / "public"
    for version, pages in (("0.9.0", ["index.html"]), ("0.10.0", ["index.html", "charts/netdra.html"])):
        add(packed(tmp_path, version, *pages), public)
    expected = [
        {"version": "0.10.0", "pages": ["charts/netdra.html", "index.html"]},
        {"version": "0.9.0", "pages": ["index.html"]},
    ]
    assert [listed(public / version) for version in ("0.9.0", "0.10.0")] == [expected, expected]
    assert "url=0.10.0/index.html" in (public / "index.html").read_text(encoding="utf-8")


def test_a_release_is_newer_than_its_candidate_and_its_development_versions(tmp_path: Path) -> None:
    public = tmp_path / "public"
    versions = ["0.2.0.dev5+g1a2b3c4", "0.2.0", "0.2.0rc2", "0.2.0rc10", "0.3.0.dev12+g1a2b3c4", "0.2.0.dev40+g1"]
    for version in versions:
        found = add(packed(tmp_path, version, "index.html"), public)
    newest_first = ["0.3.0.dev12+g1a2b3c4", "0.2.0", "0.2.0rc10", "0.2.0rc2", "0.2.0.dev40+g1", "0.2.0.dev5+g1a2b3c4"]
    assert found == newest_first
    assert "url=0.2.0/index.html" in (public / "index.html").read_text(encoding="utf-8")


def test_a_site_of_the_same_version_is_replaced(tmp_path: Path) -> None:
    public = tmp_path / "public"
    add(packed(tmp_path, "0.2.0", "index.html", "old.html"), public)
    assert add(packed(tmp_path, "0.2.0", "index.html"), public) == ["0.2.0"]
    assert not (public / "0.2.0" / "old.html").exists()
    assert sorted(path.name for path in public.iterdir()) == ["0.2.0", "index.html"]


def test_an_archive_that_is_not_a_site_changes_nothing(tmp_path: Path) -> None:
    public = tmp_path / "public"
    add(packed(tmp_path, "0.2.0", "index.html"), public)
    other = tmp_path / "netdra-0.3.0-site.tar.gz"
    other.write_bytes(b"no archive")
    with pytest.raises(SiteError, match=r"netdra-0\.3\.0-site\.tar\.gz: "):
        add(other, public)
    for name in ("site.tar.gz", "netdra-next-site.tar.gz"):
        with pytest.raises(SiteError, match=r"the name must be netdra-VERSION-site\.tar\.gz"):
            add(other.rename(tmp_path / name), public)
        other = tmp_path / name
    with pytest.raises(SiteError, match=r"is outside of the archive's folder"):
        add(packed(tmp_path, "0.4.0", **{"../../../outside.html": ""}), public)
    assert sorted(path.name for path in public.iterdir()) == ["0.2.0", "index.html"]


def test_the_command_prints_the_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = packed(tmp_path, "0.2.0", "index.html")
    monkeypatch.setattr("sys.argv", ["release", "site", str(archive), str(tmp_path / "public")])
    assert release.__main__.main() == 0
    assert capsys.readouterr().out == f"{tmp_path / 'public'}: 0.2.0\n"
    archive.write_bytes(b"")
    assert release.__main__.main() == 1
    assert "release: " in capsys.readouterr().err
