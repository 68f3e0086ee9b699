"""NodeNetwork (networking.dra.io/v1alpha1, cluster-scoped, named like its Node): what a node has and offers, and why.

Written by the node's driver alone, read by the controller for policies' statuses and by people who want to know what a
policy would change. Interfaces that are alike, and of which the same became, are one entry: 2,000 of them fit into
64 KiB (decision D18).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Literal

import msgspec

from netdra.model.device import LeftOut
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
    """What the columns of `kubectl get nodenetworks` show.

    Attributes:
        interfaces: The number of the node's network interfaces, e.g. `70`; a virtual function without a netdev counts
            as one.
        offered: The number of devices that are published for them, e.g. `64`.
        allocated: The number of these devices that claims have, e.g. `12`.
        problems: The number of problems that an administrator should solve, e.g. `1`.
    """

    interfaces: Count = 0
    offered: Count = 0
    allocated: Count = 0
    problems: Count = 0


class PublishedDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A device that is published for each interface of an entry.

    Attributes:
        policy: The policy that offers it, e.g. `vfs`. If absent, the policy is unknown.
        suffix: The end of the device's name, after the interface's name, e.g. `-shared`. If absent, the names are the
            same.
        name: The device's whole name, e.g. `enp3s0f0-lane0`, where it is not the interface's name with the suffix. If
            absent, it is.
        allocated: Whether a claim has it, e.g. `true`.
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
        state: The link's state in the kernel's words, e.g. `up`; `away` while the netdev is in a pod or
            has no driver; `gone` if a claim still has the device of an interface that was removed. If absent, it is
            unknown.
        count: The number of interfaces in this entry, e.g. `8`.
        listed: The interfaces' names, e.g. `[enp3s0f0, enp3s0f0v2]`: the kernel's name, and `<pf>v<index>` for a
            virtual function. Of those that no policy matches, the ends of pods' pairs are only counted, and all but 32
            of the others without hardware. If absent, they are in `vfs`, or only counted.
        vfs: The indexes of several virtual functions of one PF, in place of their names, e.g. `0-5,7`. If absent, the
            names are in `names`.
        devices: The devices that are published for each of them, e.g. `[{policy: vfs}]`. If absent, they are hidden.
        reason: The reason why they are hidden, or the devices that they are pooled as, as `netdra explain` prints it,
            e.g. `no policy matches it`. If absent, they are offered.
        policies: The policies that match them or fail on them, with the result of each, e.g. `{vfs: wins, all:
            outranked}`. If absent, no policy matches them.
        attributes: The attributes that all of them share, as a selector reads them, e.g. `{numaNode: 0, rdma: true}`,
            without those that do not apply. Names without a domain are of dra.networking. If absent, none.
        varying: The attributes that differ among them, e.g. `[ifName, mac]`. If absent, none.
        vf_names: The common part of the virtual functions' netdev names before the index, e.g. `enp3s0f0v`. If absent,
            the names have no common part.
        unreadable: The attributes that could not be read of any of them, e.g. `[linkSpeed]`. If absent, none.
        pools_vfs: Whether they are not interfaces but devices that each stand for several virtual functions of a PF,
            e.g. `true`; the functions have entries of their own.
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
            that the interface has with a value that is not told here. What could not be read is in neither.
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
        """What is common, with what an interface's name tells beside."""
        own = self.derived_from(name, common, unknown)
        return {**common, **own}, unknown - own.keys()

    def derived_from(
        self, name: str, common: Mapping[str, AttributeValue], unknown: AbstractSet[str]
    ) -> dict[str, AttributeValue]:
        """What an interface's name tells of what is not common to the group."""
        own: dict[str, AttributeValue] = {}
        index = name.removeprefix(f"{common.get(_PF_NAME, '')}v") if _PF_NAME not in unknown else ""
        if self.type == "vf" and index.isdecimal():
            own |= {_VF_INDEX: int(index)} if _VF_INDEX in unknown else {}
            own |= {_IF_NAME: f"{self.vf_names}{index}"} if self.vf_names and _IF_NAME in unknown else {}
        if self.type != "vf" and _IF_NAME in unknown:
            own[_IF_NAME] = name
        return own

    def published(self) -> Iterator[tuple[str, PublishedDevice]]:
        """Each device of the group: its name, and what is said of it."""
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
    """What a policy that holds on the node comes to there.

    Attributes:
        name: The policy, e.g. `vfs`.
        generation: The generation of it that the node follows, e.g. `3`.
        matches: The number of interfaces for which its selector is true, e.g. `16`.
        devices: The number of devices that are published by it, e.g. `14`.
        outranked: By policy, the number of interfaces that it matches too and that the other policy offers under the
            same name, e.g. `{special: 2}`. If absent, none.
        overruled: The number of matching interfaces that an exclude policy or the node's own use hides, e.g. `1`.
        failing: The number of interfaces on which its selector cannot be evaluated, e.g. `2`.
        invalid: Whether it cannot be used at all, e.g. `true` if its selector does not compile.
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
    """Something that an administrator should mend, once for each cause.

    Attributes:
        message: The problem, e.g. `policy "vfs": no such key: rdma`.
        policy: The policy that it concerns, e.g. `vfs`. If absent, it concerns the node or the API server.
        interfaces: The number of interfaces that it concerns, e.g. `8`; 0 if it concerns none.
        example: One of these interfaces, e.g. `enp3s0f0`. If absent, it concerns none.
    """

    message: Text
    policy: Name = ""
    interfaces: Count = 0
    example: Name = ""


class CustomDeviceReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a CustomDevice comes to on the node.

    Attributes:
        name: The CustomDevice, e.g. `rack`.
        desired: The number of the node's devices that it selects, e.g. `2`.
        applied: The number of these devices that are published with all that it adds, e.g. `1`.
        problems: The reasons why the others are not, each once, e.g. `[the device already has 32 attributes and
            capacities]`. If absent, none.
    """

    name: Name
    desired: Count = 0
    applied: Count = 0
    problems: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MAX_PROBLEMS)] = ()


class MissingPlugin(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A CNI plugin that policies list for devices of the node, or NetworkTopologies need, and the node does not have.

    Attributes:
        name: The plugin, e.g. `ovs`.
        reason: The reason why it does not count though it is or was there, e.g. `it does not answer VERSION`. If
            absent, the node never had it.
        devices: The number of devices that would be offered for it, e.g. `16`.
        allocated: The number of these devices that claims have, e.g. `2`.
        needed_by_topologies: Whether a NetworkTopology needs it as a later step or for `ipam`, e.g. `true` for
            `whereabouts`; pods of that topology are not placed on the node.
    """

    name: Name
    reason: Text = ""
    devices: Count = 0
    allocated: Count = 0
    needed_by_topologies: bool = False


class ProviderReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a provider comes to that registers by the node's device registry.

    Attributes:
        name: The provider, e.g. `bctl`.
        desired: The number of existing devices that it registers facts of, e.g. `2`.
        applied: The number of these devices that are published with all of its facts, e.g. `2`.
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


class NodeNetworkStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a node has, what became of it, and what is wrong.

    Attributes:
        summary: The numbers that columns show, e.g. `{interfaces: 70, offered: 64, allocated: 12, problems: 0}`. If
            absent, all are 0.
        used_slots: The number of attributes and capacities of the fullest device, e.g. `29`, of the 32 that a device
            can have; the rest is for providers.
        interfaces: The node's interfaces, e.g. `[{type: pf, count: 1, names: [enp3s0f0]}]`; those that are alike, and
            have the same result, are one entry. If absent, the node has none.
        policies: The policies that apply to the node, in the order of their names, e.g. `[{name: vfs, matches: 16}]`.
            If absent, none.
        problems: The problems that an administrator should solve, e.g. `[{message: the selector fails, policy: vfs}]`;
            at most 32 causes are kept. If absent, none.
        left_out: By reason, the number of devices that a policy would make and that are not published, e.g.
            `{limit: 3}`. If absent, none.
        custom_devices: The results of CustomDevices whose device the node has, e.g. `[{name: rack, desired: 2, applied:
            2}]`. If absent, none.
        providers: The providers that register facts by the node's device registry, e.g. `[{name: bctl, desired: 2,
            applied: 2}]`. If absent, none.
        plugins: The CNI plugins that are installed on the node, allowed, and answer, e.g. `[host-local, macvlan]`;
            those that netdra has built in are not listed. If absent, none.
        missing_plugins: The plugins that policies list and the node does not have, e.g. `[{name: ovs, devices: 16}]`:
            its devices are not offered for them. If absent, none.
        unassigned_addresses: The addresses of PodNetworks that pods of the node may have though no PodAddress assigns
            them, e.g. `[{network: storage, address: 10.77.0.5, claim: db/postgres-0}]`: after a backup of the cluster
            was restored, or a pod was deleted by force. They are not assigned to others. If absent, none.
        features: The API server's feature gates that the node uses and found to be on, e.g.
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
    features: Annotated[tuple[Name, ...], msgspec.Meta(max_length=16)] = ()


class NodeNetwork(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a node's network interfaces are, and what became of each: devices, or why it is hidden.

    Written by netdra's driver on the node, and deleted with the Node. There is nothing in it to change.

    Attributes:
        status: What the node has, what became of it, and what is wrong; written by netdra.
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
    features: tuple[Name, ...] = ()


class NodeNetworkReport(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a NodeNetwork as the controller keeps; the interfaces of a thousand nodes it does not."""

    metadata: ObjectMeta
    status: ReportedStatus | None = None


class ReportedInterfaces(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a NodeNetwork's status as tells what policies would change; see `NodeNetworkStatus`."""

    interfaces: tuple[InterfaceGroup, ...] = ()


class NodeInterfaces(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a NodeNetwork as the webhook keeps."""

    metadata: ObjectMeta
    status: ReportedInterfaces | None = None


class PolicyAtNode(msgspec.Struct, frozen=True):
    """What a node says of one policy."""

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
