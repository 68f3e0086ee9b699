"""A replacement for OVN-Kubernetes' CNI program, `ovn-k8s-cni-overlay`, which follows its documentation.

The real one only hands its request to OVN-Kubernetes' daemon of the node, which needs OVN, its controllers and a
cluster. The caller's view is here, in a program with real netdevs and, where one runs, a real Open vSwitch:

- it waits for no one: the pod's annotation for the network must be there (`annotate`, in the place of the controllers);
- without `topology` it attaches the default network and ignores the rest of the configuration;
- with `deviceID` it moves the netdev of that PCI address into the pod, under the pod's MAC and MTU 1400, and then
  searches for the representor. Where none exists, as for a PF, ADD fails, and DEL brings the netdev back under another
  name;
- without, it makes a veth pair and plugs the host's end into `br-int`, with the network's name and the definition's.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from testbed.recorder import Recorder

TYPE = "ovn-k8s-cni-overlay"
BRIDGE = "br-int"

_COMMON = r"""
config=$(sed 's/"prevResult".*//' "$call/stdin")
text() { printf %s "$config" | grep -o '"'"$1"'": *"[^"]*"' | head -n 1 | cut -d'"' -f4; }
argument() { printf %s "$CNI_ARGS" | tr ';' '\n' | sed -n "s/^$1=//p"; }
refuse() { printf '{"code": 999, "msg": "%s"}' "$1"; exit 1; }
pod=$(basename "$CNI_NETNS")
mine=$CNI_CONTAINERID-$CNI_IFNAME
has_ovs() { command -v ovs-vsctl >/dev/null && ovs-vsctl --timeout=5 br-exists br-int 2>/dev/null; }
"""
_ADD = (
    _COMMON
    + r"""
nad=$(text netAttachDefName)
[ -n "$(text topology)" ] || nad=default
line=$(grep -s "^$nad " "$state/annotations/$(argument K8S_POD_NAMESPACE)_$(argument K8S_POD_NAME)")
[ -n "$line" ] || refuse "timed out waiting for the annotation of network $nad"
mac=$(echo "$line" | cut -d' ' -f2)
address=$(echo "$line" | cut -d' ' -f3)
id=$(text deviceID)
if [ -n "$id" ]; then
  netdev=$(cat "$state/netdevs/$id" 2>/dev/null || ls "/sys/bus/pci/devices/$id/net" 2>/dev/null)
  [ -n "$netdev" ] || refuse "no netdev of $id"
  echo "$netdev" >"$state/moved/$mine"
  ip link set "$netdev" netns "$pod" || refuse "$netdev cannot be moved"
  ip -n "$pod" link set "$netdev" name "$CNI_IFNAME"
  host=$(cat "$state/representors/$id" 2>/dev/null)
  mtu=1400
else
  host=o$(printf %s "$mine" | cksum | cut -d' ' -f1)
  ip link add "$host" type veth peer name "$CNI_IFNAME" netns "$pod" || refuse "no veth"
  mtu=1500
fi
ip -n "$pod" link set "$CNI_IFNAME" address "$mac" mtu "$mtu" up
ip -n "$pod" addr add "$address" dev "$CNI_IFNAME"
[ -n "$host" ] || refuse "failed to find the representor of $id"
ip link set "$host" up
if has_ovs; then
  ovs-vsctl --timeout=5 add-port br-int "$host" -- set interface "$host" \
    "external_ids:k8s.ovn.org/network=$(text name)" "external_ids:k8s.ovn.org/nad=$nad" || refuse "no port"
else
  ip link set "$host" master br-int || refuse "no port"
fi
echo "$host $(text name) $nad" >"$state/ports/$mine"
echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "'"$host"'"},
  {"name": "'"$CNI_IFNAME"'", "mac": "'"$mac"'", "sandbox": "'"$CNI_NETNS"'"}],
  "ips": [{"address": "'"$address"'", "interface": 1}]}'
"""
)
_DEL = (
    _COMMON
    + r"""
host=$(cut -d' ' -f1 "$state/ports/$mine" 2>/dev/null)
if [ -e "$state/moved/$mine" ]; then
  netdev=$(cat "$state/moved/$mine")
  ip -n "$pod" link set "$CNI_IFNAME" down
  if [ -n "$host" ]; then
    ip -n "$pod" link set "$CNI_IFNAME" name "$netdev"
  else
    netdev=dev$$
    ip -n "$pod" link set "$CNI_IFNAME" name "$netdev"
  fi
  ip -n "$pod" link set "$netdev" netns $$
elif [ -n "$host" ]; then
  ip link del "$host" 2>/dev/null
fi
if [ -n "$host" ] && has_ovs; then ovs-vsctl --timeout=5 --if-exists del-port br-int "$host"; fi
rm -f "$state/ports/$mine" "$state/moved/$mine"
exit 0
"""
)


@dataclass(frozen=True)
class Port:
    """A port of `br-int`: its interface on the host, and the names of its network and of its definition."""

    interface: str
    network: str
    nad: str


class OvnKubernetes:
    """The program in a folder of the CNI path, and its data."""

    def __init__(self, folder: Path) -> None:
        self.program = Recorder(folder, TYPE, versions=("0.3.1", "0.4.0", "1.0.0"))
        self._state = folder / f".{TYPE}.recorded"
        for name in ("annotations", "netdevs", "representors", "moved", "ports"):
            (self._state / name).mkdir()
        self.program.does("ADD", _ADD)
        self.program.does("DEL", _DEL)

    def remove(self) -> None:
        """Remove the program and all that it knows."""
        self.program.path.unlink()
        shutil.rmtree(self._state)

    def annotate(self, pod: str, nad: str, mac: str, address: str) -> None:
        """Set the entry of a network in a pod's annotation `k8s.ovn.org/pod-networks` (pod: `namespace/name`)."""
        with (self._state / "annotations" / pod.replace("/", "_")).open("a") as file:
            file.write(f"{nad} {mac} {address}\n")

    def has_function(self, address: str, netdev: str = "", representor: str = "") -> None:
        """Set the netdev of a PCI address, for machines without such a function, and the representor."""
        if netdev:
            (self._state / "netdevs" / address).write_text(netdev)
        if representor:
            (self._state / "representors" / address).write_text(representor)

    @property
    def ports(self) -> list[Port]:
        """The ports that are plugged in."""
        return [Port(*path.read_text().split()) for path in sorted((self._state / "ports").iterdir())]
