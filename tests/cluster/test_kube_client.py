"""Requests to the real API server: typed objects, refusals as typed errors, tokens that rotate."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from netdra.kube.client import Client, Selection
from netdra.kube.connection import connect, find_config
from netdra.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from netdra.kube.reflector import Reflector
from netdra.kube.resources import NODES, POLICIES, TOPOLOGIES, Resource
from netdra.kube.store import Store
from netdra.model.meta import ObjectMeta
from netdra.model.policy import DeviceExposurePolicy, DeviceExposurePolicySpec, PolicySelector
from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.objects import manifest
from testbed.pace import within
from testbed.waiting import PATIENCE, awaited
from testbed.workspace import Workspace


class ConfigMap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


CONFIG_MAPS = Resource("v1", "configmaps", ConfigMap, namespaced=True)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def client_of(plane: ControlPlane) -> Client:
    return Client(connect(find_config(plane.kubeconfig())))


def test_an_object_is_made_read_changed_and_deleted(control_plane: ControlPlane, workspace: Workspace) -> None:
    async def story() -> None:
        async with client_of(control_plane) as client:
            wanted = ConfigMap(metadata=ObjectMeta(name="a", namespace=workspace.namespace), data={"x": "1"})
            made = await client.create(CONFIG_MAPS, wanted)
            assert made.metadata.uid
            assert await client.get(CONFIG_MAPS, "a", workspace.namespace) == made

            replaced = await client.replace(CONFIG_MAPS, msgspec.structs.replace(made, data={"x": "2"}))
            with pytest.raises(ConflictError):
                await client.replace(CONFIG_MAPS, made)
            with pytest.raises(ConflictError):
                await client.delete(CONFIG_MAPS, made)

            merged = await client.merge(CONFIG_MAPS, "a", {"data": {"x": None, "y": "3"}}, workspace.namespace)
            assert merged.data == {"y": "3"}
            assert await client.list(CONFIG_MAPS, Selection(workspace.namespace, field_selector="metadata.name=a")) == [
                merged
            ]
            assert replaced.metadata.uid == merged.metadata.uid
            await client.delete(CONFIG_MAPS, merged)
            with pytest.raises(NotFoundError):
                await client.get(CONFIG_MAPS, "a", workspace.namespace)
            with pytest.raises(NotFoundError):
                await client.delete(CONFIG_MAPS, merged)

    run(story())


def test_a_list_of_several_pages_is_whole(
    control_plane: ControlPlane, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netdra.kube.client.PAGE", 2)
    names = [f"page-{number}" for number in range(5)]
    for name in names:
        workspace.create(manifest("v1/ConfigMap", name, workspace.namespace, data={"page": "x"}))

    async def story() -> None:
        async with client_of(control_plane) as client:
            found = await client.list(CONFIG_MAPS, Selection(workspace.namespace))
            assert [each.metadata.name for each in found if each.data == {"page": "x"}] == names

    run(story())


def test_a_deleted_and_remade_object_is_not_deleted_for_the_old_one(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    async def story() -> None:
        async with client_of(control_plane) as client:
            wanted = ConfigMap(metadata=ObjectMeta(name="a", namespace=workspace.namespace))
            first = await client.create(CONFIG_MAPS, wanted)
            await client.delete(CONFIG_MAPS, first)
            await client.create(CONFIG_MAPS, wanted)
            with pytest.raises(ConflictError):
                await client.delete(CONFIG_MAPS, first)

    run(story())


def test_a_name_is_taken_once_and_generated_names_never_clash(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    async def story() -> None:
        async with client_of(control_plane) as client:
            wanted = ConfigMap(metadata=ObjectMeta(name="a", namespace=workspace.namespace))
            await client.create(CONFIG_MAPS, wanted)
            with pytest.raises(AlreadyExistsError, match='create configmaps "a"'):
                await client.create(CONFIG_MAPS, wanted)
            generated = ConfigMap(metadata=ObjectMeta(generate_name="a-", namespace=workspace.namespace))
            names = {(await client.create(CONFIG_MAPS, generated)).metadata.name for _ in range(3)}
            assert len(names) == 3

    run(story())


def test_a_dry_run_leaves_nothing(control_plane: ControlPlane, workspace: Workspace) -> None:
    async def story() -> None:
        async with client_of(control_plane) as client:
            wanted = ConfigMap(metadata=ObjectMeta(name="a", namespace=workspace.namespace))
            await client.create(CONFIG_MAPS, wanted, dry_run=True)
            with pytest.raises(NotFoundError):
                await client.get(CONFIG_MAPS, "a", workspace.namespace)

    run(story())


def policy(name: str, expression: str = "true", priority: int = 7) -> DeviceExposurePolicy:
    return DeviceExposurePolicy(
        metadata=ObjectMeta(name=name),
        spec=DeviceExposurePolicySpec(selector=PolicySelector(cel=expression), priority=priority),
        api_version="networking.dra.io/v1alpha1",
        kind="DeviceExposurePolicy",
    )


@pytest.mark.usefixtures("custom_kinds")
def test_an_apply_takes_its_fields_over_and_the_next_one_writes_nothing(
    control_plane: ControlPlane, api: Api, workspace: Workspace
) -> None:
    async def story() -> None:
        name = workspace.name("applied")
        async with client_of(control_plane) as client:
            workspace.create(
                manifest(
                    "networking.dra.io/v1alpha1/DeviceExposurePolicy",
                    name,
                    spec={"selector": {"cel": "false"}, "action": "exclude"},
                )
            )
            applied = await client.apply(POLICIES, policy(name))
            assert (applied.spec.selector.cel, applied.spec.priority, applied.spec.action) == ("true", 7, "exclude")
            again = await client.apply(POLICIES, policy(name))
            assert again.metadata.resource_version == applied.metadata.resource_version

            status = {"observedGeneration": 3}
            part = {
                "apiVersion": "networking.dra.io/v1alpha1",
                "kind": "DeviceExposurePolicy",
                "metadata": {"name": name},
                "status": status,
            }
            with_status = await client.apply(POLICIES, part, manager="netdra-status", subresource="status")
            assert with_status.status is not None
            assert (with_status.status.observed_generation, with_status.spec.priority) == (3, 7)

    run(story())


@pytest.mark.usefixtures("custom_kinds")
def test_a_refusal_names_the_object_and_the_rule(control_plane: ControlPlane, workspace: Workspace) -> None:
    async def story() -> None:
        async with client_of(control_plane) as client:
            bad = policy("refused", priority=7)
            bad = msgspec.structs.replace(bad, spec=msgspec.structs.replace(bad.spec, priority=5000))
            with pytest.raises(
                RefusedError, match=r'(?s)create deviceexposurepolicies "refused".*spec\.priority'
            ) as told:
                await client.create(POLICIES, bad)
            assert told.value.status.details is not None
            assert told.value.status.details.causes
            assert told.value.status.details.causes[0].field == "spec.priority"

    run(story())


def test_a_forbidden_request_reports_the_user_and_advises_to_grant_the_permission(control_plane: ControlPlane) -> None:
    async def story() -> None:
        config = find_config(control_plane.kubeconfig("somebody", ()))
        async with Client(connect(config)) as client:
            with pytest.raises(RefusedError, match=r"403 .*somebody.*(?s:.*)grant the permission"):
                await client.list(NODES)

    run(story())


def test_a_kind_that_is_not_installed_is_not_found(control_plane: ControlPlane) -> None:
    async def story() -> None:
        async with client_of(control_plane) as client:
            with pytest.raises(NotFoundError):
                await client.list(Resource("nothing.example.com/v1", "nothings", ConfigMap))

    run(story())


def service_account(plane: ControlPlane, workspace: Workspace, folder: Path, token: str) -> None:
    """A service account's folder, as the kubelet makes it in a pod."""
    (folder / "token").write_text(token)
    (folder / "namespace").write_text(workspace.namespace)
    (folder / "ca.crt").write_bytes(plane.authority.own.certificate.read_bytes())


def new_token(api: Api, workspace: Workspace) -> str:
    """A token of the namespace's default account, which may read its config maps."""
    name, group = "reader", "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]
    api.apply(manifest(f"{group}/v1/Role", name, workspace.namespace, rules=rules))
    subjects = [{"kind": "ServiceAccount", "name": "default", "namespace": workspace.namespace}]
    role = {"apiGroup": group, "kind": "Role", "name": name}
    api.apply(manifest(f"{group}/v1/RoleBinding", name, workspace.namespace, subjects=subjects, roleRef=role))
    path = api.path("v1/ServiceAccount", workspace.namespace, "default", "token")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = api.request("POST", path, request)
    token: str = answer["status"]["token"]
    return token


def test_a_pods_token_is_read_again_once_the_server_no_longer_takes_the_old_one(
    control_plane: ControlPlane, api: Api, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = urlsplit(control_plane.server)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(parts.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(parts.port))
    token = new_token(api, workspace)
    service_account(control_plane, workspace, tmp_path, token + "expired")

    async def story() -> None:
        config = find_config(service_account=tmp_path)
        async with Client(connect(config)) as client:
            selection = Selection(config.namespace)
            with pytest.raises(UnavailableError, match="401"):
                await client.list(CONFIG_MAPS, selection)
            reflector = Reflector(client, CONFIG_MAPS, Store(), selection)
            task = asyncio.create_task(reflector.run())
            service_account(control_plane, workspace, tmp_path, token)
            with within(5.0, "reading the token again"):
                await awaited(reflector.store.wait_synced(), "the token to be read again")
            assert f"{workspace.namespace}/kube-root-ca.crt" in reflector.store.objects
            task.cancel()
            await asyncio.wait([task])

    run(story())


@pytest.mark.usefixtures("custom_kinds")
def test_an_unreadable_object_is_reported_and_does_not_block_other_objects(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    odd, good = workspace.name("odd"), workspace.name("good")

    async def story() -> None:
        async with client_of(control_plane) as client:
            store: Store[DeviceExposurePolicy] = Store()
            reflector = Reflector(client, POLICIES, store)
            task = asyncio.create_task(reflector.run())
            kind = "networking.dra.io/v1alpha1/DeviceExposurePolicy"
            mixed = {"selector": {"cel": "true"}, "exposure": {"additionalAttributes": {"a": ["x", True]}}}
            async with asyncio.timeout(PATIENCE):
                workspace.create(manifest(kind, odd, spec=mixed))
                workspace.create(manifest(kind, good, spec={"selector": {"cel": "true"}}))
                await store.until(lambda: good in store.objects and odd in store.unreadable)
                assert "additionalAttributes" in store.unreadable[odd]
                workspace.api.patch(kind, good, {"spec": mixed})
                await store.until(lambda: good in store.unreadable and good not in store.objects)
                workspace.api.patch(kind, odd, {"spec": {"exposure": None}})
                await store.until(lambda: odd in store.objects and odd not in store.unreadable)
            task.cancel()
            await asyncio.wait([task])

    run(story())


@pytest.mark.usefixtures("custom_kinds")
def test_a_topology_survives_the_way_to_the_server_and_back(control_plane: ControlPlane, workspace: Workspace) -> None:
    name = workspace.name("round-trip")
    steps = [
        {"name": "vf0", "type": "sriov", "selector": {"cel": "true"}, "config": {"vlan": 7}},
        {"name": "bond0", "type": "bond", "dependOn": ["vf0"], "config": {"links": ["{{ vf0.interfaceName }}"]}},
    ]
    workspace.create(manifest("networking.dra.io/v1alpha1/NetworkTopology", name, spec={"steps": steps}))

    async def story() -> None:
        async with client_of(control_plane) as client:
            found = await client.get(TOPOLOGIES, name)
            assert [step.name for step in found.spec.steps] == ["vf0", "bond0"]
            assert found.spec.steps[1].config == {"links": ["{{ vf0.interfaceName }}"]}
            applied = await client.apply(TOPOLOGIES, msgspec.structs.replace(found, metadata=ObjectMeta(name=name)))
            assert applied.spec == found.spec

    run(story())
