"""The decisions of exposure: the devices to offer, their counters for exclusion, and the reason for each decision.

Made by `netdra.exposure`, packed into ResourceSlices by `netdra.slices`, shown to the user by `netdra explain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from netdra.model.inventory import AttributeValue, Interface
from netdra.model.kept import Keep
from netdra.model.policy import ResetPolicy
from netdra.model.registration import RegistrationOutcome
from netdra.model.resource import DeviceAttribute, DeviceCapacity, DeviceTaint


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """The features of the API server (decisions D1, D6); the defaults are those of Kubernetes 1.37.

    Attributes:
        partitionable_devices: shared counters (gate DRAPartitionableDevices).
        consumable_capacity: allowMultipleAllocations and request policies (gate DRAConsumableCapacity).
        list_attributes: list values of attributes (gate DRAListTypeAttributes, off by default).
        device_taints: taints in slices (gate DRADeviceTaints).
    """

    partitionable_devices: bool = True
    consumable_capacity: bool = True
    list_attributes: bool = False
    device_taints: bool = True


DEFAULT_FEATURES = Features()


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """The VFs behind a device of pooled VFs (decision D53).

    Attributes:
        interface: the facts that its VFs share, under the device's name.
        vfs: the identities of the VFs that a claim of the PF can be given; all lanes of a policy have the same.
    """

    interface: Interface
    vfs: tuple[str, ...]


class ExposedDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One persona of one interface, to be published as one device.

    Attributes:
        name: its DNS label, unique in the pool.
        attributes: under qualified names; a tuple is published as a list or in D6's comma form.
        registered: attributes of providers, under qualified names (decision D47).
        capacity: under qualified names, those of providers among them.
        shared: whether several claims may have it at once.
        consumes: counter set -> counter -> amount.
        interface: the identity of the interface that it is a persona of.
        policy: the policy that exposes it.
        plugins: the CNI plugins that the policy lists, whether the node has them or not.
        allow_host_use: whether the policy allows that it is taken from the host while the host uses it.
        allow_host_addresses: the same, while the host has addresses and routes on it and no other use of it.
        keep: what of its configuration on the node the policy lets a pod keep.
        allowed_sysctls: what of a pod's namespace the policy lets steps with it set.
        reset: when the policy has it reset after a pod had it, if it is a VF.
        lane: the VFs of a device of pooled VFs, which is a persona of no single interface.
    """

    name: str
    pool: str
    interface: str
    policy: str
    plugins: tuple[str, ...] = ()
    attributes: Mapping[str, AttributeValue] = {}
    registered: Mapping[str, DeviceAttribute] = {}
    capacity: Mapping[str, DeviceCapacity] = {}
    shared: bool = False
    allow_host_use: bool = False
    allow_host_addresses: bool = False
    keep: tuple[Keep, ...] = ()
    allowed_sysctls: tuple[str, ...] = ()
    reset: ResetPolicy = "IfChanged"
    consumes: Mapping[str, Mapping[str, int]] = {}
    taints: tuple[DeviceTaint, ...] = ()
    lane: Lane | None = None


class ExposedCounterSet(msgspec.Struct, frozen=True, kw_only=True):
    """A counter set of a pool: counter -> amount."""

    name: str
    pool: str
    counters: Mapping[str, int]


Outcome = Literal["wins", "excludes", "outranked", "overruled", "no-match", "other-node", "failed", "invalid"]


class PolicyVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The verdict of one policy on one interface.

    Attributes:
        outcome: `wins` (it makes a device), `excludes`, `outranked` (by a policy of the same suffix), `overruled`
            (an exclude stands against it, or the built-in protection of the host's interfaces), `no-match`,
            `other-node`, `failed` (its expression failed on this interface), `invalid` (the policy itself cannot be
            used).
        detail: the reason in words, with expression and position where CEL failed.
        by: of one that is outranked, the policy that makes the device instead.
    """

    policy: str
    action: Literal["expose", "exclude"]
    priority: int
    outcome: Outcome
    detail: str = ""
    suffix: str = ""
    by: str = ""


Hidden = Literal[
    "no-match",
    "no-answer",
    "excluded",
    "exclude-failed",
    "uplink",
    "uplink-unknown",
    "host-use",
    "host-use-unknown",
    "peer-unknown",
    "representor",
    "loopback",
    "device-file",
    "no-file",
    "not-publishable",
]
"""Why an interface is hidden: no policy matches it, or of some it is not known; an exclude policy matches it, or fails
on it and may mean it; the node's own traffic needs it, or may; the host uses it and policies offer it whole, or it may;
the other end of its pair may be in a pod; it represents another function and no policy asks for that; it is `lo`; it is
only a file and no policy asks for what is registered; its file is not there or not allowed; what policies make of it
cannot be published.
"""


POOLED = "pooled: "
"""The begin of the reason of a VF that is one of those of a device of pooled VFs."""


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Why an interface is offered or hidden.

    Attributes:
        interface: the interface's identity; `if_name` and `device_name` are how it is called.
        exposed: the names of the devices that it became; none means hidden.
        reason: the decision in one sentence.
        hidden: the reason for no devices, as one word for programs; None with devices.
        verdicts: every policy, in the order of their names.
        pooled: the devices of pooled VFs that it is one VF of: a claim of one of them may get it, or another VF.
    """

    interface: str
    if_name: str
    device_name: str
    reason: str
    exposed: tuple[str, ...] = ()
    hidden: Hidden | None = None
    verdicts: tuple[PolicyVerdict, ...] = ()
    pooled: tuple[str, ...] = ()


LeftOut = Literal["feature-gate", "in-use", "limit", "name-taken", "policy-failed", "policy-invalid"]
"""Why a device is not published: the API server lacks a feature for it, what claims hold leaves no counters for it, the
API has no room for what it is, another device has its name, or its policy fails on the interface or is wrong in itself.
"""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something an administrator should fix: a policy that fails or cannot be used, a device left out.

    Attributes:
        policy: the policy concerned, "" without one.
        message: what is wrong, in words.
        interface: the identity of the interface that it is about, "" if it is about none.
        left_out: why there are devices less; None if nothing is left out for it.
        device: the interface as its devices are called, "" if it is about none.
        cause: the message without what differs from interface to interface; "" if it is about one alone.
    """

    policy: str
    message: str
    interface: str = ""
    left_out: LeftOut | None = None
    device: str = ""
    cause: str = ""


class ExposureResult(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that a node offers, and why. Devices are in the order in which they are published.

    Attributes:
        outcomes: the outcomes of providers' registrations for these devices.
    """

    devices: tuple[ExposedDevice, ...] = ()
    counter_sets: tuple[ExposedCounterSet, ...] = ()
    decisions: tuple[Decision, ...] = ()
    problems: tuple[Problem, ...] = ()
    outcomes: tuple[RegistrationOutcome, ...] = ()
