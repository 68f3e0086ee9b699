"""Let plugins free what belongs to no sandbox any more: GC of CNI 1.1, which is given all checkpoints' attachments.

Called by the node daemon when it clears up after orphans, and by `netdra gc`. A lease is lost where a plugin dies in
the middle of its DEL, or a checkpoint with it; nothing else would ever give it back.

While plugins collect, no sandbox begins: an ADD in between would belong to a sandbox that GC does not know. And where a
checkpoint cannot be read, nothing is collected: its pod may be running.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from netdra.chain import checkpoint, flow
from netdra.chain.checkpoint import Saved
from netdra.chain.flow import ChainStep
from netdra.chain.orders import network_of, order_of
from netdra.chain.report import CollectReport, NetworkCollected
from netdra.chain.site import ChainSettings
from netdra.cni import protocol
from netdra.cni.config import Attachment, NetworkConfig
from netdra.cni.plugins import PluginPath
from netdra.model.errors import NetdraError
from netdra.model.plan import Plan
from netdra.model.result import StepResult
from netdra.ops import files
from netdra.steps import ipam
from netdra.topology.binaries import translated_plan


class _Network(msgspec.Struct, kw_only=True):
    """One network of one plugin, and the attachments to it."""

    plugin: str
    where: PluginPath
    config: NetworkConfig
    valid: list[Attachment]


Networks = dict[tuple[str, str, PluginPath], _Network]
"""By plugin, network, and where the plugin is."""


def collect(settings: ChainSettings, plans: Iterable[Plan] = ()) -> CollectReport:
    """Call GC of every plugin that has it, once for each network of a checkpoint or of one of the plans.

    Attachments without a checkpoint in the state folder are not valid: a node must have one state folder for all.

    Args:
        settings: how chains are run here; no attach begins for at most half of the budget.
        plans: of networks that may have no sandbox any more.

    Raises:
        TemporaryError: other processes begin sandboxes for longer than that.
    """
    deadline = time.monotonic() + settings.budget / 2
    if not files.exists(settings.state):
        return CollectReport()
    with files.folder(settings.state, settings.budget / 2):
        good, bad = checkpoint.load_all(settings.state)
        unknown = [problem.what for _, problem in bad] + [
            f"{path} is a damaged checkpoint; delete it after its pod is deleted" for path in _put_aside(settings.state)
        ]
        if unknown:
            return CollectReport(problems=tuple(unknown))
        networks: Networks = {}
        for saved in good:
            _add(networks, saved)
        for plan in plans:
            for task in flow.tasks((translated_plan(plan),)).values():
                _network(networks, task, task.step.config, settings.plugins)
        _share(networks)
        return CollectReport(networks=tuple(_collect(network, deadline) for network in networks.values()))


def _share(networks: Networks) -> None:
    """Give all plugins of a network all attachments to it: steps of several types may have one IPAM plugin."""
    on: dict[str, dict[tuple[str, str], Attachment]] = {}
    for network in networks.values():
        on.setdefault(network.config.network, {}).update(
            {(attachment.container_id, attachment.if_name): attachment for attachment in network.valid}
        )
    for network in networks.values():
        network.valid = list(on[network.config.network].values())


def _put_aside(state: Path) -> list[Path]:
    return sorted(state / name for name in files.listed(state) if f"{checkpoint.SUFFIX}.bad-" in name)


def _add(networks: Networks, saved: Saved) -> None:
    """Add the networks of one sandbox. A step without an entry in the checkpoint may have begun anyway."""
    header = saved.header
    for key, task in flow.tasks(header.plans).items():
        state = saved.steps.get(key)
        network = _network(networks, task, state.config if state else task.step.config, header.plugins)
        if network is not None and not (state and state.undone):
            network.valid.append(Attachment(container_id=header.pod.sandbox, if_name=task.step.if_name))


def _network(networks: Networks, task: ChainStep, config: Mapping[str, Any], where: PluginPath) -> _Network | None:
    if task.is_binary:
        plugin, network = task.step.type, network_of(task, config)
    else:
        lease = ipam.wanted(order_of(task, config, StepResult()))
        if lease is None:
            return None
        plugin, network = lease.plugin, ipam.network(lease)
    key = (plugin, network.network, where)
    return networks.setdefault(key, _Network(plugin=plugin, where=where, config=network, valid=[]))


def _collect(network: _Network, deadline: float) -> NetworkCollected:
    named: dict[str, Any] = {"network": network.config.network, "plugin": network.plugin, "valid": len(network.valid)}
    left = deadline - time.monotonic()
    if left <= 0:
        return NetworkCollected(**named, problem="timed out")
    try:
        plugin = protocol.find(network.plugin, network.where, timeout=left)
        if not protocol.has_status(plugin):
            return NetworkCollected(**named, skipped=f"it supports CNI {plugin.version}, which does not define GC")
        protocol.collect(plugin, network.config, network.valid, max(0.0, deadline - time.monotonic()))
    except NetdraError as problem:
        return NetworkCollected(**named, problem=problem.what)
    return NetworkCollected(**named)
