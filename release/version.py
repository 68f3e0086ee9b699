"""The version of a build, which distinguishes builds of any two commits: `0.2.0.dev5+g1a2b3c4`.

The tree has the version of the next release with `.dev0`. A build of a tagged commit has the tag's version; every other
build adds the number of commits since the last release, and the commit. It is found once, while netdra is built, and
written into the copy of `netdra/__init__.py` that is packed (`release/build_hook.py`), so netdra never runs git. Called
by hatchling (pyproject.toml), by `image`, and by `python3 -m release`; needs nothing but Python's own library.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MODULE = Path("netdra/__init__.py")
VARIABLE = "NETDRA_VERSION"
"""The environment variable that names the version where the build has no git, as in the Containerfile."""

_ASSIGNED = re.compile(r'^__version__ = "(?P<version>[^"]+)"$', re.MULTILINE)
_TREE = re.compile(r"(?P<next>\d+\.\d+\.\d+)\.dev0")
_BUILT = re.compile(
    r"(?P<number>\d+\.\d+\.\d+)(rc(?P<candidate>\d+))?(\.dev(?P<development>\d+))?(\+(?P<local>[a-z0-9.]+))?"
)
_TAG = re.compile(r"v(?P<number>\d+\.\d+\.\d+)(-rc\.(?P<candidate>\d+))?")
_COMMIT = 7


class VersionError(Exception):
    """The version cannot be determined; the text names the file or variable, its value and the rule."""


class Checkout(NamedTuple):
    """A commit that is built.

    Attributes:
        commit: the whole hash.
        tag: the last release before it or at it, `v0.1.0`, "" if none exists.
        distance: the commits since that tag, or all of them; 0 in a shallow clone without the tag.
        dirty: files differ from the commit.
    """

    commit: str
    tag: str
    distance: int
    dirty: bool


def build_version(tree: str, checkout: Checkout | None) -> str:
    """The version of a build, as PEP 440 has it.

    Args:
        tree: the version that the sources name.
        checkout: the commit that they are of, if they are in git.

    Raises:
        VersionError: the sources name no such version, or another one than the tag of the commit.
    """
    if _BUILT.fullmatch(tree) is None:
        raise VersionError(f'{MODULE}: __version__ "{tree}" must be like 0.2.0.dev0')
    unreleased = _TREE.fullmatch(tree)
    if checkout is None or unreleased is None:
        return tree
    following = unreleased["next"]
    tag = _TAG.fullmatch(checkout.tag)
    if tag is not None and checkout.distance == 0 and not checkout.dirty:
        if tag["number"] != following:
            raise VersionError(f'tag "{checkout.tag}" does not match __version__ "{tree}" in {MODULE}')
        return following + (f"rc{tag['candidate']}" if tag["candidate"] else "")
    if tag is not None and not tag["candidate"] and _numbers(tag["number"]) >= _numbers(following):
        major, minor, patch = _numbers(tag["number"])
        following = f"{major}.{minor}.{patch + 1}"
    commit = f"g{checkout.commit[:_COMMIT]}" + (".dirty" if checkout.dirty else "")
    return f"{following}.dev{checkout.distance}+{commit}"


def chart_version(version: str) -> str:
    """The same version as semantic versioning has it: `0.2.0-dev.5+g1a2b3c4`."""
    parts = _parts(version)
    before = [f"rc.{parts['candidate']}"] if parts["candidate"] else []
    before += [f"dev.{parts['development']}"] if parts["development"] else []
    text = "-".join([parts["number"] or "", ".".join(before)]) if before else parts["number"] or ""
    return f"{text}+{parts['local']}" if parts["local"] else text


def image_tag(version: str) -> str:
    """The same version as a tag of an image and a value of a label, which cannot have a plus: Helm's replacement."""
    return version.replace("+", "_")


def is_release(version: str) -> bool:
    """Whether a version is that of a tagged commit."""
    parts = _parts(version)
    return parts["development"] is None and parts["local"] is None


def tree_version(root: Path = ROOT) -> str:
    """The version that sources name.

    Raises:
        VersionError: they name none.
    """
    found = _ASSIGNED.search((root / MODULE).read_text(encoding="utf-8"))
    if found is None:
        raise VersionError(f'{root / MODULE}: __version__ = "..." not found')
    return found["version"]


def version(root: Path = ROOT, commit: str = "HEAD") -> str:
    """The version of a build of the sources: the environment's, else that of the sources and their commit.

    Raises:
        VersionError: it cannot be determined.
    """
    if named := os.environ.get(VARIABLE, ""):
        if _BUILT.fullmatch(named) is None:
            raise VersionError(f'{VARIABLE} "{named}" must be like 0.2.0 or 0.2.0.dev5+g1a2b3c4')
        return named
    tree = tree_version(root)
    return build_version(tree, checkout_of(root, commit) if _TREE.fullmatch(tree) else None)


def checkout_of(root: Path, commit: str = "HEAD", paths: tuple[str, ...] = ()) -> Checkout | None:
    """A commit in git, if these sources are the whole of a git checkout, and git is installed.

    Args:
        root: the folder of the sources.
        commit: the commit that is described.
        paths: the files that count as changed; all where none exist.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    known = _git(root, "rev-parse", "--verify", f"{commit}^{{commit}}")
    if not known or Path(top).resolve() != root.resolve():  # an unpacked sdist may lie in a foreign checkout
        return None
    tag = _git(root, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", known)
    is_shallow = not tag and _git(root, "rev-parse", "--is-shallow-repository") == "true"
    distance = 0 if is_shallow else int(_git(root, "rev-list", "--count", f"{tag}..{known}" if tag else known))
    dirty = bool(_git(root, "status", "--porcelain", "--untracked-files=no", "--", *paths))
    return Checkout(known, tag, distance, dirty)


def _git(root: Path, *arguments: str) -> str:
    """The output of git, "" if it fails or is not installed."""
    try:
        done = subprocess.run(("git", "-C", str(root), *arguments), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _parts(version: str) -> dict[str, str | None]:
    found = _BUILT.fullmatch(version)
    if found is None:
        raise VersionError(f'version "{version}" must be like 0.2.0 or 0.2.0.dev5+g1a2b3c4')
    return found.groupdict()


def _numbers(text: str) -> tuple[int, int, int]:
    major, minor, patch = map(int, text.split("."))
    return major, minor, patch
