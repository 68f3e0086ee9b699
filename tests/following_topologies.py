"""Rules of `tests.following` for selectors, claims, plugins' schemas, and the steps of topologies.

`RULES` correct the object that a line names; `OF_FILES` correct a file around it, for hints about another object;
`OF_TEXTS` a text whose objects cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests import corrections
from tests.corrections import Correction, Place, Value, holder

FileCorrection = Callable[[list[Value], Value, Place, re.Match[str]], bool]
"""As a correction, with the objects of the file before the others."""


def rewrite(pattern: str, new: str) -> Correction:
    """Rewrites the text at the place."""
    return corrections.put(lambda text: re.sub(pattern, new, text))


def remove_fields(value: Value, path: Place, found: re.Match[str]) -> bool:
    """A field access of an expression."""
    inner = holder(value, path)
    inner[path[-1]] = inner[path[-1]].replace(f".{found['meant']}", "")
    return True


def keep_first(count: int) -> Correction:
    """The first entries of the list at the place."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        del holder(value, path)[path[-1]][count:]
        return True

    return act


def add_attribute(documents: list[Value], _value: Value, path: Place, found: re.Match[str]) -> bool:
    """A policy that adds the attribute that a selector reads."""
    documents.append(
        {
            "apiVersion": "networking.dra.io/v1alpha1",
            "kind": "DeviceExposurePolicy",
            "metadata": {"name": "labelled"},
            "spec": {
                "selector": {"cel": 'device.attributes["dra.networking"].ifName == "enp3s0f0"'},
                "exposure": {
                    "supportedCNIPlugins": [{"name": "host-device", "exclusive": True}],
                    "additionalAttributes": {found["meant"]: "a7"},
                },
            },
        }
    )
    return "cel" in path


def rename_request(value: Value, path: Place, found: re.Match[str]) -> bool:
    """A request of the list at the place."""
    for request in holder(value, path)[path[-1]]:
        if request["name"] == found["name"]:
            request["name"] = found["meant"]
            return True
    return False


def set_class(value: Value, path: Place, found: re.Match[str]) -> bool:
    """The class of the request at the place."""
    holder(value, path)[path[-1]]["deviceClassName"] = found["meant"]
    return True


def remove_request(value: Value, path: Place, _: re.Match[str]) -> bool:
    """The request around the place."""
    del holder(value, path[:-1])[path[-2]]
    return True


def rewrite_texts(pattern: str, new: str) -> Correction:
    """Rewrites all texts at the place, and below it."""

    def rewritten(value: Value) -> Value:
        if isinstance(value, dict):
            return {key: rewritten(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return list(map(rewritten, value))
        return re.sub(pattern, new, value) if isinstance(value, str) else value

    return corrections.put(rewritten)


def write_fact(value: Value, path: Place, found: re.Match[str]) -> bool:
    """A label of the node, in place of the reference that is not one."""
    return rewrite_texts(r"\{\{ node\..*?\}\}", found["meant"])(value, path, found)


def close(value: Value, path: Place, found: re.Match[str]) -> bool:
    return rewrite_texts(r"\{\{ [\w.]+ ?\}?\Z", found["meant"])(value, path, found)


def set_format(value: Value, _path: Place, found: re.Match[str]) -> bool:
    parameters = value["spec"]["parameters"]
    for parameter in parameters:
        if parameter["name"] == found["name"]:
            parameter["format"] = found["meant"]
    return True


def set_defaults(value: Value, _path: Place, _: re.Match[str]) -> bool:
    for parameter in value["spec"]["parameters"]:
        parameter["default"] = parameter["minimum"]
    return True


def write_finite(value: Value, path: Place, _: re.Match[str]) -> bool:
    """A number in place of one that JSON does not have."""
    config = holder(value, path)[path[-1]]
    config.update({key: 0.5 for key, entry in config.items() if isinstance(entry, float)})
    return path[-1] == "config"


def in_values(change: Callable[[Value, re.Match[str]], object]) -> FileCorrection:
    """Changes the values that a claim of the file gives to parameters."""

    def act(documents: list[Value], _value: Value, _path: Place, found: re.Match[str]) -> bool:
        claims = [document for document in documents if str(document.get("kind")).startswith("ResourceClaim")]
        for claim in claims[:1]:
            spec = claim["spec"].get("spec", claim["spec"])
            change(spec["devices"]["config"][0]["opaque"]["parameters"], found)
        return bool(claims)

    return act


def unquote_values(given: Value, _: re.Match[str]) -> None:
    """Numbers in place of texts of digits."""
    given["values"] = {name: int(text) if str(text).isdecimal() else text for name, text in given["values"].items()}


def on_node(documents: list[Value], _value: Value, _path: Place, found: re.Match[str]) -> bool:
    """The label of the command, on the Node of the file."""
    (node,) = (document for document in documents if document.get("kind") == "Node")
    node["metadata"]["labels"][found["key"]] = "7"
    return bool(node["metadata"]["name"] == found["node"])


def note(text: str) -> FileCorrection:
    """Sets the attribute that the policy of the file adds."""

    def act(documents: list[Value], _value: Value, _path: Place, _: re.Match[str]) -> bool:
        (policy,) = (document for document in documents if document.get("kind") == "DeviceExposurePolicy")
        policy["spec"]["exposure"]["additionalAttributes"] = {"note": text}
        return True

    return act


def add_to_policies(documents: list[Value], _value: Value, _path: Place, found: re.Match[str]) -> bool:
    """The attribute, with another value in each policy of the file."""
    policies = [document for document in documents if document.get("kind") == "DeviceExposurePolicy"]
    for number, policy in enumerate(policies):
        policy["spec"]["exposure"].setdefault("additionalAttributes", {})[found["meant"]] = f"a{number}"
    return bool(policies)


def remove_second(documents: list[Value], value: Value, _path: Place, _: re.Match[str]) -> bool:
    """The last object of the name."""
    same = [document for document in documents if document.get("metadata") == value["metadata"]]
    del documents[next(at for at, document in enumerate(documents) if document is same[-1])]
    return len(same) > 1


def merge(documents: list[Value], value: Value, _path: Place, _: re.Match[str]) -> bool:
    """One object with the fields of two."""
    (other,) = (document for document in documents if document is not value)
    value["spec"].update(other["spec"])
    documents.remove(other)
    return True


def change_vlan(documents: list[Value], _value: Value, _path: Place, _: re.Match[str]) -> bool:
    """A VLAN that the schema allows, in the topology beside it."""
    topology = next(document for document in documents if document.get("kind") == "NetworkTopology")
    config = topology["spec"]["steps"][0].get("config", {})
    config["vlan"] = 10
    return "config" in topology["spec"]["steps"][0]


RULES: tuple[tuple[re.Pattern[str], Correction], ...] = (
    (re.compile(r"; `netdra discover` shows the attributes of interfaces\Z"), rewrite(r"\]\.\w+", "].ifName")),
    (re.compile(r'; \w+ is the value itself: remove "(?P<meant>\w+)"\Z'), remove_fields),
    (re.compile(r"; use \.\? to read it\Z"), rewrite(r"\.(\w+\.\w+\()", r".?\1")),
    (
        re.compile(r"; compare quantities with isGreaterThan\(\), "),
        rewrite(r">= (\d+)", r'.compareTo(quantity("\1")) >= 0'),
    ),
    (
        re.compile(r"; did you mean device\.capacity\["),
        rewrite(r"attributes(\[[^]]+\]\.\w+)", r"capacity\1"),
    ),
    (re.compile(r"; write it as net\.core\.somaxconn or net"), corrections.put("net.core.somaxconn")),
    (re.compile(r"; list fewer plugins, or "), keep_first(3)),
    (re.compile(r"; request one address of each family\Z"), corrections.remove),
    (re.compile(r"\. Set format of parameter (?P<name>\w+) to (?P<meant>\w+)\.\Z"), set_format),
    (re.compile(r"; shorten the topology's or the step's name\Z"), corrections.put(lambda name: name[:100])),
    (re.compile(r"; set extendedResourceName on every root step, or on none\Z"), corrections.remove),
    (re.compile(r"; give each parameter a default, or "), set_defaults),
    (re.compile(r" names no parameter of this topology; its parameters are "), corrections.put("{{ params.vlan }}")),
    (re.compile(r"; fields: interfaceName, mac, "), rewrite_texts(r"\.speed ", ".interfaceName ")),
    (re.compile(r"; write the braces of ASCII\Z"), rewrite_texts(r"\W{2}( .* )\W{2}", r"{{\1}}")),
    (re.compile(r"; write one name\Z"), corrections.put("data0")),
    (re.compile(r"; remove the control character\Z"), rewrite_texts(r"[\x00-\x1f]", "")),
    (re.compile(r"; use 1 to \d+ printable ASCII signs without braces\Z"), corrections.put(["bridge", "private"])),
    (re.compile(r"; keep one of them: a device is attached by one step\Z"), keep_first(1)),
    (re.compile(r'(?:; write|; did you mean ") ?(?P<meant>\{\{ node\.labels\[.*?\}\})'), write_fact),
    (re.compile(r"; write a finite number, or "), write_finite),
    (re.compile(r"; write \{\{ step\.field \}\}; a literal "), rewrite_texts(r"\{\{ vlan\Z", "{{ params.vlan }}")),
    (
        re.compile(r" opens a reference that is not closed; write (?P<meant>\{\{ [\w.]+ \}\})\Z"),
        close,
    ),
    (re.compile(r"; supported: (?P<listed>.*)\Z"), corrections.write_supported),
    (re.compile(r"; use (?P<meant>[a-z.]+/inventory-v\d+): capture it "), corrections.write),
    (re.compile(r"; request (?P<meant>[\w-]+)\Z"), corrections.write),
    (re.compile(r"; rename the step, or delete the DeviceClass\Z"), corrections.put("port")),
    (re.compile(r"; write at most (?P<meant>\d+)\Z"), corrections.write),
    (re.compile(r"; remove some\Z"), keep_first(3)),
    (re.compile(r"; write \{key: value\}\Z"), corrections.put({"a": 1})),
    (re.compile(r'; rename request "(?P<name>[^"]+)" to "(?P<meant>[^"]+)"\Z'), rename_request),
    (re.compile(r"; request one device; only a topology with "), corrections.put({"deviceClassName": "pair-vf1"})),
    (re.compile(r'; set its deviceClassName to "(?P<meant>[^"]+)"\Z'), set_class),
    (re.compile(r"; remove the request(?:\Z|; for several devices, )"), remove_request),
)


def write_topology(documents: list[Value], value: Value, _path: Place, _: re.Match[str]) -> bool:
    """A topology with the step of a DeviceClass, in place of the class."""
    step = value["spec"]["config"][0]["opaque"]["parameters"]["step"]
    step["config"] |= {"name": "store{{ device.attributes.numaNode }}"}
    selector = {"cel": 'device.attributes["dra.networking"].type == "nic"'}
    documents[:] = [
        {
            "apiVersion": "networking.dra.io/v1alpha1",
            "kind": "NetworkTopology",
            "metadata": {"name": "storage"},
            "spec": {"steps": [{"name": "nic", "selector": selector, **step}]},
        }
    ]
    return True


def in_statefulset(documents: list[Value], _value: Value, _path: Place, _: re.Match[str]) -> bool:
    for document in documents:
        if document.get("kind") == "Deployment":
            document["kind"] = "StatefulSet"
    return True


OF_TEXTS: tuple[tuple[re.Pattern[str], Callable[[str], str]], ...] = (
    (
        re.compile(r"; items of a list begin with dashes\b"),
        lambda text: re.sub(r"(items:\n +) {2}", r"\1- ", text, count=1),
    ),
)

OF_FILES: tuple[tuple[re.Pattern[str], FileCorrection], ...] = (
    (re.compile(r'has no attribute "(?P<meant>[^"]+)"; add it to additionalAttributes of '), add_to_policies),
    (re.compile(r" is already at .*; remove one of them\Z"), remove_second),
    (re.compile(r"; merge the two\Z"), merge),
    (
        re.compile(r"; write a NetworkTopology(?: for a network of several steps|, whose steps can have it)\Z"),
        write_topology,
    ),
    (re.compile(r"; use (?:a ResourceClaimTemplate|the topology) in a StatefulSet, "), in_statefulset),
    (re.compile(r"; use a value without .* with its prefix length\Z"), note("fabric-blue")),
    (re.compile(r"; use printable ASCII characters without braces\Z"), note("zurich")),
    (re.compile(r"; set it: kubectl label (?:--overwrite )?node (?P<node>\S+) (?P<key>\S+)=<value>\Z"), on_node),
    (
        re.compile(r"; add values, the first is that of pod 0; or have fewer replicas\Z"),
        in_values(lambda given, _: given["perPod"]["address"].append("10.77.0.12/24")),
    ),
    (
        re.compile(r"; write one of (?P<meant>\w+)(?:, \w+)*\Z"),
        in_values(lambda given, found: given["values"].update(mode=found["meant"])),
    ),
    (
        re.compile(r' has no parameter "(?P<name>\w+)"; its parameters are '),
        in_values(lambda given, found: given["values"].pop(found["name"])),
    ),
    (
        re.compile(r' has no parameter "(?P<name>\w+)"; did you mean "(?P<meant>\w+)"\?\Z'),
        in_values(lambda given, found: given["values"].update({found["meant"]: given["values"].pop(found["name"])})),
    ),
    (re.compile(r"; remove its quotes\Z"), in_values(unquote_values)),
    (re.compile(r"; remove one of the values\Z"), in_values(lambda given, _: given["values"].pop("address"))),
    (re.compile(r"; they keep working; fix them before "), change_vlan),
    (re.compile(r'attribute "(?P<meant>\w+)" of .*; a policy can set it with additionalAttributes\Z'), add_attribute),
)
