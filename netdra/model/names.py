"""The names that netdra publishes under, and the rules that names of the kernel must be bent to.

The terms are the field's: one name for one thing in code, objects, metrics and docs.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

DRIVER = "dra.networking"
GROUP = "networking.dra.io"
GROUP_VERSION = f"{GROUP}/v1alpha1"
SCHEMA_GROUP_VERSION = "cni.networking.k8s.io/v1alpha1"
TOPOLOGY_LABEL = f"{GROUP}/topology"
STEP_LABEL = f"{GROUP}/step"
SHIPPED_LABEL = f"{GROUP}/shipped"
NEXT_STEP = f"{GROUP}/next-step"
"""The annotation of an event that has the next step of its problem."""

SEED_PCIE_ROOT = "device.k8s.io/pcieRoot"
STANDARD_PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
STANDARD_PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
STANDARD_NUMA_NODE = "resource.kubernetes.io/numaNode"
SUPPORTED_CNIS = "supportedCNIs"
LACKED_CNIS = "lackedCNIs"
"""The programs that NetworkTopologies need and the node does not have; devices of other nodes do not carry it."""
PHYSNET = "physnet"

EXCLUSION_SLOTS = "exclusion-slots"
BANDWIDTH = "bandwidth"
VFS = "vfs"
GIDS = "gids"
"""The capacity of shared devices with RoCE: entries of the port's GID table."""
RDMA_MODE = "rdmaMode"

LINK_DOWN = f"{DRIVER}/link-down"
GONE = f"{DRIVER}/gone"
TROUBLE = f"{DRIVER}/trouble"
UNHEALTHY = f"{DRIVER}/unhealthy"
HEALTH_LABEL = f"{GROUP}/health"
"""The label of the DeviceTaintRules that the controller writes for faults; its value is the node, or a digest of it."""
WITHDRAWN = f"{DRIVER}/withdrawn"

POD_NETWORK = "podNetwork"
"""The attribute of the devices that stand for the addresses of a PodNetwork: which network it is."""
ADDRESSES = "addresses"
"""The capacity of such a device, and its name."""
OF_NETWORK = f"{DRIVER}/{ADDRESSES}"
"""Their taint: a class that only asks for the driver is for interfaces, and must not be given addresses."""
CONTROLLER_LEASE = "netdra-controller"
"""The Lease by which the controllers elect their leader, in netdra's namespace."""
NETWORK_POOLS = f"podnetworks.{DRIVER}"
"""The first part of the names of their pools; no node has this name."""
_NETWORK_CLASS = "podnetwork."
_MAX_NETWORK = 200

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim with its name in the pod that it was made for."""
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of claims that the scheduler makes for extended resources; their requests' names are its own."""
IMPLICIT_RESOURCE = "deviceclass.resource.kubernetes.io/"
"""The prefix of an extended resource that names a DeviceClass (KEP-5004)."""

MAX_LABEL = 63
MAX_SUBDOMAIN = 253
MAX_IF_NAME = 15

_DIGEST = 8  # characters of a digest in a name that was made to fit
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}\Z", re.ASCII)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
_PHYSNET = r"[A-Za-z0-9]([A-Za-z0-9_.:-]{0,62}[A-Za-z0-9])?\Z"
_PCIE_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}\Z")
# k8s.io/apimachinery IsQualifiedName with the domain that extended resources need.
_EXTENDED_RESOURCE = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z"
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")


def own_short(name: str) -> str:
    """An attribute's name as ResourceSlices have it: the driver's own domain is left out, as the API allows."""
    return name.removeprefix(f"{DRIVER}/")


def qualified(name: str) -> str:
    """An attribute's or capacity's name with its domain: netdra's by default (`mtu` is `dra.networking/mtu`)."""
    return name if "/" in name else f"{DRIVER}/{name}"


def is_label(name: str) -> bool:
    """Whether a name is a DNS label (RFC 1123) as Kubernetes asks of device, counter and counter set names."""
    return _LABEL.match(name) is not None


def is_subdomain(name: str) -> bool:
    """Whether a name is a DNS subdomain (RFC 1123), as Kubernetes asks of object and pool names."""
    return len(name) <= MAX_SUBDOMAIN and _SUBDOMAIN.match(name) is not None


def is_label_key(text: str) -> bool:
    """Whether a text is the key of a label as Kubernetes takes it: a name, or a DNS subdomain, / and a name."""
    domain, slash, name = text.rpartition("/")
    return _LABEL_NAME.match(name) is not None and (is_subdomain(domain) if slash else True)


def is_label_value(text: str) -> bool:
    """Whether a text is the value of a label as Kubernetes takes it; it may be empty."""
    return not text or _LABEL_NAME.match(text) is not None


def is_extended_resource(name: str) -> bool:
    """Whether Kubernetes takes the name for an extended resource (pkg/apis/core/v1/helper IsExtendedResourceName)."""
    domain = name.split("/", 1)[0]
    native = domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or name.startswith("requests.")
    return re.match(_EXTENDED_RESOURCE, name) is not None and is_subdomain(domain) and not native


def is_identifier(name: str) -> bool:
    """Whether a name without its domain is one that the API takes for attributes and capacities."""
    return _IDENTIFIER.match(name) is not None


def is_pcie_root(text: str) -> bool:
    """Whether a text is the name of a PCIe root: its host bridge's domain and bus, as sysfs has it ("pci0000:00")."""
    return _PCIE_ROOT.match(text) is not None


def is_physnet(text: str) -> bool:
    """Whether a text can be the name of a physical network: as long as an attribute's value, of no signs but `_.:-`."""
    return re.match(_PHYSNET, text) is not None


def is_attribute_domain(domain: str) -> bool:
    """Whether a domain is one that the API takes before the names of attributes and capacities."""
    return len(domain) <= MAX_LABEL and is_subdomain(domain)


def label_value(text: str) -> str:
    """A text as the value of a label or a taint: its letters and digits, cut to the allowed length."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text)[:MAX_LABEL].strip("-._")


@lru_cache(maxsize=8192)
def label(name: str) -> str:
    """The DNS label for a name: itself where it is one, else a readable likeness with a digest of the whole name.

    Two different names get two different labels, so `eth0.100` and `eth0_100` stay apart.
    """
    if is_label(name):
        return name
    return _likeness(name, MAX_LABEL, allowed="a-z0-9")


@lru_cache(maxsize=8192)
def subdomain(name: str, *, limit: int = MAX_SUBDOMAIN) -> str:
    """The DNS subdomain for a name, by the rule of `label`, no longer than the limit; dots are kept."""
    if len(name) <= limit and is_subdomain(name):
        return name
    return _likeness(name, limit, allowed="a-z0-9.")


@lru_cache(maxsize=8192)
def pool(node: str, name: str) -> str:
    """The name of a node's pool: `<node>/<name>`, a DNS subdomain on each side as Kubernetes asks of pool names.

    No node's name has a `/`, so a pool states exactly whose it is: with a dash, `a-b-c` could be of `a` or of `a-b`.
    There is room for nodes' names of up to 242 characters; a kubelet's has at most 63, being the value of a label, too.
    """
    return f"{node}/{subdomain(name, limit=max(MAX_SUBDOMAIN - len(node) - 1, _DIGEST + 2))}"


def has_shares(network: str) -> bool:
    """Whether the name of a PodNetwork is short enough for the names of its pools and its DeviceClass."""
    return len(network) <= _MAX_NETWORK


def network_pool(network: str, group: str = "") -> str:
    """The name of the pool of a PodNetwork's addresses, or of those for a group of nodes."""
    return "/".join(filter(None, (NETWORK_POOLS, network, group)))


def network_of(pool: str) -> str:
    """The PodNetwork whose addresses a pool of netdra's has; "" for a node's pool."""
    head, _, rest = pool.partition("/")
    return rest.partition("/")[0] if head == NETWORK_POOLS else ""


def group_of(pool: str) -> str:
    """The group of nodes that a PodNetwork's pool is for; "" for all nodes."""
    return pool.partition("/")[2].partition("/")[2]


def network_class(network: str) -> str:
    """The name of the DeviceClass by which a claim requests addresses of a PodNetwork."""
    return f"{_NETWORK_CLASS}{network}"


def network_of_class(name: str) -> str:
    """The PodNetwork whose addresses a DeviceClass of this name is for; "" for none."""
    return name.removeprefix(_NETWORK_CLASS) if name.startswith(_NETWORK_CLASS) else ""


def _likeness(name: str, limit: int, *, allowed: str) -> str:
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    bent = re.sub(rf"[^{allowed}]+", "-", name.lower())
    bent = re.sub(r"[-.]*\.[-.]*", ".", bent)[: limit - len(digest) - 1].strip("-.")
    return f"{bent}-{digest}" if bent else f"x-{digest}"
