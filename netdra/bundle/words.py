"""The words that an anonymous bundle may contain: those of netdra, of Kubernetes, of CNI and of the kernel.

`KnownWords.texts` are for sentences that netdra and Kubernetes write; `KnownWords.names` also for names and values, so
it has no word by which people call their things.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import netdra
from netdra.model.inventory import ATTRIBUTES, TYPES

_WORD = re.compile(r"[A-Za-z]+")
_LITERAL = re.compile(r"Literal\[(.*?)\]", re.DOTALL)
_QUOTED = re.compile(r'"([^"]*)"')

_NAMES = """
attributes batch beta bool capacity cel cpu default delete dev device devices dns docker driver dra ephemeral failed
false filter hostname hugepages in int io ip ipam kube kubelet kubernetes linux matches memory metadata netdra
networking null nvidia os pci pods resource size string true type uid unreachable unschedulable Ki Mi Gi Ti Pi Ei
apiVersion kind cni conf bandwidth bond bridge dhcp dummy firewall host ipvlan local loopback macvlan portmap ptp sbr
sriov static tap tuning vfio vlan vrf whereabouts ovs calico cilium flannel containerd crio private vepa passthru
active backup balance alb tlb rr xor broadcast ad layer lacp fast slow br cali can en enp eno ens eth geneve gre
gretap ib ibp ibs ipoib lo lxc macvtap netkit pf rdma sf team tun veth vf vfs virbr vnet vxlan wg wl wlan wlp ww np
nic roce mlx bnxt ice iavf ixgbe ixgbevf igb igbvf virtio net mac mtu auto up down unknown dormant lowerlayerdown
notpresent testing vhost dpdk uio
"""
_CEL = """
add all alpha base beta bind bool bytes cel char cidr contains core distinct domain double duration dyn exists family
filter find first flatten format groups has hash in includes int ip join last list lower map masked matches max min neg
now optional or quantity range replace reverse sign size slice sort split string sub substring sum timestamp trim type
uint upper url value version semver major minor patch number
"""
_SENTENCES = """
didn helpful successfully template templates volume preemption assign assigned
a about access accessed actual add admission affinity after again allocate allocated allocating allocation allowed
already an and annotation anti any apply are as assigned at attach attached available back be because been before
being bind binding bound but by cannot cause changed claims class clean cluster connect connection container
containers controller could create created creating daemon deadline deleted deleting denied deny device did different
does down due during eligible error errors event evicted exceeded exist existing exit exited expected failed failing
fault feasible find fit for forbidden found free from gate gates get had handler has have healthy hook if image images
in insufficient internal invalid is it its job kernel kill killing label labels last limit limits list lost match
matched matching memory missing more mount mounted must name namespace namespaces need network new no node nodes none
not nothing object of off old on one only operation or other out over own path pending permission pod pods policy port
ports preempt preempted preemption prepare prepared preparing priority probe process pull pulled pulling quota read
ready reason received refused request requested resource resources restart restarting rpc running runtime sandbox
scheduled scheduler scheduling secret selector server service set setup should shutdown since skipped some start
started starting state status stop stopped stopping such suitable syncing taint tainted taints than that the their
them there these this time timed timeout to token tolerate tolerated too topology try trying unable unavailable under
unexpected unhealthy unknown unprepare unresolvable unscheduled until untolerated update updated use used user using
valid value victims volume volumes wait waiting was were when which while will with within without
"""


class KnownWords(NamedTuple):
    """The words that stay.

    Attributes:
        texts: in sentences.
        names: everywhere.
    """

    texts: frozenset[str]
    names: frozenset[str]


@cache
def known_words() -> KnownWords:
    """The words of netdra's own sources, and the lists of this module."""
    root = Path(netdra.__file__).parent
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}
    words = {word for text in sources.values() for word in _WORD.findall(text)}
    names = {word for word in words if word != word.lower()} | set(_WORD.findall(_NAMES + _CEL))
    for path, text in sources.items():
        if path.parent.name in ("model", "steps"):
            names.update(word for found in _LITERAL.findall(text) for word in _WORD.findall(_quoted(found)))
    names.update(word for attribute in ATTRIBUTES for word in _WORD.findall(attribute.name))
    names.update(word for kind in TYPES for word in _WORD.findall(kind))
    return KnownWords(frozenset(words | names | set(_WORD.findall(_SENTENCES))), frozenset(names))


def _quoted(text: str) -> str:
    return " ".join(_QUOTED.findall(text))
