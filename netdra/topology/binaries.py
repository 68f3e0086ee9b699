"""Configs for the programs of netdra's built-in types: netdra's names and values are translated to the programs'.

The programs of containernetworking/plugins, sriov-cni, bond-cni and rdma-cni have a vocabulary of their own, and ignore
keys that they do not know: a `vlan` with `id` makes VLAN 0 (decision D28). The keys that they know are in their schemas
(`schemas/<type>-binary.yaml`); keys and values with another name or form there are translated here. Called by `bind`
for plans and by `netdra.chain` for plans by hand. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from netdra.model.plan import Plan, PlannedStep

_NAMES: Mapping[str, Mapping[str, str]] = {
    "host-device": {"deviceID": "pciBusID"},
    "sriov": {
        "qos": "vlanQoS",
        "proto": "vlanProto",
        "linkState": "link_state",
        "minTxRate": "min_tx_rate",
        "maxTxRate": "max_tx_rate",
        "pciBusID": "deviceID",
    },
    "tuning": {"txqlen": "txQLen"},
    "vlan": {"id": "vlanId"},
}
"""Type -> netdra's key -> the key that the program reads."""


UNIX = "unix:"
"""What stands before the path of a Unix socket, as Open vSwitch writes it."""
_NETWORK_NAME, _NAD_NAME = "networkName", "netAttachDefName"
_OF_NADS = frozenset({"ovn-k8s-cni-overlay"})
"""The programs whose network is that of a NetworkAttachmentDefinition, and must have its name."""


def nad_network(kind: str, config: Mapping[str, Any]) -> str:
    """The name of the NetworkAttachmentDefinition's network that a program attaches to; "" for other programs.

    OVN-Kubernetes finds the port of a pod by the network's name and the definition's (`k8s.ovn.org/network`,
    `k8s.ovn.org/nad`). The network is named as the object is, unless `networkName` has the `name` in its `spec.config`.
    """
    if kind not in _OF_NADS:
        return ""
    given = config.get(_NETWORK_NAME) or config.get(_NAD_NAME)
    name = given.rpartition("/")[2] if isinstance(given, str) else ""
    return "" if "{{" in name else name


def _switch(value: Any) -> Any:
    return ("on" if value else "off") if isinstance(value, bool) else value


def _flag(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _mac_policy(value: Any) -> Any:
    # As the kernel numbers fail_over_mac (Documentation/networking/bonding).
    return {"none": 0, "active": 1, "follow": 2}.get(value, value) if isinstance(value, str) else value


def _socket(value: Any) -> Any:
    return f"{UNIX}{value}" if isinstance(value, str) and value.startswith("/") else value


_VALUES: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "bond": {"miimon": _text, "failOverMac": _mac_policy, "allSlavesActive": _flag, "tlbDynamicLb": _flag},
    "ovs": {"socket_file": _socket},
    "sriov": {"trust": _switch, "spoofchk": _switch},
}
"""Type -> parameter, as the program calls it -> the form in which the program reads it."""


def translated(kind: str, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A config as the program of a type reads it; unchanged for types without words of netdra's own.

    A parameter that is given under both names stays so, and the schema refuses it. Translating again changes nothing.
    """
    names, values = _NAMES.get(kind, {}), _VALUES.get(kind, {})
    written: dict[str, Any] = {}
    for key, value in config.items():
        if kind in _OF_NADS and key == _NETWORK_NAME:
            continue  # it is the `name` of the CNI configuration
        name = key if names.get(key) in config else names.get(key, key)
        written[name] = values[name](value) if name in values else value
    return written


def translated_plan(plan: Plan) -> Plan:
    """A plan with the configs of all programs as they read them."""
    steps = tuple(_translated_step(step) if step.execution == "Binary" else step for step in plan.steps)
    return msgspec.structs.replace(plan, steps=steps)


def _translated_step(step: PlannedStep) -> PlannedStep:
    return msgspec.structs.replace(step, config=translated(step.type, step.config))
