"""The devices that nodes report, as far as the length of kube-scheduler's searches depends on them. Pure.

Made by `netdra.admission.nodes` of NodeNetworks, which the webhook keeps in any case: slices are a hundred times as
large. Read by `netdra.review.searches`. A report has the interfaces that are alike as one entry, so the devices that
a selector cannot distinguish are one entry here, with their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from netdra.exposure.device_selectors import SINGLE
from netdra.model import names
from netdra.model.inventory import PUBLISHED_ATTRIBUTES, PUBLISHED_IF_ANY, AttributeValue
from netdra.model.node_network import DEFAULTS, InterfaceGroup

MOST_DEVICES = 2048
"""How many devices of all nodes are looked at; the node with the most devices is looked at in any case."""
_RDMA_MODE = names.qualified(names.RDMA_MODE)
_KNOWN = frozenset((*PUBLISHED_ATTRIBUTES, _RDMA_MODE))
"""What is asked of: the attributes that devices carry, and the node's mode, which is a rule's question."""
_OF_ONE_VF = frozenset((*map(names.qualified, SINGLE), names.STANDARD_PCI_BUS_ID))


class SimilarDevices(msgspec.Struct, frozen=True):
    """Devices of a node that selectors cannot distinguish.

    Attributes:
        facts: the attributes that are asked for and known, by qualified name.
        policy: the policy that offers them, "" if that is unknown.
        pools_vfs: whether each stands for several VFs.
        count: how many devices there are.
    """

    facts: Mapping[str, bool | int | str]
    policy: str = ""
    pools_vfs: bool = False
    count: int = 1


class NodeOffer(msgspec.Struct, frozen=True):
    """A node's devices; its name is "" where it must not be shown."""

    node: str = ""
    devices: tuple[SimilarDevices, ...] = ()


class Offers(msgspec.Struct, frozen=True):
    """One node of each kind; `are_all` is whether no other kind of node exists."""

    nodes: tuple[NodeOffer, ...] = ()
    are_all: bool = True


def offering(groups: Iterable[InterfaceGroup]) -> tuple[str, ...]:
    """A node's kind: its interfaces, each as often as it has devices. As a rule, nodes of a kind have equal devices.

    Nodes of one kind have one RDMA namespace mode: each interface has it with its name.
    """
    return tuple(
        sorted(
            f"{name} {group.attributes[names.RDMA_MODE]}" if names.RDMA_MODE in group.attributes else name
            for group in groups
            for name in group.names
            for _ in group.devices
        )
    )


def offered(groups: Sequence[InterfaceGroup], asked: Iterable[str]) -> Iterator[SimilarDevices]:
    """The devices that a node reports, by the attributes that are asked for; others than devices carry are left out."""
    wanted = frozenset(asked) & _KNOWN
    for group in groups:
        for device in group.devices:
            if group.pools_vfs:
                facts = _of_pooled(_pooled_by(device.policy, group, groups))
                yield _similar(facts, wanted, device.policy, pools_vfs=True, count=group.count)
                continue
            common, unknown = group.facts()
            if not wanted & unknown:
                yield _similar(common, wanted, device.policy, count=group.count)
                continue
            for name in group.names:
                own = {**common, **group.derived_from(name, common, unknown)}
                yield _similar(own, wanted, device.policy)


def _pooled_by(policy: str, pool: InterfaceGroup, groups: Iterable[InterfaceGroup]) -> InterfaceGroup:
    """The VFs that a pool stands for; the entry of a pool itself has only the PF's name."""
    pf_name = pool.attributes.get("pfName")
    return next(
        (
            group
            for group in groups
            if group.type == "vf"
            and not group.pools_vfs
            and not group.devices
            and group.policies.get(policy) == "wins"
            and group.attributes.get("pfName") == pf_name
        ),
        pool,
    )


def _of_pooled(vfs: InterfaceGroup) -> dict[str, AttributeValue]:
    """The facts of a pool: those that its VFs have in common, the rest as if it did not apply (`exposure.pooling`)."""
    common, _ = vfs.facts()
    return DEFAULTS | {name: value for name, value in common.items() if name not in _OF_ONE_VF}


def _similar(
    facts: Mapping[str, AttributeValue], wanted: frozenset[str], policy: str, *, pools_vfs: bool = False, count: int = 1
) -> SimilarDevices:
    known = {
        name: value
        for name, value in facts.items()
        if name in wanted and not isinstance(value, tuple) and not (value == "" and name in PUBLISHED_IF_ANY)
    }
    return SimilarDevices(known, policy, pools_vfs, count)
