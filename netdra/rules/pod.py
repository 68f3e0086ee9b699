"""Parts of a pod's plans that the kernel or the node would refuse, found before the first step runs.

Called with the plans of a pod by `netdra.chain` before it begins, and with the plan of a topology alone by
`netdra validate`. Values that are not known yet, because only running shows them or because no device is allocated,
do not count against a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from netdra.model.findings import Finding, of_step
from netdra.model.plan import Plan, PlannedStep
from netdra.rules.values import Addresses, check_values
from netdra.topology.interfaces import text_with_names

MIN_BOND_MEMBERS = 2
# net/8021q, drivers/net/macvlan.c and ipvlan: their MTU cannot be above that of the interface under them.
_STACKED = frozenset({"vlan", "macvlan", "ipvlan"})

# The plugins of these names call their IPAM plugin whether there is one or not (containernetworking/plugins 1.9).
_IPAM_CALLED = frozenset({"vlan", "ptp", "dummy"})


def check_plans(plans: Sequence[Plan], binaries: Collection[str] | None = None) -> tuple[Finding, ...]:
    """All that would fail, for the plans of one pod together. Paths begin with `steps` and the step's place.

    Args:
        plans: of one pod.
        binaries: the CNI plugins that the node has, or None if that is not known.
    """
    vlans: dict[tuple[str, str, int], str] = {}
    members: dict[str, str] = {}
    addresses = Addresses()
    findings: list[Finding] = []
    for plan in plans:
        names = {step.name: step.if_name for step in plan.steps}
        mtus = _MTUs(names)
        for at, step in enumerate(plan.steps):
            wrong = (
                *check_values(step, partial(_interface_name, names=names)),
                *addresses.check(step),
                *_binaries(step, binaries),
                *_needs_ipam(step),
                *_bond(step, names, members),
                *_vlan(step, names, vlans),
                *mtus.check(step),
            )
            findings += of_step(wrong, plan.topology, step.name, "steps", at)
    return tuple(findings)


def check_mtus(plans: Sequence[Plan]) -> tuple[Finding, ...]:
    """Bonds whose MTU is above that of a member: only some devices let the bond raise it."""
    findings: list[Finding] = []
    for plan in plans:
        mtus = _MTUs({step.name: step.if_name for step in plan.steps})
        for at, step in enumerate(plan.steps):
            findings += of_step(mtus.raised(step), plan.topology, step.name, "steps", at)
            list(mtus.check(step))
    return tuple(findings)


def check_network_mtus(plan: Plan, of_networks: Mapping[str, int]) -> Iterator[tuple[str, Finding]]:
    """Steps that get an MTU of their PodNetwork which is above that of an interface below, or of a bond's member.

    Args:
        plan: of a topology.
        of_networks: by step, the MTU that its PodNetwork sets.

    Yields:
        the step, and a finding about it.
    """
    mtus = _MTUs({step.name: step.if_name for step in plan.steps}, of_networks)
    for step in plan.steps:
        findings = [*mtus.raised(step), *mtus.check(step)]
        yield from ((step.name, finding) for finding in findings if step.name in of_networks)


def _binaries(step: PlannedStep, binaries: Collection[str] | None) -> Iterator[Finding]:
    if binaries is None:
        return
    if step.execution == "Binary" and step.type not in binaries:
        yield Finding(f'CNI plugin "{step.type}" is not installed on this node', _INSTALL, ("type",), code="ND1105")
    ipam = step.config.get("ipam")
    plugin = ipam.get("type") if isinstance(ipam, Mapping) else None
    if isinstance(plugin, str) and plugin not in binaries:
        yield Finding(
            f'IPAM plugin "{plugin}" is not installed on this node', _INSTALL, ("config", "ipam", "type"), code="ND1106"
        )


def _needs_ipam(step: PlannedStep) -> Iterator[Finding]:
    if step.execution == "Binary" and step.type in _IPAM_CALLED and not step.config.get("ipam"):
        what = f'the CNI plugin "{step.type}" requires ipam, even for DEL'
        hint = "set config.ipam" + (
            ", or remove execution: netdra has a built-in step for VLANs" * (step.type == "vlan")
        )
        yield Finding(what, hint, ("config",), code="ND1107")


_INSTALL = "install it in the CNI path"


def _bond(step: PlannedStep, names: Mapping[str, str], members: dict[str, str]) -> Iterator[Finding]:
    """A bond with too few members, or with a member of another bond. A member of unknown name is one of its own."""
    if step.type != "bond" or not isinstance(step.config.get("links"), list | tuple):
        return
    own: set[str] = set()
    for at, member in enumerate(_members(step, names)):
        if member in own:
            yield Finding(f'"{member}" is already a member of the bond', path=("config", "links", at), code="ND1108")
        elif member in members:
            what = f'"{member}" is already a member of the bond of step "{members[member]}"'
            yield Finding(what, path=("config", "links", at), code="ND1109")
        own.add(member or f"link {at}")
    if len(own) < MIN_BOND_MEMBERS:
        what = f"the bond has {len(own)} member, fewer than {MIN_BOND_MEMBERS}"
        yield Finding(what, "add a link, and its step to dependOn", ("config", "links"), code="ND1110")
    members |= {member: step.name for member in _members(step, names) if member}


def _vlan(step: PlannedStep, names: Mapping[str, str], vlans: dict[tuple[str, str, int], str]) -> Iterator[Finding]:
    if step.type != "vlan":
        return
    key = "id" if "id" in step.config else "vlanId"
    number, master = step.config.get(key), _interface_name(step.config.get("master"), names)
    if not isinstance(number, int) or not master:
        return
    tagged = (master, str(step.config.get("protocol", "802.1q")).lower(), number)
    if tagged in vlans:
        what = f'VLAN {number} of "{master}" is already created by step "{vlans[tagged]}"'
        hint = f'choose another VLAN, or use the interface of step "{vlans[tagged]}"'
        yield Finding(what, hint, ("config", key), code="ND1111")
    vlans.setdefault(tagged, step.name)


class _MTUs:
    """The MTU that each interface of a plan will have as its steps run, 0 where it is not known."""

    def __init__(self, names: Mapping[str, str], of_networks: Mapping[str, int] = {}) -> None:
        self._names = names
        self._of_networks = of_networks
        self._mtu: dict[str, int] = {}
        # interface -> what is under it: another interface of the pod, or a device of the node with its MTU.
        self._master: dict[str, str] = {}
        self._device: dict[str, tuple[str, int]] = {}
        self._bonds: dict[str, list[str]] = {}

    def check(self, step: PlannedStep) -> Iterator[Finding]:
        """Follow a step; complain if it asks for a larger MTU than that of the interface under its own."""
        asked, source = self._asked(step)
        if step.type in _STACKED and step.device is not None:
            self._device[step.if_name] = (step.device.if_name or step.device.device, step.device.mtu)
        elif step.type in _STACKED:
            self._master[step.if_name] = _interface_name(step.config.get("master"), self._names)
        under, limit = self._under(step.if_name)
        if limit and asked > limit:
            yield Finding(
                f'mtu {asked}{source} exceeds the {limit} of "{under}", the interface below it',
                f'raise the MTU of "{under}" in an earlier step, or on the node',
                ("config", "mtu"),
                code="ND1112",
            )
        self._mtu[step.if_name] = asked or self._inherited(step, limit)

    def raised(self, step: PlannedStep) -> Iterator[Finding]:
        """Complain about members of a bond with a smaller MTU than a step asks for the bond."""
        if step.type == "bond":
            self._bonds[step.if_name] = _members(step, self._names)
        asked, source = self._asked(step)
        for member in self._bonds.get(step.if_name, ()):
            mtu = self._mtu.get(member, 0)
            if 0 < mtu < asked:
                what = f'mtu {asked}{source} of "{step.if_name}" exceeds the {mtu} of its member "{member}"'
                hint = (
                    f"the kernel raises the MTU of the member if its device supports it; set mtu {asked} in the step "
                    f'of "{member}"'
                )
                yield Finding(what, hint, ("config", "mtu"), code="ND1113")

    def _asked(self, step: PlannedStep) -> tuple[int, str]:
        """The MTU that a step sets, 0 if none, and its source if this is not the step's config."""
        mtu = step.config.get("mtu")
        if isinstance(mtu, int) and mtu > 0:
            return mtu, ""
        return self._of_networks.get(step.name, 0), f' (PodNetwork "{step.pod_network}")'

    def _under(self, interface: str) -> tuple[str, int]:
        if interface in self._device:
            return self._device[interface]
        master = self._master.get(interface, "")
        return master, self._mtu.get(master, 0)

    def _inherited(self, step: PlannedStep, limit: int) -> int:
        """The MTU of an interface whose step does not ask for one."""
        if step.type == "bond":
            return min((self._mtu.get(name, 0) for name in _members(step, self._names)), default=0)
        if step.type in _STACKED:
            return limit
        return step.device.mtu if step.device is not None else self._mtu.get(step.if_name, 0)


def _members(step: PlannedStep, names: Mapping[str, str]) -> list[str]:
    """The names of a bond's members, "" for names that only running shows."""
    links = step.config.get("links")
    written = links if isinstance(links, list | tuple) else ()
    return [_interface_name(link.get("name") if isinstance(link, Mapping) else link, names) for link in written]


def _interface_name(text: Any, names: Mapping[str, str]) -> str:
    """An interface's name as far as it is known before anything runs, or ""."""
    return (text_with_names(text, names) or "") if isinstance(text, str) else ""
