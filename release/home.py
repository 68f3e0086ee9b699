"""The project's public home: addresses, contacts, people and keys, which one file has (`release/home.toml`).

Read by everything that names an address: the package's metadata, the chart of a release, provenance, the site,
SECURITY-INSIGHTS.yml. A value that is empty is left out there.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from release.version import ROOT

FILE = Path("release/home.toml")
SIGNER = "netdra"
"""The name that a file of allowed signers gives to the project's keys."""
NAMESPACE = "netdra-release"
"""The purpose of a signature, so that one of the same key for another purpose is rejected."""
_ADDRESSES = ("source", "browse", "edit", "docs", "issues")
_MAILS = ("security", "conduct")
_OPTIONAL = frozenset({"edit", "former"})
_KEY = re.compile(r"(ecdsa-sha2-nistp256|ssh-ed25519|sk-[a-z0-9@.-]+|ssh-rsa) [A-Za-z0-9+/=]+( [^\n]*)?")


class HomeError(Exception):
    """The file cannot be read; the text names the value and the rule."""


class Person(NamedTuple):
    """A maintainer."""

    name: str
    email: str


class Key(NamedTuple):
    """A public key of ssh-keygen, and its last day as `YYYY-MM-DD`, "" without an end."""

    key: str
    until: str


class Home(NamedTuple):
    """The home; each value is empty if it is not filled in.

    Attributes:
        source: the repository.
        browse, edit: where a file is read and edited, with `{path}`.
        docs: the site of the documentation.
        issues: where reports are written.
        security, conduct: mail addresses.
        maintainers, former: people.
        keys: that sign releases.
    """

    source: str
    browse: str
    edit: str
    docs: str
    issues: str
    security: str
    conduct: str
    maintainers: tuple[Person, ...]
    former: tuple[Person, ...]
    keys: tuple[Key, ...]

    @property
    def missing(self) -> list[str]:
        """The names of the values that a public release needs and that are empty."""
        return [name for name, value in self._asdict().items() if not value and name not in _OPTIONAL]

    def page(self, path: str) -> str:
        """Where a file of the sources is read, "" without a home."""
        return self.browse.replace("{path}", path)

    def signers(self, *more: str) -> str:
        """The file of allowed signers, as ssh-keygen(1) reads it, with further public keys."""
        lines = [
            f'{SIGNER} namespaces="{NAMESPACE}"{_end(key.until)} {key.key}\n'
            for key in (*self.keys, *(Key(each.strip(), "") for each in more))
        ]
        return "".join(lines)


def _end(until: str) -> str:
    return f',valid-before="{until.replace("-", "")}"' if until else ""


def read(root: Path = ROOT) -> Home:
    """The home that the sources name.

    Raises:
        HomeError: the file is invalid.
    """
    try:
        found = tomllib.loads((root / FILE).read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as problem:
        raise HomeError(f"{FILE}: {problem}") from None
    if unknown := found.keys() ^ set(Home._fields):
        raise HomeError(f"{FILE}: {', '.join(sorted(unknown))}: must be exactly {', '.join(Home._fields)}")
    for name in (*_ADDRESSES, *_MAILS):
        _check(name, found[name])
    for name in ("maintainers", "former", "keys"):
        if not isinstance(found[name], list):
            raise HomeError(f"{FILE}: {name}: {found[name]} must be a list")
    people = {name: tuple(_person(name, each) for each in found[name]) for name in ("maintainers", "former")}
    return Home(**{**found, **people, "keys": tuple(_key(each) for each in found["keys"])})


def _check(name: str, value: Any) -> None:
    pattern = r"[^@\s]+@[^@\s]+\.[a-z]+" if name in _MAILS else r"https://[^\s/]+(/\S*)?(?<!/)"
    if not isinstance(value, str) or (value and re.fullmatch(pattern, value) is None):
        rule = "a mail address" if name in _MAILS else "an address with https:// and without a slash at the end"
        raise HomeError(f'{FILE}: {name}: "{value}" must be {rule}')
    if value and name in ("browse", "edit") and "{path}" not in value:
        raise HomeError(f'{FILE}: {name}: "{value}" must contain {{path}}')


def _person(name: str, value: Any) -> Person:
    if not isinstance(value, dict) or value.keys() != {"name", "email"} or not all(map(_is_text, value.values())):
        raise HomeError(f'{FILE}: {name}: an entry must be {{name = "...", email = "..."}}')
    return Person(**value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _key(value: Any) -> Key:
    given = {"key": value} if isinstance(value, str) else value if isinstance(value, dict) else {}
    key = Key(str(given.get("key", "")), str(given.get("until", "")))
    if _KEY.fullmatch(key.key) is None or re.fullmatch(r"(\d{4}-\d\d-\d\d)?", key.until) is None:
        raise HomeError(f"{FILE}: keys: {value} must be a public key, or one with until as YYYY-MM-DD")
    return key
