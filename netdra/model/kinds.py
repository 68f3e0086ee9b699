"""netdra's own kinds in their form for Kubernetes: names, columns, list keys, and rules within one object.

Read by `netdra crds` and by `netdra.kube`. The types define the valid values; rules that need other objects, a walk of
the graph or a CEL compiler is the webhook's.
"""

from __future__ import annotations

from collections.abc import Mapping

from netdra.model.cni_plugin import CNIPlugin
from netdra.model.crd import Column, CustomKind, Extension, by, keys_match, rule, rules
from netdra.model.custom_device import CustomDevice
from netdra.model.names import MAX_LABEL, SCHEMA_GROUP_VERSION
from netdra.model.neutron_port import NeutronPort
from netdra.model.node_network import NodeNetwork
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import MAX_PLUGINS, MAX_SUFFIX, DeviceExposurePolicy
from netdra.model.resource import MAX_ATTRIBUTES_AND_CAPACITIES, MAX_STRING
from netdra.model.rollout import CustomDeviceRollout, DeviceExposurePolicyRollout, NetworkTopologyUsage
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import MAX_STEPS, NetworkTopology

LABEL: Extension = {"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": MAX_LABEL}
SUBDOMAIN: Extension = {"pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"}
PLUGIN_NAME: Extension = {"pattern": "^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$", "maxLength": MAX_LABEL}
PCI_ADDRESS: Extension = {"pattern": r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$"}
PARAMETER_NAME: Extension = {"pattern": "^[-_.A-Za-z0-9]+$", "maxLength": 128}
FEW: Extension = {"maxProperties": MAX_ATTRIBUTES_AND_CAPACITIES}
SET: Extension = {"x-kubernetes-list-type": "set"}


def _condition(name: str, kind: str) -> Column:
    return Column(name=name, path=f'.status.conditions[?(@.type=="{kind}")].status')


CONDITIONS: Mapping[str, Extension] = {"status.conditions": by("type")}

_PLAIN = "^[A-Za-z_][A-Za-z0-9_]{0,31}$"
_PLAIN_RULE = "names are letters, digits and underscores, at most 32, and begin with no digit"
_QUALIFIED = f"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_PLAIN[1:]}"
_QUALIFIED_RULE = f"{_PLAIN_RULE}; a DNS domain and a slash may stand before them"


def _node_selector(path: str) -> Mapping[str, Extension]:
    """The rules of every label selector, so that the API server rejects the same ones as the daemons."""
    operands = rules(
        rule(
            "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values)",
            "In and NotIn need values; Exists and DoesNotExist take none",
        )
    )
    return {
        f"{path}.matchExpressions": {"maxItems": 64},
        f"{path}.matchExpressions[]": operands,
        f"{path}.matchExpressions[].values": {"maxItems": 256},
    }


POLICY = CustomKind(
    type=DeviceExposurePolicy,
    plural="deviceexposurepolicies",
    short_names=("dxp",),
    columns=(
        Column(name="Action", path=".spec.action"),
        Column(name="Priority", path=".spec.priority", type="integer"),
        _condition("Accepted", "Accepted"),
        _condition("Conflicting", "Conflicting"),
        Column(name="Selector", path=".spec.selector.cel", priority=1),
    ),
    extensions={
        "spec": rules(
            rule(
                "self.action == 'expose' || !has(self.exposure)",
                "exposure is only supported with action: expose; remove it, or set action: expose",
            )
        ),
        "spec.exposure": rules(
            rule(
                "!has(self.allowMultipleAllocations) || !self.allowMultipleAllocations"
                " || has(self.capacity) && size(self.capacity) > 0",
                "a device for several claims needs capacity for them to share: add one, e.g. slots",
            ),
            rule(
                "!has(self.supportedCNIPlugins) || self.supportedCNIPlugins.all(plugin,"
                " !has(plugin.consumePerAllocation) || plugin.consumePerAllocation.all(name,"
                " has(self.capacity) && name in self.capacity))",
                "consumePerAllocation names a capacity that the policy does not have",
            ),
        ),
        "spec.exposure.deviceNameSuffix": {"pattern": "^([-a-z0-9]*[a-z0-9])?$", "maxLength": MAX_SUFFIX},
        "spec.exposure.exclusionGroup": {"maxLength": MAX_LABEL},
        "spec.exposure.additionalAttributes": FEW,
        "spec.exposure.capacity": {**FEW, **keys_match(_QUALIFIED, _QUALIFIED_RULE)},
        "spec.exposure.capacity.*": rules(
            rule(
                "has(self.value) != has(self.valueFrom)",
                "a capacity has either a value or valueFrom: give one of the two",
            )
        ),
        "spec.exposure.additionalFacts": SET,
        "spec.exposure.facts": SET,
        "spec.exposure.capacity.*.requestPolicy.validValues": {"maxItems": 10},
        "spec.exposure.capacity.*.requestPolicy": rules(
            rule(
                "!has(self.validValues) || !has(self.validRange)",
                "what a claim may consume is either a list of values or a range: give one of the two",
            )
        ),
        "spec.exposure.supportedCNIPlugins": {**by("name"), "maxItems": MAX_PLUGINS},
        "spec.exposure.supportedCNIPlugins[].name": PLUGIN_NAME,
        "spec.exposure.supportedCNIPlugins[].consumePerAllocation": FEW,
        **_node_selector("spec.nodeSelector"),
        **CONDITIONS,
    },
)

TOPOLOGY = CustomKind(
    type=NetworkTopology,
    plural="networktopologies",
    short_names=("ntopo",),
    columns=(
        _condition("Compiled", "Compiled"),
        _condition("Ready", "Ready"),
        Column(name="Steps", path=".spec.steps[*].name", priority=1),
    ),
    extensions={
        "spec": rules(
            rule(
                "self.steps.exists(step, !has(step.dependOn) || size(step.dependOn) == 0)",
                "no step is a root step: at least one step must not have dependOn, to get a device",
            ),
            rule(
                "self.steps.all(step, !has(step.dependOn)"
                " || step.dependOn.all(name, self.steps.exists(other, other.name == name)))",
                "dependOn names a step that the topology does not have",
            ),
        ),
        "spec.steps": by("name"),
        "spec.steps[]": rules(
            rule("!has(self.dependOn) || !(self.name in self.dependOn)", "a step cannot depend on itself"),
            rule(
                "!has(self.selector) || !has(self.dependOn) || size(self.dependOn) == 0",
                "only a root step has a selector: a step that depends on others is given no device",
            ),
            rule(
                "!has(self.extendedResourceName) || !has(self.dependOn) || size(self.dependOn) == 0",
                "only a root step has an extendedResourceName: a step that depends on others is given no device",
            ),
            rule(
                "!has(self.neutron) || self.type == 'sriov' && (!has(self.dependOn) || size(self.dependOn) == 0)",
                "only a root step of type sriov has a port in Neutron: others are not VFs",
            ),
        ),
        "spec.steps[].neutron": rules(
            rule(
                "!has(self.port) || !has(self.network) && !has(self.subnet) && !has(self.securityGroups)"
                " && !has(self.qosPolicy) && !has(self.fixedIPs)",
                "a port that is there already has a network, groups and addresses: give port alone",
            ),
        ),
        "spec.steps[].name": LABEL,
        "spec.steps[].type": PLUGIN_NAME,
        "spec.steps[].network": {"pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", "maxLength": MAX_LABEL},
        "spec.steps[].dependOn": {**SET, "maxItems": MAX_STEPS},
        "spec.steps[].dependOn[]": {"maxLength": MAX_LABEL},
        "spec.parameters": by("name"),
        "spec.parameters[].name": {"pattern": "^[a-z][A-Za-z0-9]{0,62}$"},
        "spec.parameters[].description": {"maxLength": 1024},
        **CONDITIONS,
    },
)

CUSTOM_DEVICE = CustomKind(
    type=CustomDevice,
    plural="customdevices",
    short_names=("cdev",),
    columns=(
        Column(name="Provider", path=".spec.provider"),
        Column(name="Device", path=".spec.device"),
        Column(name="Node", path=".spec.selector.nodeName"),
    ),
    extensions={
        "spec": rules(
            rule(
                "has(self.attributes) || has(self.capacity) || has(self.addIfNotExist)",
                "one of attributes, capacity or addIfNotExist is required",
            ),
            rule(
                "(has(self.attributes) ? size(self.attributes) : 0) + (has(self.capacity) ? size(self.capacity) : 0)"
                f" <= {MAX_ATTRIBUTES_AND_CAPACITIES}",
                f"a device has at most {MAX_ATTRIBUTES_AND_CAPACITIES} attributes and capacities together",
            ),
        ),
        "spec.provider": {
            **SUBDOMAIN,
            **rules(
                rule(
                    "!self.matches('(^|[.])((kubernetes|k8s)[.]io|dra[.]networking|networking[.]dra[.]io)$')",
                    "dra.networking, networking.dra.io, kubernetes.io, k8s.io and their subdomains are reserved; "
                    "use a domain of your own",
                )
            ),
        },
        "spec.device": LABEL,
        "spec.attributes": keys_match(_PLAIN, _PLAIN_RULE),
        "spec.attributes.*": {"minProperties": 1, "maxProperties": 1},
        "spec.attributes.*.string": {"maxLength": MAX_STRING},
        "spec.attributes.*.version": {"maxLength": MAX_STRING},
        "spec.capacity": keys_match(_PLAIN, _PLAIN_RULE),
        **_node_selector("spec.selector.nodeSelector"),
    },
    selectable=(".spec.selector.nodeName",),
    has_subresource=False,
)

TOPOLOGY_USAGE = CustomKind(
    type=NetworkTopologyUsage,
    plural="networktopologyusages",
    short_names=("ntopousage",),
    columns=(
        Column(name="Users", path=".status.users", type="integer"),
        Column(name="Failing", path=".status.failingClaims.number", type="integer"),
        _condition("Degraded", "Degraded"),
        Column(name="Used-By", path=".status.usedBy", priority=1),
    ),
    extensions=CONDITIONS,
    has_subresource=False,
)

POLICY_ROLLOUT = CustomKind(
    type=DeviceExposurePolicyRollout,
    plural="deviceexposurepolicyrollouts",
    short_names=("dxprollout",),
    columns=(
        Column(name="Nodes", path=".status.nodes", type="integer"),
        Column(name="Updated", path=".status.updatedNodes", type="integer"),
        Column(name="Devices", path=".status.devices", type="integer"),
        Column(name="Failing", path=".status.failingClaims.number", type="integer"),
        _condition("Degraded", "Degraded"),
        _condition("Overlapping", "Overlapping"),
    ),
    extensions=CONDITIONS,
    has_subresource=False,
)

CUSTOM_DEVICE_ROLLOUT = CustomKind(
    type=CustomDeviceRollout,
    plural="customdevicerollouts",
    short_names=("cdevrollout",),
    columns=(
        Column(name="Desired", path=".status.desiredNumber", type="integer"),
        Column(name="Applied", path=".status.appliedNumber", type="integer"),
        Column(name="Reason", path='.status.conditions[?(@.type=="Applied")].reason'),
    ),
    extensions=CONDITIONS,
    has_subresource=False,
)

# A reference as github.com/distribution/reference has it: host and port, path, tag, digest.
IMAGE: Extension = {
    "pattern": r"^[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][-.A-Za-z0-9_]{0,127})?(@sha256:[0-9a-f]{64})?$"
}
BINARY_PATH: Extension = {"pattern": r"^/([^\s/]+/)*[^\s/]+$"}
SCHEMA_PATH: Extension = {"pattern": r"^(/([^\s/]+/)*[^\s/]+)?$"}
DIGEST: Extension = {"pattern": "^((sha256:)?[0-9a-f]{64})?$"}
NODES: Extension = {"pattern": "^0*([1-9][0-9]?|100)%$"}


def _path_in_image(field: str) -> Extension:
    return rules(
        rule("!self.split('/').exists(part, part == '..' || part == '.')", f"{field} has no . and no .. in it")
    )


CNI_PLUGIN = CustomKind(
    type=CNIPlugin,
    plural="cniplugins",
    short_names=("cnip",),
    columns=(
        Column(name="Image", path=".spec.image"),
        Column(name="Desired", path=".status.desiredNodes", type="integer"),
        Column(name="Ready", path=".status.readyNodes", type="integer"),
        Column(name="Schema", path=".status.schema"),
        _condition("Installed", "Installed"),
    ),
    extensions={
        "": rules(
            rule(
                "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$')",
                "the object's name is the plugin's, the `type` of steps: up to 52 of a-z, 0-9 and -, letters or digits "
                "at both ends",
            )
        ),
        "spec.image": IMAGE,
        "spec.binaryPath": {**BINARY_PATH, **_path_in_image("binaryPath")},
        "spec.schemaPath": {**SCHEMA_PATH, **_path_in_image("schemaPath")},
        "spec.digest": DIGEST,
        # As a DaemonSet takes it (pkg/apis/apps/validation): some nodes at least, and at most all.
        "spec.maxUnavailable": {**NODES, "minimum": 1},
        "spec.imagePullSecrets": SET,
        **CONDITIONS,
    },
)

_PARAMETERS = "spec.configParameters"
_TYPE = r"(\[\]|map\[string\])*(string|integer|int|number|boolean|bool|object|any)"
_TYPES = rf"{_TYPE}(\s*[|]\s*{_TYPE})*"
_PART = rf"({_TYPE}|(\[\]|map\[string\])*\(\s*{_TYPES}\s*\))"
_VALUE_TYPE = {"pattern": rf"^{_PART}(\s*[|]\s*{_PART})*$", "maxLength": 256}

SCHEMA = CustomKind(
    type=CNIPluginSchema,
    group=SCHEMA_GROUP_VERSION.partition("/")[0],
    plural="cnipluginschemas",
    short_names=("cnis",),
    columns=(
        Column(name="Type", path=".spec.cniType"),
        Column(name="Execution", path=".spec.execution"),
        Column(name="Version", path=".spec.version"),
        _condition("Accepted", "Accepted"),
        Column(name="Required", path=f".{_PARAMETERS}.required[*].name", priority=1),
    ),
    extensions={
        "spec.cniType": PLUGIN_NAME,
        _PARAMETERS: rules(
            rule(
                "!has(self.required) || !has(self.optional)"
                " || self.required.all(needed, !self.optional.exists(other, other.name == needed.name))",
                "a parameter is either required or optional",
            )
        ),
        f"{_PARAMETERS}.required": {**by("name"), "maxItems": 64},
        f"{_PARAMETERS}.optional": {**by("name"), "maxItems": 256},
        f"{_PARAMETERS}.required[].name": PARAMETER_NAME,
        f"{_PARAMETERS}.optional[].name": PARAMETER_NAME,
        f"{_PARAMETERS}.required[].type": _VALUE_TYPE,
        f"{_PARAMETERS}.optional[].type": _VALUE_TYPE,
        "spec.output.interfaces.appends": {"minimum": 0},
        "spec.input.prevResult.interfaces": rules(
            rule(
                "!has(self.maxItems) || !has(self.minItems) || self.minItems <= self.maxItems",
                "minItems is more than maxItems",
            )
        ),
        **CONDITIONS,
    },
)

_IS_ADDRESS = rule("isIP(self)", "must be an IP address")

NODE_NETWORK = CustomKind(
    type=NodeNetwork,
    plural="nodenetworks",
    short_names=("nnet",),
    columns=(
        *(
            Column(name=name.capitalize(), path=f".status.summary.{name}", type="integer")
            for name in ("interfaces", "offered", "allocated", "problems")
        ),
        Column(name="Slots", path=".status.usedSlots", type="integer", priority=1),
    ),
    extensions={"status.unassignedAddresses[].address": rules(_IS_ADDRESS)},
)

NEUTRON_PORT = CustomKind(
    type=NeutronPort,
    plural="neutronports",
    short_names=("nport",),
    columns=(
        Column(name="Physnet", path=".spec.physnet"),
        Column(name="Network", path=".status.networkName"),
        Column(name="Port", path=".status.portID"),
        Column(name="MAC", path=".status.settings.mac"),
        Column(name="VLAN", path=".status.settings.vlan", type="integer"),
        _condition("Bound", "Bound"),
        Column(name="Reason", path='.status.conditions[?(@.type=="Bound")].reason'),
        Column(name="Node", path=".spec.nodeName", priority=1),
        Column(name="Device", path=".spec.device", priority=1),
        Column(name="Claim", path=".spec.claim.name", priority=1),
    ),
    extensions={
        "": rules(
            rule(
                "!has(self.chosenVF) || has(self.spec.shareID)",
                "chosenVF: spec.shareID is required; only the VF of a device of pooled VFs is chosen by the node",
            )
        ),
        "spec": rules(rule("self == oldSelf", "a port is of one VF: netdra deletes it and makes another one")),
        "chosenVF.pciAddress": PCI_ADDRESS,
        **CONDITIONS,
    },
    namespaced=True,
    selectable=(".spec.nodeName",),
)

_ADDRESS: Extension = {"maxLength": 45}
_SUBNET: Extension = {"maxLength": 49}

POD_NETWORK = CustomKind(
    type=PodNetwork,
    plural="podnetworks",
    short_names=("pnet",),
    columns=(
        Column(name="Ranges", path=".spec.ranges[*].cidr"),
        Column(name="Total", path=".status.total", type="integer"),
        Column(name="Used", path=".status.used", type="integer"),
        Column(name="Reserved", path=".status.reserved", type="integer"),
        Column(name="Users", path=".status.users", type="integer"),
        _condition("Ready", "Ready"),
        _condition("Available", "AddressesAvailable"),
        _condition("Nearly Full", "NearlyFull"),
        Column(name="VLAN", path=".spec.vlan", type="integer", priority=1),
        Column(name="Physnet", path=".spec.physnet", priority=1),
    ),
    extensions={
        "": rules(
            rule(
                f"size(self.metadata.name) <= {MAX_LABEL} && !self.metadata.name.contains('.')",
                f"the object's name is the network's, as steps write it: a DNS label of up to {MAX_LABEL} characters",
            )
        ),
        "spec.ranges[].cidr": {
            **_SUBNET,
            **rules(rule("isCIDR(self) && cidr(self) == cidr(self).masked()", "must be a subnet, e.g. 10.77.0.0/16")),
        },
        **{
            f"spec.ranges[].{field}": {
                **_ADDRESS,
                **rules(rule("self == '' || isIP(self)", f"{field} must be an IP address")),
            }
            for field in ("first", "last", "gateway")
        },
        "spec.ranges[].exclude": SET,
        "spec.ranges[].exclude[]": {"maxLength": 91},
        **{
            path.replace("spec", "spec.ranges[]", 1): extension
            for path, extension in _node_selector("spec.nodeSelector").items()
        },
        "spec.routes[].destination": {**_SUBNET, **rules(rule("isCIDR(self)", "must be a subnet, e.g. 10.0.0.0/8"))},
        "spec.routes[].gateway": {
            **_ADDRESS,
            **rules(rule("self == '' || isIP(self)", "gateway must be an IP address")),
        },
        "spec.dns[]": {**_ADDRESS, **rules(_IS_ADDRESS)},
        "spec.namespaces": SET,
        "spec.namespaces[]": LABEL,
        "spec.reservations": by("address"),
        "spec.reservations[].address": {**_ADDRESS, **rules(_IS_ADDRESS)},
        "spec.reservations[].namespace": LABEL,
        "spec.reservations[].name": {**SUBDOMAIN, "maxLength": 253},
        **CONDITIONS,
    },
)

POD_ADDRESS = CustomKind(
    type=PodAddress,
    plural="podaddresses",
    short_names=("paddr",),
    columns=(
        Column(name="Network", path=".spec.network"),
        Column(name="Address", path=".spec.address"),
        Column(name="Namespace", path=".spec.owner.namespace"),
        Column(name="Claim", path=".spec.claim.name"),
        Column(name="Node", path=".spec.nodeName"),
        Column(name="Pod", path=".spec.owner.pod", priority=1),
        Column(name="Step", path=".spec.owner.step", priority=1),
        Column(name="Kept", path=".spec.keptSince", type="date", priority=1),
        Column(name="Lease", path=".spec.lease.plugin", priority=1),
        Column(name="Conflict", path=".spec.conflictSince", type="date", priority=1),
    ),
    extensions={
        "": rules(
            rule(
                "!self.spec.network.contains('.') && self.metadata.name.startsWith(self.spec.network + '.')",
                "the object's name begins with the network's name and a dot",
            ),
            rule(
                "!isCIDR(self.spec.address) || (isIP(self.metadata.name.substring(size(self.spec.network) + 1)"
                ".replace('-', ':')) && ip(self.metadata.name.substring(size(self.spec.network) + 1)"
                ".replace('-', ':')) == cidr(self.spec.address).ip())",
                "the object's name ends with the address, whose eight groups of IPv6 are separated by dashes",
            ),
        ),
        "spec.network": {"maxLength": MAX_LABEL},
        "spec.address": {**_SUBNET, **rules(rule("isCIDR(self)", "must be an address with a prefix length"))},
        **{
            f"spec.{field}": {
                **_ADDRESS,
                **rules(rule("self == '' || isIP(self)", "must be an IP address")),
            }
            for field in ("gateway", "routes[].gateway")
        },
        "spec.routes[].destination": {**_SUBNET, **rules(rule("isCIDR(self)", "must be a subnet, e.g. 10.0.0.0/8"))},
        "spec.dns[]": {**_ADDRESS, **rules(_IS_ADDRESS)},
        "spec.keptSince": {"format": "date-time"},
        "spec.conflictSince": {"format": "date-time"},
        "spec": rules(
            rule(
                "self.network == oldSelf.network && self.address == oldSelf.address && (self.owner == oldSelf.owner"
                " || has(self.lease) && has(oldSelf.lease))",
                "an address stays one owner's: netdra deletes it and makes another one",
            ),
            rule(
                "(has(self.claim) ? 1 : 0) + (has(self.keptSince) ? 1 : 0) + (has(self.lease) ? 1 : 0) == 1",
                "an address has a claim, is kept, or has a lease of another plugin: set one of the three",
            ),
            rule("!has(self.lease) || !has(self.nodeName)", "an address with a lease of another plugin is on no node"),
        ),
    },
    selectable=(".spec.nodeName",),
    has_subresource=False,
)

KINDS: tuple[CustomKind, ...] = (
    *(POLICY, TOPOLOGY, SCHEMA, CUSTOM_DEVICE, CNI_PLUGIN, NODE_NETWORK, NEUTRON_PORT, POD_NETWORK, POD_ADDRESS),
    *(TOPOLOGY_USAGE, POLICY_ROLLOUT, CUSTOM_DEVICE_ROLLOUT),
)
