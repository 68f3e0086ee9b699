"""The vlan step: a VLAN interface in the pod, on an interface of the pod or of the host.

Takes the parameters of the CNI plugin of that name too (`vlanId`, `linkInContainer`). A derived step stands on the last
interface of its dependencies, a root step on the allocated device of the host, unless `linkInContainer` states
otherwise.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from netdra.kernel import kinds, link, pci
from netdra.kernel.errors import KernelError, KernelExistsError
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket
from netdra.model.errors import InvalidInputError, PermanentError, TemporaryError
from netdra.model.result import StepResult
from netdra.steps.contract import Builtin, MacText, Mtu, Order, Params, Site, appended, check_mac
from netdra.steps.drift import check_interface
from netdra.steps.made import Made, check_can_carry, unmake
from netdra.steps.moving import check_free, interface

VlanId = Annotated[int, msgspec.Meta(ge=1, le=4094)]


class VlanParams(Params, frozen=True, kw_only=True):
    """Which VLAN, and on which interface."""

    id: VlanId | None = None
    vlan_id: VlanId | None = None
    master: str = ""
    protocol: Literal["802.1q", "802.1Q", "802.1ad"] = "802.1q"
    mtu: Mtu | None = None
    mac: MacText | None = None
    link_in_container: bool | None = None

    @property
    def number(self) -> int:
        """The VLAN id, by either of its names."""
        return self.id or self.vlan_id or 0


def _prepare(order: Order, params: VlanParams) -> None:
    if params.mac:
        check_mac(params.mac, f"{order.called}, mac")
    if not params.number:
        raise InvalidInputError(f"{order.called}: no VLAN id is given", hint="set id, 1 to 4094", code="ND2092")
    if params.id and params.vlan_id and params.id != params.vlan_id:
        raise InvalidInputError(f"{order.called}: id is {params.id} and vlanId is {params.vlan_id}", code="ND2093")


def _observe(order: Order, params: VlanParams, site: Site) -> Made:
    check_free(order, site)
    lower = _lower(order, params, site)
    check_can_carry(order.called, lower)
    if params.mtu is not None and params.mtu > lower.mtu:
        raise PermanentError(
            f'{order.called}: MTU {params.mtu} is more than the {lower.mtu} of "{lower.name}"',
            hint=f'raise the MTU of "{lower.name}" first, in the step that makes it',
            code="ND2094",
        )
    same = [
        netdev.name
        for netdev in (link.dump(site.inside.sock) if _in_pod(order, params) else ())
        if netdev.kind == "vlan"
        and netdev.lower == lower.index
        and kinds.vlan_id_of(netdev.data) == params.number
        and kinds.vlan_protocol_of(netdev.data) == params.protocol.lower()
    ]
    if same:
        raise PermanentError(
            f'{order.called}: "{same[0]}" is VLAN {params.number} of "{lower.name}" already', code="ND2095"
        )
    return Made(if_name=order.if_name, kind="vlan")


def _apply(order: Order, params: VlanParams, _: Made, site: Site) -> StepResult:
    pod = site.inside
    lower = _lower(order, params, site)
    where = pod.sock if _in_pod(order, params) else site.host
    try:
        link.create(
            where,
            order.if_name,
            "vlan",
            kinds.vlan(params.number, params.protocol),
            lower=lower.index,
            mtu=params.mtu,
            mac=params.mac,
            netns_fd=None if _in_pod(order, params) else pod.namespace.fd,
        )
    except KernelExistsError:
        raise
    except KernelError as refused:
        dead = _without_link(lower, where, site)
        if not dead:
            raise
        raise _not_answered(order, params, dead, refused) from refused
    link.change(pod.sock, order.if_name, up=True)
    return appended(order, interface(link.get(pod.sock, order.if_name), site))


def _without_link(lower: Link, where: Socket, site: Site) -> list[str]:
    """The VFs without a link that an interface consists of, itself or the members of a bond, by name."""
    parts = [netdev for netdev in link.dump(where) if lower.index in (netdev.index, netdev.master)]
    return [part.name for part in parts if part.lacks_carrier and pci.pf_of(site.sysfs, part.parent)]


def _not_answered(order: Order, params: VlanParams, dead: list[str], refused: KernelError) -> TemporaryError:
    """A VF asks its PF to add a VLAN to its filter; a PF whose link is not up yet does not answer (igbvf: EINVAL)."""
    names = ", ".join(f'"{name}"' for name in dead)
    return TemporaryError(
        f"{order.called}: VLAN {params.number} is refused, because VF {names} has no link ({refused.what})",
        hint="the pod is tried again; if this does not end, see whether the PF is up and has a carrier: ip link show",
        code=refused.code,
    )


def _undo(made: Made, site: Site) -> tuple[str, ...]:
    unmake(made, site)
    return ()


def _check(order: Order, params: VlanParams, final: StepResult, site: Site) -> tuple[str, ...]:
    drift = check_interface(order.if_name, final, site)
    netdev = link.find(site.inside.sock, order.if_name)
    if netdev is None or (netdev.kind == "vlan" and kinds.vlan_id_of(netdev.data) == params.number):
        return drift
    return (*drift, f'interface "{order.if_name}" is not VLAN {params.number}')


def _in_pod(order: Order, params: VlanParams) -> bool:
    """Whether the interface that it stands on is in the pod."""
    return order.device is None if params.link_in_container is None else params.link_in_container


def _lower(order: Order, params: VlanParams, site: Site) -> Link:
    in_pod = _in_pod(order, params)
    name = params.master or _last_interface(order, site) if in_pod else params.master
    if not name and order.device is not None:
        name = order.device.if_name
    netdev = link.find(site.inside.sock if in_pod else site.host, name) if name else None
    if netdev is None:
        where = "the pod" if in_pod else "the host"
        if not name:
            raise PermanentError(
                f"{order.called}: {where} has no interface to stand on", hint="set master", code="ND2096"
            )
        listed = ", ".join(netdev.name for netdev in link.dump(site.inside.sock if in_pod else site.host))
        hint = f"{where} has {listed}: let master name one of them" if in_pod else "see whether it was renamed"
        raise PermanentError(f'{order.called}: {where} has no interface "{name}" to stand on', hint=hint, code="ND2097")
    return netdev


def _last_interface(order: Order, site: Site) -> str:
    inside = [entry.name for entry in order.previous.interfaces if entry.sandbox == site.inside.path]
    return inside[-1] if inside else ""


VLAN = Builtin(
    params=VlanParams, record=Made, prepare=_prepare, observe=_observe, apply=_apply, undo=_undo, check=_check
)
