"""The eswitch mode of PCI devices over devlink. Follows include/uapi/linux/devlink.h; read by discovery."""

from __future__ import annotations

from netdra.kernel import genetlink
from netdra.kernel.netlink import Socket, attribute, text, to_u16

FAMILY = "devlink"
ESWITCH_MODES = ("legacy", "switchdev")
_GET, _ESWITCH_GET = 1, 29
_BUS_NAME, _DEVICE_NAME, _ESWITCH_MODE = 1, 2, 25


def eswitch_mode(sock: Socket, pci_address: str) -> str:
    """The mode of a device's eswitch: "legacy" or "switchdev", "" for an unknown one.

    Raises:
        KernelMissingError: the kernel has no devlink, or the device is not managed by it.
        KernelError: the device has no eswitch (EOPNOTSUPP), or the kernel refused.
    """
    payload = attribute(_BUS_NAME, text("pci")) + attribute(_DEVICE_NAME, text(pci_address))
    doing = f"cannot read the eswitch mode of {pci_address}"
    reply = genetlink.request(sock, FAMILY, _ESWITCH_GET, payload, doing=doing)[0]
    mode = to_u16(reply[_ESWITCH_MODE]) if _ESWITCH_MODE in reply else len(ESWITCH_MODES)
    return ESWITCH_MODES[mode] if mode < len(ESWITCH_MODES) else ""
