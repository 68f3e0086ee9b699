"""NodeNetwork (networking.dra.io/v1alpha1, cluster-scoped, named like its Node): what a node has and offers, and why.

Written by the node's driver alone, read by the controller for policies' statuses and by people who want to know what a
policy would change. Interfaces that are alike, and of which the same became, are one entry: 2,000 of them fit into
64 KiB (decision D18).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Literal, NamedTuple

import msgspec

from netdra.model import ip
from netdra.model.device import LeftOut
from netdra.model.health import PCIE_DEGRADED, HealthEffect
from netdra.model.inventory import AttributeValue, Interface, attributes
from netdra.model.meta import ObjectMeta
from netdra.model.names import MAX_LABEL, MAX_SUBDOMAIN, label, qualified
from netdra.model.resource import MAX_ATTRIBUTES_AND_CAPACITIES

MAX_STATUS = 60 * 1024
"""Bytes of a status as JSON; with its metadata the object stays below 64 KiB."""
MAX_GROUPS = 512
PODS_OWN = frozenset({"veth", "netkit"})
"""Types of interfaces that come and go with pods; those that no policy matches are only counted."""
MAX_NAMES = 8192
MAX_POLICIES = 512
MAX_PROBLEMS = 32
MAX_TEXT = 512
"""Characters of one problem or reason."""
MAX_PLUGINS = 128
MAX_MISSING_PLUGINS = 32
MAX_CUSTOM_DEVICES = 512
MAX_PROVIDERS = 64
MAX_REFUSALS = 4
"""How many reasons are reported why one CustomDevice is not applied."""

MAX_FAULTS = 64
"""How many faults of devices are reported."""
MAX_UNASSIGNED = 128
"""How many addresses without a PodAddress are reported."""
MAX_INDEXES = 1024
"""Characters of the indexes of virtual functions."""
_INDEXES = "^([0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*)?$"

Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Text = Annotated[str, msgspec.Meta(max_length=2 * MAX_TEXT)]
Name = Annotated[str, msgspec.Meta(max_length=MAX_SUBDOMAIN)]
Standing = Literal["wins", "excludes", "outranked", "overruled", "failed"]
"""What a policy that matches an interface, or fails on it, comes to there; see `netdra.model.device.Outcome`."""
_IF_NAME, _PF_NAME, _VF_INDEX = (qualified(name) for name in ("ifName", "pfName", "vfIndex"))
DEFAULTS = attributes(Interface(type=""))
"""The attributes of an interface of which nothing is known but that nothing applies."""


class NodeNetworkSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The values of the columns of `kubectl get nodenetworks`.

    Attributes:
        interfaces: The number of the node's network interfaces, e.g. `70`; a virtual function without a netdev counts
            as one.
        offered: The number of devices that are published for these interfaces, e.g. `64`.
        allocated: The number of these devices that are allocated to claims, e.g. `12`.
        problems: The number of problems that an administrator should solve, e.g. `1`.
    """

    interfaces: Count = 0
    offered: Count = 0
    allocated: Count = 0
    problems: Count = 0


class PublishedDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A device that is published for each interface of an entry.

    Attributes:
        policy: The policy that offers the device, e.g. `vfs`. If absent, the policy is unknown.
        suffix: The part of the device's name after the interface's name, e.g. `-shared`. If absent, the device has the
            interface's name.
        name: The device's whole name, e.g. `enp3s0f0-lane0`. If absent, the name is the interface's name followed by
            `suffix`.
        allocated: Whether the device is allocated to a claim, e.g. `true`.
    """

    policy: Name = ""
    suffix: Annotated[str, msgspec.Meta(max_length=MAX_LABEL)] = ""
    name: Name = ""
    allocated: bool = False

    def called(self, interface: str) -> str:
        """The device's name for an interface of that name."""
        return self.name or label(interface + self.suffix)


class InterfaceGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Interfaces that are alike, and of which the same became.

    Attributes:
        type: The type of the interfaces, e.g. `pf`, `vf`, `nic`, `bridge`.
        state: The state of the link as the kernel reports it, e.g. `up`. `away`: the netdev is in a pod, or the
            hardware has no netdev driver. `gone`: the interface was removed, and its device is still allocated to a
            claim. If absent, the state is unknown.
        count: The number of interfaces in this entry, e.g. `8`.
        listed: The names of the interfaces, e.g. `[enp3s0f0, enp3s0f0v2]`: the kernel's name, or `<pf>v<index>` for a
            virtual function. Some interfaces that no policy matches are counted but not listed: the host ends of pods'
            veth pairs, and interfaces without hardware beyond the first 32. If absent, the interfaces are in `vfs`, or
            are only counted.
        vfs: The indexes of virtual functions of one PF, in place of their names, e.g. `0-5,7`. If absent, the names are
            in `names`.
        devices: The devices that are published for each of these interfaces, e.g. `[{policy: vfs}]`. If absent, the
            interfaces are hidden.
        reason: The reason why the interfaces are hidden, or the devices that pool them, as `netdra explain` prints it,
            e.g. `no policy matches it`. If absent, the interfaces are offered.
        policies: The policies that match these interfaces or fail on them, with the result of each, e.g. `{vfs: wins,
            all: outranked}`. If absent, no policy matches.
        attributes: The attributes that are equal for all of these interfaces, as a selector reads them, e.g.
            `{numaNode: 0, rdma: true}`. Attributes that do not apply are omitted. Names without a domain belong to
            `dra.networking`. If absent, none.
        varying: The attributes that differ among these interfaces, e.g. `[ifName, mac]`. If absent, none.
        vf_names: The common part of the virtual functions' netdev names, before the index, e.g. `enp3s0f0v`. If absent,
            the names have no common part.
        unreadable: The attributes that could not be read for any of these interfaces, e.g. `[linkSpeed]`. If absent,
            none.
        pools_vfs: Whether the entry describes devices that each pool several virtual functions of a PF, e.g. `true`.
            The virtual functions have entries of their own.
    """

    type: Annotated[str, msgspec.Meta(max_length=MAX_LABEL)]
    state: Annotated[str, msgspec.Meta(max_length=MAX_LABEL)] = ""
    count: Count
    listed: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_NAMES)] = msgspec.field(default=(), name="names")
    vfs: Annotated[str, msgspec.Meta(max_length=MAX_INDEXES, pattern=_INDEXES)] = ""
    devices: Annotated[tuple[PublishedDevice, ...], msgspec.Meta(max_length=64)] = ()
    reason: Text = ""
    policies: Annotated[Mapping[str, Standing], msgspec.Meta(max_length=MAX_POLICIES)] = {}
    attributes: Annotated[Mapping[str, bool | int | str], msgspec.Meta(max_length=64)] = {}
    varying: Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] = ()
    vf_names: Name = msgspec.field(default="", name="vfNames")
    unreadable: Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] = ()
    pools_vfs: bool = msgspec.field(default=False, name="poolsVFs")

    @property
    def names(self) -> tuple[str, ...]:
        """How they are called, with the virtual functions whose indexes are reported; `MAX_NAMES` of them at most."""
        pf = self.attributes.get("pfName", "")
        indexes = itertools.chain.from_iterable(_ranges(self.vfs))
        return (*self.listed, *(f"{pf}v{index}" for index in itertools.islice(indexes, MAX_NAMES)))

    @property
    def is_untold(self) -> bool:
        """Whether it has interfaces that are only counted, and may be meant by a policy: none of pods' own."""
        return not self.names and self.type not in PODS_OWN

    def has(self, name: str) -> bool:
        """Whether one of them is called so."""
        index = name.removeprefix(f"{self.attributes.get('pfName', '')}v") if self.vfs else ""
        is_vf = index.isdecimal() and str(int(index)) == index and any(int(index) in part for part in _ranges(self.vfs))
        return is_vf or name in self.listed

    def facts(self, name: str = "") -> tuple[dict[str, AttributeValue], frozenset[str]]:
        """The attributes of an interface of the group, as a selector sees them, and those that the report leaves open.

        Args:
            name: the interface, one of `names`; without it, the attributes that all of them share.

        Returns:
            Attributes by qualified name, as `netdra.model.inventory.attributes` gives them; and the names of those
            that the interface has with a value that is not reported here. Unreadable facts are in neither.
        """
        values: dict[str, AttributeValue] = {**DEFAULTS, qualified("type"): self.type}
        values |= {qualified(key): value for key, value in self.attributes.items()}
        unknown = {qualified(key) for key in self.varying}
        if name:
            values, unknown = self._own(name, values, unknown)
        unread = {qualified(key) for key in self.unreadable}
        known = {key: value for key, value in values.items() if key not in unknown and key not in unread}
        return known, frozenset(unknown)

    def _own(
        self, name: str, common: dict[str, AttributeValue], unknown: set[str]
    ) -> tuple[dict[str, AttributeValue], set[str]]:
        """The common facts, with those that follow from an interface's name."""
        own = self.derived_from(name, common, unknown)
        return {**common, **own}, unknown - own.keys()

    def derived_from(
        self, name: str, common: Mapping[str, AttributeValue], unknown: AbstractSet[str]
    ) -> dict[str, AttributeValue]:
        """The facts outside the group's common ones that follow from an interface's name."""
        own: dict[str, AttributeValue] = {}
        index = name.removeprefix(f"{common.get(_PF_NAME, '')}v") if _PF_NAME not in unknown else ""
        if self.type == "vf" and index.isdecimal():
            own |= {_VF_INDEX: int(index)} if _VF_INDEX in unknown else {}
            own |= {_IF_NAME: f"{self.vf_names}{index}"} if self.vf_names and _IF_NAME in unknown else {}
        if self.type != "vf" and _IF_NAME in unknown:
            own[_IF_NAME] = name
        return own

    def published(self) -> Iterator[tuple[str, PublishedDevice]]:
        """Each device of the group: its name, and its report."""
        for name in self.names:
            for device in self.devices:
                yield device.called(name), device


def indexes(numbers: Iterable[int]) -> str:
    """Different numbers as ranges, e.g. `0-5,7`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _ranges(text: str) -> Iterator[range]:
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        yield range(int(first), int(last or first) + 1)


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result of a policy on the node.

    Attributes:
        name: The name of the policy, e.g. `vfs`.
        generation: The generation of the policy that the node uses, e.g. `3`.
        matches: The number of interfaces for which its selector is true, e.g. `16`.
        devices: The number of devices that the policy publishes, e.g. `14`.
        outranked: The number of matching interfaces that another policy of higher rank offers under the same device
            name, by the name of that policy, e.g. `{special: 2}`. If absent, none.
        overruled: The number of matching interfaces that an exclude policy or the node's own use hides, e.g. `1`.
        failing: The number of interfaces on which its selector cannot be evaluated, e.g. `2`.
        invalid: Whether the policy cannot be used at all, e.g. `true` if its selector does not compile.
    """

    name: Name
    generation: Annotated[int, msgspec.Meta(ge=0)] = 0
    matches: Count = 0
    devices: Count = 0
    outranked: Annotated[Mapping[str, Count], msgspec.Meta(max_length=MAX_POLICIES)] = {}
    overruled: Count = 0
    failing: Count = 0
    invalid: bool = False


class NodeProblem(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A problem that an administrator should solve. Each cause has one entry.

    Attributes:
        message: The problem, e.g. `policy "vfs": no such key: rdma`.
        policy: The policy that the problem concerns, e.g. `vfs`. If absent, the problem concerns the node or the API
            server.
        interfaces: The number of interfaces that the problem concerns, e.g. `8`; 0 if it concerns none.
        example: One of these interfaces, e.g. `enp3s0f0`. If absent, the problem concerns no interface.
    """

    message: Text
    policy: Name = ""
    interfaces: Count = 0
    example: Name = ""


class CustomDeviceReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result of a CustomDevice on the node.

    Attributes:
        name: The name of the CustomDevice, e.g. `rack`.
        desired: The number of the node's devices that the CustomDevice selects, e.g. `2`.
        applied: The number of these devices that are published with all its attributes and capacities, e.g. `1`.
        problems: The reasons why the other devices are not, each reason once, e.g. `[the device already has 32
            attributes and capacities]`. If absent, none.
    """

    name: Name
    desired: Count = 0
    applied: Count = 0
    problems: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MAX_PROBLEMS)] = ()


class MissingPlugin(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A CNI plugin that policies list for devices of the node, or NetworkTopologies need, and the node does not have.

    Attributes:
        name: The name of the plugin, e.g. `ovs`.
        reason: The reason why an installed plugin cannot be used, or was removed, e.g. `it does not answer VERSION`. If
            absent, the node never had the plugin.
        devices: The number of devices that would be offered for the plugin, e.g. `16`.
        allocated: The number of these devices that are allocated to claims, e.g. `2`.
        needed_by_topologies: Whether a NetworkTopology needs the plugin for a derived step or for `ipam`, e.g. `true`
            for `whereabouts`. The scheduler does not place pods of that topology on the node.
    """

    name: Name
    reason: Text = ""
    devices: Count = 0
    allocated: Count = 0
    needed_by_topologies: bool = False


class ProviderReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result of a provider that uses the node's device registry.

    Attributes:
        name: The name of the provider, e.g. `bctl`.
        desired: The number of existing devices for which the provider registers facts, e.g. `2`.
        applied: The number of these devices that are published with all of these facts, e.g. `2`.
    """

    name: Name
    desired: Count = 0
    applied: Count = 0


class UnassignedAddress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An address of a PodNetwork that a claim of the node has, and that no PodAddress assigns to it.

    Attributes:
        network: The PodNetwork, e.g. `storage`.
        address: The address without prefix length, e.g. `10.77.0.5`.
        claim: The claim that the node has prepared with it, e.g. `db/postgres-0-net-x7k2p`; it may be deleted already.
    """

    network: Name
    address: Annotated[str, msgspec.Meta(max_length=45)]
    claim: Annotated[str, msgspec.Meta(max_length=2 * MAX_SUBDOMAIN)]

    def __post_init__(self) -> None:
        """Reject an address that is not one.

        Raises:
            ValueError: it is not.
        """
        ip.address(self.address)


class DeviceFault(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A device for which a threshold of its policy is exceeded, with the evidence of the moment when it was noticed.

    Attributes:
        pool: The pool of the device, e.g. `worker-1-nic-eth1`.
        device: The device, e.g. `eth1`.
        policy: The policy with the threshold, e.g. `nics`.
        rule: The name of the threshold in the policy, e.g. `crc-errors`.
        effect: The effect that the policy states, e.g. `NoSchedule`. The controller taints at most a share of the
            devices.
        since: When the fault was noticed, e.g. `2026-11-30T00:12:41Z`. If absent, the time is unknown.
        counter: The counter, e.g. `rx_crc_errors`. If absent, the counter is unknown.
        increase: Its increase within the window, e.g. `412`; of a fact its value.
        at_least: The threshold, e.g. `100`.
        within_seconds: The window in seconds, e.g. `3600`.
        values: The last different values of the counter, with their times, e.g. `["00:10:11Z 1207", "00:12:41Z 1619"]`.
            If absent, there is one value only.
    """

    pool: Name
    device: Annotated[str, msgspec.Meta(max_length=MAX_LABEL)]
    policy: Name
    rule: Annotated[str, msgspec.Meta(max_length=MAX_LABEL)]
    effect: HealthEffect = "Report"
    since: Annotated[str, msgspec.Meta(max_length=32)] = ""
    counter: Annotated[str, msgspec.Meta(max_length=80)] = ""
    increase: Annotated[int, msgspec.Meta(ge=0)] = 0
    at_least: Annotated[int, msgspec.Meta(ge=0)] = 0
    within_seconds: Annotated[int, msgspec.Meta(ge=0)] = 0
    values: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=48)], ...], msgspec.Meta(max_length=8)] = ()

    @property
    def text(self) -> str:
        """The evidence in words, as events and `netdra why` have it."""
        over = "" if self.counter == PCIE_DEGRADED else f" in {self.within_seconds} s"
        values = f" ({', '.join(self.values)})" if self.values else ""
        return (
            f'device "{self.device}" of pool "{self.pool}": {self.counter} {self.increase}{over}{values}; '
            f'policy "{self.policy}", rule "{self.rule}" allows less than {self.at_least}'
        )


class AddressReport(NamedTuple):
    """The part of a node's report about addresses of PodNetworks; see `NodeNetworkStatus`."""

    unassigned: tuple[UnassignedAddress, ...] = ()
    released_version: int = 0


class NodeNetworkStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The state of a node: its interfaces, the devices that are published for them, and the problems.

    Attributes:
        summary: The numbers that `kubectl get` shows, e.g. `{interfaces: 70, offered: 64, allocated: 12, problems: 0}`.
            If absent, all are 0.
        used_slots: The number of attributes and capacities of the device that has the most, e.g. `29`. A device can
            have 32; the rest is available to providers.
        interfaces: The node's interfaces, e.g. `[{type: pf, count: 1, names: [enp3s0f0]}]`; interfaces that are alike
            and have the same result share one entry. If absent, the node has none.
        policies: The policies that apply to the node, in the order of their names, e.g. `[{name: vfs, matches: 16}]`.
            If absent, none.
        problems: The problems that an administrator should solve, e.g. `[{message: the selector fails, policy: vfs}]`;
            at most 32 causes are kept. If absent, none.
        left_out: The number of devices of policies that are not published, by the reason, e.g. `{limit: 3}`. If absent,
            none.
        custom_devices: The results of the CustomDevices whose device the node has, e.g. `[{name: rack, desired: 2,
            applied: 2}]`. If absent, none.
        providers: The providers that register facts through the node's device registry, e.g. `[{name: bctl, desired: 2,
            applied: 2}]`. If absent, none.
        plugins: The CNI plugins that are installed on the node, are allowed, and answer, e.g. `[host-local, macvlan]`.
            Built-in plugins are not listed. If absent, none.
        missing_plugins: The plugins that policies list and the node does not have, e.g. `[{name: ovs, devices: 16}]`.
            Claims that need such a plugin cannot get devices of this node. If absent, none.
        unassigned_addresses: The addresses of PodNetworks that pods of the node may have although no PodAddress assigns
            them, e.g. `[{network: storage, address: 10.77.0.5, claim: db/postgres-0}]`: after a backup of the cluster
            was restored, or a pod was deleted by force. They are not assigned to others. If absent, none.
        released_version: The latest resourceVersion of the node's PodAddresses without a claim, e.g. `48213`: addresses
            that were released up to it, and that are not in `unassignedAddresses`, are no longer in pods of the node.
            If absent, the node does not report on released addresses.
        faults: The devices for which a health threshold of their policy is exceeded, e.g. `[{device: eth1, rule:
            crc-errors, increase: 412}]`; at most 64. If absent, none.
        watched_devices: The number of devices whose policy has health thresholds, e.g. `8`.
        features: The feature gates of the API server that are enabled and that the driver on the node uses, e.g.
            `[DRAPartitionableDevices]`. If absent, none.
    """

    summary: NodeNetworkSummary = NodeNetworkSummary()
    used_slots: Annotated[int, msgspec.Meta(ge=0, le=MAX_ATTRIBUTES_AND_CAPACITIES)] = 0
    interfaces: Annotated[tuple[InterfaceGroup, ...], msgspec.Meta(max_length=MAX_GROUPS)] = ()
    policies: Annotated[tuple[PolicyReport, ...], msgspec.Meta(max_length=MAX_POLICIES)] = ()
    problems: Annotated[tuple[NodeProblem, ...], msgspec.Meta(max_length=MAX_PROBLEMS)] = ()
    left_out: Mapping[LeftOut, Count] = {}
    custom_devices: Annotated[tuple[CustomDeviceReport, ...], msgspec.Meta(max_length=MAX_CUSTOM_DEVICES)] = ()
    providers: Annotated[tuple[ProviderReport, ...], msgspec.Meta(max_length=MAX_PROVIDERS)] = ()
    plugins: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_PLUGINS)] = ()
    missing_plugins: Annotated[tuple[MissingPlugin, ...], msgspec.Meta(max_length=MAX_MISSING_PLUGINS)] = ()
    unassigned_addresses: Annotated[tuple[UnassignedAddress, ...], msgspec.Meta(max_length=MAX_UNASSIGNED)] = ()
    released_version: Annotated[int, msgspec.Meta(ge=0)] = 0
    faults: Annotated[tuple[DeviceFault, ...], msgspec.Meta(max_length=MAX_FAULTS)] = ()
    watched_devices: Count = 0
    features: Annotated[tuple[Name, ...], msgspec.Meta(max_length=16)] = ()


class NodeNetwork(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The network interfaces of a node, and for each the published devices, or the reason why it is hidden.

    The driver on the node writes the object, and it is deleted with the Node. Do not edit it.

    Attributes:
        status: The node's interfaces, the devices that are published for them, and the problems; written by netdra.
    """

    metadata: ObjectMeta
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["NodeNetwork"]
    status: NodeNetworkStatus | None = None

    @property
    def name(self) -> str:
        """The node's name."""
        return self.metadata.name


class ReportedStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """As much of a NodeNetwork's status as other objects' statuses are made of; see `NodeNetworkStatus`."""

    policies: tuple[PolicyReport, ...] = ()
    problems: tuple[NodeProblem, ...] = ()
    custom_devices: tuple[CustomDeviceReport, ...] = ()
    unassigned_addresses: tuple[UnassignedAddress, ...] = ()
    released_version: int = 0
    faults: tuple[DeviceFault, ...] = ()
    watched_devices: int = 0
    features: tuple[Name, ...] = ()


class NodeNetworkReport(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a NodeNetwork as the controller keeps; the interfaces of a thousand nodes it does not."""

    metadata: ObjectMeta
    status: ReportedStatus | None = None


class ReportedInterfaces(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a NodeNetwork's status that forecasts of policies need; see `NodeNetworkStatus`."""

    interfaces: tuple[InterfaceGroup, ...] = ()


class NodeInterfaces(msgspec.Struct, frozen=True, kw_only=True):
    """A NodeNetwork without the parts other than its interfaces."""

    metadata: ObjectMeta
    status: ReportedInterfaces | None = None


class PolicyAtNode(msgspec.Struct, frozen=True):
    """A node's report on one policy."""

    report: PolicyReport
    problems: tuple[NodeProblem, ...] = ()


def policies_of(report: NodeNetworkReport) -> Mapping[str, PolicyAtNode]:
    """A node's reports by policy."""
    if report.status is None:
        return {}
    problems: dict[str, list[NodeProblem]] = {}
    for problem in report.status.problems:
        problems.setdefault(problem.policy, []).append(problem)
    return {
        policy.name: PolicyAtNode(policy, tuple(problems.get(policy.name, ()))) for policy in report.status.policies
    }


def custom_devices_of(report: NodeNetworkReport) -> Mapping[str, CustomDeviceReport]:
    """A node's reports by CustomDevice."""
    return (
        {custom_device.name: custom_device for custom_device in report.status.custom_devices}
        if report.status is not None
        else {}
    )
