"""Inspects a cluster through the API server. Writes nothing: requests to try are dry runs.

Called by `netdra doctor`. Objects that the user may not see are `Unseen`, and the rest continues. Of Kubernetes'
objects as much is modelled here as is read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from cryptography import x509

from netdra.admission.keeper import CONFIGURATIONS, WebhookConfiguration, configurations
from netdra.doctor import process_look
from netdra.doctor.cluster_verdicts import (
    ClusterFacts,
    Component,
    Definition,
    ReportFacts,
    ReviewFacts,
    SummaryFacts,
    WebhookFacts,
)
from netdra.doctor.diagnosis import Unseen, attempt
from netdra.doctor.rights import PROCESSES, Right, needed
from netdra.kube.client import Client
from netdra.kube.errors import NotFoundError, RefusedError
from netdra.kube.features import probe
from netdra.kube.resources import (
    CUSTOM_DEVICE_ROLLOUTS,
    CUSTOM_DEVICES,
    NODE_REPORTS,
    NODES,
    POD_NETWORKS,
    POLICIES,
    POLICY_ROLLOUTS,
    SCHEMAS,
    TOPOLOGIES,
    TOPOLOGY_USAGES,
    Resource,
)
from netdra.model import crd, kinds
from netdra.model.core import BareObject
from netdra.model.errors import NetdraError, PermanentError
from netdra.model.findings import Finding
from netdra.model.meta import Condition, ObjectMeta
from netdra.model.node_network import NodeNetworkReport, ReportedStatus
from netdra.model.resource import Wire
from netdra.model.topology import NetworkTopology
from netdra.review import objects
from netdra.review.world import world_of
from netdra.rules import runnable

AT_ONCE = 8
NO_NODE = "netdra-doctor"
_DENIED = 'admission webhook "validate.networking.dra.io" denied'


class DefinitionStatus(Wire, frozen=True):
    """Whether the kind is served."""

    conditions: tuple[Condition, ...] | None = ()


class CustomResourceDefinition(BareObject, frozen=True):
    """A kind as the API server knows it; its spec is compared as plain data."""

    spec: Any
    status: DefinitionStatus = DefinitionStatus()


class Review(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question to the API server, and its answer."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = {}
    status: Mapping[str, Any] = {}


class WrittenPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A policy as it is sent."""

    api_version: str
    kind: str
    metadata: ObjectMeta
    spec: Any = None


DEFINITIONS = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", CustomResourceDefinition)
WHO_AM_I = Resource("authentication.k8s.io/v1", "selfsubjectreviews", Review)
MAY_I = Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews", Review)
MAY_THEY = Resource("authorization.k8s.io/v1", "subjectaccessreviews", Review)
WRITTEN_POLICIES = Resource(POLICIES.group_version, POLICIES.plural, WrittenPolicy)

WRONG_POLICY = WrittenPolicy(
    api_version=POLICIES.group_version,
    kind="DeviceExposurePolicy",
    metadata=ObjectMeta(generate_name="netdra-doctor-"),
    spec={"selector": {"cel": "device.driver =="}},
)
"""A policy that the API server takes by its schema, and the webhook refuses."""


async def look(client: Client, namespace: str, name: str = "netdra", node: str = "") -> ClusterFacts:
    """All facts about a cluster.

    Args:
        client: the way to it.
        namespace: netdra's.
        name: what its objects are called.
        node: whose slices are tried; any node's where it is not given.

    Raises:
        ApiError: the API server does not answer.
    """
    server = str(msgspec.json.decode(await client.read("/version", "version"))["gitVersion"])
    nodes = await attempt(client.list(NODES))
    components = await attempt(process_look.components(client, namespace))
    any_node = "" if isinstance(nodes, Unseen) or not nodes else nodes[0].metadata.name
    return ClusterFacts(
        server=server,
        namespace=namespace,
        name=name,
        dra=await attempt(_dra(client)),
        features=await attempt(probe(client, node or any_node or NO_NODE)),
        definitions=await attempt(_definitions(client)),
        webhook=await attempt(_webhook(client, configurations(name))),
        lacking=await attempt(_find_lacking(client, namespace, name)),
        nodes=nodes if isinstance(nodes, Unseen) else tuple(nodes),
        components=components,
        reports=await attempt(_reports(client)),
        summaries=await attempt(_summaries(client)),
        not_allowed=await attempt(_not_allowed(client, () if isinstance(components, Unseen) else components)),
        reviews=await attempt(_reviews(client)),
    )


async def _dra(client: Client) -> tuple[str, ...]:
    try:
        group = await client.read("/apis/resource.k8s.io", "apigroups")
    except NotFoundError:
        return ()
    return tuple(version["version"] for version in msgspec.json.decode(group).get("versions", ()))


async def _definitions(client: Client) -> tuple[Definition, ...]:
    return tuple([await _definition(client, kind) for kind in kinds.KINDS])


async def _definition(client: Client, kind: crd.CustomKind) -> Definition:
    try:
        definition = await client.get(DEFINITIONS, kind.name)
    except NotFoundError:
        return Definition(kind.name)
    served = any(
        condition.type == "Established" and condition.status == "True"
        for condition in definition.status.conditions or ()
    )
    return Definition(kind.name, True, served, tuple(differing(crd.manifest(kind)["spec"], definition.spec)))


def differing(wanted: Any, served: Any, path: str = "spec") -> Iterator[str]:
    """The paths of values that are not as they should be; additions of the API server do not count."""
    if isinstance(wanted, Mapping) and isinstance(served, Mapping):
        for name, value in wanted.items():
            below = f"{path}.{name}"
            if name in served:
                yield from differing(value, served[name], below)
            elif value not in ({}, [], "", None, False):
                yield below
    elif isinstance(wanted, list) and isinstance(served, list) and len(wanted) == len(served):
        for index, (value, there) in enumerate(zip(wanted, served, strict=True)):
            yield from differing(value, there, f"{path}[{index}]")
    elif wanted != served:
        yield path


async def _reports(client: Client) -> tuple[ReportFacts, ...]:
    generations = {policy.name: policy.metadata.generation for policy in await client.list(POLICIES)}
    return tuple(_reported(report, generations) for report in await client.list(NODE_REPORTS))


def _reported(report: NodeNetworkReport, generations: Mapping[str, int]) -> ReportFacts:
    status = report.status or ReportedStatus()
    behind = [policy.name for policy in status.policies if policy.generation < generations.get(policy.name, 0)]
    return ReportFacts(report.metadata.name, len(status.problems), tuple(behind))


async def _summaries(client: Client) -> SummaryFacts:
    policies = await client.list(POLICY_ROLLOUTS)
    devices = await client.list(CUSTOM_DEVICE_ROLLOUTS)
    usages = await client.list(TOPOLOGY_USAGES)
    return SummaryFacts(
        policies=len(policies),
        degraded=tuple(
            rollout.metadata.name
            for rollout in policies
            if rollout.status is not None and _is_degraded(rollout.status.conditions)
        ),
        failing={
            usage.metadata.name: usage.status.failing_claims.number
            for usage in usages
            if usage.status is not None and _is_degraded(usage.status.conditions)
        },
        unapplied=tuple(
            rollout.metadata.name
            for rollout in devices
            if rollout.status is not None and rollout.status.applied_number < rollout.status.desired_number
        ),
        users={
            usage.metadata.name: usage.status.users
            for usage in usages
            if usage.status is not None and usage.status.users
        },
    )


async def _not_allowed(client: Client, components: Iterable[Component]) -> dict[str, tuple[Finding, ...]]:
    """By topology, its plugins that nodes do not run; where drivers have different lists, those that one rejects."""
    lists = {component.allow_plugins for component in components if component.part == "node"} or {()}
    named = runnable.NamedPlugins(await client.list(POLICIES)).names
    schemas = await client.list(SCHEMAS)
    found = {
        topology.name: tuple(
            dict.fromkeys(
                finding
                for allowed in sorted(lists)
                for finding in runnable.check_topology(topology, schemas, allowed, named)
            )
        )
        for topology in await client.list(TOPOLOGIES)
    }
    return {name: findings for name, findings in found.items() if findings}


async def _reviews(client: Client) -> ReviewFacts:
    """The errors of stored objects, and the warnings about frames that the pods of a topology may lose."""
    reviewed: tuple[Resource[Any], ...] = (TOPOLOGIES, POLICIES, SCHEMAS, CUSTOM_DEVICES, POD_NETWORKS)
    stored = [value for resource in reviewed for value in await client.list(resource)]
    world = world_of(stored)
    errors = [*objects.errors(stored, world)]
    wrong = {id(value) for value, _ in errors}
    sound = [topology for _, topology in sorted(world.topologies.items()) if id(topology) not in wrong]
    warnings: dict[str, tuple[Finding, ...]] = {}
    for topology, finding in objects.warnings(sound, world):
        if finding.rule and isinstance(topology, NetworkTopology):
            warnings[topology.name] = (*warnings.get(topology.name, ()), finding)
    return ReviewFacts(tuple(finding for _, finding in errors), warnings)


def _is_degraded(conditions: Iterable[Condition]) -> bool:
    return any((condition.type, condition.status) == ("Degraded", "True") for condition in conditions)


async def _webhook(client: Client, names: Sequence[str]) -> WebhookFacts:
    present = {
        configuration.metadata.name: configuration
        for configuration in await client.list(CONFIGURATIONS)
        if configuration.metadata.name in names
    }
    return WebhookFacts(
        configurations={name: trusted_until(policy) for name, policy in present.items()},
        missing=tuple(name for name in names if name not in present),
        answer=await _answer(client) if present else "unasked",
    )


def trusted_until(configuration: WebhookConfiguration) -> datetime | None:
    """When the newest authority ends that each of a configuration's webhooks trusts; None if one trusts none."""
    ends: list[datetime] = []
    for webhook in configuration.webhooks:
        try:
            bundle = base64.b64decode(webhook.client_config.ca_bundle)
            trusted = x509.load_pem_x509_certificates(bundle)
        except (ValueError, binascii.Error):
            return None
        ends.append(max(authority.not_valid_after_utc for authority in trusted))
    return min(ends, default=None)


async def _answer(client: Client) -> str:
    """Have the API server call the webhook for an object that the webhook rejects.

    Raises:
        NetdraError: it refuses at once: the user has not the right, or no such kind exists.
    """
    try:
        await client.create(WRITTEN_POLICIES, WRONG_POLICY, dry_run=True)
    except RefusedError as problem:
        if _DENIED in problem.status.message:
            return "asked"
        raise
    except NotFoundError:
        raise PermanentError(
            "the API server does not serve DeviceExposurePolicy, so the webhook cannot be tried", code="ND3095"
        ) from None
    except NetdraError as problem:
        return problem.what
    return "unasked"


async def _find_lacking(client: Client, namespace: str, installation: str) -> dict[str, tuple[str, ...]]:
    """The rights that the processes lack: all processes where that may be asked, else the asking one."""
    asked = await client.create(WHO_AM_I, Review())
    name = asked.status.get("userInfo", {}).get("username", "")
    prefix = f"system:serviceaccount:{namespace}:{installation}-"
    if name.startswith(prefix) and name.removeprefix(prefix) in PROCESSES:
        process = name.removeprefix(prefix)
        return {process: await _find_denied(client, needed(process, installation), namespace, {})}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return {
        process: await _find_denied(
            client, needed(process, installation), namespace, {"user": f"{prefix}{process}", "groups": groups}
        )
        for process in PROCESSES
    }


async def _find_denied(
    client: Client, rights: Sequence[Right], namespace: str, whose: Mapping[str, Any]
) -> tuple[str, ...]:
    """The rights that a service account, or the user, has not."""
    kind = MAY_THEY if whose else MAY_I
    few = asyncio.Semaphore(AT_ONCE)

    async def ask(right: Right) -> bool:
        attributes = {
            "verb": right.verb,
            "group": right.group,
            "resource": right.resource,
            "subresource": right.subresource,
            "name": right.name,
            "namespace": namespace if right.namespaced else "",
        }
        async with few:
            answer = await client.create(kind, Review(spec={**whose, "resourceAttributes": attributes}))
        return bool(answer.status.get("allowed", False))

    answers = await asyncio.gather(*map(ask, rights))
    return tuple(str(right) for right, held in zip(rights, answers, strict=True) if not held)
