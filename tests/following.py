"""Follows a hint of `netdra validate`, on the object and the place that its line names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from typing import Any

from testbed import yaml

_CODE = r"(?: \(ND\d{4}\))?\Z"
_PLACE = r"(?: \[(?P<path>[^\]\[ ]+(?:\[\d+\][^ ]*)*)\])?"
_LINE = re.compile(rf"\d+: (?:warning: )?(?P<text>.*?){_PLACE}{_CODE}", re.DOTALL)
_BETWEEN = re.compile(rf'(?P<line>\d+): .*; write "---" on a line between the two objects{_CODE}')
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


def _step(value: Value, path: Place) -> Value:
    return value["spec"]["steps"][path[2]]


def _set(new: Value) -> Callable[[Value, Place, re.Match[str]], bool]:
    """Sets the place to a value, or to the result of a function of the present one."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        inner = holder(value, path)
        key = _key(inner, path)
        inner[key] = new(inner[key]) if callable(new) else new
        return True

    return act


def _add(**fields: Value) -> Callable[[Value, Place, re.Match[str]], bool]:
    """Sets fields of the object at the place."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        there = holder(value, path)[path[-1]]
        there.update(fields)
        return True

    return act


def _beside(**fields: Value) -> Callable[[Value, Place, re.Match[str]], bool]:
    """Sets fields beside the place."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        holder(value, path).update(fields)
        return True

    return act


def _configure(**fields: Value) -> Callable[[Value, Place, re.Match[str]], bool]:
    """Sets parameters of the step, or removes those that are None."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        config = _step(value, path)["config"]
        for name, new in fields.items():
            config.pop(name, None)
            config.update({} if new is None else {name: new})
        return True

    return act


def _exchange(first: str, last: str) -> Callable[[Value, Place, re.Match[str]], bool]:
    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        inner = holder(value, path)
        inner[first], inner[last] = inner[last], inner[first]
        return True

    return act


def _move_into(value: Value, path: Place, found: re.Match[str]) -> bool:
    inner = holder(value, path)
    inner[found["meant"]] = {**(inner.get(found["meant"]) or {}), path[-1]: inner.pop(path[-1])}
    return True


def _move_keep(value: Value, path: Place, _: re.Match[str]) -> bool:
    value["spec"]["steps"][0]["keep"] = _step(value, path).pop("keep")
    return True


def _keep_one_range(value: Value, path: Place, _: re.Match[str]) -> bool:
    ranges = _step(value, path)["config"]["ipam"]["ranges"]
    del ranges[path[path.index("ranges") + 1]]
    return True


def _lower(value: Value, path: Place, _: re.Match[str]) -> bool:
    inner = holder(value, path)
    inner["default"] = inner["maximum"]
    return True


def _exclude_nothing(value: Value, path: Place, _: re.Match[str]) -> bool:
    holder(value, path)[path[-1]].pop("exclude", None)
    return True


def _permit_namespace(value: Value, path: Place, _: re.Match[str]) -> bool:
    value["spec"]["namespaces"].append(holder(value, path)[path[-1]]["namespace"])
    return True


def _give(**values: Value) -> Callable[[Value, Place, re.Match[str]], bool]:
    """Sets values of a topology's parameters in a claim's configuration at the place."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        there = holder(value, path)[path[-1]]
        given = there.get("opaque", {}).get("parameters", {}).get("values") if isinstance(there, dict) else None
        if given is None:
            return False
        given.update(values)
        return True

    return act


def _one_each(value: Value, path: Place, _: re.Match[str]) -> bool:
    """One device for each request of a claim; other claims have the rest."""
    for request in holder(value, path)[path[-1]]:
        request.get("exactly", {}).pop("count", None)
    return True


def _of_another_pf(value: Value, path: Place, _: re.Match[str]) -> bool:
    selector = value["spec"]["steps"][1]["selector"]
    selector["cel"] = 'device.attributes["dra.networking"].pfName == "enp9s0"'
    return "pfName" in str(value)


def _configure_all(kind: str, **fields: Value) -> Callable[[Value, Place, re.Match[str]], bool]:
    """Sets parameters of all steps of a type."""

    def act(value: Value, _path: Place, _found: re.Match[str]) -> bool:
        steps = [step for step in value["spec"]["steps"] if step["type"] == kind]
        for step in steps:
            step["config"].update(fields)
        return bool(steps)

    return act


def _describe_itself(value: Value, path: Place, found: re.Match[str]) -> bool:
    holder(value, path).update(cniType=found["meant"], execution="Binary")
    return True


def _keep_apart(value: Value, path: Place, found: re.Match[str]) -> bool:
    value["spec"]["spec"]["devices"]["constraints"] = [{"distinctAttribute": found["meant"]}]
    return "requests" in path


def _number_pods(value: Value, _path: Place, _: re.Match[str]) -> bool:
    value["kind"] = "StatefulSet"
    return True


def _join_network(value: Value, path: Place, _: re.Match[str]) -> bool:
    _step(value, path)["network"] = "storage"
    return True


def _declare(value: Value, path: Place, _: re.Match[str]) -> bool:
    named = re.search(r"params\.(\w+)", str(holder(value, path)[path[-1]]))
    if named is None:
        return False
    spec = value["spec"]
    spec["parameters"] = [*spec.get("parameters", ()), {"name": named[1], "type": "string"}]
    return True


def _give_per_pod(value: Value, path: Place, _: re.Match[str]) -> bool:
    there = holder(value, path)[path[-1]]
    parameters = there.get("opaque", {}).get("parameters") if isinstance(there, dict) else None
    if parameters is None:
        return False
    parameters["perPod"] = {"address": ["10.77.0.10/24", "10.77.0.11/24"]}
    return True


def _address_later(value: Value, path: Place, _: re.Match[str]) -> bool:
    """A step of its own for the addresses of another one."""
    step = _step(value, path)
    ipam = step["config"].pop("ipam")
    value["spec"]["steps"].append(
        {"name": "addresses", "type": "tuning", "dependOn": [step["name"]], "config": {"ipam": ipam}}
    )
    return True


def _select_by(condition: str) -> Callable[[Value, Place, re.Match[str]], bool]:
    """Adds a condition to the step's selector."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        selector = _step(value, path)["selector"]
        selector["cel"] = f"{selector['cel']} && {condition}"
        return True

    return act


def _name_the_key(value: Value, path: Place, _: re.Match[str]) -> bool:
    config = _step(value, path)["config"]
    config["name"] = config.pop(next(key for key in config if "{{" in key))
    return True


def _close(value: Value, path: Place, _: re.Match[str]) -> bool:
    addresses = _step(value, path)["config"].get("ipam", {}).get("addresses", ())
    for address in addresses:
        address["address"] = "{{ params.address }}"
    return bool(addresses)


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
    (
        re.compile(r"; replace it before the file is applied, for example with \"envsubst\"\Z"),
        _set(lambda text: re.sub(r"\$\{\w+\}", "eth0", text)),
    ),
    (re.compile(r"; list one of [a-z, -]+, or remove keep\Z"), _set_exposure("keep", None)),
    (re.compile(r"; add keep: \[addresses, routes\]\Z"), _set_exposure("keep", ["addresses", "routes"])),
    (re.compile(r"; for claims of a certain VF, remove pooledVFs\Z"), _set_exposure("pooledVFs", None)),
    (re.compile(r"; set exclusive: true\Z"), _make_exclusive),
    (re.compile(r"; set requestPolicy\.default of the capacity\Z"), _set_default),
    (re.compile(r"; lower requestPolicy\.default or pooledVFs\.lanes\Z"), _set_default),
    (re.compile(r"; change (?:it|one of them) *\Z"), _outrank),
    (re.compile(r"; write it in Mbit/s, e\.g\. (?P<meant>\d+)\Z"), _write),
    (re.compile(r"is reserved; use a domain of your (?P<meant>own)\Z"), _write),
    (re.compile(r"; give each (?:rule )?a name of its own\Z"), _set(lambda name: f"{name}-2")),
    (re.compile(r"; 1 is the default\Z"), _remove),
    (
        re.compile(r"; add matchAttribute or distinctAttribute\Z"),
        _add(matchAttribute="resource.kubernetes.io/numaNode"),
    ),
    (re.compile(r"; name the DeviceClass of the devices\Z"), _set("any-nic")),
    (re.compile(r"; remove the count, or the allocationMode\Z"), _remove),
    (re.compile(r"; remove the value, or write operator: Equal\Z"), _remove),
    (
        re.compile(r'; write "<domain>/<name>" with a domain other than kubernetes.io\Z'),
        _set("example.com/gpu"),
    ),
    (re.compile(r"; write \w+ without them\Z"), _set(lambda path: re.sub(r"/\.{1,2}(?=/)", "", path))),
    (re.compile(r"; write apiVersion: (?P<meant>\S+)\Z"), _write),
    (re.compile(r"; write a number, with a suffix if need be: "), _set("10Gi")),
    (re.compile(r"; it is a field of (?P<meant>\w+)\Z"), _move_into),
    (re.compile(r"; set subnet, e\.g\. 10\.0\.0\.0/24\Z"), _add(subnet="10.0.0.0/24")),
    (re.compile(r"; remove miimon; the default is 100\Z"), _remove),
    (
        re.compile(r"; use mode active-backup with failOverMac: active\Z"),
        _configure(mode="active-backup", failOverMac="active"),
    ),
    (re.compile(r"[;.] remove the quotes of (?:the number|\d+\.)\Z", re.IGNORECASE), _set(100)),
    (re.compile(r"; correct one of the two\Z"), _lower),
    (re.compile(r"; remove mtu from the step, or "), _remove),
    (re.compile(r"; choose a larger subnet, or exclude less\Z"), _exclude_nothing),
    (re.compile(r"; exchange them\Z"), _exchange("first", "last")),
    (re.compile(r"; swap them\Z"), _exchange("rangeStart", "rangeEnd")),
    (re.compile(r"; write an address, a subnet, or the first and last address: "), _set("10.77.0.20")),
    (re.compile(r"; write it without a prefix length, as "), _set(lambda text: text.partition("/")[0])),
    (re.compile(r"; write the address of a router in one of the ranges' subnets\Z"), _set("10.77.0.1")),
    (re.compile(r"; set the route's gateway, or that of the range\Z"), _add(gateway="2001:db8::1")),
    (re.compile(r"; write an address of IPv6\Z"), _set("2001:db8::1")),
    (re.compile(r"; choose one of .* that is not excluded\Z"), _set("10.77.0.50")),
    (re.compile(r"\. Set an IPAM plugin, e\.g\. host-local\.\Z"), _add(type="host-local")),
    (re.compile(r'; set its value as text, e\.g\. "1", or remove it\Z'), _remove),
    (re.compile(r"; only settings below net, such as "), _remove),
    (re.compile(r"; remove \w+: it is set to the allocated device\Z"), _remove),
    (re.compile(r"; remove ipam\Z"), _configure(ipam=None)),
    (re.compile(r"; remove config\.ipam, or "), _configure(ipam=None)),
    (re.compile(r"; remove config\.mtu, or mtu from keep\Z"), _configure(mtu=None)),
    (re.compile(r"; set destination, e\.g\. "), _add(destination="10.0.0.0/8")),
    (re.compile(r"; set one of the two to 0\Z"), _set(0)),
    (re.compile(r"; set vlan, 1 to 4094\Z"), _beside(vlan=100)),
    (re.compile(r"; use an address of the subnet\Z"), _set("10.77.0.10")),
    (re.compile(r"; use one of (?P<meant>\w+)(?:, \w+)*\Z"), _write),
    (re.compile(r"; leave out either port or "), _remove),
    (re.compile(r"; a port of Neutron is a VF's\Z"), _remove),
    (re.compile(r"; remove the selector or dependOn\Z"), _remove),
    (re.compile(r"; use at most 63 letters and digits, the first a lower-case letter\Z"), _set("macvlanMode")),
    (re.compile(r"; a type is the name of a program in the CNI path: no slash, no path\Z"), _set("macvlan")),
    (re.compile(r"; give one of them another config\.name\Z"), _set("other0")),
    (re.compile(r"; assign a different address to each pod\Z"), _set("10.77.0.99/24")),
    (re.compile(r"; move it to the step of the device that this one stands on\Z"), _move_keep),
    (re.compile(r"; add selector\.cel, or the steps that it depends on\Z"), _add(selector={"cel": "true"})),
    (re.compile(r"; list each address in only one range\Z"), _keep_one_range),
    (re.compile(r"; set allowHostAddresses: true\Z"), _set_exposure("allowHostAddresses", new=True)),
    (re.compile(r"; add it to namespaces, or change the reservation\Z"), _permit_namespace),
    (re.compile(r"; use another address in one of the claims\Z"), _give(address="10.77.0.99/24")),
    (re.compile(r"; use an address between them\Z"), _give(address="10.77.0.99/24")),
    (re.compile(r"; use an address of it\Z"), _give(router="10.77.0.1")),
    (re.compile(r"; use the router's address\Z"), _give(router="10.77.0.254")),
    (re.compile(r"; change one of the two\Z"), _set('device.attributes["dra.networking"].ifName == "eno9"')),
    (re.compile(r"; (?:write several claims|request one device, or [^;]*)\Z"), _one_each),
    (re.compile(r"; known kinds: (?P<meant>\w+), "), _write),
    (re.compile(r"; request the classes of its root steps: (?P<meant>[\w-]+)\Z"), _write),
    (re.compile(r"; list the networks behind this interface, or "), _set("10.9.0.0/16")),
    (re.compile(r"; request a VF of another PF in one of these steps\Z"), _of_another_pf),
    (re.compile(r'; set spoofchk: "off" in these steps, or '), _configure_all("sriov", spoofchk="off")),
    (re.compile(r"; use a name of (?P<meant>\w+), \w+, or a reference: "), _write),
    (re.compile(r"; add one value per pod; the first is for pod 0\Z"), _set(["10.77.0.10/24", "10.77.0.11/24"])),
    (re.compile(r"; set cniType to (?P<meant>\w+), and execution: Binary "), _describe_itself),
    (re.compile(r"\. Add text beside it, or "), _set(lambda text: f"10.0.0.{text}/24")),
    (re.compile(r'\. Add the prefix length: "'), _set(lambda text: f"{text}/24")),
    (re.compile(r"\. Use a single reference, to a fact that is "), _set("{{ device.attributes.mtu }}")),
    (re.compile(r"; add a constraint with distinctAttribute: (?P<meant>[\w./-]+), or "), _keep_apart),
    (re.compile(r"; use a StatefulSet\Z"), _number_pods),
    (
        re.compile(r"; add a link, and its step to dependOn\Z"),
        _set(["{{ vf0.interfaceName }}", "{{ vf1.interfaceName }}"]),
    ),
    (re.compile(r'; raise the MTU of "\w+" in an earlier step, or '), _configure_all("sriov", mtu=9216)),
    (re.compile(r"; divide the range by first and last\Z"), _add(first="10.77.0.100")),
    (re.compile(r"; set this VLAN once, in the step or "), _configure(id=200)),
    (
        re.compile(r"; add runtimeConfig with portMappings: "),
        _configure(runtimeConfig={"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}),
    ),
    (re.compile(r"; let the step depend on a step of type sriov or host-device\Z"), _set(["roce"])),
    (re.compile(r"; use (?P<meant>[0-9./]+), with the prefix length of the network, or "), _write),
    (re.compile(r"; refer to a parameter: "), _set("{{ params.address }}")),
    (re.compile(r"; write network: NAME beside config\Z"), _join_network),
    (re.compile(r"; a step can only depend on steps that do not depend on it\Z"), _set(["vf0", "vf1"])),
    (re.compile(r"; declare it in spec\.parameters\Z"), _declare),
    (re.compile(r"; refer to the device in its own step, and to "), _set("{{ vf0.mac }}")),
    (re.compile(r"; write the value, or \{\{ params\.<name> \}\} for "), _set("blue")),
    (re.compile(r"; the steps' interfaces are [^;]*: name one as "), _set("{{ bond0.interfaceName }}")),
    (re.compile(r"; use a request of a topology's DeviceClass, or remove the values\Z"), _remove),
    (re.compile(r"; give it in the claim's spec\.devices\.config, as "), _give_per_pod),
    (re.compile(r"; docs/claims\.md describes the parameters of a DeviceClass; "), _add(kind="DeviceParameters")),
    (
        re.compile(r'; (?:did you mean "|write )(?:e\.g\. )?\{\{ device\.attributes\.'),
        _configure(name="rail{{ device.attributes.rail }}"),
    ),
    (re.compile(r"; write \{\{ step\.field \}\} with a step's name and "), _configure(vlan="{{ params.vlan }}")),
    (re.compile(r"; write \{\{ step\.field \}\}; a literal \{\{ is not supported\Z"), _close),
    (re.compile(r'; add a step of type "tuning" with this ipam on its interface\Z'), _address_later),
    (
        re.compile(r"; let the step's selector ask for it, or "),
        _select_by('device.attributes["example.com"].rail == 1'),
    ),
    (
        re.compile(r"; let the step's selector match only devices to which it applies\Z"),
        _select_by('device.attributes["dra.networking"].vfIndex >= 0'),
    ),
    (re.compile(r"; references are resolved in values only\Z"), _name_the_key),
)


def hints(said: list[str]) -> Iterator[str]:
    """The texts of lines, without place and code."""
    for line in said:
        parts = _LINE.match(line)
        yield parts["text"] if parts is not None else line
