"""How hints are followed in another object than the one with the error: rules for `tests.following`.

A change gets all objects of the file and the hint's match, and returns whether it could be made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tests.corrections import Value

Change = Callable[[list[Value], re.Match[str]], bool]
_SPECS = {
    "NetworkTopology": {"steps": [{"name": "nic", "type": "macvlan", "selector": {"cel": "true"}}]},
    "PodNetwork": {"ranges": [{"cidr": "10.99.0.0/24"}]},
}


def _of(documents: list[Value], kind: str, name: str = "") -> Iterator[Value]:
    for value in documents:
        if value.get("kind") == kind and name in ("", value["metadata"]["name"]):
            yield value


def add_file(documents: list[Value], found: re.Match[str]) -> bool:
    spec = _SPECS.get(found["kind"])
    metadata = {"name": found["name"]}
    documents.append(
        {"apiVersion": "networking.dra.io/v1alpha1", "kind": found["kind"], "metadata": metadata, "spec": spec}
    )
    return spec is not None


def label_node(documents: list[Value], found: re.Match[str]) -> bool:
    for node in _of(documents, "Node", found["name"]):
        node["metadata"].setdefault("labels", {})[found["key"]] = "7"
    return True


def name_by_rail(documents: list[Value], _: re.Match[str]) -> bool:
    for topology in _of(documents, "NetworkTopology"):
        for step in topology["spec"]["steps"]:
            if "name" in step.get("config", {}):
                step["config"]["name"] = "rail{{ device.attributes.rail }}"
    return True


def raise_limit(documents: list[Value], found: re.Match[str]) -> bool:
    for network in _of(documents, "PodNetwork", found["name"]):
        network["spec"]["limits"]["perNamespace"] = 64
    return True


def permit(documents: list[Value], found: re.Match[str]) -> bool:
    for network in _of(documents, "PodNetwork", found["name"]):
        network["spec"]["namespaces"].append(found["namespace"])
    return True


RULES: tuple[tuple[re.Pattern[str], Change], ...] = (
    (re.compile(r'(?P<kind>\w+) "(?P<name>[^"]+)" (?:is not in|not found in) these files; add its file, '), add_file),
    (re.compile(r"; set it: kubectl label node (?P<name>\S+) (?P<key>\S+)=<value>\Z"), label_node),
    (re.compile(r"devices?[^;]*; use a fact in config\.name that differs between the devices\Z"), name_by_rail),
    (
        re.compile(
            r'PodNetwork "(?P<name>[^"]+)".*; an administrator can raise limits\.perNamespace of the PodNetwork\Z'
        ),
        raise_limit,
    ),
    (
        re.compile(r'PodNetwork "(?P<name>[^"]+)".* namespace "(?P<namespace>[^"]+)".*; an administrator can add the '),
        permit,
    ),
)
