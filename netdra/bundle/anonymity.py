"""Makes the content of a bundle anonymous: each name and address becomes a made-up one, the same everywhere.

The mapping works on words, MAC and IP addresses and uids, wherever they occur. So a class that is called after its
topology still is, a selector still selects, and an address stays inside of its range: `netdra why` finds the same
cause. A word stays only if it is one of `known_words`. Numbers and times stay.

Used in rounds: the first one collects the words, which then get pseudonyms in their own order, so lists stay sorted.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import itertools
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

import netdra
from netdra.discovery.pseudonyms import is_usual_name
from netdra.model.inventory import ATTRIBUTES, TYPES

_ALPHABET = "bcdfghjklmnpqrstvwz"
_UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_MAC = r"[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5,19}"
_SPECIAL = re.compile(
    rf"(?P<uuid>(?<![^\W_]){_UUID}(?![^\W_]))"
    rf"|(?P<time>(?<!\d)\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))"
    rf"|(?P<pci>(?<![\w:])[0-9a-f]{{4,5}}:[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-7](?!\w)|(?<!\w)pci[0-9a-f]{{4,5}}:[0-9a-f]{{2}}(?!\w))"
    rf"|(?P<mac>(?<![\w:]){_MAC}(?![\w:]))"
    r"|(?P<six>(?<![\w:])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?:\.\d{1,3}){0,3}(?:/\d{1,3})?(?![\w:]))"
    r"|(?P<four>(?<!\d)(?<!\d\.)\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?(?!\.?\d))"
    r"|(?P<domain>(?<![\w.-])(?:[a-z-]{1,40}\.){0,3}(?:kubernetes\.io|k8s\.io|dra\.networking|dra\.io)(?:/[A-Za-z0-9][\w.-]*)?)",
    re.ASCII,
)
_RUN = re.compile(r"[^\W_]+")
_LETTERS = re.compile(r"[^\W\d_]+")
_TOKEN = re.compile(r"(?P<lead>[=\"'`]?)(?P<token>[^\W_](?:[\w./@+~-]*[^\W_])?)")
_LONG_NUMBER = re.compile(r"\d{5}")
_MIXED = 12
"""Characters of a run of letters and digits from which on it may be a MAC address, a serial number or a hash."""
_IDENTIFIER = re.compile(r"[0-9a-f]{4}")
_WHOLE = frozenset({"ephemeral-storage", "kube-system"})
_TEXTS = frozenset(
    {"check", "details", "error", "exception", "file_problem", "fix", "hint", "level", "logger", "message", "note"}
    | {"problem", "reason", "seen", "state", "text", "what", "where"}
)
"""The fields with sentences of netdra and Kubernetes; all others hold names and values."""
_PLAIN = frozenset(
    {"affinity", "config", "data", "last_state", "metadata", "node_selector", "parameters", "state", "undo"}
)
"""The fields with objects of others, whose keys are words of their kind."""
_NAMED = frozenset({"labels", "matchLabels", "nodeSelector"})
_KEPT_BITS = {4: 8, 6: 16}
"""The last bits of an address, which stay."""
_FIXED = tuple(map(ipaddress.ip_network, ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "::/8", "ff00::/8")))
"""Networks whose addresses are the same on every machine, and stay."""
_RANGES = (
    *("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15"),
    *("fc00::/7", "fe80::/10", "2000::/3"),
)
_MEANT = (*_FIXED, *map(ipaddress.ip_network, _RANGES))
"""Networks with a meaning of their own; an address stays inside of its network."""

T = TypeVar("T")
_WORD = re.compile(r"[A-Za-z]+")
_LITERAL = re.compile(r"Literal\[(.*?)\]", re.DOTALL)
_QUOTED = re.compile(r'"([^"]*)"')

_NAMES, _SENTENCES = (Path(__file__).with_name(f"{name}.txt") for name in ("names", "sentences"))


class Pseudonymity(msgspec.Struct, kw_only=True):
    """A mapping, which stays with its owner.

    Attributes:
        key: the secret that addresses are mapped by, in hexadecimal.
        originals: by pseudonym, the word, address or uid that it stands for.
    """

    key: str
    originals: dict[str, str] = {}


class Anonymizer:
    """Maps values to anonymous ones. A mapping that is given is continued."""

    def __init__(self, known: Pseudonymity | None = None) -> None:
        self.mapping = known if known is not None else Pseudonymity(key=secrets.token_hex(32))
        self._key = bytes.fromhex(self.mapping.key)
        self._words = known_words()
        self._made = {original: made for made, original in self.mapping.originals.items()}
        self._new: set[str] = set()
        self._free = self._pseudonyms()
        self._addresses: dict[str, str] = {}

    def apply(self, change: Callable[[], T]) -> T:
        """The result of a function that maps values, once every word has its pseudonym.

        A word that turns out to be a name in one value is replaced in the sentences of the others, too.
        """
        while True:
            result = change()
            if not self._new:
                return result
            for word in sorted(self._new):
                self._keep(next(self._free), word)
            self._new.clear()

    def value(self, value: Any, field: str = "", *, is_plain: bool = False) -> Any:
        """A value of the model, or a plain one, as plain data.

        Args:
            field: the name of the field that it is in.
            is_plain: whether it is part of an object of another program.
        """
        if isinstance(value, str):
            return self.text(value) if field in _TEXTS else self.name(value)
        if isinstance(value, msgspec.Struct):
            return self._struct(value)
        if isinstance(value, Mapping):
            return self._object(value, field, is_plain=is_plain or field in _PLAIN)
        if isinstance(value, list | tuple | frozenset | set):
            return [self.value(entry, field, is_plain=is_plain or field in _PLAIN) for entry in value]
        return value

    def name(self, text: str) -> str:
        """A name, or any value or expression: only words that are used on every machine stay."""
        if text in _WHOLE or (_IDENTIFIER.fullmatch(text) and not text.isalpha()):
            return text
        return self._split(text, self._runs)

    def text(self, text: str) -> str:
        """A sentence of netdra or Kubernetes: its words stay, names in it do not."""
        return self._split(text, lambda part: _TOKEN.sub(self._token, part))

    def _struct(self, value: msgspec.Struct) -> dict[str, Any]:
        config = value.__struct_config__
        plain = {config.tag_field: config.tag} if config.tag_field and isinstance(config.tag, str) else {}
        for field in _fields(type(value)):
            entry = getattr(value, field.name)
            is_default = entry == _default(field)
            if config.omit_defaults and is_default:
                continue
            kept = field.name in ("kind", "api_version") and is_default
            plain[field.encode_name] = entry if kept else self.value(entry, field.name)
        return plain

    def _object(self, value: Mapping[Any, Any], field: str, *, is_plain: bool) -> dict[str, Any]:
        by_word = is_plain and field not in _NAMED
        return {
            self._keyword(str(key)) if by_word else self.name(str(key)): self.value(
                entry, str(key) if by_word else field if field in _TEXTS else "", is_plain=is_plain
            )
            for key, entry in value.items()
        }

    def _keyword(self, key: str) -> str:
        return key if key.isascii() and key.isalpha() and key in self._words.texts else self.name(key)

    def _split(self, text: str, rest: Callable[[str], str]) -> str:
        """A text, its addresses and identifiers mapped, and the parts between them by a function."""
        parts, end = [], 0
        for match in _SPECIAL.finditer(text):
            parts += [rest(text[end : match.start()]), self._special(match)]
            end = match.end()
        return "".join([*parts, rest(text[end:])])

    def _special(self, match: re.Match[str]) -> str:
        found = match[0]
        if match.lastgroup in ("time", "pci"):
            return found
        if match.lastgroup == "uuid":
            return self._numbered(found, lambda number: f"00000000-0000-4000-8000-{number:012x}")
        if match.lastgroup == "mac":
            return self._mac(found)
        return self._domain(found) if match.lastgroup == "domain" else self._address(found)

    def _domain(self, found: str) -> str:
        domain, slash, rest = found.partition("/")
        return f"{self._domain_name(domain)}{slash}{self._domain_name(rest)}"

    def _domain_name(self, name: str) -> str:
        """A domain of Kubernetes or netdra, or the name of a label or an attribute in it."""
        words = _LETTERS.findall(name)
        return name if all(word in self._words.texts for word in words) else self._runs(name)

    def _token(self, match: re.Match[str]) -> str:
        lead, token = match["lead"], match["token"]
        words = _LETTERS.findall(token)
        known = all(word in self._words.texts for word in words)
        is_name = any(word in self._made or word in self._new for word in words)
        if known and (not is_name or (not lead and token.isalpha())) and not _LONG_NUMBER.search(token):
            return match[0]
        return f"{lead}{self._runs(token)}"

    def _runs(self, text: str) -> str:
        return _RUN.sub(self._run, text)

    def _run(self, match: re.Match[str]) -> str:
        run = match[0]
        if is_usual_name(run):
            return run
        is_mixed = not run.isalpha() and not run.isdecimal()
        if is_mixed and (len(run) >= _MIXED or _LONG_NUMBER.search(run)):
            return self._word(run)
        if run.isdecimal() and len(run) >= len("00000") and _joins(match):
            return self._word(run)
        return _LETTERS.sub(lambda letters: self._letters(letters[0]), run)

    def _letters(self, letters: str) -> str:
        is_kept = (len(letters) == 1 and letters.isascii()) or letters in self._words.names
        return letters if is_kept else self._word(letters)

    def _word(self, word: str) -> str:
        made = self._made.get(word)
        if made is not None:
            return made
        self._new.add(word)
        return word

    def _mac(self, found: str) -> str:
        digits = re.sub("[:-]", "", found).lower()
        if not digits.strip("0"):
            return found
        size = len(digits) // 2 - 1
        return self._numbered(digits, lambda number: (b"\x02" + number.to_bytes(size, "big")).hex(":"), found)

    def _address(self, found: str) -> str:
        made = self._addresses.get(found)
        if made is None:
            try:
                interface = ipaddress.ip_interface(found)
            except ValueError:
                return self._runs(found)
            made = self._addresses[found] = self._map_address(found, interface)
        return made

    def _map_address(self, found: str, interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface) -> str:
        host, length = interface.ip, interface.network.prefixlen
        if any(host in network for network in _FIXED if network.version == host.version):
            return found
        is_network = "/" in found and host == interface.network.network_address
        bits = self._mapped(int(host), host.max_prefixlen, host.version)
        if is_network:
            bits &= int(interface.network.netmask)
        made = str(type(host)(bits))
        self._keep(made, str(host))
        return f"{made}/{length}" if "/" in found else made

    def _mapped(self, address: int, width: int, version: int) -> int:
        """An address whose common prefixes with others are as long as before (Crypto-PAn, Xu et al. 2002)."""
        mapped, first = address, self._first_bit(address, width, version)
        for bit in range(first, width - _KEPT_BITS[version]):
            prefix = f"{version}/{bit}/{address >> (width - bit):x}".encode()
            if hmac.digest(self._key, prefix, hashlib.sha256)[0] & 1:
                mapped ^= 1 << (width - 1 - bit)
        return mapped

    def _first_bit(self, address: int, width: int, version: int) -> int:
        """The first bit that may change: the prefixes of networks with a meaning stay."""
        first = 0
        for network in _MEANT:
            if network.version == version:
                differing = address ^ int(network.network_address)
                common = width - differing.bit_length()
                first = max(first, min(common + 1, network.prefixlen))
        return first

    def _numbered(self, original: str, make: Callable[[int], str], found: str = "") -> str:
        made = self._made.get(found or original) or self._made.get(original)
        if made is not None:
            return made
        made = next(entry for number in itertools.count(1) if (entry := make(number)) not in self.mapping.originals)
        self._made[original] = made
        self._keep(made, found or original)
        return made

    def _keep(self, made: str, original: str) -> None:
        self.mapping.originals[made] = original
        self._made[original] = made

    def _pseudonyms(self) -> Iterator[str]:
        """Words in their order that netdra and other programs do not use."""
        made = ("x" + "".join(letters) for size in (3, 4, 5) for letters in itertools.product(_ALPHABET, repeat=size))
        last = max(
            (word for word in self.mapping.originals if word.isalpha()), key=lambda word: (len(word), word), default=""
        )
        return (
            word
            for word in made
            if (len(word), word) > (len(last), last) and word not in self._words.texts and word not in self._made
        )


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    """The default of a structure's field; NODEFAULT if a value must be given."""
    factory = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


def _joins(match: re.Match[str]) -> bool:
    """Whether a number is a part of a name."""
    before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
    return before in ("-", "_", ".") or after in ("-", "_", ".")


_MADE = re.compile(
    rf"{_UUID}|{_MAC}|[0-9a-fA-F]{{0,4}}(?::[0-9a-fA-F]{{0,4}}){{2,7}}|\d{{1,3}}(?:\.\d{{1,3}}){{3}}|[^\W\d_]+"
)


def restore(value: Any, mapping: Pseudonymity) -> Any:
    """Plain data with the originals in place of the pseudonyms."""
    if isinstance(value, str):
        return _MADE.sub(lambda match: mapping.originals.get(match[0], match[0]), value)
    if isinstance(value, Mapping):
        return {restore(key, mapping): restore(entry, mapping) for key, entry in value.items()}
    return [restore(entry, mapping) for entry in value] if isinstance(value, list | tuple) else value


class KnownWords(NamedTuple):
    """The words that stay: those of netdra, of Kubernetes, of CNI and of the kernel.

    Attributes:
        texts: in sentences that netdra and Kubernetes write.
        names: also in names and values, so no word by which people call their things is one of them.
    """

    texts: frozenset[str]
    names: frozenset[str]


@cache
def known_words() -> KnownWords:
    """The words of netdra's own sources, and the lists of this module."""
    root = Path(netdra.__file__).parent
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}
    words = {word for text in sources.values() for word in _WORD.findall(text)}
    names = {word for word in words if word != word.lower()} | set(_WORD.findall(_NAMES.read_text("utf-8")))
    for path, text in sources.items():
        if path.parent.name in ("model", "steps"):
            names.update(
                word for found in _LITERAL.findall(text) for word in _WORD.findall(" ".join(_QUOTED.findall(found)))
            )
    names.update(word for attribute in ATTRIBUTES for word in _WORD.findall(attribute.name))
    names.update(word for kind in TYPES for word in _WORD.findall(kind))
    return KnownWords(frozenset(words | names | set(_WORD.findall(_SENTENCES.read_text("utf-8")))), frozenset(names))
