"""The parameters of a tuning step, in netdra's words and in those of the CNI plugin of that name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from netdra.kernel import rule
from netdra.kernel.rule import PolicyRule
from netdra.model import texts
from netdra.model.errors import InvalidInputError
from netdra.steps import addressing, routing
from netdra.steps.addressing import AddedAddressing, RouteParams
from netdra.steps.contract import Count, MacText, Mtu, Order, Params, check_mac
from netdra.steps.offload import EthtoolParams
from netdra.steps.routing import NeighbourParams, Routing, RuleParams

MOST = 256
"""Rules, and neighbours, of one step."""
ARP = ("arp_ignore", "arp_announce", "arp_filter", "rp_filter")
"""The settings of IPv4 that decide which interface answers for an address, with parameters of their own."""


class TuningParams(Params, frozen=True, kw_only=True):
    """The settings to change; absent ones do not change."""

    dev: str = ""
    mtu: Mtu | None = None
    mac: MacText | None = None
    promisc: bool | None = None
    allmulti: bool | None = None
    txqlen: Count | None = None
    tx_q_len: Count | None = msgspec.field(default=None, name="txQLen")
    sysctl: Mapping[str, str | int | bool] = {}
    addresses: tuple[str, ...] = ()
    routes: tuple[RouteParams, ...] = ()
    rules: Annotated[tuple[RuleParams, ...], msgspec.Meta(max_length=MOST)] = ()
    neighbours: Annotated[tuple[NeighbourParams, ...], msgspec.Meta(max_length=MOST)] = ()
    arp_ignore: Annotated[int, msgspec.Meta(ge=0, le=8)] | None = msgspec.field(default=None, name="arp_ignore")
    arp_announce: Annotated[int, msgspec.Meta(ge=0, le=2)] | None = msgspec.field(default=None, name="arp_announce")
    arp_filter: Annotated[int, msgspec.Meta(ge=0, le=1)] | None = msgspec.field(default=None, name="arp_filter")
    rp_filter: Annotated[int, msgspec.Meta(ge=0, le=2)] | None = msgspec.field(default=None, name="rp_filter")
    ethtool: EthtoolParams = EthtoolParams()
    data_dir: str = ""


class TuningValues(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters with the two vocabularies made one."""

    mtu: int | None
    mac: str | None
    promisc: bool | None
    allmulti: bool | None
    txqlen: int | None
    sysctl: Mapping[str, str]
    added: AddedAddressing
    routing: Routing

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that one message to the kernel sets."""
        values = {
            "mtu": self.mtu,
            "promiscuous": self.promisc,
            "all_multicast": self.allmulti,
            "txqlen": self.txqlen,
        }
        return {name: value for name, value in values.items() if value is not None}


def wanted_by(order: Order, params: TuningParams) -> TuningValues:
    """The parameters, checked.

    Raises:
        InvalidInputError: an address, a route, a MAC or a sysctl is not valid.
    """
    for_plugins = _arguments(order, params)
    mac = for_plugins.mac or params.mac
    if mac:
        check_mac(mac, f"{order.called}, mac")
    settings = {
        texts.sysctl_path(key, order.if_name): str(int(value)) if isinstance(value, bool) else str(value)
        for key, value in {**_of_arp(order, params), **params.sysctl, **for_plugins.sysctl}.items()
    }
    return TuningValues(
        mtu=_first(for_plugins.mtu, params.mtu),
        mac=mac.lower() if mac else None,
        promisc=_first(for_plugins.promisc, params.promisc),
        allmulti=_first(for_plugins.allmulti, params.allmulti),
        txqlen=_first(for_plugins.tx_q_len, params.txqlen, params.tx_q_len),
        sysctl=settings,
        added=AddedAddressing(
            if_name=order.if_name,
            addresses=tuple(
                addressing.checked_address(text, f"{order.called}, addresses[{place}]", order.if_name)
                for place, text in enumerate(params.addresses)
            ),
            routes=tuple(
                addressing.checked_route(route, f"{order.called}, routes[{place}]")
                for place, route in enumerate(params.routes)
            ),
        ),
        routing=Routing(
            if_name=order.if_name,
            rules=_rules(order, params),
            neighbours=tuple(
                routing.checked_neighbour(entry, f"{order.called}, neighbours[{place}]")
                for place, entry in enumerate(params.neighbours)
            ),
        ),
    )


def _of_arp(order: Order, params: TuningParams) -> dict[str, int]:
    """The settings with parameters of their own, as sysctls.

    Raises:
        InvalidInputError: one is among the sysctls, too.
    """
    given = {name: value for name in ARP if (value := getattr(params, name)) is not None}
    paths = {texts.sysctl_path(key, order.if_name) for key in params.sysctl} if given else set()
    settings: dict[str, int] = {}
    for name, value in given.items():
        key = f"net/ipv4/conf/{texts.OWN_INTERFACE}/{name}"
        if texts.sysctl_path(key, order.if_name) in paths:
            raise InvalidInputError(
                f"{order.called}: {name} is also among the sysctls", hint="leave one of the two out", code="ND2082"
            )
        settings[key] = value
    return settings


def _rules(order: Order, params: TuningParams) -> tuple[PolicyRule, ...]:
    """The rules, each once: of two equal ones the kernel refuses the second."""
    made = (
        made
        for place, entry in enumerate(params.rules)
        for made in routing.checked_rules(entry, f"{order.called}, rules[{place}]", order.if_name)
    )
    return tuple({rule.key(entry): entry for entry in made}.values())


class _Arguments(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The arguments that the runtime may pass to the plugin of that name in addition to its config."""

    mac: MacText | None = None
    mtu: Mtu | None = None
    promisc: bool | None = None
    allmulti: bool | None = None
    tx_q_len: Count | None = msgspec.field(default=None, name="txQLen")
    sysctl: Mapping[str, str | int | bool] = {}


def _arguments(order: Order, params: TuningParams) -> _Arguments:
    arguments: dict[str, Any] = {}
    if "mac" in params.runtime_config:
        arguments["mac"] = params.runtime_config["mac"]
    of_cni = params.args.get("cni", {})
    if isinstance(of_cni, Mapping):
        arguments |= of_cni
    try:
        return msgspec.convert(arguments, _Arguments)
    except msgspec.ValidationError as problem:
        raise InvalidInputError(f"{order.called}: runtimeConfig or args: {problem}", code="ND2083") from None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
