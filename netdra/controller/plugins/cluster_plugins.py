"""Carries CNIPlugins out: a DaemonSet for each, its schema, its status, and its end.

Run by `netdra.controller.daemon` while this process leads, beside the controller, whose copies of topologies and
schemas it reads. `netdra.controller.plugins.installers` works out the desired state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from netdra.controller.plugins import installers
from netdra.controller.plugins.installers import (
    PLUGIN_LABEL,
    DaemonSet,
    InstallerPod,
    InstallerSettings,
    PlannedSchema,
    PluginState,
)
from netdra.controller.state import InHand, State
from netdra.controller.status import Desired
from netdra.controller.writing import MANAGER, set_finalizer, write_status
from netdra.kube.client import Client, Selection
from netdra.kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from netdra.kube.events import Recorder
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.kube.reflector import Reflector
from netdra.kube.resources import CNI_PLUGINS, SCHEMAS, Resource
from netdra.kube.store import Change, Store
from netdra.model import names
from netdra.model.cni_plugin import CNIPlugin, DescribedPlugin
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.rules import shipped

log = logging.getLogger(__name__)

DAEMON_SETS = Resource("apps/v1", "daemonsets", DaemonSet, namespaced=True)
PODS = Resource("v1", "pods", InstallerPod, namespaced=True)
FINALIZER = f"{names.GROUP}/installed"
DEBOUNCE_SECONDS = 0.5
"""How long further changes of pods are waited for before a status is written."""


class ClusterPlugins:
    """Installs the CNIPlugins of a cluster, for one term of the leader."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        state: State,
        settings: InstallerSettings,
        in_hand: InHand,
    ) -> None:
        """Begin nothing yet.

        Args:
            state: the controller's copies of topologies and schemas.
        """
        self._client, self._recorder, self._state = client, recorder, state
        self._settings, self._in_hand = settings, in_hand
        self._plugins: Store[CNIPlugin] = Store()
        self._daemon_sets: Store[DaemonSet] = Store()
        self._pods: Store[InstallerPod] = Store()
        self._applied: dict[str, tuple[str, str, int]] = {}
        self._left: set[str] = set()
        self._binaries: dict[str, Mapping[str, DescribedPlugin]] = {}
        self.queue: WorkQueue[str] = WorkQueue("cni-plugins", self._reconcile)

    async def run(self) -> None:
        """Work until cancelled."""
        state, own = self._state, Selection(namespace=self._settings.namespace, label_selector=PLUGIN_LABEL)
        with ExitStack() as following:
            async with asyncio.TaskGroup() as tasks:

                def reflect(resource: Resource[Any], store: Store[Any], selection: Selection) -> None:
                    tasks.create_task(Reflector(self._client, resource, store, selection, vital=False).run())

                following.enter_context(self._plugins.following(lambda change: self.queue.add(change.key)))
                following.enter_context(self._daemon_sets.following(self._on_part_change))
                following.enter_context(self._pods.following(self._on_part_change))
                following.enter_context(state.topologies.following(self._on_spec_change))
                following.enter_context(state.schemas.following(self._on_spec_change))
                reflect(CNI_PLUGINS, self._plugins, Selection())
                if self._settings.image:
                    reflect(DAEMON_SETS, self._daemon_sets, own)
                    reflect(PODS, self._pods, own)
                    for store in (self._daemon_sets, self._pods):
                        await store.wait_synced()
                await self._plugins.wait_synced()
                await state.topologies.wait_synced()
                await state.schemas.wait_synced()
                await self.queue.run()

    def _on_part_change(self, change: Change[Any]) -> None:
        for part in (change.old, change.new):
            name = part.metadata.labels.get(PLUGIN_LABEL) if part is not None else None
            if name:
                self.queue.add(name, DEBOUNCE_SECONDS)

    def _on_spec_change(self, change: Change[NetworkTopology] | Change[CNIPluginSchema]) -> None:
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            for name in self._plugins.objects:
                self.queue.add(name, DEBOUNCE_SECONDS)

    async def _reconcile(self, name: str) -> float | None:
        plugin = self._plugins.objects.get(name)
        if plugin is None:
            self._applied.pop(name, None)
            self._left.discard(name)
            self._binaries.pop(name, None)
            return None  # its DaemonSet and its schema are deleted with it
        try:
            with self._in_hand():
                await self._carry_out(plugin)
        except (ConflictError, NotFoundError, AlreadyExistsError) as problem:
            log.debug('CNIPlugin "%s" changed meanwhile: %s', name, problem)
            return AGAIN
        return None

    async def _carry_out(self, plugin: CNIPlugin) -> None:
        if not self._settings.image:
            pending = PlannedSchema(condition=Desired("SchemaApplied", False, "Pending"))
            await finalize(self._client, plugin, wanted=False)
            await self._write_status(plugin, None, pending)
            return
        users = installers.users_of(plugin.name, self._state.topologies.objects.values())
        removing = bool(plugin.metadata.deletion_timestamp) and not users
        if FINALIZER not in plugin.metadata.finalizers:
            if plugin.metadata.deletion_timestamp:
                return
            await finalize(self._client, plugin, wanted=True)
        template = await self._apply(plugin, "remove" if removing else "install")
        seen = PluginState(
            template=template,
            daemon_set=self._as_applied(plugin),
            pods=self._pods_of(plugin.name),
            users=users,
            former=self._binaries.get(plugin.name) or installers.former_binaries(plugin.status),
        )
        self._binaries[plugin.name] = seen.binaries
        if removing and seen.is_complete:
            log.info('CNIPlugin "%s" is being removed from %s nodes', plugin.name, seen.desired)
            await finalize(self._client, plugin, wanted=False)
            return
        planned = self._planned_schema(plugin, seen, removing=removing)
        await self._write_schema(planned)
        await self._write_status(plugin, seen, planned)

    async def _write_status(self, plugin: CNIPlugin, seen: PluginState | None, planned: PlannedSchema) -> None:
        desired = installers.status(plugin, seen, planned, datetime.now(UTC))
        await write_status(self._client, self._recorder, CNI_PLUGINS, plugin, desired)

    def _key(self, plugin: CNIPlugin) -> str:
        return f"{self._settings.namespace}/{installers.daemon_set_name(plugin.name)}"

    def _pods_of(self, name: str) -> tuple[InstallerPod, ...]:
        return tuple(item for item in self._pods.objects.values() if item.metadata.labels.get(PLUGIN_LABEL) == name)

    async def _apply(self, plugin: CNIPlugin, mode: installers.Mode) -> str:
        """Put a changed DaemonSet right; a DaemonSet that is as it was applied is not written again."""
        daemon_set = self._daemon_sets.objects.get(self._key(plugin))
        # The copy may be older than the DaemonSet that was applied last.
        if mode == "install" and installers.has_left_nodes(daemon_set, plugin):
            self._left.add(plugin.name)
        has_left = plugin.name in self._left or installers.has_left_nodes(daemon_set, plugin)
        manifest = installers.daemon_set(plugin, self._settings, mode, has_left=has_left)
        template = installers.template_of(manifest)
        wanted = f"{template} {manifest['spec']['updateStrategy']} {plugin.metadata.uid} {has_left}"
        present = (wanted, daemon_set.metadata.uid, daemon_set.metadata.generation) if daemon_set is not None else None
        if present is None or present != self._applied.get(plugin.name):
            applied = await self._client.apply(DAEMON_SETS, manifest, manager=MANAGER)
            self._applied[plugin.name] = (wanted, applied.metadata.uid, applied.metadata.generation)
        return template

    def _as_applied(self, plugin: CNIPlugin) -> DaemonSet | None:
        """The DaemonSet, once the store has it as it was applied: an older one's status is of other nodes and pods."""
        daemon_set = self._daemon_sets.objects.get(self._key(plugin))
        _, uid, generation = self._applied[plugin.name]
        is_as_applied = daemon_set is not None and (daemon_set.metadata.uid, daemon_set.metadata.generation) == (
            uid,
            generation,
        )
        return daemon_set if is_as_applied else None

    def _planned_schema(self, plugin: CNIPlugin, seen: PluginState, *, removing: bool) -> PlannedSchema:
        present = self._state.schemas.objects.get(installers.schema_name(plugin.name))
        own = {
            schema.spec.plugin
            for schema in shipped.own_of(self._state.schemas.objects.values())
            if schema.metadata.labels.get(PLUGIN_LABEL) != plugin.name
        }
        binary = None if removing else seen.described
        return installers.planned_schema(plugin, binary, present, own | set(shipped.names()))

    async def _write_schema(self, planned: PlannedSchema) -> None:
        if planned.schema is None:
            return
        match planned.verb:
            case "create":
                await self._client.create(SCHEMAS, planned.schema)
            case "update":
                await self._client.replace(SCHEMAS, planned.schema)
            case "delete":
                await self._client.delete(SCHEMAS, planned.schema)


async def finalize(client: Client, plugin: CNIPlugin, *, wanted: bool) -> None:
    """Set the finalizer of a CNIPlugin whose program nodes have, or remove it.

    Raises:
        ApiError: the object was changed meanwhile, or cannot be written just now.
    """
    if wanted != (FINALIZER in plugin.metadata.finalizers):
        await set_finalizer(client, CNI_PLUGINS, plugin, FINALIZER, wanted=wanted)
