"""Bonds of VFs whose frames the NIC may drop, because the members send with one MAC address. Pure.

Called by the webhook and `netdra validate`, by `netdra why` and by `netdra doctor`: such a pod starts, and its network
fails with the first failover.
"""

from __future__ import annotations

from collections.abc import Iterator

from netdra.model.findings import Finding
from netdra.model.topology import NetworkTopology, Step
from netdra.topology import graph
from netdra.topology.graph import Graph

# drivers/net/bonding/bond_options.c: fail_over_mac is rejected in the other modes once the bond has members.
_ONE_ACTIVE = ("active-backup", 1, "1")
_OWN_MAC = ("active", 1, "1")
_OFF = ("off", False)


def one_mac(topology: NetworkTopology) -> Iterator[Finding]:
    """Bonds that send with one MAC address over VFs whose `spoofchk` is not off.

    Most drivers enable `spoofchk` by default. References to parameters and facts are skipped: their values are unknown.
    """
    compiled, _ = graph.examine(topology)
    for step in compiled.steps if compiled is not None else ():
        if step.type == "bond" and compiled is not None:
            yield from _of_bond(step, compiled)


def _of_bond(bond: Step, compiled: Graph) -> Iterator[Finding]:
    has_one_active, policy = bond.config.get("mode") in _ONE_ACTIVE, bond.config.get("failOverMac")
    if _is_reference(policy) or (has_one_active and policy in _OWN_MAC):
        return
    checked = [step.name for step in compiled.steps if step.name in compiled.ancestors[bond.name] and _is_checked(step)]
    if not checked:
        return
    what = (
        f"the bond sends with one MAC address over all members, but spoofchk of step{'s' * (len(checked) > 1)} "
        f"{', '.join(checked)} is not off: the NIC may drop the frames of all members but one"
    )
    hint = 'set failOverMac: active, or spoofchk: "off" in these steps'
    if not has_one_active:
        hint = 'set spoofchk: "off" in these steps, or use mode active-backup with failOverMac: active'
    yield compiled.about(bond.name, what, hint=hint, path=("config",))


def _is_checked(step: Step) -> bool:
    """Whether a step brings a VF whose MAC addresses the NIC checks, as far as its config shows."""
    switch = step.config.get("spoofchk")
    return step.type == "sriov" and not _is_reference(switch) and switch not in _OFF


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and "{{" in value
