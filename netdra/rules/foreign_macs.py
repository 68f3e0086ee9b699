"""Steps that send with a MAC address which is not that of the VF below them, or which two VFs have. Pure.

Called by the webhook and `netdra validate`, and by `netdra why`: such a pod starts, and the NIC drops its frames.
Bonds are those of `bonds`. References to parameters and facts are skipped: their values are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from netdra.model.findings import Finding
from netdra.model.topology import NetworkTopology, Step
from netdra.rules.bonds import is_checked, is_reference
from netdra.topology import graph
from netdra.topology.graph import Graph

_OF_VFS = re.compile(r'\.type\s*==\s*"vf"')
_LOWER = re.compile(r"\{\{\s*([a-z0-9-]+)\.interfaceName\s*\}\}")


def check(topology: NetworkTopology) -> Iterator[Finding]:
    """The warnings about the MAC addresses of a topology."""
    compiled, _ = graph.examine(topology)
    first: dict[str, str] = {}
    for step in compiled.steps if compiled is not None else ():
        assert compiled is not None
        yield from _above_vf(step, compiled)
        mac = step.config.get("mac")
        if step.type != "sriov" or not isinstance(mac, str) or is_reference(mac):
            continue
        if mac.lower() in first:
            what = f'mac {mac} is also that of step "{first[mac.lower()]}": frames reach one of the two VFs'
            hint = "use different addresses, or remove mac: each VF has an address of its own"
            yield compiled.about(step.name, what, hint=hint, path=("config", "mac"), code="ND1089")
        first.setdefault(mac.lower(), step.name)


def _above_vf(step: Step, compiled: Graph) -> Iterator[Finding]:
    if not _has_own_mac(step):
        return
    if step.is_root:
        if step.selector is not None and _OF_VFS.search(step.selector.cel):
            what = (
                f"{step.type} sends with other MAC addresses than that of its VF: the NIC drops these frames while "
                "spoofchk of the VF is on, which is the default of most drivers"
            )
            hint = 'use a step of type sriov with spoofchk: "off" below it, or disable spoofchk on the node'
            yield compiled.about(step.name, what, hint=hint, path=("type",), code="ND1090")
        return
    lower = _lower(step, compiled)
    macs = {entry.config.get("mac") for entry in lower}
    checked = [entry.name for entry in lower if is_checked(entry)]
    if not checked or (step.type == "vlan" and step.config["mac"] in macs):
        return
    named = f"step{'s' * (len(checked) > 1)} {', '.join(checked)}"
    own = f"{step.type} sends with a MAC address of its own"
    what = f"{own}, but spoofchk of {named} is not off: the NIC may drop its frames"
    hint = f'set spoofchk: "off" and trust: "on" in {named}' + ", or use ipvlan" * (step.type == "macvlan")
    yield compiled.about(
        step.name, what, hint=hint, path=("config", "mac") if step.type == "vlan" else ("type",), code="ND1091"
    )


def _has_own_mac(step: Step) -> bool:
    """Whether a step sends with other MAC addresses than that of the interface below it, as far as it shows."""
    if step.type == "vlan":
        mac = step.config.get("mac")
        return bool(mac) and not is_reference(mac)
    mode = step.config.get("mode")
    return step.type == "bridge" or (step.type == "macvlan" and mode != "passthru" and not is_reference(mode))


def _lower(step: Step, compiled: Graph) -> list[Step]:
    """The VFs of the interface that a derived step stands on."""
    named = _LOWER.fullmatch(str(step.config.get("master", "")))
    roots = {root for name in ([named[1]] if named else step.depend_on) for root in compiled.roots_of(name)}
    return [entry for entry in compiled.steps if entry.name in roots and entry.type == "sriov"]
