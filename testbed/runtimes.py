"""Starts the container runtime that the environment names: `NETDRA_RUNTIME=cri-o`, containerd if it names none."""

from __future__ import annotations

from testbed.build import named_runtime
from testbed.containerd import Containerd
from testbed.crio import Crio
from testbed.node import Node
from testbed.runtime import Runtime


def started(node: Node, *, hook_seconds: float = 0.0) -> Runtime:
    """Start the runtime that the environment names, with the image in it.

    Args:
        node: where.
        hook_seconds: how long it waits for an NRI plugin, 0 for its default.

    Raises:
        ProcessError: it did not become ready.
        BuildError: it is not built.
    """
    kind = Crio if named_runtime().name == "cri-o" else Containerd
    return kind(node, hook_seconds=hook_seconds)
