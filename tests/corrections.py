"""The corrections of an author who follows a hint: each changes an object at the place that the hint is about.

Used by the rules of `tests.following`. A correction gets the object, the place and the hint's match, and returns
whether it could be made; `put("10.77.0.1")` and the like are corrections with a value.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable
from typing import Any

from testbed import yaml

Value = Any
Place = tuple[str | int, ...]
Correction = Callable[[Value, Place, re.Match[str]], bool]
_WORD = re.compile(r"[\w./-]+")


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


def rename(value: Value, path: Place, found: re.Match[str]) -> bool:
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
        inner[key] = meant if _WORD.fullmatch(written) else _renamed(written, meant, found.string)
        return True
    if isinstance(inner, dict) and key in inner and not isinstance(key, int) and str(key).count("/"):
        inner[meant] = inner.pop(key)
        return True
    return False


def _renamed(written: str, meant: str, said: str) -> str:
    """A text with a name in place of the one that a line quotes, or of the most similar word."""
    for quoted in re.findall(r"""["']([^"' ]+)["']""", said)[::-1]:
        if quoted != meant and (word := re.search(rf"(?<!\w){re.escape(quoted)}(?!\w)", written)):
            return written[: word.start()] + meant + written[word.end() :]
    whole = [word.strip(".") for word in _WORD.findall(written)]
    parts = whole if "." in meant or "/" in meant else [part for word in whole for part in (word, *word.split("."))]
    words = {word.lower(): word for word in parts if word and word != meant}
    close = difflib.get_close_matches(meant.lower(), words, n=1, cutoff=0.4)
    return re.sub(rf"(?<![\w-]){re.escape(words[close[0]])}(?![\w-])", meant, written) if close else meant


def remove(value: Value, path: Place, _: re.Match[str]) -> bool:
    inner = holder(value, path)
    key = _key(inner, path)
    if isinstance(inner, dict) and key not in inner:
        return False
    del inner[key]
    return True


def write(value: Value, path: Place, found: re.Match[str]) -> bool:
    inner, meant = holder(value, path), found["meant"]
    key = _key(inner, path)
    if key not in ("cel", "expression"):
        inner[key] = yaml.safe_load(meant)
        return True
    literals = [text for text in re.findall(r'"[^"]+"', found.string[: found.start()]) if text in inner[key]]
    if literals:
        inner[key] = inner[key].replace(literals[-1], meant)
    return bool(literals)


def set_type(value: Value, path: Place, found: re.Match[str]) -> bool:
    holder(value, path)[path[-1]]["type"] = found["meant"]
    return True


def set_subnet(value: Value, path: Place, found: re.Match[str]) -> bool:
    holder(value, path)[path[-1]]["subnet"] = found["meant"]
    return True


def write_bound(value: Value, path: Place, found: re.Match[str]) -> bool:
    """The first or the last address that may stand there."""
    holder(value, path)[path[-1]] = found["last" if path[-1] == "last" else "first"]
    return True


def write_supported(value: Value, path: Place, found: re.Match[str]) -> bool:
    """The word of a list that the written one begins or begins with; else the last one."""
    inner = holder(value, path)
    written, words = str(inner[path[-1]]).lower(), re.findall(r'"([^"]+)"', found["listed"])
    inner[path[-1]] = next((word for word in words if word.startswith(written) or written.startswith(word)), words[-1])
    return True


def quote(value: Value, path: Place, _: re.Match[str]) -> bool:
    inner = holder(value, path)
    key = _key(inner, path)
    if isinstance(inner[key], (list, dict)):
        return False
    inner[key] = str(inner[key])
    return True


def unquote(value: Value, path: Place, _: re.Match[str]) -> bool:
    inner = holder(value, path)
    digits = re.match(r"\d+", inner[path[-1]])
    inner[path[-1]] = int(digits[0]) if digits is not None else 100
    return True


def refer_to_result(value: Value, path: Place, _: re.Match[str]) -> bool:
    """The MAC address of a step; for other facts, which no result has, a parameter."""
    holder(value, path)[path[-1]] = "{{ vf0.mac }}" if path[-1] == "mac" else "{{ params.address }}"
    return True


def write_class(value: Value, path: Place, found: re.Match[str]) -> bool:
    inner = holder(value, path)
    requests = inner[path[-1]] if isinstance(inner, dict) else inner
    for request in requests:
        if request["name"] == found["name"]:
            request["exactly"]["deviceClassName"] = found["meant"]
    return True


def rename_request(value: Value, path: Place, found: re.Match[str]) -> bool:
    inner: Value = value
    for part in path:
        inner = inner[part]
        if isinstance(inner, dict) and "name" in inner and isinstance(part, int):
            inner["name"] = found["meant"]
            return True
    return False


def depend(value: Value, path: Place, found: re.Match[str]) -> bool:
    if path[:2] != ("spec", "steps") or len(path) < 3:
        return False
    step = value["spec"]["steps"][path[2]]
    step["dependOn"] = [*step.get("dependOn", ()), found["meant"]]
    return True


def shorten(value: Value, path: Place, _: re.Match[str]) -> bool:
    """A short name, or a short text before a reference."""
    inner = holder(value, path)
    key = _key(inner, path)
    text, braces, reference = inner[key].partition("{{")
    inner[key] = f"{text[:1]}{braces}{reference}" if braces else text[:15]
    return True


def clean(value: Value, path: Place, _: re.Match[str]) -> bool:
    inner = holder(value, path)
    key = _key(inner, path)
    inner[key] = re.sub(r"[^a-z0-9-]+", "-", str(inner[key]).lower()).strip("-")[:63].strip("-")
    return True


def bound(value: Value, path: Place, _: re.Match[str]) -> bool:
    holder(value, path).update(minimum=100, maximum=199)
    return True


def use_host(value: Value, path: Place, found: re.Match[str]) -> bool:
    """An address of the network that a hint names."""
    inner = holder(value, path)
    inner[path[-1]] = str(ipaddress.ip_network(found["network"])[7])
    return True


def add_routes(value: Value, path: Place, _: re.Match[str]) -> bool:
    step_at(value, path)["config"]["ipam"]["routes"] = [{"dst": "10.0.0.0/8"}]
    return True


def write_name(value: Value, path: Place, found: re.Match[str]) -> bool:
    """A name in place of a value, or of the part of a key after its last slash."""
    inner = holder(value, path)
    there = inner[path[-1]]
    if not isinstance(there, dict):
        inner[path[-1]] = found["meant"]
        return True
    keys = [key for key in there if key.rpartition("/")[2] in re.findall(r"[\w.-]+", found.string)]
    for key in keys:
        there[key.rpartition("/")[0] + "/" + found["meant"]] = there.pop(key)
    return bool(keys)


def remove_named(value: Value, path: Place, found: re.Match[str]) -> bool:
    """A field that the hint names, beside the place or in it."""
    inner = holder(value, path)
    inside: Value = dict(enumerate(inner) if isinstance(inner, list) else inner).get(path[-1])
    for there in (inside, inner):
        if isinstance(there, dict) and found["meant"] in there:
            del there[found["meant"]]
            return True
    return False


def set_metric(value: Value, path: Place, _: re.Match[str]) -> bool:
    inner: Value = value
    for part in path:
        inner = inner[part]
        if isinstance(inner, dict) and "dst" in inner:
            break
    if not isinstance(inner, dict) or "dst" not in inner:
        return False
    inner["metric"] = 100
    return True


def remove_one(value: Value, path: Place, found: re.Match[str]) -> bool:
    """One of two that exclude each other: of a list's equal entries, of two fields, or a field beside another."""
    inner = holder(value, path)
    there = inner[path[-1]]
    if "is already at" in found.string:
        value.clear()
    elif path[-1] == "name" and isinstance(path[-2], int):
        del holder(value, path[:-1])[path[-2]]
    elif isinstance(there, list):
        inner[path[-1]] = list(dict.fromkeys(there))
    elif isinstance(there, dict):
        del there[next(name for name in _WORD.findall(found.string)[::-1] if name in there)]
    else:
        del inner[path[-1]]
    return True


def set_value(value: Value, path: Place, _: re.Match[str]) -> bool:
    capacity = holder(value, path)[path[-1]]
    capacity.pop("valueFrom", None)
    capacity["value"] = "64"
    return True


def rename_key(value: Value, path: Place, _: re.Match[str]) -> bool:
    inner = holder(value, path)
    inner["another"] = inner.pop(path[-1])
    return True


def move_fact(value: Value, path: Place, _: re.Match[str]) -> bool:
    exposure = value["spec"]["exposure"]
    exposure.setdefault("additionalFacts", []).append(exposure["facts"].pop(path[-1]))
    return True


def set_exposure(name: str, new: Value) -> Correction:
    """Sets a field of a policy's exposure, or removes it if the new value is None."""

    def act(value: Value, _path: Place, _found: re.Match[str]) -> bool:
        exposure = value["spec"]["exposure"]
        exposure.pop(name, None)
        exposure.update({} if new is None else {name: new})
        return True

    return act


def make_whole(value: Value, path: Place, found: re.Match[str]) -> bool:
    """An exposure that no claims share."""
    del value["spec"]["exposure"]["allowMultipleAllocations"]
    return make_exclusive(value, path, found)


def rename_field(value: Value, path: Place, found: re.Match[str]) -> bool:
    there = holder(value, path)[path[-1]]
    there[found["meant"]] = there.pop(found["name"])
    return True


def make_exclusive(value: Value, path: Place, _: re.Match[str]) -> bool:
    holder(value, path)[path[-1]]["exclusive"] = True
    return True


def set_default(value: Value, path: Place, found: re.Match[str]) -> bool:
    """A default of the policy, in place of the amounts that plugins consume."""
    if "consumePerAllocation" in path:
        del holder(value, path)["consumePerAllocation"]
        return True
    holder(value, path)[path[-1]]["requestPolicy"]["default"] = "1"
    return "requestPolicy.default" in found.string


def outrank(value: Value, _path: Place, _: re.Match[str]) -> bool:
    value["spec"]["priority"] = value["spec"].get("priority", 0) + 1
    return True


def step_at(value: Value, path: Place) -> Value:
    return value["spec"]["steps"][path[2]]


def put(new: Value) -> Correction:
    """Sets the place to a value, or to the result of a function of the present one."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        inner = holder(value, path)
        key = _key(inner, path)
        inner[key] = new(inner[key]) if callable(new) else new
        return True

    return act


def set_field(name: str) -> Correction:
    """Sets a field of the object at the place to the value that the hint names."""

    def act(value: Value, path: Place, found: re.Match[str]) -> bool:
        holder(value, path)[path[-1]][name] = yaml.safe_load(found["meant"])
        return True

    return act


def add(**fields: Value) -> Correction:
    """Sets fields of the object at the place."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        there = holder(value, path)[path[-1]]
        there.update(fields)
        return True

    return act


def beside(**fields: Value) -> Correction:
    """Sets fields beside the place."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        holder(value, path).update(fields)
        return True

    return act


def configure(**fields: Value) -> Correction:
    """Sets parameters of the step, or removes those that are None."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        config = step_at(value, path)["config"]
        for name, new in fields.items():
            config.pop(name, None)
            config.update({} if new is None else {name: new})
        return True

    return act


def set_gateway(value: Value, path: Place, _: re.Match[str]) -> bool:
    route = holder(value, path)[path[-1]]
    route["gateway"] = "2001:db8::1" if ":" in route["destination"] else "10.77.0.1"
    return True


def exchange(first: str, last: str) -> Correction:
    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        inner = holder(value, path)
        inner[first], inner[last] = inner[last], inner[first]
        return True

    return act


def move_into(value: Value, path: Place, found: re.Match[str]) -> bool:
    inner = holder(value, path)
    inner[found["meant"]] = {**(inner.get(found["meant"]) or {}), path[-1]: inner.pop(path[-1])}
    return True


def move_keep(value: Value, path: Place, _: re.Match[str]) -> bool:
    value["spec"]["steps"][0]["keep"] = step_at(value, path).pop("keep")
    return True


def keep_one_range(value: Value, path: Place, _: re.Match[str]) -> bool:
    ranges = step_at(value, path)["config"]["ipam"]["ranges"]
    del ranges[path[path.index("ranges") + 1]]
    return True


def lower(value: Value, path: Place, _: re.Match[str]) -> bool:
    inner = holder(value, path)
    inner["default"] = inner["maximum"]
    return True


def exclude_nothing(value: Value, path: Place, _: re.Match[str]) -> bool:
    holder(value, path)[path[-1]].pop("exclude", None)
    return True


def permit_namespace(value: Value, path: Place, _: re.Match[str]) -> bool:
    value["spec"]["namespaces"].append(holder(value, path)[path[-1]]["namespace"])
    return True


def give(**values: Value) -> Correction:
    """Sets values of a topology's parameters in a claim's configuration at the place."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        there = holder(value, path)[path[-1]]
        parameters = there.get("opaque", {}).get("parameters", {}) if isinstance(there, dict) else {}
        if "values" not in parameters:
            return False
        for name, new in values.items():
            if name in parameters.get("perPod", {}):
                parameters["perPod"][name][-1] = new
            else:
                parameters["values"][name] = new
        return True

    return act


def one_each(value: Value, path: Place, _: re.Match[str]) -> bool:
    """One device for each request of a claim; other claims have the rest."""
    for request in holder(value, path)[path[-1]]:
        request.get("exactly", {}).pop("count", None)
    return True


def of_another_pf(value: Value, path: Place, _: re.Match[str]) -> bool:
    selector = value["spec"]["steps"][1]["selector"]
    selector["cel"] = 'device.attributes["dra.networking"].pfName == "enp9s0"'
    return "pfName" in str(value)


def configure_all(kind: str, **fields: Value) -> Correction:
    """Sets parameters of all steps of a type."""

    def act(value: Value, _path: Place, _found: re.Match[str]) -> bool:
        steps = [step for step in value["spec"]["steps"] if step["type"] == kind]
        for step in steps:
            step["config"].update(fields)
        return bool(steps)

    return act


def describe_itself(value: Value, path: Place, found: re.Match[str]) -> bool:
    holder(value, path).update(cniType=found["meant"], execution="Binary")
    return True


def keep_apart(value: Value, path: Place, found: re.Match[str]) -> bool:
    value["spec"]["spec"]["devices"]["constraints"] = [{"distinctAttribute": found["meant"]}]
    return "requests" in path


def number_pods(value: Value, _path: Place, _: re.Match[str]) -> bool:
    value["kind"] = "StatefulSet"
    return True


def join_network(value: Value, path: Place, _: re.Match[str]) -> bool:
    step_at(value, path)["network"] = "storage"
    return True


def declare(value: Value, path: Place, _: re.Match[str]) -> bool:
    named = re.search(r"params\.(\w+)", str(holder(value, path)[path[-1]]))
    if named is None:
        return False
    spec = value["spec"]
    form: Value = {"format": "cidr"} if "address" in path else {"enum": ["bridge"]}
    if path[-1] in ("id", "vlan"):
        form = {"type": "integer", "minimum": 1, "maximum": 4094, "default": 300}
    spec["parameters"] = [*spec.get("parameters", ()), {"name": named[1], **form}]
    return True


def give_per_pod(value: Value, path: Place, _: re.Match[str]) -> bool:
    there = holder(value, path)[path[-1]]
    parameters = there.get("opaque", {}).get("parameters") if isinstance(there, dict) else None
    if parameters is None:
        return False
    parameters["perPod"] = {"address": ["10.77.0.10/24", "10.77.0.11/24"]}
    return True


def address_later(value: Value, path: Place, _: re.Match[str]) -> bool:
    """A step of its own for the addresses of another one."""
    step = step_at(value, path)
    ipam = step["config"].pop("ipam")
    value["spec"]["steps"].append(
        {"name": "addresses", "type": "tuning", "dependOn": [step["name"]], "config": {"ipam": ipam}}
    )
    return True


def select_by(condition: str) -> Correction:
    """Adds a condition to the step's selector."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        selector = step_at(value, path)["selector"]
        selector["cel"] = f"{selector['cel']} && {condition}"
        return True

    return act


def name_the_key(value: Value, path: Place, _: re.Match[str]) -> bool:
    config = step_at(value, path)["config"]
    config["name"] = config.pop(next(key for key in config if "{{" in key))
    return True
