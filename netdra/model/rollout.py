"""What the cluster reports of an object, in an object of its own that no node watches (decision D54).

NetworkTopologyUsage, DeviceExposurePolicyRollout and CustomDeviceRollout (networking.dra.io/v1alpha1, cluster-scoped):
one for each NetworkTopology, DeviceExposurePolicy and CustomDevice, with its name, and deleted with it. The controller
alone writes them. They have no spec, so their status is no subresource: one request writes all.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from netdra.model.meta import MAX_REPORTED, Condition, ObjectMeta


class ClaimFailure(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The error of one claim.

    Attributes:
        claim: The claim, as `<namespace>/<name>`.
        node: The node on which it fails.
        message: Why its device is not ready; the claim has the whole text in `status.devices`.
        time: Since when its device is not ready, in RFC 3339.
    """

    claim: str
    node: str = ""
    message: str = ""
    time: str = ""


class FailingClaims(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The claims whose devices are not ready.

    Attributes:
        number: How many claims fail.
        nodes: Some of the nodes on which they fail; at most 16 are kept.
        claims: Some of these claims, as `<namespace>/<name>`; at most 16 are kept.
        last_error: The claim that failed last.
    """

    number: int
    nodes: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_REPORTED)] = ()
    claims: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_REPORTED)] = ()
    last_error: ClaimFailure | None = None


class NetworkTopologyUsageStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The claims that use a topology.

    Attributes:
        users: How many claims are allocated through its DeviceClasses.
        used_by: Some of these claims, as `<namespace>/<name>`; at most 16 are kept.
        failing_claims: Those of these claims that fail.
        conditions: `InUse`: claims are allocated through its DeviceClasses; while pods are attached with them, its
            steps cannot be changed. `Degraded`: claims fail, see failingClaims.
    """

    users: int = 0
    used_by: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_REPORTED)] = ()
    failing_claims: FailingClaims = FailingClaims(number=0)
    conditions: tuple[Condition, ...] = ()


class NetworkTopologyUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The claims that use the NetworkTopology of the same name. There is nothing in it to change.

    Attributes:
        status: The claims that use the topology; written by netdra.
    """

    metadata: ObjectMeta
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["NetworkTopologyUsage"]
    status: NetworkTopologyUsageStatus | None = None


class PolicyProblem(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Something about a policy that an administrator should mend, seen on one node or more.

    Attributes:
        message: What is wrong, with the expression and the place in it where CEL failed.
        node: A node on which it was seen.
        nodes: On how many nodes it was seen.
        interfaces: On how many interfaces of these; 0 if it is about the policy as a whole.
    """

    message: str
    node: str = ""
    nodes: int = 0
    interfaces: int = 0


class DeviceExposurePolicyRolloutStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a policy on the cluster's nodes. Numbers are written also where they are 0: columns show them.

    Attributes:
        observed_generation: The generation of the policy that this status is about.
        nodes: How many nodes the policy holds on, as their NodeNetworks report.
        updated_nodes: How many of these follow this generation of the policy.
        devices: How many devices it publishes there.
        conditions: `Degraded`: the policy fails on some node, see problems, or claims of its devices fail, see
            failingClaims. `Overlapping`: another policy takes devices that this one matches.
        failing_claims: The claims of its devices that fail.
        problems: What failed where, one entry for each different message; at most 16 are kept.
    """

    observed_generation: int = 0
    nodes: int = 0
    updated_nodes: int = 0
    devices: int = 0
    conditions: tuple[Condition, ...] = ()
    failing_claims: FailingClaims = FailingClaims(number=0)
    problems: Annotated[tuple[PolicyProblem, ...], msgspec.Meta(max_length=MAX_REPORTED)] = ()


class DeviceExposurePolicyRollout(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result of the DeviceExposurePolicy of the same name on the nodes. There is nothing in it to change.

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
        observed_generation: The generation of the CustomDevice that this status is about.
        desired_number: How many devices it selects.
        applied_number: How many of them are published with all of it.
        conditions: `Applied`: every device has it.
        refusals: Why some do not, one entry for each different reason; at most 16 are kept.
    """

    observed_generation: int = 0
    desired_number: int = 0
    applied_number: int = 0
    conditions: tuple[Condition, ...] = ()
    refusals: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_REPORTED)] = ()


class CustomDeviceRollout(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The devices that have the attributes and capacity of the CustomDevice of the same name.

    There is nothing in it to change.

    Attributes:
        status: How many devices the CustomDevice selects, and how many have it; written by netdra.
    """

    metadata: ObjectMeta
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["CustomDeviceRollout"]
    status: CustomDeviceRolloutStatus | None = None
