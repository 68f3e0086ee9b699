"""Adds the site of a release to a folder with the sites of several, which a home serves: `python3 -m release site`.

Each version is a folder of its own. The list of versions is a script of each site, `_static/versions.js`, so pages
fetch nothing, and a reader can switch between versions that lie on a disk, too. The text of the switch is
docs/_static/site.js.
"""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

LIST = PurePosixPath("_static/versions.js")
_ARCHIVE = re.compile(r"netdra-(?P<version>.+)-site\.tar\.gz")
_VERSION = re.compile(
    r"(?P<numbers>\d+\.\d+\.\d+)(?P<rest>rc(?P<candidate>\d+)|\.dev(?P<commits>\d+)?(?:[+._]\w[\w.]*)?)?"
)
_FIRST = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>netdra</title>
<meta http-equiv="refresh" content="0; url={version}/index.html"></head>
<body><a href="{version}/index.html">netdra {version}</a></body></html>
"""


class SiteError(Exception):
    """The site cannot be added; the text names the file and the rule."""


def add(archive: Path, folder: Path) -> list[str]:
    """Add a release's site to a folder, in place of one of the same version, and return all versions, newest first.

    Args:
        archive: `netdra-VERSION-site.tar.gz` of a release.
        folder: is made if it is missing.

    Raises:
        SiteError: the archive has another name, or is not a site.
    """
    found = _ARCHIVE.fullmatch(archive.name)
    if found is None or _VERSION.fullmatch(found["version"]) is None:
        raise SiteError(f"{archive}: the name must be netdra-VERSION-site.tar.gz")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as place:
        _unpack(archive, Path(place))
        target = folder / found["version"]
        shutil.rmtree(target, ignore_errors=True)
        (Path(place) / "site").rename(target)
    versions = sorted((path.name for path in folder.iterdir() if (path / LIST).is_file()), key=_order, reverse=True)
    text = _listed({version: _pages(folder / version) for version in versions})
    for version in versions:
        (folder / version / LIST).write_text(text, encoding="utf-8")
    newest = next((version for version in versions if version.replace(".", "").isdigit()), versions[0])
    (folder / "index.html").write_text(_FIRST.format(version=newest), encoding="utf-8")
    return versions


def _unpack(archive: Path, place: Path) -> None:
    """Write the files of an archive, without its top folder, to the folder `site` of a place."""
    try:
        with tarfile.open(archive) as packed:
            files = {PurePosixPath(*Path(member.name).parts[1:]): member for member in packed if member.isfile()}
            if LIST not in files:
                raise SiteError(f"{archive}: {LIST} not found: the archive is not the site of netdra 0.2.0 or later")
            for path, member in files.items():
                if ".." in path.parts or path.is_absolute():
                    raise SiteError(f"{archive}: {member.name} is outside of the archive's folder")
                target = place / "site" / path
                target.parent.mkdir(parents=True, exist_ok=True)
                content = packed.extractfile(member)
                target.write_bytes(content.read() if content is not None else b"")
    except (OSError, tarfile.TarError) as problem:
        raise SiteError(f"{archive}: {problem}") from None


def _listed(pages: dict[str, list[str]]) -> str:
    """The script that names the versions, newest first, with the pages of each."""
    return f"window.netdraVersions = {json.dumps([{'version': name, 'pages': pages[name]} for name in pages])};\n"


def _pages(site: Path) -> list[str]:
    return sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))


def _order(version: str) -> tuple[tuple[int, ...], int, int]:
    """Versions in their order: a development version before a candidate, and that before the release."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return ((), 0, 0)
    numbers = tuple(map(int, found["numbers"].split(".")))
    if not found["rest"]:
        return (numbers, 2, 0)
    return (numbers, 1, int(found["candidate"])) if found["candidate"] else (numbers, 0, int(found["commits"] or 0))
