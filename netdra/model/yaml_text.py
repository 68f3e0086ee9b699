"""YAML text to plain values and back, within bounds for nesting, repetition and merging.

Used by `netdra.model.documents`, and by the command line where it marks the lines of a text. PyYAML reads; texts that
its C parser would not survive, or that expand too much, are found here. JSON is read as YAML. A scalar
without quotes is a number or a text as for kubectl (sigs.k8s.io/yaml), so that a file has one meaning.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, ClassVar

import msgspec
import yaml

from netdra.model.errors import UNREADABLE, InvalidInputError

_JSON = json.JSONDecoder()
_CONTENT = re.compile(r"\S")
MAX_TEXT = 128 * 1024 * 1024
"""Characters of JSON: the ResourceSlices of 250 nodes with 131 devices each, whole with 530 MiB of memory."""
MAX_YAML = 16 * 1024 * 1024
"""Characters of YAML, of which PyYAML takes up to 45 bytes of memory and 1 µs each."""
MAX_NESTING = 500
MAX_VALUES = 1_000_000
MAX_MERGED = 1_000
SYNTAX = "the mistake may also be on a line before"
TWICE = "remove one of the two"
APART = 'write "---" on a line between the two objects'
_HEAD = ("apiVersion", "kind", "metadata")
"""The keys that an object begins with: twice at the left margin, they are those of two objects."""
_NUMERIC = r"[-+.]?\d\S*\Z"
_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_EXACT = 1e21
_MERGE = "tag:yaml.org,2002:merge"
_NULL = "tag:yaml.org,2002:null"
_MAX_KEY = 80
_TEXT = "tag:yaml.org,2002:str"
_KEYS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float"))
_BETWEEN_DIGITS = r"(?<=[0-9])_(?=[0-9])"
_BRACKETS = re.compile(r"[\[\]{}]")
_AS_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SHALLOW = 64
_LARGE = 1024 * 1024
"""Characters from which on the items of a JSON List are read one by one."""
_QUOTE_BY_NUMBER = "\\u0022"
_BLANK_BEFORE_COLON = re.compile(r'"[ \t\r\n]+:')
_BLANKS_BEFORE_COLON = (" :", "\t:", "\r:", "\n:")
"""One of these is in each text that the pattern finds, and they are found ten times faster."""
_INDENTED = re.compile(rf"^(?:[ ]|[-?:][ \t]){{{MAX_NESTING},}}", re.MULTILINE)


def syntax_hint(line: str) -> str:
    """The next step for a line that is not YAML, for common mistakes."""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "indent with spaces: YAML does not allow tabs"
    if re.search(r":\s*\{\{|[\[,]\s*\{\{", line):
        return 'put a text that begins with {{ in quotes: "{{ … }}"'
    return SYNTAX


class KeyProblem(yaml.YAMLError):
    """A key that stands twice in a mapping, or that is not a text.

    Attributes:
        line: the key's line, from 1.
        hint: what to do about it.
    """

    def __init__(self, what: str, line: int, hint: str) -> None:
        super().__init__(what)
        self.line = line
        self.hint = hint


def load(text: str, origin: str, *, strict: bool = True) -> Iterator[Any]:
    """The plain values in a YAML (or JSON) text, one for each document.

    Args:
        origin: where it is from, for errors.
        strict: whether a key may stand only once in a mapping, as kubectl has it; else the last one counts.

    Raises:
        InvalidInputError: it is neither, or is longer, deeper or larger than is read.
    """
    if len(text) > MAX_TEXT:
        what = f"{origin}: {len(text)} characters, more than the limit of {MAX_TEXT}"
        raise InvalidInputError(what, hint="split it, for example by nodes", code="ND1544")
    if nests_too_deeply(text):
        raise InvalidInputError(f"{origin}: nested deeper than {MAX_NESTING} levels", code="ND1545")
    try:  # JSON is YAML too, but its own reader is many times faster
        value = msgspec.json.decode(text)
    except UNREADABLE:
        places = json_stream(text)
        for first, end in places:
            yield from load(text[first:end], origin, strict=strict)
        if not places:
            yield from _load_yaml(text, origin, strict=strict)
        return
    if strict and not _has_each_once(text, value) and (key := _repeated(text)) is not None:
        _refuse_repeated(text, key, origin)
    yield value


def load_items(text: str, origin: str, *, strict: bool = True) -> Iterator[Any] | None:
    """The items of a large JSON text that is one List of Kubernetes, each read when it is wanted; None for other texts.

    The plain values of all slices of a cluster take eight times the memory of their text. Arguments as of `load`.

    Raises:
        InvalidInputError: while items are read, as by `load`.
    """
    if not _LARGE <= len(text) <= MAX_TEXT:
        return None
    try:
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        items = msgspec.json.decode(fields.pop("items", msgspec.Raw(b"")), type=list[msgspec.Raw])
        head = {name: msgspec.json.decode(value) for name, value in fields.items()}
    except UNREADABLE:
        return None
    keys = text.count('":') - sum(bytes(item).count(b'":') for item in items)
    is_clear = keys == msgspec.json.encode({**head, "items": ()}).count(b'":')  # as `_has_each_once`
    is_list = str(head.get("kind")).endswith("List")
    return _read_items(items, text, origin, strict=strict) if is_list and is_clear else None


def _read_items(items: list[msgspec.Raw], text: str, origin: str, *, strict: bool) -> Iterator[Any]:
    for item in items:
        part = bytes(item).decode()
        try:
            value = msgspec.json.decode(part)
            is_plain = not _has_deep_brackets(part) and (not strict or _has_each_once(part, value))
        except UNREADABLE:
            is_plain = False
        if is_plain:
            yield value
            continue
        try:
            yield from load(part, origin, strict=strict)
        except InvalidInputError:
            for _ in load(text, origin, strict=strict):  # its error has the line in the whole text
                pass
            raise


def _load_yaml(text: str, origin: str, *, strict: bool) -> Iterator[Any]:
    """See `load`."""
    if len(text) > MAX_YAML:
        what = f"{origin}: {len(text)} characters of YAML, more than the limit of {MAX_YAML}"
        raise InvalidInputError(
            what, hint=f"write JSON (kubectl get -o json), whose limit is {MAX_TEXT}, or split it", code="ND1546"
        )
    try:
        for value in yaml.load_all(text, Loader=StrictLoader if strict else Loader):
            refuse_many_values(value, origin)
            yield value
    except KeyProblem as problem:
        raise InvalidInputError(f"{origin}: line {problem.line}: {problem}", hint=problem.hint, code="ND1244") from None
    except (yaml.YAMLError, RecursionError, ValueError) as problem:
        raise InvalidInputError(f"{origin}: not YAML: {described(problem)}", hint=SYNTAX, code="ND1547") from None


def json_stream(text: str) -> list[tuple[int, int]]:
    """Where the objects of a text are that has several JSON objects one after the other, as `jq -c '.items[]'` prints.

    Returns:
        The place of each object's first character, and the one after its last; none for any other text. The last place
        is the rest of the text if that begins as an object does and cannot be read.
    """
    places: list[tuple[int, int]] = []
    at = _next(text, 0)
    while at < len(text):
        if text[at] != "{":
            return []
        try:
            _, end = _JSON.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = len(text)
        places.append((at, end))
        at = _next(text, end)
    return places if len(places) > 1 else []


def _next(text: str, at: int) -> int:
    """The place of the first character from a place on that is not white space."""
    found = _CONTENT.search(text, at)
    return found.start() if found else len(text)


def load_secret(data: bytes) -> Any:
    """The plain value of a file with credentials, which has one document.

    Raises:
        InvalidInputError: it is not YAML, or deeper or larger than is read; the text has no value of the file.
    """
    try:
        text = data.decode()
        if nests_too_deeply(text):
            raise InvalidInputError("nested too deeply", code="ND1548")
        plain = yaml.load(text, Loader=Loader)  # noqa: S506 (a SafeLoader)
        refuse_many_values(plain, "the file")
    except yaml.MarkedYAMLError as problem:
        place = problem.problem_mark or problem.context_mark
        at = f": line {place.line + 1}, column {place.column + 1}" if place is not None else ""
        raise InvalidInputError(f"not YAML{at}", code="ND1549") from None
    except (UnicodeDecodeError, yaml.YAMLError):
        raise InvalidInputError("not YAML in UTF-8", code="ND1550") from None
    except (RecursionError, ValueError):
        raise InvalidInputError("not YAML that can be read", code="ND1551") from None
    return plain


class _RepeatedError(Exception):
    """A key that stands twice in an object."""


def _has_each_once(text: str, value: Any) -> bool:
    """Whether it is certain that a JSON text has no key twice in an object, at a small part of the cost of `_repeated`.

    Of a key that is there twice, the value has one. Each key ends in `":` if no blank is between the two; where these
    two characters are in a string, the text and the value have them both, unless the quote is written as a number.
    """
    has_blanks = any(pair in text for pair in _BLANKS_BEFORE_COLON) and _BLANK_BEFORE_COLON.search(text) is not None
    if _QUOTE_BY_NUMBER in text or has_blanks:
        return False
    return text.count('":') == msgspec.json.encode(value).count(b'":')


def _repeated(text: str) -> str | None:
    """A key that stands twice in an object of a JSON text; None if each stands once."""
    try:
        json.loads(text, object_pairs_hook=_once)
    except _RepeatedError as problem:
        return str(problem)
    except (ValueError, RecursionError):  # msgspec has read it: a number of thousands of digits
        return None
    return None


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedError(next(key for at, key in enumerate(keys) if key in keys[:at]))


def _refuse_repeated(text: str, key: str, origin: str) -> None:
    """Refuse a JSON text in which a key stands twice, with its line where YAML's reader finds it.

    Raises:
        InvalidInputError: always.
    """
    place, what = "", f"the key {_quoted(key)} occurs twice in an object"
    try:
        yaml.load(text, Loader=StrictLoader)  # noqa: S506 (a SafeLoader)
    except KeyProblem as problem:
        place, what = f"line {problem.line}: ", str(problem)
    except (yaml.YAMLError, RecursionError, ValueError):
        pass
    raise InvalidInputError(f"{origin}: {place}{what}", hint=TWICE, code="ND1552")


def _quoted(key: str) -> str:
    return f'"{ascii(key[:_MAX_KEY])[1:-1]}"'


def dump(documents: Iterable[Any]) -> str:
    """Plain values as one text, a document each, their keys in the order that they have."""
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def nests_too_deeply(text: str) -> bool:
    """Whether a YAML text may nest so deeply that PyYAML's C parser, which recurses, would end the process.

    Decided by brackets and indentation alone, so a scalar with hundreds of opening brackets counts as well.
    """
    return _INDENTED.search(text) is not None or _has_deep_brackets(text)


def _has_deep_brackets(text: str) -> bool:
    if text.count("[") + text.count("{") <= MAX_NESTING:
        return False
    if _is_shallow(text):
        return False
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        depth += 1 if bracket.group() in "[{" else -1 if depth else 0
        if depth > MAX_NESTING:
            return True
    return False


def _is_shallow(text: str) -> bool:
    """Whether it is certain, at a small part of the cost of counting, that brackets do not nest too deeply."""
    brackets = text.encode(errors="replace").translate(_AS_ONE_KIND, _NO_BRACKETS)
    for depth in range(_SHALLOW):
        inner = brackets.replace(b"[]", b"")
        if len(inner) == len(brackets):
            return depth + brackets.count(b"[") <= MAX_NESTING
        brackets = inner
    return False


def refuse_many_values(value: Any, origin: str) -> None:
    """Refuse a value that aliases (`*name`) make huge: a short text can name a part of itself over and over.

    Raises:
        InvalidInputError: written out, it would have more than MAX_VALUES values, or be endless.
        RecursionError: it is nested too deeply to be counted.
    """
    if _size(value, {}) > MAX_VALUES:
        what = f"{origin}: more than {MAX_VALUES} values, with the aliases written out"
        raise InvalidInputError(
            what, hint="write less into one document, and without anchors and aliases", code="ND1553"
        )


def _size(value: Any, sizes: dict[int, int]) -> int:
    """How many values a value has when it is written out, at most one more than are read."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in sizes:
        sizes[id(value)] = MAX_VALUES + 1  # what only a value that holds itself finds there
        inside = value.values() if isinstance(value, dict) else value
        sizes[id(value)] = min(MAX_VALUES + 1, 1 + sum(_size(entry, sizes) for entry in inside))
    return sizes[id(value)]


def described(problem: Exception) -> str:
    """The error of a YAML reader on one line, with the line and the column, from 1, where it knows them."""
    if isinstance(problem, yaml.MarkedYAMLError):
        mark = problem.problem_mark or problem.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        return f"{place}{problem.problem or problem.context}"
    return str(problem).splitlines()[0].partition(";")[0]


class Loader(_BaseLoader):  # type: ignore[misc]
    """YAML in which a mapping merges (`<<`) a limited number of others, because each merge copies the whole mapping.

    A MAC address of decimal digits is not a number of base 60, and a date is a text; `y` and `off` are truth values.
    """

    yaml_implicit_resolvers: ClassVar[dict[str | None, Any]] = {}

    def flatten_mapping(self, node: Any) -> None:
        """Put what a mapping merges into it.

        Raises:
            YAMLError: it merges too many mappings, or too much.
        """
        merged = [value for key, value in node.value if key.tag == _MERGE]
        too_many = sum(len(value.value) for value in merged) > MAX_MERGED
        if not too_many:
            super().flatten_mapping(node)
        if too_many or (merged and len(node.value) > MAX_MERGED):
            raise yaml.constructor.ConstructorError(None, None, f"merges more than {MAX_MERGED} keys", node.start_mark)
        node.value = [(self._text_key(key), value) for key, value in node.value]

    def _text_key(self, key: Any) -> Any:
        """A key as a text, which is what it is in JSON: `1` and `on` too."""
        if key.tag not in _KEYS:
            return key
        text = msgspec.json.encode(self.construct_object(key)).decode()
        return yaml.ScalarNode(_TEXT, text, key.start_mark, key.end_mark)


class StrictLoader(Loader):
    """The same in which a mapping has each key once, and every key is a text; a merged key may stand there as well."""

    def flatten_mapping(self, node: Any) -> None:
        """Put what a mapping merges into it.

        Raises:
            KeyProblem: a key stands there twice, or is null.
            YAMLError: it merges too many mappings, or too much.
        """
        if not hasattr(node, "has_each_once"):  # afterwards merged keys are among its own
            self._refuse_keys(node)
            node.has_each_once = True
        super().flatten_mapping(node)

    def _refuse_keys(self, node: Any) -> None:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if key.tag == _NULL:
                raise KeyProblem("a key is null, and every key is a text", line, "give it a name, or put it in quotes")
            name = self._text_key(key).value
            if key.tag == _MERGE or not isinstance(name, str):
                continue
            if name in lines:
                hint = APART if name in _HEAD and key.start_mark.column == 0 and line - lines[name] > 1 else TWICE
                raise KeyProblem(f"the key {_quoted(name)} is already on line {lines[name]}", line, hint)
            lines[name] = line


class _Dumper(_BaseDumper):  # type: ignore[misc]
    """YAML without anchors, which are hardly ever written by hand."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _Scalar:
    """Whether a text without quotes is of a kind, as PyYAML asks it."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self._text)  # of the seven kinds, a short text has two or three

    def match(self, text: str) -> object:
        """Something that is true if it is."""
        return self._pattern.fullmatch(text)


class _Number(_Scalar):
    """The same for numbers, in which underscores state nothing; after a leading point only between digits, as in Go."""

    def match(self, text: str) -> object:
        return super().match(re.sub(_BETWEEN_DIGITS, "", text) if text[0] == "." else text.replace("_", ""))


def _integer(loader: Any, node: Any) -> int | float | str:
    text: str = loader.construct_scalar(node).replace("_", "")
    sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.removeprefix("+"))
    octal = digits[0] == "0" and digits[1:].isdecimal()
    number = sign * int(digits, 8 if octal else 0)
    if -(1 << 63) <= number < 1 << 64:
        return number
    try:
        return float(number)
    except OverflowError:
        return text


def _real(loader: Any, node: Any) -> int | float | str:
    text: str = loader.construct_scalar(node)
    number = float(text.replace("_", ""))
    if math.isinf(number):
        return text
    # As JSON writes it: 1e3 is 1000.
    return int(number) if number.is_integer() and abs(number) < _EXACT else number


def _special(loader: Any, node: Any) -> float:
    return float(loader.construct_scalar(node).replace(".", ""))


def _truth(loader: Any, node: Any) -> bool:
    return loader.construct_scalar(node).lower() in {"y", "yes", "true", "on"}


_PATTERNS: dict[str, _Scalar] = {}
for _tag, _pattern, _first in (
    (
        "bool",
        _Scalar(r"[yY]|yes|Yes|YES|true|True|TRUE|on|On|ON|[nN]|no|No|NO|false|False|FALSE|off|Off|OFF"),
        "yYtToOnNfF",
    ),
    ("int", _Number(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|0[0-7]*|[1-9][0-9]*)"), "-+0123456789"),
    ("float", _Number(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"), "-+.0123456789"),
    ("special", _Scalar(r"[-+]?\.(?:inf|Inf|INF)|\.nan|\.NaN|\.NAN"), "-+."),
    ("null", _Scalar(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
    ("merge", _Scalar(r"<<"), "<"),
):
    _PATTERNS[_tag] = _pattern
    for _yaml_class in (Loader, _Dumper):
        _yaml_class.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, [*_first])
_UNTYPED = ("binary", "omap", "pairs", "set", "timestamp")
"""What a text may be said to be by a tag (`!!set`) that JSON has no kind for."""


def _checked(made: Callable[[Any, Any], Any], pattern: _Scalar, kind: str) -> Callable[[Any, Any], Any]:
    """A constructor that refuses a text that only its tag declares to be of a kind, as in `!!int ""`."""

    def construct(loader: Any, node: Any) -> Any:
        text = loader.construct_scalar(node)
        if not text or not pattern.match(text):
            raise yaml.constructor.ConstructorError(None, None, f'"{text[:_MAX_KEY]}" is no {kind}', node.start_mark)
        return made(loader, node)

    return construct


for _tag, _made in (("bool", _truth), ("int", _integer), ("float", _real), ("special", _special)):
    Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _checked(_made, _PATTERNS[_tag], _tag))
for _tag in _UNTYPED:
    Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", Loader.construct_undefined)


def _represent_mapping(dumper: Any, value: dict[Any, Any]) -> Any:
    """A mapping in YAML; one of a single scalar on its line, as people write `{string: pf}`."""
    node = dumper.represent_mapping("tag:yaml.org,2002:map", value.items())
    node.flow_style = len(value) == 1 and not isinstance(next(iter(value.values())), dict | list)
    return node


def _represent_text(dumper: Any, value: str) -> Any:
    """A string in YAML; quoted where it begins like a number: other readers take the PCI id `15e3` for one."""
    return dumper.represent_scalar(_TEXT, value, style="'" if re.match(_NUMERIC, value) else None)


_Dumper.add_representer(dict, _represent_mapping)
_Dumper.add_representer(str, _represent_text)
