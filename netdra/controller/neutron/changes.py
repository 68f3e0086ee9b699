"""The changes in Neutron under a VF: the differences between a bound port and the settings of its VF. Pure.

Used by `netdra.controller.neutron.inspection`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netdra.controller.neutron import desired
from netdra.model.neutron_port import NeutronPort, PortSettings
from netdra.neutron.answers import Port, VfSettings


def difference(port: NeutronPort, now: Port, vf_settings: VfSettings | None = None) -> str:
    """The differences between a port in Neutron and the settings of its VF; "" without any.

    Args:
        port: a NeutronPort that was bound.
        now: its port as Neutron has it now.
        vf_settings: the settings that a VF would get from it now, if they could be read.
    """
    assert port.status is not None
    assert port.status.settings is not None
    given, spec = port.status.settings, port.spec
    addresses = {address.partition("/")[0] for address in given.addresses}
    there = {address.ip_address for address in now.fixed_ips}
    rows = [
        ("MAC", given.mac, now.mac_address),
        ("VLAN", str(given.vlan), str(now.vlan)),
        ("addresses", _texts(sorted(addresses)), _texts(sorted(there))),
        ("host", spec.host, now.host),
        # A user that removes the host also removes the profile, and one report is enough.
        ("PCI address", port.pci_address, now.pci_slot or port.pci_address),
        ("device_id", spec.claim.uid, now.device_id),
        ("admin state", _up(is_up=given.link_state != "disable"), _up(is_up=now.admin_state_up)),
        ("port security", _on(is_on=given.spoofchk), _on(is_on=now.port_security_enabled)),
    ]
    if vf_settings is not None:
        rows += _described(given, desired.port_settings(vf_settings), is_bound=bool(now.host))
    return "; ".join(f"{what} {then} changed to {this or 'none'}" for what, then, this in rows if then != this)


def _described(given: PortSettings, now: PortSettings, *, is_bound: bool) -> Iterator[tuple[str, str, str]]:
    """The settings from the network, its subnets and the QoS policy."""
    yield "MTU", str(given.mtu), str(now.mtu)
    yield "gateways", _texts(given.gateways), _texts(now.gateways)
    then, this = ([f"{route.destination} by {route.gateway}" for route in settings.routes] for settings in (given, now))
    yield "routes", _texts(then), _texts(this)
    yield "name servers", _texts(given.dns), _texts(now.dns)
    if is_bound:  # trust stands in the profile, which goes with the host
        yield "trust", _on(is_on=given.trust), _on(is_on=now.trust)
    yield "minimum rate", _rate(given.min_tx_rate), _rate(now.min_tx_rate)
    yield "maximum rate", _rate(given.max_tx_rate), _rate(now.max_tx_rate)


def _texts(texts: Sequence[str]) -> str:
    return ", ".join(texts) or "none"


def _rate(mbit: int) -> str:
    return f"{mbit} Mbit/s" if mbit else "none"


def _up(*, is_up: bool) -> str:
    return "up" if is_up else "down"


def _on(*, is_on: bool) -> str:
    return "on" if is_on else "off"
