"""`python3 -m release`: the version of a build, a release's folder (`make release`) and its verification.

Two commands change the sources: `date` before a release, `begin` after it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from release import advisories, ages, changelog, folder, home, insights, provenance, signatures, site
from release.version import MODULE, ROOT, VersionError, chart_version, checkout_of, is_release, tree_version, version

OUTPUT = ROOT / "build" / "release"
LOCAL_KEY = ROOT / "build" / "release-key"
"""The key of LOCAL=1, which stays for the next build."""
PROBLEMS = (
    *(advisories.AdvisoryError, changelog.ChangelogError, folder.ReleaseError, home.HomeError),
    *(provenance.ProvenanceError, signatures.SignatureError, site.SiteError, VersionError),
)


def main() -> int:
    """Parse the arguments, run the command, and return the exit code."""
    parser = argparse.ArgumentParser(prog="release", description="netdra's releases.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version", help="print the version that a build of this commit has")
    build = commands.add_parser("build", help="build everything into build/release")
    build.add_argument("--key", type=Path, help="sign with this key of ssh-keygen")
    build.add_argument("--local", action="store_true", help="sign with a key of this checkout, for yourself")
    build.add_argument("--site", type=Path, help="the folder of the documentation's site")
    key = commands.add_parser("key", help="make the key of a maintainer, and print the line for release/home.toml")
    key.add_argument("file", type=Path, help="the private key; the public one is beside it, as FILE.pub")
    key.add_argument("--name", default="maintainer", help="the name in the public key")
    key.add_argument("--no-passphrase", action="store_true", help="for a secret of CI")
    verify = commands.add_parser("verify", help="verify the signature and all files of a release, offline")
    verify.add_argument("folder", type=Path)
    verify.add_argument(
        "--signers", type=Path, help="file of allowed signers; by default the keys of release/home.toml"
    )
    compare = commands.add_parser("compare", help="compare build/release with the files of a release, built elsewhere")
    compare.add_argument("folder", type=Path, help="the release")
    add = commands.add_parser("site", help="add the site of a release to a folder with the sites of several")
    add.add_argument("archive", type=Path, help="netdra-VERSION-site.tar.gz")
    add.add_argument("folder", type=Path, help="is served as a whole, or opened on a disk")
    commands.add_parser("signers", help="print the file of allowed signers: the keys of release/home.toml")
    commands.add_parser("date", help="date the unreleased section of the changelog, for the version of the sources")
    commands.add_parser("home", help="print the people who make releases, and the missing values of release/home.toml")
    commands.add_parser("insights", help=f"write {insights.FILE}")
    known = commands.add_parser("advisories", help="find known vulnerabilities of the dependencies, offline")
    known.add_argument("database", type=Path, help="a folder or a zip of advisories in OSV's format")
    known.add_argument("--lock", type=Path, default=ROOT / ages.LOCK, help="the pinned versions")
    begin = commands.add_parser("begin", help="write the next version into the sources and charts, after a release")
    begin.add_argument("number", help="0.3.0")
    arguments = parser.parse_args()
    try:
        return _run(arguments)
    except PROBLEMS as problem:
        print(f"release: {problem}", file=sys.stderr)
        return 1


def _run(arguments: argparse.Namespace) -> int:
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "version": _version,
        "build": _build,
        "key": _key,
        "verify": _verify,
        "compare": _compare,
        "site": _site,
        "signers": _signers,
        "date": _date,
        "home": _home,
        "insights": _insights,
        "advisories": _advisories,
        "begin": _begin,
    }
    return commands[arguments.command](arguments)


def _version(_arguments: argparse.Namespace) -> int:
    print(version())
    return 0


def _build(arguments: argparse.Namespace) -> int:
    build(arguments.key, arguments.site, local=arguments.local)
    return 0


def _key(arguments: argparse.Namespace) -> int:
    public = signatures.make_key(arguments.file, arguments.name, "" if arguments.no_passphrase else None)
    print(f'"{public}",')
    return 0


def _signers(_arguments: argparse.Namespace) -> int:
    print(home.read().signers(), end="")
    return 0


def _begin(arguments: argparse.Namespace) -> int:
    begin(arguments.number)
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as own:
        signers = arguments.signers or Path(own) / signatures.SIGNERS
        if arguments.signers is None:
            signers.write_text(home.read().signers(), encoding="utf-8")
        files = signatures.verify(arguments.folder, signers)
    print(f"{arguments.folder}: {files} files are those that {home.SIGNER} signed")
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    subjects = provenance.subjects(arguments.folder)
    built = {path.name: provenance.digest_of(path) for path in OUTPUT.glob("*")}
    different = [name for name, digest in subjects.items() if built.get(name) != digest]
    for name in different:
        print(f"{name} differs from the file of the release")
    print(f"{OUTPUT}: {len(subjects) - len(different)} of {len(subjects)} files are those of {arguments.folder}")
    return 1 if different else 0


def _site(arguments: argparse.Namespace) -> int:
    print(f"{arguments.folder}: {', '.join(site.add(arguments.archive, arguments.folder))}")
    return 0


def _date(_arguments: argparse.Namespace) -> int:
    path = ROOT / "CHANGELOG.md"
    number = tree_version().partition(".dev")[0]
    text = changelog.dated(path.read_text(encoding="utf-8"), number, f"{datetime.now(UTC):%Y-%m-%d}")
    path.write_text(text, encoding="utf-8")
    return 0


def _home(_arguments: argparse.Namespace) -> int:
    found = home.read()
    for person in found.maintainers:
        print(f"{person.name} <{person.email}>")
    print(found.signers(), end="")
    if found.missing:
        print(f"{home.FILE} lacks: {', '.join(found.missing)}", file=sys.stderr)
    return 1 if found.missing else 0


def _insights(_arguments: argparse.Namespace) -> int:
    (ROOT / insights.FILE).write_text(insights.insights(home.read()), encoding="utf-8")
    return 0


def _advisories(arguments: argparse.Namespace) -> int:
    try:
        locked = ages.pinned(arguments.lock.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise advisories.AdvisoryError(f"{arguments.lock}: {problem}") from None
    if not locked:
        raise advisories.AdvisoryError(f"{arguments.lock}: no pinned version found; --lock must be a file of pip")
    result = advisories.check(arguments.database, locked)
    for finding in result.findings:
        print(finding)
    print(f"{len(locked)} packages, {result.read} advisories: {len(result.findings)} findings", file=sys.stderr)
    return 1 if result.findings else 0


def build(key: Path | None, site: Path | None = None, *, local: bool = False) -> None:
    """Build a release of the commit that is checked out, and sign it if there is a key.

    Args:
        key: of ssh-keygen.
        site: the folder of the documentation's site.
        local: for the builder alone: without a public home, and with a key that is made here if none is named.

    Raises:
        ReleaseError: files differ from the commit, or the sources lack what a tagged release needs.
    """
    from image.__main__ import ARCHITECTURES, ImageError, Revision, read
    from image.__main__ import build as build_image
    from image.rootfs import SBOM

    checkout = checkout_of(ROOT)
    if checkout is None:
        raise folder.ReleaseError(f"{ROOT} is not a git checkout: a release is built of a commit")
    if checkout.dirty:
        raise folder.ReleaseError("files differ from the commit: commit or stash them first")
    built = version()
    folder.check_sources(built, local=local)
    key = _key_of(built, key, local=local)
    epoch = int(_git("log", "-1", "--format=%ct"))
    images = {}
    for architecture in ARCHITECTURES:
        try:
            image = build_image(architecture=architecture, revision=Revision(checkout.commit, epoch, built))
        except ImageError as problem:
            raise folder.ReleaseError(f"image for {architecture}: {problem}") from None
        images[architecture] = folder.ImageFile(image.archive, read(image.archive, SBOM))
    folder.assemble(OUTPUT, built, checkout, epoch, images, site)
    if key is not None:
        signatures.sign_release(OUTPUT, key, home.read(), epoch, local=local)
        if local or is_release(built):
            signatures.verify(OUTPUT, OUTPUT / signatures.SIGNERS)
    for path in sorted(OUTPUT.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path.relative_to(ROOT)}")
    if key is None:
        print("release: not signed: no key (make release KEY=FILE)", file=sys.stderr)


def _key_of(built: str, key: Path | None, *, local: bool) -> Path | None:
    """The key that signs a build: the named one, or with `local` that of this checkout, made the first time."""
    if key is None and local:
        if not LOCAL_KEY.exists():
            signatures.make_key(LOCAL_KEY, "local", "")
        return LOCAL_KEY
    if key is None and is_release(built):
        raise folder.ReleaseError(
            f"{built} is a release: name the key that signs it (make release KEY=FILE, or LOCAL=1)"
        )
    return key


def begin(number: str) -> None:
    """Write the next version into the sources and charts, and the present one as that from which upgrades are tested.

    That is the commit of its tag, which a clone without tags has, too.

    Raises:
        VersionError: it is not a version of a release, or the present one has no tag.
    """
    if re.fullmatch(r"\d+\.\d+\.\d+", number) is None:
        raise VersionError(f'version "{number}" must be like 0.3.0')
    tree = f"{number}.dev0"
    released = tree_version().partition(".dev")[0]
    try:
        commit = _git("rev-list", "--max-count=1", f"v{released}")
    except subprocess.CalledProcessError:
        raise VersionError(f"tag v{released} not found: tag the commit of the release first") from None
    (ROOT / "release" / "previous").write_text(commit, encoding="utf-8")
    _replace(ROOT / MODULE, r'^__version__ = ".*"$', f'__version__ = "{tree}"')
    for path in (ROOT / "charts").glob("*/Chart.yaml"):
        _replace(path, r"^version: .*$", f"version: {chart_version(tree)}")
        _replace(path, r"^appVersion: .*$", f"appVersion: {tree}")


def _replace(path: Path, pattern: str, line: str) -> None:
    text, count = re.subn(pattern, line, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if count != 1:
        raise VersionError(f"{path}: a line like {pattern} must be there once, but is there {count} times")
    path.write_text(text, encoding="utf-8")


def _git(*arguments: str) -> str:
    return subprocess.run(("git", "-C", str(ROOT), *arguments), capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
