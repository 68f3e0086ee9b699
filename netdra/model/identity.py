"""Which device of a node it is: in any namespace, under any name, from discovery to undo (decision D60).

Discovery reads it, a plan and the records of steps keep it, and by its key one device belongs to one pod. Readers of
the kernel are `netdra.kernel.bus` and `netdra.steps.identity`.
"""

from __future__ import annotations

import msgspec

from netdra.model import texts

PCI = "pci"


class DeviceIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The identity of one network device. Never its ifindex: the kernel reuses those.

    Attributes:
        bus: the bus of the device behind it ("pci", "usb", "vmbus", "auxiliary", "virtio"), "" for none; also "" in
            records of an older netdra. A virtio device on a PCI function has that function's place: the number in
            "virtio2" depends on the order of probing.
        address: its address on the bus; "parent" in records.
        port: which of several netdevs of the device it is: its `dev_port` if that is not 0, the port name of a
            representor, "" for the first or only one; None if it could not be read, as in a pod.
        permanent_mac: the address burnt in, the serial number of network devices; "" without one.
        kind: that of a virtual device ("veth", "bridge").
        mac: the MAC of a virtual device.
    """

    bus: str = ""
    address: str = msgspec.field(default="", name="parent")
    port: str | None = None
    permanent_mac: str = ""
    kind: str = ""
    mac: str = ""

    @property
    def is_physical(self) -> bool:
        """Whether the device outlives the namespace that it is in: the kernel returns it to the host."""
        return bool(self.address) or (bool(self.permanent_mac) and not self.kind)

    @property
    def key(self) -> str:
        """A text that no other device of the machine has; "" for a virtual device, which has only names."""
        if not self.is_physical:
            return ""
        if self.bus in ("", PCI) and self.address:
            return f"{self.address}/{self.port}" if self.port else self.address
        # The address on another bus may be another one after a boot, or in another socket.
        return self.permanent_mac or f"{self.bus}/{self.address}"

    def key_of(self, name: str) -> str:
        """The key; of a virtual device by its name on the host."""
        return self.key or f"{self.kind or 'virtual'}:{name}"

    @property
    def pci_address(self) -> str:
        """The address of its PCI function, "" for a device on another bus or none."""
        is_pci = self.bus == PCI or (not self.bus and texts.fits(self.address, "pci"))
        return self.address if is_pci else ""

    def is_same(self, other: DeviceIdentity) -> bool:
        """Whether two identities, perhaps of two boots, are of the same hardware.

        The permanent MAC decides where both have one: addresses on PCI change too when a card is added. Without, it is
        the place.
        """
        if self.permanent_mac and other.permanent_mac:
            return self.permanent_mac == other.permanent_mac
        is_port = None in (self.port, other.port) or self.port == other.port
        return is_port and (self.bus, self.address) == (other.bus, other.address)

    def __str__(self) -> str:
        """The device, as messages call it."""
        place = self.address if self.pci_address or not self.bus else f"{self.bus} {self.address}"
        return f"{place or self.permanent_mac}{f' port {self.port}' if self.port else ''}"
