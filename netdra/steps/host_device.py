"""The host-device step: a netdev of the host moves into the pod, whole, and comes back as it was.

As a root step it takes the device that was allocated. By hand, or with the parameters of the CNI plugin of that name,
the device is found by `device` (its name), `pciBusID` (or `deviceID`), `hwaddr` or `kernelpath`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from netdra.kernel import link
from netdra.kernel.link import Link
from netdra.model.errors import InvalidInputError, PermanentError
from netdra.model.plan import PlannedDevice
from netdra.model.result import StepResult
from netdra.steps import moving
from netdra.steps.contract import Builtin, MacText, Mtu, Order, Params, Site, appended, check_mac
from netdra.steps.devices import netdev_for, netdevs_at
from netdra.steps.drift import check_interface
from netdra.steps.netdevs import Moved


class HostDeviceParams(Params, frozen=True, kw_only=True):
    """Which device, and its settings in the pod; MTU and MAC do not change if they are not set."""

    device: str = ""
    pci_bus_id: str = msgspec.field(default="", name="pciBusID")
    hwaddr: MacText | None = None
    kernelpath: str = ""
    mtu: Mtu | None = None
    mac: MacText | None = None


def prepare(order: Order, params: HostDeviceParams) -> None:
    """A device must be named, and only one.

    Raises:
        InvalidInputError: it is not, or a parameter contradicts the device that was allocated.
    """
    if params.mac:
        check_mac(params.mac, f"{order.called}, mac")
    if order.device is None:
        if not (params.device or pci_address(params) or params.hwaddr or params.kernelpath):
            raise InvalidInputError(
                f"{order.called}: no device was allocated for it and none is named",
                hint="name one by device, pciBusID, hwaddr or kernelpath",
                code="ND2030",
            )
        return
    # The scheduler counted the allocated device: the config must not bring another one into the pod.
    for key, named, allocated in (
        ("device", params.device, order.device.if_name),
        ("pciBusID", pci_address(params), order.device.pci_address),
        ("hwaddr", (params.hwaddr or "").lower(), order.device.mac),
    ):
        if named and named != allocated:
            raise InvalidInputError(
                f'{order.called}: {key} "{named}" is not that of the allocated device "{order.device.device}" '
                f'("{allocated}")',
                hint=f"leave {key} out: the step takes the device that the scheduler allocated",
                code="ND2031",
            )


def find(order: Order, params: HostDeviceParams, site: Site) -> Link:
    """The device on the host.

    Raises:
        PermanentError: it is not there.
        KernelError: the kernel refused.
    """
    device = order.device
    if device is not None:
        netdev = netdev_for(site.host, site.sysfs, device)
        if netdev is None:
            raise not_there(order.called, device, site)
        return netdev
    if params.device:
        return _by_name(order, params.device, site)
    wanted = pci_address(params)
    if wanted:
        return _one_of(order, wanted, netdevs_at(site.host, site.sysfs, wanted), site)
    if params.hwaddr:
        mac = params.hwaddr.lower()
        same = [netdev for netdev in link.dump(site.host) if netdev.address == mac and not netdev.master]
        return _one_of(order, mac, same, site)
    return _by_name(order, _name_at(order, params.kernelpath), site)


def pci_address(params: HostDeviceParams) -> str:
    """The bus address that the parameters name, "" for none."""
    device_id = params.runtime_config.get("deviceID")
    return params.pci_bus_id or params.device_id or (device_id if isinstance(device_id, str) else "")


def _observe(order: Order, params: HostDeviceParams, site: Site) -> Moved:
    return moving.observe(order, find(order, params, site), site)


def _apply(order: Order, params: HostDeviceParams, moved: Moved, site: Site) -> StepResult:
    return appended(order, moving.move_in(moved, site, moved.device.pci_address, mtu=params.mtu, mac=params.mac))


def _check(order: Order, _: HostDeviceParams, final: StepResult, site: Site) -> tuple[str, ...]:
    return check_interface(order.if_name, final, site)


def _by_name(order: Order, name: str, site: Site) -> Link:
    netdev = link.find(site.host, name)
    if netdev is None:
        raise _not_there(order.called, f'"{name}"', name, site)
    return netdev


def _one_of(order: Order, called: str, fitting: Sequence[Link], site: Site) -> Link:
    """The link that fits."""
    if not fitting:
        raise _not_there(order.called, called, called, site)
    # Not a representor of its VFs, which has the function's address, too.
    own = [entry for entry in fitting if entry.port is None]
    return (own or fitting)[0]


def not_there(step: str, device: PlannedDevice, site: Site) -> PermanentError:
    """The error of a step whose allocated device is not on the host, with the sandbox that has it.

    Args:
        step: the step as messages call it.
        device: the device.
        site: where.
    """
    return _not_there(step, str(device.identity or device.pci_address) or f'"{device.if_name}"', device.key, site)


def _not_there(step: str, called: str, key: str, site: Site) -> PermanentError:
    other = site.holder(key)
    holder = f"; sandbox {other} has it" if other else ""
    return PermanentError(
        f"{step}: device {called} is not on the host{holder}",
        hint="see whether it is in another pod, bound to another driver, or gone",
        code="ND2032",
    )


def _name_at(order: Order, kernelpath: str) -> str:
    """The netdev of a device below /sys/devices."""
    folder = os.path.normpath(kernelpath)
    if not folder.startswith("/sys/devices/"):
        raise InvalidInputError(
            f"{order.called}: kernelpath {kernelpath[:200]!r} is not below /sys/devices", code="ND2033"
        )
    try:
        return min(os.listdir(f"{folder}/net"))  # noqa: PTH208
    except (OSError, ValueError):
        raise PermanentError(f"{order.called}: network device not found at {folder}", code="ND2034") from None


HOST_DEVICE = Builtin(
    params=HostDeviceParams,
    record=Moved,
    prepare=prepare,
    observe=_observe,
    apply=_apply,
    undo=moving.give_back,
    check=_check,
)
