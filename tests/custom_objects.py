"""An object of each kind that the API server accepts, and changes to them that it refuses, with its errors.

Used by the cluster's tests of the definitions and by those of `netdra validate`, which refuses the same.
"""

from __future__ import annotations

import copy
from typing import Any

from testbed.api import Object
from testbed.objects import manifest

GROUP = "networking.dra.io/v1alpha1"
POLICY = f"{GROUP}/DeviceExposurePolicy"
TOPOLOGY = f"{GROUP}/NetworkTopology"
CUSTOM_DEVICE = f"{GROUP}/CustomDevice"
SCHEMA = "cni.networking.k8s.io/v1alpha1/CNIPluginSchema"
CNI_PLUGIN = f"{GROUP}/CNIPlugin"
NEUTRON_PORT = f"{GROUP}/NeutronPort"
POD_NETWORK = f"{GROUP}/PodNetwork"

SLOTS = {"value": "64", "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": 4, "step": "1"}}}
GOOD: dict[str, Object] = {
    POLICY: {
        "nodeSelector": {"matchExpressions": [{"key": "net", "operator": "In", "values": ["fast"]}]},
        "selector": {"cel": 'device.attributes["dra.networking"].type == "pf"'},
        "exposure": {
            "deviceNameSuffix": "-macvlan",
            "exclusionGroup": "rx-handler",
            "allowMultipleAllocations": True,
            "capacity": {"macvlans": SLOTS, "example.com/other": {"value": 10}},
            "supportedCNIPlugins": [
                {"name": "macvlan", "consumePerAllocation": {"macvlans": 1}},
                {"name": "ipvlan", "consumePerAllocation": {"macvlans": "2"}},
            ],
            "additionalAttributes": {"rack": 7, "fast": True, "physnet": "a", "zones": ["a", "b"]},
            "taints": {"gone": "NoExecute"},
        },
    },
    TOPOLOGY: {
        "steps": [
            {"name": "vf0", "type": "sriov", "selector": {"cel": "true"}, "config": {"vlan": 0, "trust": "on"}},
            {
                "name": "vf1",
                "type": "sriov",
                "extendedResourceName": "example.com/vf",
                "neutron": {"network": "blue", "fixedIPs": ["10.0.0.1"], "assignAddresses": False},
            },
            {"name": "bond0", "type": "bond", "dependOn": ["vf0", "vf1"], "config": {"links": "{{ vf0.interfaces }}"}},
        ]
    },
    CUSTOM_DEVICE: {
        "provider": "bctl",
        "selector": {"pool.name": "default-net-pool"},
        "device": "enp1s0",
        "addIfNotExist": False,
        "attributes": {"rdma": {"bool": True}},
        "capacity": {"bandwidth": {"value": 4096}},
    },
    SCHEMA: {
        "cniType": "bond",
        "version": "1.0.0",
        "configParameters": {
            "required": [
                {"name": "mode", "type": "string", "enum": ["802.3ad", "active-backup"]},
                {
                    "name": "links",
                    "type": "[]object",
                    "minItems": 2,
                    "items": {"properties": {"name": {"type": "string"}}},
                },
            ],
            "optional": [
                {"name": "miimon", "type": "integer", "minimum": 0, "default": 100},
                {"name": "sysctl", "type": "map[string]string|[]string", "aliases": ["sysctls"]},
            ],
        },
        "input": {"prevResult": {"required": True, "interfaces": {"minItems": 2, "maxItems": 8}}},
        "output": {
            "interfaces": {"appends": 1, "passthrough": True},
            "devices": {"appends": True, "properties": [{"name": "pciAddress", "type": "string"}]},
        },
    },
    CNI_PLUGIN: {"image": "registry.example.com/cni-plugins/bond:v1.0.0", "binaryPath": "/opt/cni/bin/bond"},
    POD_NETWORK: {
        "ranges": [
            {"cidr": "10.77.0.0/16", "gateway": "10.77.0.1", "exclude": ["10.77.1.1-10.77.1.9"], "first": "10.77.1.0"},
            {"cidr": "2001:db8::/64", "nodeSelector": {"matchLabels": {"rack": "a"}}},
        ],
        "routes": [{"destination": "10.0.0.0/8"}],
        "dns": ["10.77.0.2"],
        "namespaces": ["db"],
        "reservations": [{"address": "10.77.2.5", "namespace": "db", "name": "db-0"}],
        "vlan": 100,
    },
}


def changed(kind: str, path: str, value: Any) -> Object:
    """The good object of a kind with another value at a path; None takes the field away."""
    found = manifest(kind, "bad", spec=copy.deepcopy(GOOD[kind]))
    *way, last = path.split(".")
    at = found["spec"]
    for part in way:
        at = at[int(part) if part.isdecimal() else part]
    if value is None:
        del at[last]
    else:
        at[int(last) if last.isdecimal() else last] = value
    return found


BAD: list[tuple[str, str, Any, str]] = [
    (POLICY, "priority", 1001, "spec.priority in body should be less than or equal to 1000"),
    (POLICY, "priority", -1, "spec.priority in body should be greater than or equal to 0"),
    (POLICY, "action", "hide", 'supported values: "exclude", "expose"'),
    (POLICY, "action", "exclude", "remove it, or set action: expose"),
    (POLICY, "selector", {"cel": ""}, "spec.selector.cel"),
    (POLICY, "selector", None, "spec.selector: Required value"),
    (POLICY, "exposure.capacity", None, "needs capacity for them to share"),
    (POLICY, "exposure.capacity", {"9lives": SLOTS}, "names are letters, digits and underscores"),
    (POLICY, "exposure.capacity.macvlans", {"value": "plenty"}, "spec.exposure.capacity.macvlans.value"),
    (POLICY, "exposure.capacity.macvlans.requestPolicy.validValues", ["1"], "give one of the two"),
    (POLICY, "exposure.deviceNameSuffix", "_x", "spec.exposure.deviceNameSuffix"),
    (POLICY, "exposure.taints.gone", "None", 'supported values: "NoExecute", "NoSchedule"'),
    (POLICY, "exposure.supportedCNIPlugins.0.consumePerAllocation", {"macvlan": 1}, "does not have"),
    (POLICY, "exposure.supportedCNIPlugins.1.name", "macvlan", "Duplicate value"),
    (POLICY, "nodeSelector.matchExpressions.0.values", None, "In and NotIn need values"),
    (POLICY, "nodeSelector.matchExpressions.0.operator", "Exists", "Exists and DoesNotExist take none"),
    (TOPOLOGY, "steps", [], "should have at least 1 items"),
    (TOPOLOGY, "steps.1.name", "vf0", "Duplicate value"),
    (TOPOLOGY, "steps.1.name", "VF_1", "spec.steps[1].name"),
    (TOPOLOGY, "steps.2.dependOn", ["bond0"], "a step cannot depend on itself"),
    (TOPOLOGY, "steps.2.dependOn", ["vf0", "vf2"], "dependOn names a step that the topology does not have"),
    (TOPOLOGY, "steps.2.dependOn", ["vf0", "vf0"], "Duplicate value"),
    (TOPOLOGY, "steps.2.selector", {"cel": "true"}, "only a root step has a selector"),
    (TOPOLOGY, "steps.2.extendedResourceName", "example.com/x", "only a root step has an extendedResourceName"),
    (TOPOLOGY, "steps.2.type", "../bond", "spec.steps[2].type"),
    (TOPOLOGY, "steps.2.execution", "Sometimes", 'supported values: "Auto", "Binary"'),
    (TOPOLOGY, "steps", [{"name": "a", "type": "vlan", "dependOn": ["a"]}], "no step is a root step"),
    (TOPOLOGY, "steps.2.neutron", {}, "only a root step of type sriov has a port in Neutron"),
    (TOPOLOGY, "steps.1.type", "host-device", "only a root step of type sriov has a port in Neutron"),
    (TOPOLOGY, "steps.1.dependOn", ["vf0"], "only a root step of type sriov has a port in Neutron"),
    (TOPOLOGY, "steps.1.neutron", {"port": "p", "network": "blue"}, "give port alone"),
    (TOPOLOGY, "steps.1.neutron", {"port": "p", "subnet": "s"}, "give port alone"),
    (TOPOLOGY, "steps.1.neutron", {"port": "p", "securityGroups": []}, "give port alone"),
    (TOPOLOGY, "steps.1.neutron", {"port": "p", "qosPolicy": "q"}, "give port alone"),
    (TOPOLOGY, "steps.1.neutron", {"port": "p", "fixedIPs": ["10.0.0.1"]}, "give port alone"),
    (TOPOLOGY, "steps.1.neutron.fixedIPs", [f"10.0.0.{at}" for at in range(17)], "must have at most 16 items"),
    (CUSTOM_DEVICE, "provider", "dra.networking", "use a domain of your own"),
    (CUSTOM_DEVICE, "provider", "resource.kubernetes.io", "use a domain of your own"),
    (CUSTOM_DEVICE, "provider", "Bctl", "spec.provider"),
    (CUSTOM_DEVICE, "attributes.rdma", {"bool": True, "int": 1}, "must have at most 1"),
    (CUSTOM_DEVICE, "attributes.rdma", {}, "should have at least 1"),
    (CUSTOM_DEVICE, "attributes", {"a/b": {"int": 1}}, "names are letters, digits and underscores"),
    (CUSTOM_DEVICE, "attributes", {f"a{number}": {"int": 1} for number in range(32)}, "at most 32"),
    (SCHEMA, "cniType", "../bond", "spec.cniType"),
    (SCHEMA, "cniType", None, "spec.cniType: Required value"),
    (SCHEMA, "configParameters.optional.0.type", "uint8", "spec.configParameters.optional[0].type"),
    (SCHEMA, "configParameters.optional.0.type", "string|", "spec.configParameters.optional[0].type"),
    (SCHEMA, "configParameters.optional.0.name", "mode", "either required or optional"),
    (SCHEMA, "configParameters.optional.0.name", "sysctl", "Duplicate value"),
    (SCHEMA, "output.interfaces.appends", -1, "spec.output.interfaces.appends"),
    (SCHEMA, "input.prevResult.interfaces.maxItems", 1, "minItems is more than maxItems"),
    (CNI_PLUGIN, "binaryPath", "opt/cni/bin/bond", "spec.binaryPath"),
    (CNI_PLUGIN, "binaryPath", "/opt/cni/bin/", "spec.binaryPath"),
    *((CNI_PLUGIN, "maxUnavailable", value, "spec.maxUnavailable") for value in ("some", "5", "0%", "110%", 0, -1)),
    (CNI_PLUGIN, "binaryPath", "/opt/../../etc/bond", "binaryPath has no . and no .. in it"),
    (CNI_PLUGIN, "schemaPath", "/opt/cni/./schema.yaml", "schemaPath has no . and no .. in it"),
    (CNI_PLUGIN, "digest", "sha256:abc", "spec.digest"),
    (CNI_PLUGIN, "image", "registry.example.com/Bond Plugin", "spec.image"),
    (CNI_PLUGIN, "image", "registry.example.com/bond@sha256:abc", "spec.image"),
    (CNI_PLUGIN, "image", "-v", "spec.image"),
    (POD_NETWORK, "ranges", [], "should have at least 1 items"),
    (POD_NETWORK, "ranges.0.cidr", "10.77.0.5/16", "must be a subnet"),
    (POD_NETWORK, "ranges.0.cidr", "10.77.0.0", "must be a subnet"),
    (POD_NETWORK, "ranges.0.gateway", "router", "gateway must be an IP address"),
    (POD_NETWORK, "ranges.0.last", "10.77.0.9/16", "last must be an IP address"),
    (POD_NETWORK, "ranges.0.exclude", ["10.77.0.9", "10.77.0.9"], "Duplicate value"),
    (POD_NETWORK, "dns", ["one"], "must be an IP address"),
    (POD_NETWORK, "routes.0.destination", "10.0.0.0", "must be a subnet"),
    (POD_NETWORK, "namespaces", ["Db"], "spec.namespaces[0]"),
    (POD_NETWORK, "vlan", 4095, "spec.vlan"),
    (POD_NETWORK, "keepSeconds", -1, "spec.keepSeconds"),
]
