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
        interfaces: How many network interfaces the node has; a virtual function without a netdev counts as one.
        offered: How many devices are published for them.
        allocated: How many of these claims have.
        problems: How many things an administrator should mend.
    """

    interfaces: Count = 0
    offered: Count = 0
    allocated: Count = 0
    problems: Count = 0


class PublishedDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A device that is published for each interface of an entry.

    Attributes:
        policy: The policy that offers it; empty where nobody knows any more.
        suffix: What follows the interface's name in the device's.
        name: The device's whole name, where it is not the interface's name with the suffix.
        allocated: A claim has it.
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
        type: What they are, e.g. `pf`, `vf`, `nic`, `bridge`.
        state: The link's state in the kernel's words; `away` if there is no netdev here, as of one in a pod; `gone` if
            the interface is no longer there and a claim still has its device.
        count: How many they are.
        listed: How they are called: the kernel's name, and `<pf>v<index>` for a virtual function. Of those that no
            policy matches, the ends of pods' pairs are only counted, and all but 32 of the others without hardware.
        vfs: In place of the names of several virtual functions of one PF, their indexes, e.g. `0-5,7`.
        devices: The devices that are published for each of them; none if they are hidden.
        reason: Why they are hidden, or which devices they are pooled as, in the words of `netdra explain`.
        policies: The policies that match them or fail on them, and what each comes to there.
        attributes: What is the same of all of them, as a selector sees it, without what does not apply. Names without
            a domain are of dra.networking.
        varying: The attributes that differ among them.
        vf_names: Of virtual functions whose netdevs are named alike, what stands before the index in each one's name.
        unreadable: The attributes that could not be read of any of them.
        pools_vfs: They are no interfaces, but devices of which each stands for several virtual functions of a PF; the
            functions have entries of their own.
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
        name: The policy.
        generation: The generation of it that the node follows.
        matches: How many interfaces its selector is true for.
        devices: How many devices are published by it.
        outranked: By policy, how many interfaces that it matches too are offered under the same name by that one.
        overruled: How many that it matches are hidden by an exclude policy, or because the node itself uses them.
        failing: On how many interfaces its selector has no answer.
        invalid: It cannot be used at all.
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
        message: What is wrong.
        policy: The policy that it is about; none if it is about the node or the API server.
        interfaces: On how many interfaces it was seen; 0 if it is about none.
        example: One of them.
    """

    message: Text
    policy: Name = ""
    interfaces: Count = 0
    example: Name = ""


class CustomDeviceReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a CustomDevice comes to on the node.

    Attributes:
        name: The CustomDevice.
        desired: How many devices it speaks of.
        applied: How many of them are published with all that it adds.
        problems: Why the others are not, each once.
    """

    name: Name
    desired: Count = 0
    applied: Count = 0
    problems: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MAX_PROBLEMS)] = ()


class MissingPlugin(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A CNI plugin that policies list for devices of the node, or NetworkTopologies need, and the node does not have.

    Attributes:
        name: The plugin.
        reason: Why it does not count though it is there, or was there; none if it was never seen.
        devices: How many devices would be offered for it.
        allocated: How many of these claims have.
        needed_by_topologies: A NetworkTopology needs it as a later step or for `ipam`, so pods of that topology are not
            placed on the node.
    """

    name: Name
    reason: Text = ""
    devices: Count = 0
    allocated: Count = 0
    needed_by_topologies: bool = False


class ProviderReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a provider comes to that registers by the node's device registry.

    Attributes:
        name: The provider.
        desired: How many devices it speaks of, of those that are there.
        applied: How many of them are published with all that it says.
    """

    name: Name
    desired: Count = 0
    applied: Count = 0


class NodeNetworkStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a node has, what became of it, and what is wrong.

    Attributes:
        summary: The numbers.
        used_slots: How many attributes and capacities the fullest device carries, of the 32 that a device can have; the
            rest is for providers.
        interfaces: The node's interfaces; those that are alike, and of which the same became, are one entry.
        policies: The policies that hold on the node, in the order of their names.
        problems: What an administrator should mend; at most 32 causes are kept.
        left_out: Why devices are not published that a policy would make, and how many.
        custom_devices: What CustomDevices come to on the node; those whose device it does not have are not named.
        providers: Who registers what of the node's devices by its device registry.
        plugins: The CNI plugins that are installed on the node and answer; those that are built in are always there.
        missing_plugins: Those that policies list and the node does not have: its devices are not offered for them.
        features: The API server's feature gates that the node has found to be on, of those that it uses.
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
