"""A node and a pod to attach: two network namespaces made for each test; the test's thread is in the node's."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.chain import holders
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.site import ChainSettings
from netdra.cni.plugins import PluginPath
from netdra.kernel import kinds, libc, link, netns
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.model.plan import PlannedDevice
from testbed import build
from testbed.recorder import Recorder

# The pool's threads must be born outside the namespaces that tests make, or they would keep them alive.
_all_born = threading.Barrier(netns.WORKERS)
with ThreadPoolExecutor(netns.WORKERS) as _threads, Namespace.current() as _outside:
    list(_threads.map(lambda _: _outside.run(_all_born.wait), range(netns.WORKERS)))


HOST_SIDE = ("bandwidth", "firewall", "portmap")


@dataclass
class Bed:
    """The node (the calling thread's namespace), one pod, and how chains are run between them."""

    host: Namespace
    pod: Namespace
    container: PodIdentity
    settings: ChainSettings
    plugins: Path

    def veth(self, name: str, peer: str, **settings: Any) -> None:
        """A veth pair on the node."""
        with Socket() as sock:
            link.create(sock, name, "veth", kinds.veth(kinds.Peer(peer)), **settings)

    def ip(self, *arguments: str, inside: bool = False) -> list[dict[str, Any]]:
        """The output of iproute2, on the node or inside the pod."""
        where = ("-n", Path(self.pod.path).name) if inside else ()
        done = subprocess.run(("ip", *where, "-j", "-d", *arguments), capture_output=True, text=True, check=True)
        found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
        return found

    def run(self, *command: str, inside: bool = False) -> str:
        """Run a program on the node or inside the pod."""
        where = ("ip", "netns", "exec", Path(self.pod.path).name) if inside else ()
        return subprocess.run((*where, *command), capture_output=True, text=True, check=True).stdout

    def link(self, name: str, *, inside: bool = False) -> dict[str, Any]:
        """One link as iproute2 sees it."""
        return self.ip("link", "show", name, inside=inside)[0]

    def addresses(self, name: str, *, inside: bool = False) -> set[str]:
        """The addresses of a link but for the link-local ones, which come and go with its carrier."""
        (found,) = self.ip("addr", "show", "dev", name, inside=inside)
        return stable_addresses(found)

    def state(self) -> dict[str, Any]:
        """All that undoing must bring back: links, addresses and routes of both namespaces, files, namespaces."""
        return {
            "host": self._seen(inside=False),
            "pod": self._seen(inside=True),
            "state": sorted(
                str(path)
                for path in self.settings.state.rglob("*")
                if not path.is_dir() and path.name != ".new" and path.parent.name != holders.RETURNED
            ),
            "namespaces": [name for name in netns.names() if name.startswith(Path(self.pod.path).name)],
        }

    def _seen(self, *, inside: bool) -> dict[str, Any]:
        links = {
            each["ifname"]: {
                "mac": each.get("address"),
                "mtu": each["mtu"],
                "txqlen": each.get("txqlen"),
                "promisc": each.get("promiscuity"),
                "allmulti": each.get("allmulti"),
                "up": "UP" in each["flags"],
                "alt": sorted(each.get("altnames", ())),
                "alias": each.get("ifalias"),
                "master": each.get("master"),
                "kind": each.get("linkinfo", {}).get("info_kind"),
                "addresses": sorted(self.addresses(each["ifname"], inside=inside)),
                "broadcasts": broadcasts(self.ip("addr", "show", "dev", each["ifname"], inside=inside)[0]),
            }
            for each in self.ip("link", inside=inside)
        }
        routes = [
            sorted(
                (key, str(value)) for key, value in each.items() if key in {"dst", "gateway", "dev", "metric", "scope"}
            )
            for family in ("-4", "-6")
            for each in self.ip(family, "route", inside=inside)
            if not str(each["dst"]).startswith(("fe80", "ff00", "multicast"))
        ]
        return {"links": links, "routes": sorted(routes)}


def stable_addresses(link: Mapping[str, Any]) -> set[str]:
    """The addresses of a link in iproute2, without the link-local ones, which come and go with its carrier."""
    addresses = {f"{each['local']}/{each['prefixlen']}" for each in link["addr_info"]}
    return {each for each in addresses if not each.startswith("fe80:")}


def broadcasts(link: Mapping[str, Any]) -> list[str]:
    """The broadcast addresses of a link as iproute2 prints them."""
    return sorted(f"{each['local']} brd {each['broadcast']}" for each in link["addr_info"] if "broadcast" in each)


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Where two states differ, one line for each place."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            line
            for key in sorted({*before, *after})
            for line in differences(before.get(key), after.get(key), f"{path}/{key}")
        ]
    return [] if before == after else [f"{path}: {before} became {after}"]


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    """A fresh node and pod; both are gone afterwards, with all that is in them."""
    name = f"netdra-test-{uuid.uuid4().hex[:8]}"
    outside = Namespace.current()
    host = Namespace.anonymous()
    pod = Namespace.create(name)
    try:
        libc.setns(host.fd, libc.CLONE_NEWNET)
        plugins = tmp_path / "plugins"
        plugins.mkdir()
        for program in ("bridge", "macvlan", "host-device", "tuning", "static", "host-local", "ptp", "sbr", *HOST_SIDE):
            (plugins / program).symlink_to(build.program(program))
        for space in (host, pod):
            with space.socket() as sock:
                link.change(sock, "lo", up=True)
        yield Bed(
            host=host,
            pod=pod,
            container=PodIdentity(sandbox=f"sb-{uuid.uuid4().hex[:8]}", name="p", namespace="default", uid="u"),
            settings=ChainSettings(
                state=tmp_path / "state", plugins=PluginPath(directories=(str(plugins),)), budget=60.0
            ),
            plugins=plugins,
        )
    finally:
        libc.setns(outside.fd, libc.CLONE_NEWNET)
        if Path(pod.path).exists():
            netns.delete(name)
        for space in (host, pod, outside):
            space.close()


def with_budget(bed: Bed, seconds: float, **shares: float) -> Bed:
    """The same bed, with another budget for attaching and detaching."""
    return dataclasses.replace(bed, settings=msgspec.structs.replace(bed.settings, budget=seconds, **shares))


def recorder(bed: Bed, name: str) -> Recorder:
    """A plugin of that name that records its calls, beside the real ones."""
    return Recorder(bed.plugins, name)


def device(if_name: str, **facts: Any) -> PlannedDevice:
    """An allocated device."""
    return msgspec.structs.replace(PlannedDevice(request="r", pool="p", device=if_name, if_name=if_name), **facts)
