"""A real kube-proxy on a node, which directs the addresses of Services to their endpoints by rules of iptables.

Used by the tests of Services of PodNetworks. The rules are in the node's network namespace and go with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from testbed.access import Access
from testbed.build import program
from testbed.node import Node

_HEALTH_PORT = 10256
_USER = "system:kube-proxy"
# The table of connections is the whole machine's.
_MACHINE_AS_IT_IS = (
    "--conntrack-max-per-core=0",
    "--conntrack-min=0",
    "--conntrack-tcp-timeout-established=0s",
    "--conntrack-tcp-timeout-close-wait=0s",
)


@contextmanager
def running_proxy(node: Node, plane: Access, *options: str) -> Iterator[None]:
    """A kube-proxy at work; its rules stay when it ends, as on any node.

    Args:
        node: it has a Node object, and reaches the API server (`testbed.kubelet.join`).
        plane: the control plane.
        options: further ones of kube-proxy.
    """
    command = (
        str(program("kube-proxy")),
        "--proxy-mode=iptables",
        f"--kubeconfig={plane.kubeconfig(_USER, ())}",
        f"--hostname-override={node.name}",
        f"--bind-address={node.address}",
        f"--healthz-bind-address=127.0.0.1:{_HEALTH_PORT}",
        *_MACHINE_AS_IT_IS,
        *options,
    )
    process = node.start("kube-proxy", command, lambda: node.listens(_HEALTH_PORT))
    try:
        yield
    finally:
        process.stop()


def rules(node: Node) -> str:
    """The rules for addresses of Services on a node."""
    return node.run("iptables-save", "--table", "nat")
