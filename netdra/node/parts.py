"""The parts of the daemon that keep pods and their claims, put together: the kubelet's services, the runtime's hooks.

Imported by `netdra.node.daemon` when it is their turn, and by no other module: with gRPC, protobuf, the chain and its
steps it is a third of all that the daemon imports.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdra.chain import checkpoint
from netdra.chain.site import Settings as ChainSettings
from netdra.kube.client import Client
from netdra.kube.events import Recorder
from netdra.model import names
from netdra.node import metrics
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import ClaimStore
from netdra.node.kubelet.plugin import KubeletPlugin, sockets
from netdra.node.kubelet.services import ClaimServices
from netdra.node.nri.plugin import Plugin
from netdra.node.nri.plugin import Settings as NriSettings
from netdra.node.permits import NodePermits
from netdra.node.pods.service import Dependencies, Pods, assemble
from netdra.node.priority import Turns
from netdra.node.publishing.service import Publishing
from netdra.node.registry.callers import Callers
from netdra.node.registry.service import Place, Registry
from netdra.node.registry.table import RegistrationTable
from netdra.node.settings import Settings
from netdra.ops.health import CheckResult, ProcessHealth


@dataclass(frozen=True)
class Parts:
    """The parts that keep pods, connected with the publishing part; nothing runs yet."""

    pods: Pods
    kubelet: KubeletPlugin
    plugin: Plugin
    recorder: Recorder
    registry: Registry | None = None

    def add_checks(self, health: ProcessHealth) -> None:
        """Ready only if the kubelet and the runtime have the driver."""
        kubelet, plugin = self.kubelet, self.plugin
        health.ready("kubelet", lambda: CheckResult(kubelet.registered, kubelet.problem or "registered"))
        health.ready("runtime", lambda: CheckResult(plugin.connected.is_set(), plugin.problem or str(plugin.runtime)))

    def work(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """The tasks to run, by name, after `pods.recover` has returned."""
        yield "events", self.recorder.run()
        yield "pods", self.pods.run()
        yield "kubelet", self.kubelet.run()
        yield "runtime", self.plugin.run()
        if self.registry is not None:
            yield "registry", self.registry.run()


def assembled(
    client: Client, settings: Settings, publishing: Publishing, registrations: RegistrationTable | None = None
) -> Parts:
    """All parts."""
    wanted = sockets(settings.kubelet_root, settings.instance)
    recorder = Recorder(client, f"{names.DRIVER}/pods", settings.node)
    prepared = ClaimStore.of_state(settings.state_dir)
    turns = Turns(publishing.gate)
    pods = _pods(client, settings, publishing, recorder, prepared, wanted.plugin, turns)
    claims = ClaimServices(pods.claims, publishing.look_again, turns)
    kubelet = KubeletPlugin(wanted, claims, publishing.health.states)
    metrics.on_scrape(
        lambda: len(prepared.uids()),
        lambda: len(checkpoint.sandboxes(settings.sandboxes)),
        lambda: len(pods.network.table.namespaces),
        lambda: kubelet.registered,
    )
    plugin = Plugin(pods.hooks, NriSettings(socket=settings.nri_socket, index=settings.nri_index), gate=publishing.gate)
    return Parts(pods, kubelet, plugin, recorder, _registry(client, settings, publishing, registrations))


def _registry(
    client: Client, settings: Settings, publishing: Publishing, registrations: RegistrationTable | None
) -> Registry | None:
    if registrations is None or settings.registry_socket is None:
        return None
    place = Place(path=settings.registry_socket, mode=settings.registry_mode, group=settings.registry_group)
    callers = Callers(client, settings.node, tokens_only=settings.registry_tokens_only)
    metrics.REGISTRY_REGISTRATIONS.set_function(lambda: len(registrations))
    return Registry(place, registrations, callers, publishing, publishing.health.states, settings.device_files)


def _pods(
    client: Client,
    settings: Settings,
    publishing: Publishing,
    recorder: Recorder,
    prepared: ClaimStore,
    plugin_folder: Path,
    turns: Turns,
) -> Pods:
    return assemble(
        Dependencies(
            client=client,
            node=settings.node,
            settings=ChainSettings(
                state=settings.sandboxes, plugins=settings.plugins, device_files=settings.allow_device_files
            ),
            files=ClaimFiles(plugin=plugin_folder, cdi=settings.cdi_dir),
            prepared=prepared,
            view=publishing,
            emit=recorder.emit,
            changed=publishing.look_again,
            gate=publishing.gate,
            turns=turns,
            permits=NodePermits(
                plugins=settings.allow_plugins,
                folders=settings.allow_host_paths,
                root=settings.cni_root,
                schemas=lambda: publishing.schemas,
            ),
        )
    )
