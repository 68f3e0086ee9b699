"""All settings of a netdev that a pod or a plugin can change and that must be again as they were: one table (D27).

`moving` and `allocated` record them before a device leaves the host (`read`), compare them when it is back
(`differences`) and restore them (`restore`), for built-in steps and binaries alike. Most are in the link's message
or in one request for all of ethtool's; what a kind of link cannot have is not requested.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec

from netdra.kernel import ethtool, link, link_settings, uapi
from netdra.kernel.errors import KernelError
from netdra.kernel.link import Link
from netdra.kernel.netlink import NETLINK_GENERIC, Message, Socket
from netdra.kernel.netns import inode_at
from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError
from netdra.steps import further
from netdra.steps.further import Access, Changed, Further, Reading

FOLLOWERS = ("bridge", "bond", "team", "openvswitch")
"""Kinds whose MAC, MTU and active features follow their ports: these change by themselves."""

Value = int | str

# The groups of ethtool's settings besides features, and the few of them that kinds of virtual links have.
_ALL = (ethtool.FLAGS, "channels", "rings", "coalesce", "pause")
_ETHTOOL = {"veth": ("channels",), "tun": ("coalesce",), "macvlan": (), "ipvlan": (), "vlan": (), "dummy": ()}
# Where one of these is on, before and now, the driver or the link partner chooses the others.
_AUTOMATIC = {
    ("coalesce", "rx-"): "adaptive-rx",
    ("coalesce", "tx-"): "adaptive-tx",
    ("pause", "rx"): "autoneg",
    ("pause", "tx"): "autoneg",
}
# The kernel sets these for every link when they are set for all. So a link's own value is one that is not the default.
_INHERITED = {"ipv4": ("forwarding",), "ipv6": ("forwarding", "disable_ipv6")}
_SECRET_MODE = 2  # IN6_ADDR_GEN_MODE_STABLE_PRIVACY
_SECRET = "ipv6/conf/stable_secret"  # noqa: S105 (a path)
_NEIGH = (
    "anycast_delay", "app_solicit", "base_reachable_time_ms", "delay_first_probe_time", "gc_stale_time",
    "interval_probe_time_ms", "locktime", "mcast_resolicit", "mcast_solicit", "proxy_delay", "proxy_qlen",
    "retrans_time_ms", "ucast_solicit", "unres_qlen_bytes",
)  # fmt: skip
_FILES = (
    *(f"{family}/neigh/{name}" for family in ("ipv4", "ipv6") for name in _NEIGH),
    *(f"ipv6/conf/{name}" for name in link_settings.FILES_ALONE),
)
_DEFAULTS_LAST = 60.0  # seconds that their defaults are remembered: nothing but a person changes them


class DeviceSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a netdev; what is empty or None was not recorded (by an older netdra) and is left as it is.

    Attributes:
        sizes: see `link_settings.sizes`.
        features: as `ethtool.read_all` has them.
        ethtool: by group of `ethtool.read_all`.
        ipv4: the values of `link_settings.IPV4`, None for those that the link has from the default.
        ipv6: those of `link_settings.IPV6`.
        files: further sysctls that differ from the default, by path without the link.
        port: the settings that a bridge has for the link as its port.
        further: everything else that the kernel reports, see `netdra.steps.further`; None where it is not recorded.
    """

    txqlen: int
    promiscuous: bool = False
    all_multicast: bool = False
    alias: str = ""
    group: int | None = None
    sizes: Mapping[str, int] = {}
    features: tuple[str, ...] = ()
    ethtool: Mapping[str, Mapping[str, int]] = {}
    ipv4: tuple[int | None, ...] = ()
    ipv6: tuple[int | None, ...] = ()
    files: Mapping[str, str] = {}
    port: Mapping[str, int] = {}
    further: Further | None = None


class ChangedSetting(msgspec.Struct, frozen=True):
    """A setting that is not as it was.

    Attributes:
        key: its group in the table and its name there.
        text: in words, "feature rx-gro off, not on".
        matters: whether it stays with the device, and so concerns its next user.
        benign: whether others may do that to a device that pods share, at any time.
        unknown: whether this version of netdra does not know it.
        further: its values, if it is one of `netdra.steps.further` and not of the table.
    """

    key: tuple[str, str]
    text: str
    matters: bool
    benign: bool = False
    unknown: bool = False
    further: Changed | None = None

    def holds(self, *, unknown: bool) -> bool:
        """Whether no other pod may have the device until the setting is as it was.

        Args:
            unknown: whether a setting that this version of netdra does not know is a reason, too.
        """
        return self.matters or (unknown and self.unknown)


class StrandedError(PermanentError):
    """A device cannot be made what it was: no other pod may have it. `reasons` are the kernel's."""

    reasons: tuple[str, ...] = ()


class _Target(NamedTuple):
    sock: Socket
    netdev: Link
    sysfs: Sysfs


class _Write(Protocol):
    def __call__(self, target: _Target, values: Mapping[str, Value]) -> None: ...


class _Group(NamedTuple):
    """Settings that are read and written together.

    Attributes:
        words: a setting in messages, by its name.
        write: set some of them; raises KernelError.
        matters: see `ChangedSetting`.
    """

    words: Callable[[str], str]
    write: _Write
    matters: bool


def read(netdev: Link, sock: Socket, sysfs: Sysfs, *, whole: bool = True) -> DeviceSettings:
    """The settings of a netdev just now.

    Args:
        netdev: as it was read a moment ago.
        sock: a socket in its namespace, which must be the calling thread's.
        sysfs: the machine's; whether it shows that namespace is found out.
        whole: with everything that the kernel reports, for a device that one pod has for itself.

    Raises:
        KernelError: the netdev is gone, or the kernel is short of memory or descriptors.
    """
    message = _message(netdev, sock)
    ipv4, ipv6 = link_settings.sysctls(message)
    return msgspec.structs.replace(
        _present(_Target(sock, netdev, sysfs), message, _ETHTOOL.get(netdev.kind, _ALL), whole=whole),
        ipv4=_own("ipv4", link_settings.IPV4, ipv4, netdev),
        ipv6=_own("ipv6", link_settings.IPV6, ipv6, netdev),
        files=dict(_own_files(netdev, ipv6)),
    )


def differences(before: DeviceSettings, netdev: Link, sock: Socket, sysfs: Sysfs) -> Iterator[ChangedSetting]:
    """The settings of a netdev that have changed; `netdev`, `sock` and `sysfs` as for `read`.

    Raises:
        KernelError: as for `read`.
    """
    now = _again(before, _Target(sock, netdev, sysfs))
    if now == before:
        return
    values = _values(now, netdev.index)
    for group, former in _values(before, netdev.index).items():
        present = values.get(group, {})
        if former and not present and group != "port":
            yield ChangedSetting((group, ""), f"unreadable settings ({group})", matters=False)
            continue
        for name, was in former.items():
            value = present.get(name)
            if value is not None and value != was and not _is_automatic(group, name, former, present):
                words = f"{TABLE[group].words(name)} {_word(group, name, value)}, not {_word(group, name, was)}"
                yield ChangedSetting((group, name), words, TABLE[group].matters, _is_benign(group, name, value))
    for changed in further.differences(before.further or {}, now.further or {}):
        key = changed.group, changed.name
        yield ChangedSetting(key, changed.text, changed.matters, unknown=changed.unknown, further=changed)


def restore(
    before: DeviceSettings | None, netdev: Link, sock: Socket, sysfs: Sysfs
) -> tuple[tuple[ChangedSetting, ...], tuple[str, ...]]:
    """Make a netdev's settings what they were; return those that still differ, and why the kernel refused some.

    Raises:
        KernelError: as for `read`.
    """
    if before is None:
        return (), ()
    reasons: list[str] = []
    fixed: set[str] = set()
    left = tuple(differences(before, netdev, sock, sysfs))
    # Some settings follow others, as the sizes of IPv4 follow those of all: what still differs is set once more.
    for _ in range(2):
        if not left:
            break
        target = _Target(sock, netdev, sysfs)
        reasons = _restore_table(before, left, target)
        refused, unsettable = _restore_further(before, left, target)
        reasons += refused
        fixed |= unsettable
        netdev = link.get(sock, netdev.index)
        left = tuple(differences(before, netdev, sock, sysfs))
    return tuple(_as_fixed(each, fixed) for each in left), tuple(dict.fromkeys(reasons)) if left else ()


def _restore_table(before: DeviceSettings, left: Sequence[ChangedSetting], target: _Target) -> list[str]:
    """Write the settings of the table that differ; return what the kernel refused."""
    former, reasons = _values(before, target.netdev.index), []
    for group in TABLE:
        names = [
            name for changed, name in (entry.key for entry in left if not entry.further) if changed == group and name
        ]
        reasons += _write(group, target, {name: former[group][name] for name in names})
    return reasons


def _restore_further(
    before: DeviceSettings, left: Sequence[ChangedSetting], target: _Target
) -> tuple[list[str], set[str]]:
    changed = [entry.further for entry in left if entry.further]
    if not changed:
        return [], set()
    with Socket(NETLINK_GENERIC) as generic:
        access = Access(target.sock, generic, target.sysfs)
        return further.restore(changed, before.further or {}, target.netdev, access)


def _as_fixed(changed: ChangedSetting, fixed: Container[str]) -> ChangedSetting:
    """A setting that no program can set has not been set by one: it does not keep the device from others."""
    if changed.text not in fixed:
        return changed
    return msgspec.structs.replace(changed, text=f"{changed.text} (its driver cannot set it)", matters=False)


def conclude(
    called: str, left: Sequence[ChangedSetting], reasons: Sequence[str], *, hold_unknown: bool = False
) -> tuple[str, ...]:
    """The notes on settings that could not be restored.

    Args:
        called: the device as messages call it.
        left: the settings that still differ.
        reasons: why the kernel refused some.
        hold_unknown: see `Site.hold_unknown`.

    Raises:
        StrandedError: one matters to the device's next user.
    """
    stays = [f"{called} has {changed.text}" for changed in left if changed.holds(unknown=hold_unknown)]
    if stays:
        problem = StrandedError(
            "; ".join((*stays, *reasons)), hint="set it by hand; netdra tries again by itself", code="ND2062"
        )
        problem.reasons = tuple(reasons)
        raise problem
    return (*(f"{called} has {changed.text}" for changed in left), *reasons)


def may_be_up(before: DeviceSettings, there: Link) -> bool:
    """Whether a link may be set up before its settings are restored, on the way from the pod.

    Not where IPv6 was off for the link, or its link-local address was not made of its MAC, by its own setting, nor
    where a flag or a mode of the link differs: from those follows at that moment which addresses and groups the kernel
    gives it.
    """
    places = map(link_settings.IPV6.index, ("disable_ipv6", "addr_gen_mode"))
    has_own_ipv6 = any(place < len(before.ipv6) and before.ipv6[place] for place in places)
    return not has_own_ipv6 and further.has_attributes(before.further, there)


def _message(netdev: Link, sock: Socket) -> Message:
    return netdev.message or link.get(sock, netdev.index).message


def _present(
    target: _Target, message: Message, groups: Sequence[str], former: Further | None = None, *, whole: bool
) -> DeviceSettings:
    """The settings that are not sysctls; if `whole`, with all others, or those of them in a former record."""
    netdev = target.netdev
    with Socket(NETLINK_GENERIC) as generic:
        access = Access(target.sock, generic, target.sysfs)
        model = _model(netdev, target.sysfs) if whole and former is None else ""
        reading = Reading(generic, model, former) if whole else None
        own = ethtool.read_all(generic, netdev.index, groups, reading.requested if reading is not None else ())
        rest = reading.values(netdev, message, access, own.replies) if reading is not None else None
    features = own.features
    if netdev.kind in FOLLOWERS and features:
        hardware, requested, _, fixed = features
        features = (hardware, requested, requested, fixed)
    return DeviceSettings(
        txqlen=netdev.txqlen,
        promiscuous=bool(netdev.flags & uapi.IFF_PROMISC),
        all_multicast=bool(netdev.flags & uapi.IFF_ALLMULTI),
        alias=netdev.alias,
        group=link_settings.group(message),
        sizes=link_settings.sizes(message),
        features=features,
        ethtool=own.groups,
        port=link_settings.bridge_port(message),
        further=rest,
    )


def _model(netdev: Link, sysfs: Sysfs) -> str:
    """A text that netdevs with the same driver and abilities have in common, "" for none."""
    if netdev.kind or netdev.parent_bus != "pci":
        return netdev.kind
    return sysfs.text(f"bus/pci/devices/{netdev.parent}/modalias")


def _again(before: DeviceSettings, target: _Target) -> DeviceSettings:
    """The settings that were recorded, as they are now."""
    netdev = target.netdev
    message = _message(netdev, target.sock)
    ipv4, ipv6 = link_settings.sysctls(message)
    files = dict.fromkeys(before.files, "")  # a secret that is not set cannot be read
    for path in files:
        with suppress(KernelError):
            files[path] = link_settings.read_sysctl(_path(path, netdev.name))
    now = msgspec.structs.replace(
        _present(target, message, tuple(before.ethtool), before.further, whole=before.further is not None),
        ipv4=_recorded(before.ipv4, ipv4),
        ipv6=_recorded(before.ipv6, ipv6),
        files=files,
    )
    return now if before.group is not None else _of_older(now)


def _recorded(before: Sequence[int | None], now: Sequence[int]) -> tuple[int | None, ...]:
    """The values that were recorded, as they are now."""
    return tuple(None if was is None else value for was, value in zip(before, now, strict=False))


def _of_older(now: DeviceSettings) -> DeviceSettings:
    """The settings that an older netdra recorded."""
    return DeviceSettings(
        txqlen=now.txqlen, promiscuous=now.promiscuous, all_multicast=now.all_multicast, alias=now.alias
    )


def _own(family: str, names: Sequence[str], values: Sequence[int], netdev: Link) -> tuple[int | None, ...]:
    """The values of a link's sysctls, without those that are not the link's own, and those that cannot be set."""
    own: list[int | None] = list(values)
    if not own:
        return ()
    not_own: dict[str, int | None] = {name: _default(family, name) for name in _INHERITED[family]}
    not_own |= {name: own[names.index(name)] for name in link_settings.READ_ONLY if name in names}
    if family == "ipv6":
        not_own["mtu"] = netdev.mtu
    for name, value in not_own.items():
        place = names.index(name)
        own[place] = None if own[place] == value else own[place]
    return tuple(own)


def _default(family: str, name: str) -> int | None:
    with suppress(KernelError, ValueError):
        return int(link_settings.read_sysctl(f"{family}/conf/default/{name}"))
    return None


def _own_files(netdev: Link, ipv6: Sequence[int]) -> Iterator[tuple[str, str]]:
    """The further sysctls of a link that differ from the default; virtual links are not asked for theirs.

    30 files take longer than all else together, and they are rarely set for a temporary link.
    """
    secret = link_settings.IPV6.index("addr_gen_mode")
    if secret < len(ipv6) and ipv6[secret] == _SECRET_MODE:
        with suppress(KernelError):  # the secret may be the default's
            yield _SECRET, link_settings.read_sysctl(_path(_SECRET, netdev.name))
    if netdev.kind:
        return
    when = inode_at(), int(time.monotonic() // _DEFAULTS_LAST)
    for path in _FILES:
        with suppress(KernelError):
            value = link_settings.read_sysctl(_path(path, netdev.name))
            if value != _default_file(path, *when):
                yield path, value


@lru_cache(maxsize=2 * len(_FILES))
def _default_file(path: str, namespace: int, period: int) -> str:  # noqa: ARG001 (they are the cache's key)
    return link_settings.read_sysctl(_path(path, "default"))


def _path(path: str, name: str) -> str:
    folder, _, file = path.rpartition("/")
    return f"{folder}/{name}/{file}"


def _values(settings: DeviceSettings, index: int) -> dict[str, Mapping[str, Value]]:
    """Settings of a link by group of the table and name."""
    features: Mapping[str, int] = {}
    if settings.features:
        with Socket(NETLINK_GENERIC) as generic:
            features = ethtool.named(generic, index, settings.features)
    basic = {name: getattr(settings, name) for name in ("txqlen", "promiscuous", "all_multicast", "alias", "group")}
    values: dict[str, Mapping[str, Value]] = {
        "link": {name: value for name, value in basic.items() if value is not None},
        "sizes": settings.sizes,
        **settings.ethtool,
        "features": features,
        "files": settings.files,
        "port": settings.port,
    }
    for family, names, numbers in (
        ("ipv4", link_settings.IPV4, settings.ipv4),
        ("ipv6", link_settings.IPV6, settings.ipv6),
    ):
        values[family] = {name: value for name, value in zip(names, numbers, strict=False) if value is not None}
    return values


def _is_automatic(group: str, name: str, former: Mapping[str, Value], present: Mapping[str, Value]) -> bool:
    for (of, prefix), switch in _AUTOMATIC.items():
        if group == of and name.startswith(prefix) and former.get(switch) and present.get(switch):
            return True
    return False


def _is_benign(group: str, name: str, value: Value) -> bool:
    """Sysctls change for all links at once; the kernel itself ends LRO where it forwards; plugins add modes."""
    return group in {"ipv4", "ipv6", "files"} or value is True or (name in {"rx-lro", "rx-gro-hw"} and not value)


def _word(group: str, name: str, value: Value) -> str:
    if name == _SECRET:
        return "another value" if value else "none"
    if group == "features":
        return ("off", "on", "off (requested on)", "on (requested off)")[int(value)]
    if isinstance(value, bool) or group == ethtool.FLAGS:
        return "on" if value else "off"
    return str(value) or "none"


def _write(group: str, target: _Target, values: Mapping[str, Value]) -> list[str]:
    """Set values of a group, or each alone if the kernel refuses them together; return what it refused."""
    if not values:
        return []
    try:
        TABLE[group].write(target, values)
    except NetdraError as problem:
        if len(values) == 1:
            return [problem.what]
        return [reason for name, value in values.items() for reason in _write(group, target, {name: value})]
    return []


def _write_link(target: _Target, values: Mapping[str, Value]) -> None:
    link.change(target.sock, target.netdev.index, **values)  # type: ignore[arg-type]


def _write_ethtool(group: str) -> _Write:
    def write(target: _Target, values: Mapping[str, Value]) -> None:
        numbers, index = {name: int(value) for name, value in values.items()}, target.netdev.index
        with Socket(NETLINK_GENERIC) as generic:
            if group == ethtool.FLAGS:
                ethtool.change_flags(generic, index, {name: bool(value) for name, value in numbers.items()})
            elif group == "features":
                on = {name: value in (ethtool.ON, ethtool.REQUESTED) for name, value in numbers.items()}
                # A requested feature need not be active: it is compared with its former state.
                with suppress(InvalidInputError):
                    ethtool.change_features(generic, index, on)
            else:
                ethtool.change_settings(generic, index, group, numbers)

    return write


def _write_sysctls(family: str) -> _Write:
    def write(target: _Target, values: Mapping[str, Value]) -> None:
        for name, value in values.items():
            text = link_settings.sysctl_text(name, int(value))
            link_settings.write_sysctl(f"{family}/conf/{target.netdev.name}/{name}", text)

    return write


def _write_files(target: _Target, values: Mapping[str, Value]) -> None:
    for path, value in values.items():
        link_settings.write_sysctl(_path(path, target.netdev.name), str(value))


def _write_port(target: _Target, values: Mapping[str, Value]) -> None:
    numbers = {name: int(value) for name, value in values.items()}
    link_settings.change_bridge_port(target.sock, target.netdev.index, numbers)


def _link_words(name: str) -> str:
    return {"txqlen": "a queue of", "promiscuous": "promiscuous mode", "all_multicast": "all multicast"}.get(name, name)


TABLE: Mapping[str, _Group] = {
    "link": _Group(_link_words, _write_link, matters=False),
    "sizes": _Group(lambda name: name, _write_link, matters=True),
    ethtool.FLAGS: _Group(lambda name: f"private flag {name}", _write_ethtool(ethtool.FLAGS), matters=True),
    "channels": _Group(lambda name: f"channels {name}", _write_ethtool("channels"), matters=True),
    "rings": _Group(lambda name: f"ring size {name}", _write_ethtool("rings"), matters=True),
    "coalesce": _Group(lambda name: f"coalescing {name}", _write_ethtool("coalesce"), matters=True),
    "pause": _Group(lambda name: f"pause frames {name}", _write_ethtool("pause"), matters=True),
    "features": _Group(lambda name: f"feature {name}", _write_ethtool("features"), matters=True),
    # The kernel creates these again in each namespace: they concern the host alone.
    "files": _Group(lambda name: f"sysctl {name}", _write_files, matters=False),
    "ipv4": _Group(lambda name: f"sysctl ipv4/conf/{name}", _write_sysctls("ipv4"), matters=False),
    "ipv6": _Group(lambda name: f"sysctl ipv6/conf/{name}", _write_sysctls("ipv6"), matters=False),
    "port": _Group(lambda name: f"bridge port setting {name}", _write_port, matters=False),
}
"""The groups in the order in which they are restored: what makes a driver start anew comes before what it forgets."""
FUNCTION: Mapping[str, tuple[str, bool]] = {
    "mac": ("MAC", False),
    "vlan": ("VLAN", True),
    "qos": ("QoS", True),
    "protocol": ("VLAN protocol", True),
    "spoof_check": ("spoof check", True),
    "trust": ("trust", True),
    "link_state": ("link state", True),
    "min_rate": ("min rate", True),
    "max_rate": ("max rate", True),
    "node_guid": ("node GUID", True),
    "port_guid": ("port GUID", True),
}
"""A PF's settings of a VF (`netdra.kernel.vf`): their words, and whether they matter; `sriov` restores them.

The MAC does not: drivers that do not forget it let the VF's next user set another one.
"""
