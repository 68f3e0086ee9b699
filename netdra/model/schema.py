"""CNIPluginSchema (cni.networking.k8s.io/v1alpha1, cluster-scoped): the parameters, inputs and outputs of a CNI plugin.

Written by plugins' vendors beside their programs; netdra has built-in ones for the common plugins,
which are not objects of the cluster (decision D35). Compiled by
`netdra.rules.contract`; with it a NetworkTopology's mistakes are found when it is written, not when a pod starts.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from netdra.model.meta import Condition, ObjectMeta
from netdra.model.names import SHIPPED_LABEL
from netdra.model.topology import Execution, described


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """camelCase on the wire, defaults left out, and a misspelled field is an error."""


Format = Literal[
    "", "interface", "hostInterface", "pciAddress", "hostMac", "rdmaDevice", "devicePath", "hostPath",
    "hostSocket", "cidr", "ip", "mac", "ifname", "pci",
]  # fmt: skip
"""What a text names, for what a step may name of the node (`netdra.rules.confine`), or how it is written."""
WRITTEN: Mapping[str, str] = {
    **{name: name for name in ("cidr", "ip", "mac", "ifname", "pci")},
    "interface": "ifname",
    "hostInterface": "ifname",
    "pciAddress": "pci",
    "hostMac": "mac",
}
"""How a text is written (`netdra.model.texts`), by its format; the formats that are not here are of any text."""
NAMING = frozenset({
    "interface", "hostInterface", "pciAddress", "hostMac", "rdmaDevice", "devicePath", "hostPath", "hostSocket",
})  # fmt: skip
"""The formats of what a text names."""


class Property(_Wire, frozen=True, kw_only=True):
    """The valid values. Attributes that do not apply to the type have no meaning and are rejected.

    Attributes:
        type: The type of the value: `string`, `integer`, `number`, `boolean`, `object` or `any`. The prefix `[]` makes
            it a list, and the prefix `map[string]` a map with string keys. `|` separates alternative types;
            alternatives for the elements of a list are in parentheses, e.g. `[](string | object)`. If absent, the
            schema is rejected, except in `items`, where the list's type applies.
        description: The purpose of the value, e.g. `the VLAN's id`. If absent, none.
        format: The kind of object that a string refers to, or the syntax of the string. A step can refer only to
            objects that belong to it, e.g. `interface` (an interface by name: in the pod for a step with `dependOn`,
            else the allocated device), `hostInterface` (an interface of the node, by name), `pciAddress`, `hostMac`,
            `rdmaDevice` and `devicePath` (of the node), `hostPath` (a file or directory of the node), `hostSocket` (a
            Unix socket of the node: its path, with or without the prefix `unix:`). The formats of syntax are `cidr` (an
            address with its prefix length), `ip` (an address without prefix length), `mac`, `ifname` (an interface's
            name), `pci` (a PCI address). If `type` has alternatives, the format applies to the strings among them;
            objects have formats of their own. If absent, any string.
        enum: All valid values, e.g. `[bridge, private]`. If absent, every value of the type.
        default: The value that the plugin uses if the configuration does not contain the key, e.g. `bridge`. If absent,
            no default is documented.
        minimum: The minimum of a number, e.g. `1`. If absent, no minimum.
        maximum: The maximum of a number, e.g. `4094`. If absent, no maximum.
        min_items: The minimum length of a list, e.g. `1`. If absent, a list may be empty.
        max_items: The maximum length of a list, e.g. `2`. If absent, no maximum.
        items: The rules for a list's elements, as a property like this one; `type` may be omitted, because the list's
            type defines it, e.g. `{enum: [a, b]}`. If absent, every value of the type.
        properties: The keys that an object may contain, with the rules for the value of each, e.g. `{mtu: {type:
            integer}}`. If absent, every key.
        additional_properties: Whether an object may contain keys that are not in `properties`, e.g. `true` for labels.
    """

    type: str = ""
    description: str = ""
    format: Format = ""
    enum: tuple[Any, ...] = ()
    default: Any = None
    minimum: int | None = None
    maximum: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    items: Any = None
    properties: Mapping[str, Any] = {}
    additional_properties: bool = False


class Parameter(Property, frozen=True, kw_only=True):
    """One key of a plugin's configuration.

    Attributes:
        name: The key, e.g. `mode`.
        aliases: Other keys with the same meaning, e.g. `[vlanId]`; a configuration can contain only one of them. If
            absent, none.
    """

    name: str
    aliases: tuple[str, ...] = ()


class ConfigParameters(_Wire, frozen=True, kw_only=True):
    """The keys of a plugin's configuration. Those that CNI gives every plugin (`ipam`, `dns` …) need not be listed.

    Attributes:
        required: Keys that a step's configuration must contain, e.g. `[{name: bridge, type: string}]`. If absent, none.
        optional: Keys that a step's configuration may contain, e.g. `[{name: mtu, type: integer}]`. If absent, none.
        additional_parameters: Whether keys that are not listed are accepted, e.g. `true` for a plugin whose keys are
            not all known.
    """

    required: tuple[Parameter, ...] = ()
    optional: tuple[Parameter, ...] = ()
    additional_parameters: bool = False


class InterfaceInput(_Wire, frozen=True, kw_only=True):
    """How many interfaces the results of a step's dependencies must hold together.

    Attributes:
        min_items: The minimum number, e.g. `2` for a bond.
        max_items: The maximum number, e.g. `1`. If absent, no maximum.
    """

    min_items: int = 0
    max_items: int | None = None


class PartInput(_Wire, frozen=True, kw_only=True):
    """Whether a part of the result is needed.

    Attributes:
        required: Whether the results must contain at least one entry, e.g. `true` for a plugin that routes by source
            address.
    """

    required: bool = False


class PrevResult(_Wire, frozen=True, kw_only=True):
    """The parts of earlier results that the plugin needs.

    Attributes:
        required: Whether the step must run after another step, e.g. `true` for a plugin that changes an interface.
        interfaces: The number of interfaces that the plugin needs, e.g. `{minItems: 1}`. If absent, none.
        ips: Whether the plugin needs addresses, e.g. `{required: true}`. If absent, it does not.
        routes: Whether the plugin needs routes, e.g. `{required: true}`. If absent, it does not.
    """

    required: bool = False
    interfaces: InterfaceInput = InterfaceInput()
    ips: PartInput = PartInput()
    routes: PartInput = PartInput()


class PluginInput(_Wire, frozen=True, kw_only=True):
    """The inputs of the plugin.

    Attributes:
        prev_result: The parts of the earlier steps' results that the plugin needs, e.g. `{required: true, interfaces:
            {minItems: 1}}`. If absent, nothing.
    """

    prev_result: PrevResult = PrevResult()


class InterfaceOutput(_Wire, frozen=True, kw_only=True):
    """The plugin's effect on the interfaces.

    Attributes:
        appends: The number of interfaces that the plugin adds, e.g. `1`.
        passthrough: Whether the result contains the interfaces of the earlier results, e.g. `true` for tuning.
        conditional: Whether the plugin adds interfaces only for some devices, e.g. `true` for devices of which some
            have no netdev. With `appends: 0`, the plugin may add one interface.
        modifies: Whether the plugin changes the interfaces of the earlier results, e.g. `true` for tuning.
    """

    appends: int = 0
    passthrough: bool = False
    conditional: bool = False
    modifies: bool = False


class PartOutput(_Wire, frozen=True, kw_only=True):
    """The plugin's effect on the addresses or routes.

    Attributes:
        appends: Whether the plugin may add entries, e.g. `true` for a plugin with `ipam`.
        passthrough: Whether the result contains the entries of the earlier results, e.g. `true` for tuning.
    """

    appends: bool = False
    passthrough: bool = False


class DeviceOutput(_Wire, frozen=True, kw_only=True):
    """The device files that the plugin hands to the pod.

    Attributes:
        appends: Whether the plugin creates device files, e.g. `true` for vfio-pci.
        properties: The properties of the device files that steps can refer to, e.g. `[{name: path, type: string}]`. If
            absent, none.
    """

    appends: bool = False
    properties: tuple[Parameter, ...] = ()


class PluginOutput(_Wire, frozen=True, kw_only=True):
    """The outputs of the plugin.

    Attributes:
        interfaces: The effect on the interfaces, e.g. `{appends: 1}`. If absent, the plugin adds none and returns none.
        ips: The effect on the addresses, e.g. `{appends: true}`. If absent, the plugin adds none and returns none.
        routes: The effect on the routes, e.g. `{appends: true}`. If absent, the plugin adds none and returns none.
        devices: The device files that the plugin creates, e.g. `{appends: true}`. If absent, none.
    """

    interfaces: InterfaceOutput = InterfaceOutput()
    ips: PartOutput = PartOutput()
    routes: PartOutput = PartOutput()
    devices: DeviceOutput = DeviceOutput()


class CNIPluginSchemaSpec(_Wire, frozen=True, kw_only=True):
    """The plugin, its configuration, and its input and output.

    Attributes:
        cni_type: The plugin's name, e.g. `macvlan`: the `type` of steps.
        execution: The steps that the schema applies to, if netdra has the type built in, e.g. `Binary` for the steps
            that run the plugin's program instead. `Auto` is for the steps that netdra runs itself. For all other types,
            both values mean the program.
        version: The version of the plugin that the schema describes, e.g. `1.7.1`. If absent, any version.
        config_parameters: The keys of the plugin's configuration, e.g. `{optional: [{name: mtu, type: integer}]}`. If
            absent, every key is rejected.
        input: The results of earlier steps that the plugin needs, e.g. `{prevResult: {required: true}}`. If absent,
            nothing: the plugin can be a root step.
        output: The results that the plugin creates, e.g. `{interfaces: {appends: 1}}`. If absent, it creates no results
            for later steps.
    """

    cni_type: str
    execution: Execution = "Auto"
    version: str = ""
    config_parameters: ConfigParameters = ConfigParameters()
    input: PluginInput = PluginInput()
    output: PluginOutput = PluginOutput()

    @property
    def plugin(self) -> str:
        """The key of the steps that it describes (`netdra.model.topology.Step.plugin`)."""
        return described(self.cni_type, is_builtin=self.execution == "Auto")


class CNIPluginSchemaStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Whether the contract can be used.

    Attributes:
        observed_generation: The generation of the schema that this status describes, e.g. `3`.
        conditions: The schema's state, e.g. `[{type: Accepted, status: "True"}]`. `Accepted`: the schema does not
            contradict itself, and no other one describes the same plugin. The message names what it permits beyond the
            schema that netdra has for the plugin. If absent, the controller has not checked the schema yet.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class CNIPluginSchema(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Describes a CNI plugin: its configuration, the results that it needs, and the results that it creates.

    Attributes:
        spec: The plugin, its configuration, and its input and output.
        status: Whether the contract can be used; written by netdra.
    """

    metadata: ObjectMeta
    spec: CNIPluginSchemaSpec
    api_version: Literal["cni.networking.k8s.io/v1alpha1"]
    kind: Literal["CNIPluginSchema"]
    status: CNIPluginSchemaStatus | None = None

    @property
    def is_shipped(self) -> bool:
        """Whether a former version of netdra made it, to show a schema of its own; it does not count (decision D35).

        The label has the object's own name, so that a copy under another name is its author's.
        """
        return bool(self.metadata.name) and self.metadata.labels.get(SHIPPED_LABEL) == self.metadata.name
