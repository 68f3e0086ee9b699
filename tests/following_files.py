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


def _world(documents: list[Value]) -> Value:
    """The object with the allocated devices and the options of a node (`tests.worlds`)."""
    return next(value for value in documents if "kind" not in value)


def run_plugins(documents: list[Value], _: re.Match[str]) -> bool:
    _world(documents)["options"]["runPlugins"] = True
    return True


def allow_plugins(documents: list[Value], found: re.Match[str]) -> bool:
    _world(documents)["options"]["plugins"] = found["plugins"].split(", ")
    return True


def allow_folder(documents: list[Value], found: re.Match[str]) -> bool:
    _world(documents)["options"]["folders"].append(found["path"].rpartition("/")[0])
    return True


def allow_sysctl(documents: list[Value], found: re.Match[str]) -> bool:
    for device in _world(documents)["devices"].values():
        device["allowedSysctls"] = [found["key"]]
    return True


def choose_device(documents: list[Value], found: re.Match[str]) -> bool:
    for device in _world(documents)["devices"].values():
        if device["device"] == found["device"]:
            device.update(pciAddress="0000:18:00.1", ifName="ens1v0")
    return True


def request_file(documents: list[Value], found: re.Match[str]) -> bool:
    """A selector for a device file, of which the scheduler then allocates one."""
    for topology in _of(documents, "NetworkTopology"):
        topology["spec"]["steps"][0]["selector"]["cel"] = f'device.attributes["dra.networking"].{found["condition"]}'
    for device in _world(documents)["devices"].values():
        device["deviceFile"] = "/dev/vhost-net"
    return True


def add_lanes(documents: list[Value], _: re.Match[str]) -> bool:
    for policy in _of(documents, "DeviceExposurePolicy"):
        policy["spec"]["exposure"]["pooledVFs"]["lanes"] += 1
    return True


def correct_range(documents: list[Value], found: re.Match[str]) -> bool:
    for network in _of(documents, "PodNetwork", found["name"]):
        network["spec"]["ranges"] = [{"cidr": found["subnet"]}]
    return True


def request_again(documents: list[Value], found: re.Match[str]) -> bool:
    """A claim as `netdra render --template` prints it."""
    for claim in _of(documents, "ResourceClaim"):
        exactly = {"deviceClassName": found["class"]}
        claim["spec"]["devices"]["requests"].append({"name": "addresses", "exactly": exactly})
    return True


def use_other_network(documents: list[Value], _: re.Match[str]) -> bool:
    _world(documents)["network"] = "backup"
    return True


def move_counters(documents: list[Value], _: re.Match[str]) -> bool:
    for item in _of(documents, "ResourceSlice"):
        pool = {**item["spec"]["pool"], "resourceSliceCount": 2}
        item["spec"]["pool"] = pool
        spec = {name: item["spec"][name] for name in ("driver", "nodeName")}
        counters = {**spec, "pool": pool, "sharedCounters": item["spec"].pop("sharedCounters")}
        documents.append({**item, "metadata": {"name": "counters"}, "spec": counters})
        return True
    return False


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
    (re.compile(r"; use one of netdra's own types, or set the chart's value node\.runPlugins "), run_plugins),
    (
        re.compile(r"; (?:create a .* or )?set the chart's value node\.allowPlugins to \[(?P<plugins>[^]]+)\]"),
        allow_plugins,
    ),
    (re.compile(r'with --allow-host-path and a directory that contains "(?P<path>[^"]+)"\Z'), allow_folder),
    (re.compile(r'sysctl "(?P<key>[^"]+)" .*; remove it, or add it to allowedSysctls '), allow_sysctl),
    (re.compile(r'device "(?P<device>[^"]+)" .* in a hand-written plan, set pciAddress and ifName\Z'), choose_device),
    (re.compile(r'; add (?P<condition>type == "device-file") to the selector\Z'), request_file),
    (re.compile(r'(?P<kind>PodNetwork) "(?P<name>[^"]+)" does not exist; create it\Z'), add_file),
    (
        re.compile(r'PodNetwork "(?P<name>[^"]+)" cannot be .*write the subnet (?P<subnet>\S+) .*; correct its spec\Z'),
        correct_range,
    ),
    (
        re.compile(r'PodNetwork "(?P<name>[^"]+)".*; an administrator can add "(?P<namespace>[^"]+)" to its spec\.'),
        permit,
    ),
    (
        re.compile(r"; create the claim again with a request of DeviceClass (?P<class>[\w.-]+): "),
        request_again,
    ),
    (re.compile(r"; use another PodNetwork, or create it again after its deletion\Z"), use_other_network),
    (re.compile(r"; move sharedCounters to another slice of the same pool, "), move_counters),
    (re.compile(r"; divide the pooled VFs into more lanes, or "), add_lanes),
)
