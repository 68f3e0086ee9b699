"""How hints about PodNetworks, their Services and requests for addresses are followed: rules for `tests.following`."""

from __future__ import annotations

import re

from tests import corrections
from tests.corrections import Correction, Place, Value, holder

_TOLERATIONS = [{"key": "dra.networking/addresses", "operator": "Exists"}]


def _devices(value: Value) -> Value:
    spec = value["spec"]
    return spec["spec"]["devices"] if "spec" in spec else spec["devices"]


def add_request(value: Value, _path: Place, found: re.Match[str]) -> bool:
    exactly: Value = {"deviceClassName": found["meant"], "tolerations": _TOLERATIONS}
    if found["steps"]:
        exactly["capacity"] = {"requests": {"dra.networking/addresses": found["steps"]}}
    _devices(value)["requests"].append({"name": "added", "exactly": exactly})
    return True


def tolerate(value: Value, path: Place, _: re.Match[str]) -> bool:
    holder(value, path)[path[-1]]["exactly"]["tolerations"] = _TOLERATIONS
    return True


def request_several(value: Value, _path: Place, found: re.Match[str]) -> bool:
    for request in _devices(value)["requests"]:
        if request["exactly"]["deviceClassName"].startswith("podnetwork."):
            request["exactly"]["capacity"] = {"requests": {found["key"]: found["meant"]}}
    return True


def constrain_others(value: Value, _path: Place, found: re.Match[str]) -> bool:
    devices = _devices(value)
    names = [request["name"] for request in devices["requests"] if request["name"] != found["name"]]
    for constraint in devices["constraints"]:
        constraint["requests"] = names
    return True


def add_range(value: Value, _path: Place, _: re.Match[str]) -> bool:
    value["spec"]["ranges"].append({"cidr": "2001:db8::/64", "gateway": "2001:db8::1"})
    return True


def divide(value: Value, path: Place, _: re.Match[str]) -> bool:
    value["spec"]["vlan"] = 200
    return "ranges" in path


def select_by_annotation(value: Value, _path: Place, _: re.Match[str]) -> bool:
    del value["spec"]["selector"]
    return True


def annotate(value: Value, _path: Place, _: re.Match[str]) -> bool:
    value["metadata"]["annotations"] = {"networking.dra.io/pod-selector": "app=web"}
    return True


def request_of_other(value: Value, path: Place, _: re.Match[str]) -> bool:
    for request in _devices(value)["requests"]:
        request["exactly"]["deviceClassName"] = "lan-nic"
    return "requests" in path


RULES: tuple[tuple[re.Pattern[str], Correction], ...] = (
    (
        re.compile(
            r"; add a request of DeviceClass (?P<meant>[\w.-]+)(?: with \S+ of (?P<steps>\d+))?: netdra render "
        ),
        add_request,
    ),
    (re.compile(r"; add tolerations: \["), tolerate),
    (re.compile(r'; set capacity\.requests\["(?P<key>[^"]+)"\] of the request to (?P<meant>\d+)\Z'), request_several),
    (
        re.compile(r'request "(?P<name>[^"]+)".*; list the other requests in the constraint\'s requests\Z'),
        constrain_others,
    ),
    (
        re.compile(r"; remove the request, or request a NetworkTopology with a step on the network\Z"),
        corrections.remove,
    ),
    (re.compile(r"; request devices of another topology\Z"), request_of_other),
    (re.compile(r"; add a range of IPv6\Z"), add_range),
    (re.compile(r"; choose a subnet of the network that the devices are on\Z"), corrections.put("10.77.0.0/24")),
    (re.compile(r"; choose another address\Z"), corrections.put("10.77.0.12")),
    (re.compile(r"; divide the range, or set the vlan or physnet of both\Z"), divide),
    (re.compile(r"; write (?P<meant>[0-9.]+), without a prefix length\Z"), corrections.write),
    (re.compile(r"; write an address, e\.g\. "), corrections.put("10.77.0.12")),
    (
        re.compile(r"; write (?:a subnet, e\.g\. |the subnet )?(?P<meant>[0-9.]+/\d+)(?:, with its prefix length)?\Z"),
        corrections.write,
    ),
    (re.compile(r"; create it again without the selector, "), select_by_annotation),
    (re.compile(r"; add it, with a label selector for the pods, e\.g\. app=web\Z"), annotate),
    (re.compile(r"; use the form of kubectl -l, e\.g\. (?P<meant>app=web)\Z"), corrections.write),
    (re.compile(r"; write the name of the PodNetwork, e\.g\. (?P<meant>storage)\Z"), corrections.write),
    (re.compile(r"; add the key of a taint\Z"), corrections.add(key="gpu")),
)
