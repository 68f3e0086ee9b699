"""Bonds that start, and fail with the first lost link or with the first frame of another MAC address. Pure.

Called by the webhook and `netdra validate`, by `netdra why` and by `netdra doctor`. References to parameters and facts
are skipped: their values are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from netdra.model.findings import Finding
from netdra.model.plan import has_link_monitor
from netdra.model.topology import NetworkTopology, Step
from netdra.topology import graph, interfaces
from netdra.topology.graph import Graph

# drivers/net/bonding/bond_options.c: fail_over_mac is rejected in the other modes once the bond has members.
_ONE_ACTIVE = ("active-backup", 1, "1")
_LACP = ("802.3ad", 4, "4")
_OWN_MAC = ("active", 1, "1")
_OFF = ("off", False)
_NOT_MONITORED = (0, "0")
_PF = re.compile(r'\bpf(?:Name|PciAddress)\s*==\s*"([^"]+)"')
_NO_CONJUNCTION = re.compile(r"\|\||[?!]")


def one_mac(topology: NetworkTopology) -> Iterator[Finding]:
    """Bonds that send with one MAC address over VFs whose `spoofchk` is not off.

    Most drivers enable `spoofchk` by default.
    """
    for bond, vfs, compiled in _bonds(topology):
        yield from _one_mac(bond, vfs, compiled)


def failover(topology: NetworkTopology) -> Iterator[Finding]:
    """Bonds that cannot use another member when a link is lost, or whose members are lost together."""
    for bond, vfs, compiled in _bonds(topology):
        yield from _not_monitored(bond, vfs, compiled)
        yield from _lacp(bond, vfs, compiled)
        yield from _one_pf(bond, vfs, compiled)
        yield from _unknown_links(bond, compiled)


def _bonds(topology: NetworkTopology) -> Iterator[tuple[Step, list[Step], Graph]]:
    """The bonds of a topology, each with the steps of the VFs below it."""
    compiled, _ = graph.examine(topology)
    for bond in compiled.steps if compiled is not None else ():
        if bond.type == "bond" and compiled is not None:
            below = compiled.ancestors[bond.name]
            yield bond, [step for step in compiled.steps if step.type == "sriov" and step.name in below], compiled


def _one_mac(bond: Step, vfs: Sequence[Step], compiled: Graph) -> Iterator[Finding]:
    has_one_active, policy = bond.config.get("mode") in _ONE_ACTIVE, bond.config.get("failOverMac")
    if is_reference(policy) or (has_one_active and policy in _OWN_MAC):
        return
    checked = [step.name for step in vfs if is_checked(step)]
    if not checked:
        return
    what = (
        f"the bond sends with one MAC address over all members, but spoofchk of step{'s' * (len(checked) > 1)} "
        f"{', '.join(checked)} is not off: the NIC may drop the frames of all members but one"
    )
    hint = 'set failOverMac: active, or spoofchk: "off" in these steps'
    if not has_one_active:
        hint = 'set spoofchk: "off" in these steps, or use mode active-backup with failOverMac: active'
    yield compiled.about(bond.name, what, hint=hint, path=("config",), code="ND1012")


def _not_monitored(bond: Step, vfs: Sequence[Step], compiled: Graph) -> Iterator[Finding]:
    """A bond that cannot detect that a link is lost."""
    config = bond.config
    if config.get("miimon") in _NOT_MONITORED and not has_link_monitor({**config, "miimon": None}):
        what = "miimon 0 disables the link monitor: the bond never uses another member when a link is lost"
        yield compiled.about(
            bond.name, what, hint="remove miimon; the default is 100", path=("config", "miimon"), code="ND1013"
        )
    for step in vfs:
        key = next((key for key in ("linkState", "link_state") if step.config.get(key) == "enable"), "")
        if key and config.get("miimon") not in _NOT_MONITORED and config.get("arpInterval") in (None, *_NOT_MONITORED):
            what = (
                f'{key} enable hides a lost link of the PF from the bond of step "{bond.name}", which then does not '
                "use another member"
            )
            yield compiled.about(step.name, what, hint=f"set {key}: auto", path=("config", key), code="ND1014")


def _lacp(bond: Step, vfs: Sequence[Step], compiled: Graph) -> Iterator[Finding]:
    if bond.config.get("mode") in _LACP and vfs:
        what = (
            "mode 802.3ad requires that the switch receives LACP frames of the VFs, but most NICs do not forward them "
            "from a VF, and a switch has one LACP partner for each port: the bond may not receive traffic"
        )
        hint = "use mode active-backup with failOverMac: active"
        yield compiled.about(bond.name, what, hint=hint, path=("config", "mode"), code="ND1015")


def _one_pf(bond: Step, vfs: Sequence[Step], compiled: Graph) -> Iterator[Finding]:
    """Members that are lost together: the selectors of their VFs request one PF."""
    for one, other in combinations(vfs, 2):
        if pfs := _pf_of(one) & _pf_of(other):
            what = (
                f'the VFs of steps "{one.name}" and "{other.name}" are of one PF, {pfs.pop()}: the bond loses both '
                "links at the same time"
            )
            yield compiled.about(
                bond.name, what, hint="request a VF of another PF in one of these steps", code="ND1016"
            )


def _pf_of(step: Step) -> set[str]:
    """The PF that a selector requires by name or by address, if it is a plain conjunction."""
    cel = step.selector.cel if step.selector is not None else ""
    return set() if _NO_CONJUNCTION.search(cel) else set(_PF.findall(cel))


def _unknown_links(bond: Step, compiled: Graph) -> Iterator[Finding]:
    """Names in `links` that no earlier step gives to an interface; after steps of other types they may exist."""
    (named,), wrong = interfaces.examine([compiled])
    before = [step for step in compiled.steps if step.name in compiled.ancestors[bond.name]]
    made = {named[step.name] for step in before}
    if wrong or any(map(interfaces.is_open, made)) or any(step.type not in interfaces.PREDICTABLE for step in before):
        return
    links = bond.config.get("links")
    for at, link in enumerate(links if isinstance(links, list | tuple) else ()):
        name = link.get("name") if isinstance(link, dict) else link
        if isinstance(name, str) and not is_reference(name) and name not in made:
            what = f'links: no step before the bond creates an interface "{name}", so the pod cannot start'
            hint = f"use a name of {', '.join(sorted(made))}, or a reference: {{{{ step.interfaceName }}}}"
            yield compiled.about(bond.name, what, hint=hint, path=("config", "links", at), code="ND1017")


def is_checked(step: Step) -> bool:
    """Whether a VF's MAC addresses are checked by the NIC, as far as the step's config shows."""
    switch = step.config.get("spoofchk")
    return not is_reference(switch) and switch not in _OFF


def is_reference(value: object) -> bool:
    """Whether a value of a config becomes known only later."""
    return isinstance(value, str) and "{{" in value
