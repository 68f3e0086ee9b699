"""The whole path on one machine: from a node's interfaces to a pod's network and back.

`run` is the work inside the lab's namespaces, called through `isolation.run`; each chapter is emitted as soon as it has
happened. The functions that it calls are those that the commands and the daemons call.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from netdra.chain import returned
from netdra.chain.attach import attach
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.chain.site import ChainSettings
from netdra.cni.plugins import DEFAULT_DIRECTORIES, PluginPath
from netdra.discovery.scan import scan
from netdra.exposure.expose import expose
from netdra.kernel import netns
from netdra.lab import chapters, isolation, node, pod
from netdra.lab.isolation import Emit, Traces
from netdra.lab.plugin import PLUGINS, VERSION_IN_SHELL
from netdra.lab.scenario import WANTED_KINDS, Scenario, choose
from netdra.model.claim import ResourceClaim
from netdra.model.errors import PermanentError
from netdra.model.inventory import InventoryNode
from netdra.model.plan import Plan
from netdra.model.resource import ResourceSlice
from netdra.rules.plans import check
from netdra.slices.allocator import Allocation, Allocator
from netdra.slices.pack import pack
from netdra.topology.bind import bind
from netdra.topology.classes import device_classes
from netdra.topology.devices import from_slices

SANDBOX = "demo-pod"
BUDGET = 10.0
_STATE = Path("/run/netdra")


def run(emit: Emit) -> None:
    """Build the machine, run the whole path on it, take all of it down again.

    Raises:
        NetdraError: a part of the path failed; attached networks are undone.
    """
    with node.built() as sock:
        scenario = choose(node.probe(sock, WANTED_KINDS))
        emit(chapters.machine(scenario))
        inventory = scan(InventoryNode(name=node.NAME))
        emit(chapters.discovered(inventory))
        exposed = expose(inventory, scenario.policies)
        emit(chapters.exposed(exposed))
        slices = pack(exposed, node=node.NAME)
        emit(chapters.published(slices))
        claim = _allocate(scenario, slices)
        emit(chapters.allocated(claim))
        binding = bind([claim], {scenario.topology.name: scenario.topology}, from_slices(slices))
        emit(chapters.bound(scenario, binding.plans))
        before = node.snapshot(sock)
        with pod.created(SANDBOX) as space:
            _in_pod(emit, binding.plans, space)
        after = node.snapshot(sock)
        if after != before or SANDBOX in netns.names():
            raise PermanentError(f"the node is not as it was: before {before}, after {after}", code="ND4082")
        emit(chapters.restored(after))


def traces() -> Traces:
    """The traces of the demo outside of its namespaces."""
    return isolation.traces(node.LINKS, (SANDBOX,), str(_STATE))


def _allocate(scenario: Scenario, slices: Sequence[ResourceSlice]) -> ResourceClaim:
    allocator = Allocator(slices, device_classes(scenario.topology))
    done = allocator.allocate(scenario.claim)
    if not isinstance(done, Allocation):
        raise PermanentError(f"the claim does not fit: {done.reason}", code="ND4083")
    return done.claims[0]


def _in_pod(emit: Emit, plans: Sequence[Plan], space: netns.Namespace) -> None:
    settings = ChainSettings(state=_STATE / "sandboxes", plugins=PluginPath(directories=_plugin_path()), budget=BUDGET)
    report = attach(
        check(plans), PodIdentity(sandbox=SANDBOX, name="demo", namespace="default", uid="demo"), space.path, settings
    )
    try:
        emit(chapters.attached(report, settings.plugins.directories[0]))
        seen = pod.seen(space)
        if not pod.agrees_with_ip(space, seen):
            raise PermanentError(f"`ip` sees another network in the pod than netdra does: {seen}", code="ND4084")
        emit(chapters.inside(seen))
    finally:
        undone = detach(SANDBOX, settings)
        returned.examine(settings.state, BUDGET)
    left = sorted(str(path) for path in settings.state.rglob("*") if path.is_file())
    if left or not undone.is_clean:
        raise PermanentError(f"the pod's network was not undone; left: {', '.join(left)}\n{undone}", code="ND4085")
    emit(chapters.detached(undone))


def _plugin_path() -> tuple[str, ...]:
    """Where plugins are installed on this machine; where some are missing, a folder with the lab's own."""
    named = tuple(folder for folder in os.environ.get("CNI_PATH", "").split(":") if folder)
    for folder in named or DEFAULT_DIRECTORIES:
        if all(shutil.which(name, path=folder) for name in PLUGINS):
            return (folder,)
    return (str(_own_plugins()),)


def _own_plugins() -> Path:
    folder = _STATE / "plugins"
    folder.mkdir(parents=True, exist_ok=True)
    home = Path(__file__).resolve().parents[2]
    start = f'#!/bin/sh\n{VERSION_IN_SHELL}\nexport PYTHONPATH="{home}"\nexec "{sys.executable}"'
    for name in PLUGINS:
        program = folder / name
        program.write_text(f"{start} -m netdra.lab.plugin {name}\n")
        program.chmod(0o755)
    return folder
