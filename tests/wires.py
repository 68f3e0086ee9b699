"""The ways in which CNI plugins make a pod's wire: each ends with one end on the node, the other in the pod."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator

from netdra.kernel import libc, link, netns
from netdra.kernel.netns import Namespace
from tests.kernel.conftest import Machine, new_machine

Way = Callable[[Machine, Machine, str], None]
SLOW_SECONDS = 0.3
"""The time of a plugin on a busy node between two of its steps."""


def both_on_the_node(node: Machine, pod: Machine, name: str) -> None:
    """ptp, Calico, Cilium: a pair on the node, of which one end is moved."""
    node.veth(name, f"p{name}")
    link.change(node.sock, f"p{name}", netns_fd=pod.namespace.fd)


def slowly(node: Machine, pod: Machine, name: str) -> None:
    """The same on a busy node."""
    node.veth(name, f"p{name}", up=True)
    time.sleep(SLOW_SECONDS)
    link.change(node.sock, f"p{name}", netns_fd=pod.namespace.fd)


def both_in_the_pod(node: Machine, pod: Machine, name: str) -> None:
    """Flannel's and others' older way: a pair in the pod, of which the node's end comes out."""
    pod.veth(name, "eth0")
    link.change(pod.sock, name, netns_fd=node.namespace.fd)


def across_from_the_pod(node: Machine, pod: Machine, name: str) -> None:
    """bridge, ptp of containernetworking: made in the pod; the node's end is reported before it is connected."""
    pod.veth("eth0", name, peer_in=node.namespace)
    time.sleep(SLOW_SECONDS / 10)
    link.change(node.sock, name, up=True)


def across_from_the_node(node: Machine, pod: Machine, name: str) -> None:
    """Antrea: made on the node."""
    node.veth(name, "eth0", peer_in=pod.namespace)


def renamed(node: Machine, pod: Machine, name: str) -> None:
    """AWS: both ends get their names later."""
    pod.veth("tmp", f"t{name}", peer_in=node.namespace)
    link.change(node.sock, f"t{name}", name=name)
    link.change(pod.sock, "tmp", name="eth0")


WAYS: tuple[Way, ...] = (
    both_on_the_node, slowly, both_in_the_pod, across_from_the_pod, across_from_the_node, renamed,
)  # fmt: skip


@contextlib.contextmanager
def pods(count: int) -> Iterator[list[Machine]]:
    """Namespaces of pods, named as containerd and CRI-O name them."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(contextlib.contextmanager(new_machine)(f"{'cni-' if number % 2 else ''}{uuid.uuid4()}"))
            for number in range(count)
        ]


@contextlib.contextmanager
def named(namespace: Namespace, name: str) -> Iterator[None]:
    """A name for a namespace without a name."""
    path = f"{netns.NAMED}/{name}"
    with open(path, "w", encoding="utf-8"):
        pass
    try:
        libc.mount(f"/proc/self/fd/{namespace.fd}", path, "", libc.MS_BIND)
        yield
    finally:
        netns.delete(name)
