"""Mistakes that files alone do not show: what a node, the controller and `netdra simulate` find.

A file of `tests/mistakes/worlds` is as one of `tests/mistakes`, and names the `world` of its mistakes. A text for
`prepare` has a topology, and an object without a kind: the `devices` that its steps were allocated, as in a plan, and
the `options` of the node's driver. One for `assign` has a claim and PodNetworks, and an object with the name of the
`network` and how many `steps` of the claim are on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner

from netdra.cli.simulate import command as simulate
from netdra.model import names
from netdra.model.claim import ResourceClaim
from netdra.model.errors import NetdraError
from netdra.model.findings import Finding
from netdra.model.plan import PlannedDevice
from netdra.model.pod_network import PodNetwork
from netdra.model.topology import NetworkTopology
from netdra.node.permits import NodePermits
from netdra.rules import plans, pod_addresses, pod_networks, sysctls
from testbed import yaml
from tests.plans import on_topology


def prepared(folder: Path, text: str) -> list[str]:
    """The lines about a topology's plan, as a node with these devices and options finds them."""
    documents = [each for each in yaml.safe_load_all(text) if each is not None]
    (world,) = [each for each in documents if "kind" not in each]
    (topology,) = [msgspec.convert(each, NetworkTopology) for each in documents if "kind" in each]
    devices = {name: msgspec.convert(each, PlannedDevice) for name, each in world["devices"].items()}
    options = world.get("options", {})
    node = NodePermits(
        plugins=tuple(options.get("plugins", ())),
        folders=tuple(map(Path, options.get("folders", ()))),
        root=folder,
        run_plugins=options.get("runPlugins", True),
    )
    plan = on_topology(topology, devices)
    found = [*plans.examine([plan], (), node.permits(), [topology]), *sysctls.forbidden([plan])]
    places = {step.name: at for at, step in enumerate(topology.spec.steps)}
    return [_line(finding, [places[step.name] for step in plan.steps]) for finding in found]


def _line(finding: Finding, places: list[int]) -> str:
    """A finding about a plan, at its place in the topology."""
    path = finding.path
    if path[:1] == ("steps",) and isinstance(path[1], int):
        path = ("spec", "steps", places[path[1]], *path[2:])
    return f"1: {msgspec.structs.replace(finding, path=path).text_at_path}"


def assigned(_folder: Path, text: str) -> list[str]:
    """Why the controller assigns a claim no address of a PodNetwork: the `network`, for a number of `steps`."""
    documents = [each for each in yaml.safe_load_all(text) if each is not None]
    (world,) = [each for each in documents if "kind" not in each]
    networks = {each["metadata"]["name"]: msgspec.convert(each, PodNetwork) for each in _of(documents, "PodNetwork")}
    (claim,) = [msgspec.convert(_allocated(each), ResourceClaim) for each in _of(documents, "ResourceClaim")]
    network = networks.get(world["network"])
    try:
        pod_addresses.check_usable(world["network"], network, pod_networks.check(network) if network else ())
        assert network is not None
        pod_addresses.check_allowed(network, claim.metadata.namespace)
        pod_addresses.check_new(network, claim, world["steps"])
    except NetdraError as problem:
        return [f"1: {problem}"]
    return []


def _allocated(claim: dict[str, Any]) -> dict[str, Any]:
    """A claim with the shares of PodNetworks that it requests."""
    results = [
        {
            "request": request["name"],
            "driver": names.DRIVER,
            "pool": names.network_pool(network),
            "device": names.ADDRESSES,
            "consumedCapacity": {names.qualified(names.ADDRESSES): "1"},
        }
        for request in claim["spec"]["devices"]["requests"]
        if (network := names.network_of_class(request["exactly"]["deviceClassName"]))
    ]
    return {**claim, "status": {"allocation": {"devices": {"results": results}}}}


def _of(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in documents if each.get("kind") == kind]


def simulated(folder: Path, text: str) -> list[str]:
    """The warnings of `netdra simulate`."""
    path = folder / "x.yaml"
    path.write_text(text)
    result = CliRunner().invoke(simulate, [str(path)])
    return [f"1: warning: {line.removeprefix('netdra: ')}" for line in result.stderr.splitlines() if " (ND" in line]


_LINES: Mapping[str, Callable[[Path, str], list[str]]] = {
    "assign": assigned,
    "prepare": prepared,
    "simulate": simulated,
}


def lines(folder: Path, text: str, world: str) -> list[str]:
    """The lines for a text in a world."""
    return _LINES[world](folder, text)
