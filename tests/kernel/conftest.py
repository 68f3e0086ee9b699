"""The common part of kernel tests: namespaces that are gone afterwards, and other programs' view of them."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from netdra.kernel import kinds, libc, link, netns, uapi
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from testbed.waiting import until


@dataclass(frozen=True)
class Machine:
    """A named network namespace, a socket in it, and iproute2's and ethtool's eyes on it."""

    name: str
    namespace: Namespace
    sock: Socket

    def ip(self, *arguments: str) -> Any:
        """The decoded output of `ip -j -d`; None if it prints nothing."""
        done = subprocess.run(
            ("ip", "-n", self.name, "-j", "-d", *arguments), capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout) if done.stdout.strip() else None

    def run(self, *command: str) -> str:
        """Run a program inside, and return what it prints."""
        done = subprocess.run(("ip", "netns", "exec", self.name, *command), capture_output=True, text=True, check=True)
        return done.stdout

    def veth(self, name: str, peer: str, *, peer_in: Namespace | None = None, **settings: Any) -> None:
        """A veth pair."""
        data = kinds.veth(kinds.Peer(peer, netns_fd=peer_in.fd if peer_in else None))
        link.create(self.sock, name, "veth", data, **settings)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Bring the calling thread into it, for as long as that lasts."""
        with Namespace.current() as outside:
            libc.setns(self.namespace.fd, libc.CLONE_NEWNET)
            try:
                yield
            finally:
                libc.setns(outside.fd, libc.CLONE_NEWNET)

    def index(self, name: str) -> int:
        """A link's index."""
        return link.get(self.sock, name).index

    def at_rest(self) -> None:
        """Wait until each link's state is that of its carrier: the kernel brings that about in the background."""

        def moving() -> list[str]:
            return [each.name for each in link.dump(self.sock) if not _at_rest(each)]

        until(lambda: not moving(), "the links to come to rest", detail=moving)


def _at_rest(found: link.Link) -> bool:
    has_carrier = bool(found.flags & uapi.IFF_LOWER_UP)
    return not found.is_up or found.state in (("up",) if has_carrier else ("down", "lowerlayerdown"))


@pytest.fixture
def machine() -> Iterator[Machine]:
    """An empty namespace."""
    yield from new_machine()


@pytest.fixture
def other() -> Iterator[Machine]:
    """Another empty namespace."""
    yield from new_machine()


@pytest.fixture
def pod() -> Iterator[Machine]:
    """A pod's namespace, named as containerd names it."""
    yield from new_machine(f"cni-{uuid.uuid4()}")


def new_machine(name: str = "") -> Iterator[Machine]:
    """An empty namespace, gone at the end."""
    name = name or f"netdra-test-{uuid.uuid4().hex[:8]}"
    with Namespace.create(name) as namespace:
        try:
            with namespace.socket() as sock:
                yield Machine(name, namespace, sock)
        finally:
            netns.delete(name)
