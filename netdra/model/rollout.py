"""The cluster's report on an object, in an object of its own that no node watches (decision D54).

NetworkTopologyUsage, DeviceExposurePolicyRollout and CustomDeviceRollout (networking.dra.io/v1alpha1, cluster-scoped):
one for each NetworkTopology, DeviceExposurePolicy and CustomDevice, with its name, and deleted with it. The controller
alone writes them. They have no spec, so their status is not a subresource: one request writes all.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from netdra.model.meta import MAX_REPORTED, Condition, ObjectMeta


class ClaimFailure(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The error of one claim.

    Attributes:
        claim: The claim, as `<namespace>/<name>`, e.g. `apps/db-0-net`.
        node: The node on which the claim fails, e.g. `worker-1`. If absent, the node is not known.
        message: The reason why the claim's device is not ready, e.g. `no such device`. The whole text is in the claim's
            `status.devices`. If absent, the driver reported no reason.
        time: The time since which the claim's device is not ready, in RFC 3339, e.g. `"2026-11-27T10:00:00Z"`. If
            absent, it is not known.
    """

    claim: str
    node: str = ""
    message: str = ""
    time: str = ""


class FailingClaims(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The claims whose devices are not ready.

    Attributes:
        number: The number of claims that fail, e.g. `2`.
        nodes: Some of the nodes on which they fail, e.g. `[worker-1]`; at most 16 are kept. If absent, they are not
            known.
        claims: Some of these claims, as `<namespace>/<name>`, e.g. `[apps/db-0-net]`; at most 16 are kept. If absent,
            none fails.
        last_error: The claim that failed last, e.g. `{claim: apps/db-0-net, message: no such device}`. If absent, none
            fails.
    """

    number: int
    nodes: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_REPORTED)] = ()
    claims: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_REPORTED)] = ()
    last_error: ClaimFailure | None = None


class NetworkTopologyUsageStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The claims that use a topology.

    Attributes:
        users: The number of claims that are allocated through the topology's DeviceClasses, e.g. `3`.
        used_by: Some of these claims, as `<namespace>/<name>`, e.g. `[apps/db-0-net]`; at most 16 are kept. If absent,
            no claim uses it.
        failing_claims: The claims of the topology that fail, e.g. `{number: 2}`. If absent, none fails.
        conditions: The state of its use, e.g. `[{type: InUse, status: "True"}]`. `InUse`: claims are allocated through
            the topology's DeviceClasses; while a pod uses the topology, its steps cannot be changed. `Degraded`: claims
            fail (see `failingClaims`). If absent, the controller has not counted them yet.
    """

    users: int = 0
    used_by: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_REPORTED)] = ()
    failing_claims: FailingClaims = FailingClaims(number=0)
    conditions: tuple[Condition, ...] = ()


class NetworkTopologyUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The claims that use the NetworkTopology of the same name. netdra writes the object; do not edit it.

    Attributes:
        status: The claims that use the topology; written by netdra.
    """

    metadata: ObjectMeta
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["NetworkTopologyUsage"]
    status: NetworkTopologyUsageStatus | None = None


class PolicyProblem(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A problem of a policy that an administrator should solve, on one node or several.

    Attributes:
        message: The error, with the CEL expression and the position at which it failed, e.g. `no such key: rdma`.
        node: A node that reports the problem, e.g. `node-1`. If absent, no node is known.
        nodes: The number of nodes that report the problem, e.g. `5`.
        interfaces: The number of interfaces of these nodes that the problem concerns, e.g. `12`; 0 if it concerns the
            policy as a whole.
    """

    message: str
    node: str = ""
    nodes: int = 0
    interfaces: int = 0


class DeviceExposurePolicyRolloutStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a policy on the cluster's nodes. Numbers are written also where they are 0: columns show them.

    Attributes:
        observed_generation: The generation of the policy that this status describes, e.g. `3`.
        nodes: The number of nodes that the policy applies to, as their NodeNetworks report, e.g. `120`.
        updated_nodes: The number of these nodes that use this generation of the policy, e.g. `118`.
        devices: The number of devices that the policy publishes on these nodes, e.g. `960`.
        conditions: The state of its rollout, e.g. `[{type: Degraded, status: "False"}]`. `Degraded`: the policy fails
            on a node (see `problems`), or claims of its devices fail (see `failingClaims`). `Overlapping`: another
            policy offers devices that this policy matches, too. If absent, the controller has not read any report yet.
        failing_claims: The claims of the policy's devices that fail, e.g. `{number: 2}`. If absent, none fails.
        problems: The problems that nodes report, one entry for each different message, e.g. `[{message: "no such key:
            rdma", nodes: 5}]`; at most 16 are kept. If absent, no node reports one.
    """

    observed_generation: int = 0
    nodes: int = 0
    updated_nodes: int = 0
    devices: int = 0
    conditions: tuple[Condition, ...] = ()
    failing_claims: FailingClaims = FailingClaims(number=0)
    problems: Annotated[tuple[PolicyProblem, ...], msgspec.Meta(max_length=MAX_REPORTED)] = ()


class DeviceExposurePolicyRollout(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result of the DeviceExposurePolicy of the same name on the nodes. netdra writes the object; do not edit it.

    Attributes:
        status: The result of the policy on the cluster's nodes; written by netdra.
    """

    metadata: ObjectMeta
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["DeviceExposurePolicyRollout"]
    status: DeviceExposurePolicyRolloutStatus | None = None


class CustomDeviceRolloutStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many devices a CustomDevice selects, and how many have its attributes and capacity.

    Attributes:
        observed_generation: The generation of the CustomDevice that this status describes, e.g. `3`.
        desired_number: The number of devices that the CustomDevice selects, e.g. `8`.
        applied_number: The number of these devices that are published with all its attributes and capacities, e.g. `7`.
        conditions: The state of its rollout, e.g. `[{type: Applied, status: "True"}]`. `Applied`: all selected devices
            have the attributes and capacity. If absent, the controller has not read any report yet.
        refusals: The reasons why some devices do not have its attributes and capacity, each reason once, e.g. `[the
            device already has 32 attributes and capacities]`; at most 16 are kept. If absent, all selected devices have
            them.
    """

    observed_generation: int = 0
    desired_number: int = 0
    applied_number: int = 0
    conditions: tuple[Condition, ...] = ()
    refusals: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_REPORTED)] = ()


class CustomDeviceRollout(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The devices that have the attributes and capacity of the CustomDevice of the same name.

    netdra writes the object; do not edit it.

    Attributes:
        status: The numbers of devices that the CustomDevice selects, and that have its attributes; written by netdra.
    """

    metadata: ObjectMeta
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["CustomDeviceRollout"]
    status: CustomDeviceRolloutStatus | None = None
