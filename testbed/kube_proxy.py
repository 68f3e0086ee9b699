"""A real kube-proxy on a node, which directs the addresses of Services to their endpoints by rules of the kernel.

Used by the tests of Services of PodNetworks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from testbed.access import Access
from testbed.build import program
from testbed.node import Node

_HEALTH_PORT = 10256
Mode = Literal["iptables", "nftables"]
_TABLES = ("nat", "filter")
_TARGET = re.compile(r"(?:--to-destination|dnat to) (\S+)")
_USER = "system:kube-proxy"
# The table of connections is the whole machine's.
_MACHINE_AS_IT_IS = (
    "--conntrack-max-per-core=0",
    "--conntrack-min=0",
    "--conntrack-tcp-timeout-established=0s",
    "--conntrack-tcp-timeout-close-wait=0s",
)


@contextmanager
def running_proxy(node: Node, plane: Access, *options: str, mode: Mode = "iptables") -> Iterator[None]:
    """A kube-proxy at work; at the end its rules are removed, which it leaves itself.

    Args:
        node: it has a Node object with its address, and reaches the API server (`testbed.kubelet.join`).
        plane: the control plane.
        options: further ones of kube-proxy.
        mode: the rules that it writes.
    """
    command = (
        str(program("kube-proxy")),
        f"--proxy-mode={mode}",
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
        _remove_rules(node, mode)


def targets(node: Node, mode: Mode = "iptables") -> set[str]:
    """The endpoints, as `<address>:<port>`, to which a node's rules lead."""
    command = ("iptables-save", "--table", "nat") if mode == "iptables" else ("nft", "list", "ruleset")
    return set(_TARGET.findall(node.run(*command)))


def _remove_rules(node: Node, mode: Mode) -> None:
    if mode == "nftables":
        node.run("nft", "flush", "ruleset")
        return
    for table in _TABLES:
        node.run("iptables", "--table", table, "--flush")
        node.run("iptables", "--table", table, "--delete-chain")
