"""The parameters of a tuning step, in netdra's words and in those of the CNI plugin of that name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from netdra.model import texts
from netdra.model.errors import InvalidInputError
from netdra.steps import addressing
from netdra.steps.addressing import AddedAddressing, RouteParams
from netdra.steps.contract import Count, MacText, Mtu, Order, Params, check_mac
from netdra.steps.offload import EthtoolParams


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
        for key, value in {**params.sysctl, **for_plugins.sysctl}.items()
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
    )


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
        raise InvalidInputError(f"{order.called}: runtimeConfig or args: {problem}") from None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
