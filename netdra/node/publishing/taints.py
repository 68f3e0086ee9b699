"""The taints that tell what became of devices which claims hold: gone, withdrawn, in trouble.

Called by `netdra.node.publishing.offering`. Pure. The taint of a link that is down is the exposure's. Of a device that
is gone, the policy that offered it last says what its taint does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from netdra.exposure import Exposer
from netdra.model import names
from netdra.model.policy import TaintEffect, Taints
from netdra.model.resource import Device, DeviceTaint, ResourceSlice
from netdra.node.publishing.facts import Known
from netdra.topology.devices import DeviceKey

Gone = Mapping[DeviceKey, TaintEffect]
"""The devices whose interface is gone, and what their taint does."""
_DEFAULT = Taints().gone
_OURS = frozenset({names.GONE, names.WITHDRAWN, names.TROUBLE})


def gone_effects(gone: Mapping[DeviceKey, Known], exposer: Exposer, before: Gone) -> Gone:
    """What the taint of each gone device does.

    The policy that offered it last decides, as it reads now; once that is deleted, the default holds. After a restart
    it may not be known: then it is the policy that would offer the device if its interface were still there, and
    where there is none, what was published stays.

    Args:
        gone: what is known of the devices.
        exposer: the policies.
        before: what was decided, or published, until now.
    """
    found: dict[DeviceKey, TaintEffect] = {}
    for key, known in gone.items():
        policy = known.policy or exposer.policy_of(known.interface, key[1])
        fallback = _DEFAULT if policy else before.get(key, _DEFAULT)
        found[key] = exposer.gone_effect(policy) or fallback
    return found


def published_gone(published: Iterable[Sequence[ResourceSlice]]) -> Gone:
    """The devices that were gone when the slices were written."""
    return {
        (one.spec.pool.name, device.name): "NoExecute" if taint.effect == "NoExecute" else "NoSchedule"
        for slices in published
        for one in slices
        for device in one.spec.devices
        for taint in device.taints
        if taint.key == names.GONE
    }


def marked(device: Device, *, here: bool, gone: TaintEffect | None, withdrawn: bool, trouble: str) -> Device:
    """A device with the taints that its state asks for; those that exposure gave to one that is here stay."""
    taints = [taint for taint in device.taints if here and taint.key not in _OURS]
    if gone:
        taints.append(DeviceTaint(key=names.GONE, effect=gone))
    elif withdrawn:
        taints.append(DeviceTaint(key=names.WITHDRAWN, effect="NoSchedule"))
    if trouble:
        taints.append(DeviceTaint(key=names.TROUBLE, value=names.label_value(trouble), effect="NoSchedule"))
    return device if tuple(taints) == device.taints else msgspec.structs.replace(device, taints=tuple(taints))
