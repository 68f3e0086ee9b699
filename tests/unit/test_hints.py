"""Hints are read in a hurry: none names a command that breaks a pod which has nothing to do with the problem."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import netdra

ROOT = Path(netdra.__file__).parent

BREAKING = re.compile(
    r"netdra (?:detach|gc)|kubectl (?:delete|drain|exec)|\b(?:rm|kill|pkill|killall|rmmod) |"
    r"reboot the node|systemctl|ip link (?:set|del)|echo N >|detach it|reset it|"
    r"free it first|\breinstall"
)

KNOWN = {
    ("chain/holders.py", "netdra detach"): "of a sandbox whose namespace is gone alone (test_gone.py)",
    ("cli/attach.py", "netdra detach"): "of the sandbox that the same command was attaching",
    ("cli/chains.py", "netdra detach"): "how to name the sandbox that was meant",
    ("cluster/driver_pages.py", "kubectl exec"): "of netdra's own command that reads counters, in a driver's pod",
    ("cli/uninstall.py", "kubectl delete"): "of a pod of netdra's own, on a node whose machine is off",
    ("doctor/node_verdicts.py", "echo N >"): "of a NIC without VFs alone, while nothing uses it",
    ("steps/made.py", "ip link set"): "sets an interface of the node up on which a pod waits, and which is down",
    (
        "controller/neutron/ownership.py",
        "kubectl delete",
    ): "of a Lease that no pod stands on, after the cluster's copy is gone",
}
"""Where such a command stands all the same, and why it breaks nothing."""


def texts(path: Path) -> Iterator[str]:
    """The string literals of a module that are not docstrings."""
    tree = ast.parse(path.read_text())
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def test_no_text_names_a_command_that_breaks_a_healthy_pod() -> None:
    found = {
        (str(path.relative_to(ROOT)), match.group().strip())
        for path in ROOT.rglob("*.py")
        for text in texts(path)
        for match in BREAKING.finditer(text)
    }
    assert sorted(found ^ KNOWN.keys()) == []
