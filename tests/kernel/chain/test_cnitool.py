"""The CNI project's own runtime as the reference: for chains of stock plugins, results and pods come out the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.chain.check import check
from netdra.chain.detach import detach
from netdra.cni import results
from netdra.kernel import link, netns
from netdra.kernel.netns import Namespace
from netdra.model.result import StepResult
from testbed import build
from tests.kernel.chain.conftest import Bed, differences
from tests.plans import attach, plan, step

NETWORK = "net"
IF_NAME = "eth0"
VERSION = "1.1.0"


def ipam(bed: Bed, who: str) -> dict[str, Any]:
    folder = str(bed.settings.state.parent / f"ipam-{who}")
    routes = [{"dst": "0.0.0.0/0"}, {"dst": "10.200.0.0/16", "gw": "10.5.0.9"}]
    return {"type": "host-local", "subnet": "10.5.0.0/24", "routes": routes, "dataDir": folder}


def chains(bed: Bed, who: str) -> dict[str, list[dict[str, Any]]]:
    """Linear chains of stock plugins, as a network configuration list has them."""
    address = {"type": "static", "addresses": [{"address": "10.5.0.7/24", "gateway": "10.5.0.1"}]}
    tuning = {"type": "tuning", "mtu": 1400, "mac": "02:00:00:00:00:77", "sysctl": {"net.core.somaxconn": "512"}}
    return {
        "bridge": [{"type": "bridge", "bridge": "br0", "isGateway": True, "ipam": ipam(bed, who)}],
        "bridge tuned": [{"type": "bridge", "bridge": "br0", "ipam": ipam(bed, who)}, tuning],
        "macvlan": [{"type": "macvlan", "master": "up0", "mtu": 1450, "ipam": address}, tuning, {"type": "sbr"}],
        "ptp": [{"type": "ptp", "ipam": ipam(bed, who)}, {"type": "tuning", "promisc": True, "allmulti": True}],
        "host-device": [{"type": "host-device", "device": "nic0", "ipam": address}, tuning],
        "host side": [
            {"type": "bridge", "bridge": "br0", "isGateway": True, "ipam": ipam(bed, who)},
            {
                "type": "bandwidth",
                "ingressRate": 10**6,
                "ingressBurst": 10**5,
                "egressRate": 10**6,
                "egressBurst": 10**5,
            },
            {"type": "firewall"},
            {"type": "portmap", "capabilities": {"portMappings": True}},
            {"type": "tuning", "allmulti": True},
        ],
    }


NAMES = ("bridge", "bridge tuned", "macvlan", "ptp", "host-device", "host side")
PORTS = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}


def cnitool(
    bed: Bed, verb: str, space: Namespace, plugins: Sequence[Mapping[str, Any]]
) -> subprocess.CompletedProcess[str]:
    """Let libcni do it."""
    folder = bed.settings.state.parent / "net.d"
    folder.mkdir(exist_ok=True)
    config = {"cniVersion": VERSION, "name": NETWORK, "plugins": plugins}
    (folder / "net.conflist").write_text(json.dumps(config))
    return subprocess.run(
        (build.program("cnitool"), verb, NETWORK, space.path),
        env=os.environ
        | {
            "NETCONFPATH": str(folder),
            "CNI_PATH": str(bed.plugins),
            "CNI_IFNAME": IF_NAME,
            "CAP_ARGS": json.dumps(PORTS),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def alike(value: Any, path: str) -> Any:
    """A result or a pod without what differs from one run to the next: random names and MACs, the namespace's path."""
    text = json.dumps(value).replace(path, "POD")
    text = re.sub(r"veth[0-9a-f]{8}|bwp[0-9a-f]+", "RANDOM", text)
    return json.loads(re.sub(r'"(?!02:00:00)[0-9a-f]{2}(:[0-9a-f]{2}){5}"', '"MAC"', text))


def seen(bed: Bed) -> dict[str, Any]:
    """The pod's interfaces; alias too, for plugins leave notes there."""
    return {**bed.state()["pod"], "somaxconn": bed.run("sysctl", "-n", "net.core.somaxconn", inside=True)}


def prepare(bed: Bed) -> None:
    bed.veth("up0", "up1", up=True)
    bed.veth("nic0", "nic1")
    for name in ("up1", "nic1"):
        bed.run("ip", "link", "set", name, "up")
    bed.run("ip", "link", "add", "br0", "up", "address", "02:00:00:00:00:b0", "type", "bridge")


@pytest.mark.parametrize("name", NAMES)
def test_results_and_pods_are_those_of_libcni(bed: Bed, name: str) -> None:
    prepare(bed)
    # In a pod of its own: what a plugin does not undo in the one must not be seen in the other.
    with Namespace.create(f"{Path(bed.pod.path).name}-ref") as reference:
        try:
            with reference.socket() as sock:
                link.change(sock, "lo", up=True)
            added = cnitool(bed, "add", reference, chains(bed, "theirs")[name])
            # After sbr, macvlan does not find its gateway where it looks for it: then it must not for us either.
            checked = cnitool(bed, "check", reference, chains(bed, "theirs")[name])
            their_pod = alike(seen(with_pod(bed, reference)), reference.path)
        finally:
            removed = cnitool(bed, "del", reference, chains(bed, "theirs")[name])
            netns.delete(Path(reference.path).name)
    assert (added.returncode, removed.returncode) == (0, 0), added.stdout
    theirs = results.render(with_tuned_mtu(results.parse(added.stdout.encode()), chains(bed, "theirs")[name]), VERSION)
    before = bed.state()
    steps = []
    for place, plugin in enumerate(chains(bed, "ours")[name]):
        config = {key: value for key, value in plugin.items() if key != "type"}
        if "capabilities" in config:
            config["runtimeConfig"] = PORTS
        each = step(f"s{place}", plugin["type"], IF_NAME, config, after=[f"s{place - 1}"] if place else [], binary=True)
        steps.append(msgspec.structs.replace(each, network=NETWORK, default_route=True))
    report = attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)
    ours = results.render(report.steps[-1].result, VERSION)
    assert differences(alike(theirs, reference.path), alike(ours, bed.pod.path)) == []
    assert differences(their_pod, alike(seen(bed), bed.pod.path)) == []
    if name == "host side":
        assert "--dport 8080" in bed.run("iptables-save")
        assert "tbf" in bed.run("tc", "qdisc", "show")
    assert check(bed.container.sandbox, bed.settings).is_clean is (checked.returncode == 0)
    assert detach(bed.container.sandbox, bed.settings).is_clean
    after = bed.state()
    assert differences(before["host"]["links"].keys(), after["host"]["links"].keys()) == []
    assert differences(before["pod"]["links"], after["pod"]["links"]) == []
    assert "8080" not in bed.run("iptables-save")
    assert "ifb" not in bed.run("tc", "qdisc", "show")


def with_tuned_mtu(result: StepResult, plugins: Sequence[Mapping[str, Any]]) -> StepResult:
    """The result with the MTU that `tuning` has set, which it hands on as it was before."""
    mtu = next((plugin["mtu"] for plugin in plugins if plugin["type"] == "tuning" and "mtu" in plugin), 0)
    tuned = (
        msgspec.structs.replace(interface, mtu=mtu or interface.mtu) if interface.name == IF_NAME else interface
        for interface in result.interfaces
    )
    return msgspec.structs.replace(result, interfaces=tuple(tuned))


def with_pod(bed: Bed, space: Namespace) -> Bed:
    """The same node with another pod."""
    return Bed(host=bed.host, pod=space, container=bed.container, settings=bed.settings, plugins=bed.plugins)
