"""Follows a hint of `netdra validate`, on the object and the place that its line names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from typing import Any

from testbed import yaml

_LINE = re.compile(r"\d+: (?:warning: )?(?P<text>.*?)(?: \[(?P<path>[^\]\[ ]+(?:\[\d+\][^ ]*)*)\])?\Z", re.DOTALL)
_BETWEEN = re.compile(r'(?P<line>\d+): .*; write "---" on a line between the two objects\Z')
_NAMED = re.compile(r'(?P<kind>[A-Z]\w+) "(?P<name>[^"]*)"')
_PART = re.compile(r"\[(\d+)\]|\.?([^.\[]+)")
_WORD = re.compile(r"[\w./-]+")
Value = Any
Place = tuple[str | int, ...]


def followed(text: str, line: str) -> str | None:
    """The text of a file after its author followed a line's hint; None if no rule covers the hint."""
    if (between := _BETWEEN.match(line)) is not None:
        lines = text.splitlines()
        return "\n".join([*lines[: int(between["line"]) - 1], "---", *lines[int(between["line"]) - 1 :], ""])
    parts = _LINE.match(line)
    if parts is None or not parts["path"]:
        return None
    path = _path(parts["path"])
    try:
        documents = [value for value in yaml.safe_load_all(text) if value is not None]
    except yaml.YAMLError:
        return None
    value = _meant(documents, parts["text"], path)
    if value is None:
        return None
    for pattern, act in _RULES:
        if (found := pattern.search(parts["text"])) is not None and act(value, path, found):
            return str(yaml.safe_dump_all(documents, sort_keys=False))
    return None


def _path(shown: str) -> Place:
    return tuple(int(number) if number else word for number, word in _PART.findall(shown))


def _meant(documents: list[Value], text: str, path: Place) -> Value:
    """The object that a line is about: the one that it names, and that has the place."""
    named = _NAMED.match(text)
    for value in documents:
        is_it = named is None or (value.get("kind"), _name(value)) == (named["kind"], named["name"])
        if is_it and holder(value, path) is not None:
            return value
    return None


def _name(value: Value) -> str:
    metadata = value.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def holder(value: Value, path: Place) -> Value:
    """The container of the last part of a path; None if the object does not have it. A key may have dots."""
    for at, part in enumerate(path[:-1]):
        if isinstance(value, dict) and part not in value:
            rest = ".".join(map(str, path[at:]))
            return value if rest in value else None
        try:
            value = value[part]
        except (LookupError, TypeError):
            return None
    return value if isinstance(value, (dict, list)) else None


def _key(inner: Value, path: Place) -> Any:
    """The last part of the path, whole if it has dots."""
    if isinstance(inner, list):
        return path[-1]
    return next((key for at in range(len(path)) if (key := ".".join(map(str, path[at:]))) in inner), path[-1])


def _rename(value: Value, path: Place, found: re.Match[str]) -> bool:
    """A name that is almost another one: a field, a whole value, or a word of an expression."""
    inner, meant = holder(value, path), found["meant"]
    key = _key(inner, path)
    if "unknown field" in found.string:
        items = {meant if name == key else name: entry for name, entry in inner.items()}
        inner.clear()
        inner.update(items)
        return True
    written = inner[key] if isinstance(inner, list) or key in inner else None
    if isinstance(written, str):
        words = [word for word in _WORD.findall(written) if word != meant]
        close = difflib.get_close_matches(meant, words, n=1, cutoff=0.4)
        is_whole = not close or _WORD.fullmatch(written)
        inner[key] = meant if is_whole else written.replace(close[0], meant)
        return True
    if isinstance(inner, dict) and key in inner and not isinstance(key, int) and str(key).count("/"):
        inner[meant] = inner.pop(key)
        return True
    return False


def _remove(value: Value, path: Place, _: re.Match[str]) -> bool:
    inner = holder(value, path)
    key = _key(inner, path)
    if isinstance(inner, dict) and key not in inner:
        return False
    del inner[key]
    return True


def _write(value: Value, path: Place, found: re.Match[str]) -> bool:
    inner = holder(value, path)
    inner[_key(inner, path)] = yaml.safe_load(found["meant"])
    return True


def _quote(value: Value, path: Place, _: re.Match[str]) -> bool:
    inner = holder(value, path)
    key = _key(inner, path)
    if isinstance(inner[key], (list, dict)):
        return False
    inner[key] = str(inner[key])
    return True


def _write_class(value: Value, path: Place, found: re.Match[str]) -> bool:
    inner = holder(value, path)
    requests = inner[path[-1]] if isinstance(inner, dict) else inner
    for request in requests:
        if request["name"] == found["name"]:
            request["exactly"]["deviceClassName"] = found["meant"]
    return True


def _rename_request(value: Value, path: Place, found: re.Match[str]) -> bool:
    inner: Value = value
    for part in path:
        inner = inner[part]
        if isinstance(inner, dict) and "name" in inner and isinstance(part, int):
            inner["name"] = found["meant"]
            return True
    return False


def _depend(value: Value, path: Place, found: re.Match[str]) -> bool:
    if path[:2] != ("spec", "steps") or len(path) < 3:
        return False
    step = value["spec"]["steps"][path[2]]
    step["dependOn"] = [*step.get("dependOn", ()), found["meant"]]
    return True


def _shorten(value: Value, path: Place, _: re.Match[str]) -> bool:
    inner = holder(value, path)
    key = _key(inner, path)
    inner[key] = inner[key][:15]
    return True


def _clean(value: Value, path: Place, _: re.Match[str]) -> bool:
    inner = holder(value, path)
    key = _key(inner, path)
    inner[key] = re.sub(r"[^a-z0-9-]+", "-", str(inner[key]).lower()).strip("-")[:63].strip("-")
    return True


def _bound(value: Value, path: Place, _: re.Match[str]) -> bool:
    holder(value, path).update(minimum=100, maximum=199)
    return True


def _remove_named(value: Value, path: Place, found: re.Match[str]) -> bool:
    """A field that the hint names, beside the place or in it."""
    inner = holder(value, path)
    inside: Value = dict(enumerate(inner) if isinstance(inner, list) else inner).get(path[-1])
    for there in (inside, inner):
        if isinstance(there, dict) and found["meant"] in there:
            del there[found["meant"]]
            return True
    return False


def _set_metric(value: Value, path: Place, _: re.Match[str]) -> bool:
    inner: Value = value
    for part in path:
        inner = inner[part]
        if isinstance(inner, dict) and "dst" in inner:
            break
    if not isinstance(inner, dict) or "dst" not in inner:
        return False
    inner["metric"] = 100
    return True


def _remove_one(value: Value, path: Place, found: re.Match[str]) -> bool:
    """One of two that exclude each other: of a list's equal entries, of two fields, or a field beside another."""
    inner = holder(value, path)
    there = inner[path[-1]]
    if path[-1] == "name" and isinstance(path[-2], int):
        del holder(value, path[:-1])[path[-2]]
    elif isinstance(there, list):
        inner[path[-1]] = list(dict.fromkeys(there))
    elif isinstance(there, dict):
        del there[next(name for name in _WORD.findall(found.string)[::-1] if name in there)]
    else:
        del inner[path[-1]]
    return True


def _set_value(value: Value, path: Place, _: re.Match[str]) -> bool:
    capacity = holder(value, path)[path[-1]]
    capacity.pop("valueFrom", None)
    capacity["value"] = "64"
    return True


def _rename_key(value: Value, path: Place, _: re.Match[str]) -> bool:
    inner = holder(value, path)
    inner["another"] = inner.pop(path[-1])
    return True


def _move_fact(value: Value, path: Place, _: re.Match[str]) -> bool:
    exposure = value["spec"]["exposure"]
    exposure.setdefault("additionalFacts", []).append(exposure["facts"].pop(path[-1]))
    return True


def _set_exposure(name: str, new: Value) -> Callable[[Value, Place, re.Match[str]], bool]:
    """Sets a field of a policy's exposure, or removes it if the new value is None."""

    def act(value: Value, _path: Place, _found: re.Match[str]) -> bool:
        exposure = value["spec"]["exposure"]
        exposure.pop(name, None)
        exposure.update({} if new is None else {name: new})
        return True

    return act


def _make_exclusive(value: Value, path: Place, _: re.Match[str]) -> bool:
    holder(value, path)[path[-1]]["exclusive"] = True
    return True


def _set_default(value: Value, path: Place, found: re.Match[str]) -> bool:
    """A default of the policy, in place of the amounts that plugins consume."""
    if "consumePerAllocation" in path:
        del holder(value, path)["consumePerAllocation"]
        return True
    holder(value, path)[path[-1]]["requestPolicy"]["default"] = "1"
    return "requestPolicy.default" in found.string


def _outrank(value: Value, _path: Place, _: re.Match[str]) -> bool:
    value["spec"]["priority"] = value["spec"].get("priority", 0) + 1
    return True


_RULES: tuple[tuple[re.Pattern[str], Callable[[Value, Place, re.Match[str]], bool]], ...] = (
    (re.compile(r'set deviceClassName of request "(?P<name>[^"]+)" to "(?P<meant>[^"]+)"\Z'), _write_class),
    (re.compile(r'rename the request to "(?P<meant>[^"]+)", or remove it\Z'), _rename_request),
    (re.compile(r'add "(?P<meant>[^"]+)" to dependOn\Z'), _depend),
    (re.compile(r'did you mean "(?P<meant>[^"]+)"\?'), _rename),
    (re.compile(r'; use "(?P<meant>[^"]+)"\Z'), _write),
    (re.compile(r"; write (?P<meant>[a-z.]+/\w+)\Z"), _write),
    (re.compile(r"; write kind: (?P<meant>\w+)\Z"), _write),
    (
        re.compile(r"[;.] (?:remove (?:it|the field|its namespace|the label)|leave it out)\b[^;]*\Z", re.IGNORECASE),
        _remove,
    ),
    (re.compile(r'; write text beside it: (?P<meant>"net[^"]+(?:"[^"]+"[^"]+)*")\Z'), _write),
    (re.compile(r"; shorten config\.name\Z"), _shorten),
    (re.compile(r"; use (?:at most 63 )?lower-case letters, digits"), _clean),
    (re.compile(r"; give it a minimum and a maximum\Z"), _bound),
    (re.compile(r"[;.] remove (?P<meant>\w+)(?:[.;]|, or [^;]*)?\Z", re.IGNORECASE), _remove_named),
    (re.compile(r"; set a metric, so that eth0"), _set_metric),
    (re.compile(r"; write (?P<meant>\"?[0-9a-f][0-9a-f.:/]*\"?)(?: without quotes)?\Z"), _write),
    (re.compile(r"; write an address from (?P<meant>[0-9.]+) to [0-9.]+\Z"), _write),
    (re.compile(r"; (?:use|choose) another config\.(?P<meant>name)\Z"), _write),
    (re.compile(r"; put it in quotes\b[^;]*\Z"), _quote),
    (re.compile(r"; remove one of (?:them|the two)\Z"), _remove_one),
    (re.compile(r"; set exactly one\Z"), _set_value),
    (re.compile(r"; choose another name\Z"), _rename_key),
    (re.compile(r"; move it to additionalFacts\Z"), _move_fact),
    (re.compile(r"; list one of [a-z, -]+, or remove keep\Z"), _set_exposure("keep", None)),
    (re.compile(r"; add keep: \[addresses, routes\]\Z"), _set_exposure("keep", ["addresses", "routes"])),
    (re.compile(r"; for claims of a certain VF, remove pooledVFs\Z"), _set_exposure("pooledVFs", None)),
    (re.compile(r"; set exclusive: true\Z"), _make_exclusive),
    (re.compile(r"; set requestPolicy\.default of the capacity\Z"), _set_default),
    (re.compile(r"; lower requestPolicy\.default or pooledVFs\.lanes\Z"), _set_default),
    (re.compile(r"; change (?:it|one of them) *\Z"), _outrank),
    (re.compile(r"; write it in Mbit/s, e\.g\. (?P<meant>\d+)\Z"), _write),
    (re.compile(r"is reserved; use a domain of your (?P<meant>own)\Z"), _write),
)


def hints(said: list[str]) -> Iterator[str]:
    """The texts of lines, without place."""
    for line in said:
        parts = _LINE.match(line)
        yield parts["text"] if parts is not None else line
