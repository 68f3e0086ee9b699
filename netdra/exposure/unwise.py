"""Warnings for a policy that is valid but is unlikely to do as its author wants. It is never rejected for these.

Called at admission and by `netdra validate`, for policies without errors of `netdra.exposure.check`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import gcd

import msgspec

from netdra.exposure.capacities import amounts, number, sharing
from netdra.exposure.ranks import NO_RIVALS, Rivals
from netdra.model import names, quantity
from netdra.model.device import ExposedDevice, ExposureResult
from netdra.model.findings import Finding, Path
from netdra.model.kept import KEEPING_TYPES
from netdra.model.policy import DeviceExposurePolicy, Exposure
from netdra.model.quantity import BITS_PER_MBIT, MOST_MBITS
from netdra.model.resource import MAX_STRING, CapacityRequestPolicy, DeviceCapacity, QuantityText
from netdra.model.suggestions import closest
from netdra.model.topology import MOVING_TYPES

_EXPOSURE: Path = ("spec", "exposure")
_PLUGINS: Path = (*_EXPOSURE, "supportedCNIPlugins")
_SELECTOR: Path = ("spec", "selector", "cel")
BANDWIDTH, VFS = names.qualified(names.BANDWIDTH), names.qualified(names.VFS)
_ONE_VF = re.compile(r"\.(ifName|mac|pciAddress|vfIndex)\s*==\s*[\"'\d]")
_LIKE = 0.75
"""How alike two names are where one is the other, misspelt."""


def warnings(policy: DeviceExposurePolicy, rivals: Rivals = NO_RIVALS) -> Iterator[Finding]:
    """Warnings for a policy's author.

    Args:
        policy: one that can be used.
        rivals: the other policies of its rank.
    """
    if policy.spec.action != "expose":
        return
    exposure = policy.spec.exposure or Exposure()
    if not exposure.supported_cni_plugins:
        what = "supportedCNIPlugins is empty, so DeviceClasses of NetworkTopologies do not select its devices"
        yield Finding(what, path=_PLUGINS, code="ND1461")
    plugins = [plugin.name for plugin in exposure.supported_cni_plugins]
    if (size := len(",".join(("", *plugins, "")))) > MAX_STRING:
        what = (
            f"the names have {size} bytes as text, but an attribute supports {MAX_STRING}; an API server without list "
            "attributes (the default of Kubernetes 1.37) gets only the first ones"
        )
        yield Finding(
            what, "list fewer plugins, or enable the feature gate DRAListTypeAttributes", _PLUGINS, code="ND1462"
        )
    if exposure.allow_host_uplink:
        what = "allowHostUplink is true, so a pod can get the interface through which the node is reached"
        yield Finding(what, path=(*_EXPOSURE, "allowHostUplink"), code="ND1463")
    if exposure.allow_host_use:
        what = "allowHostUse is true, so a pod can get an interface that the node is using"
        yield Finding(what, path=(*_EXPOSURE, "allowHostUse"), code="ND1464")
    yield from _in_bits(exposure)
    yield from _lost(exposure)
    yield from _kept_in_vain(exposure)
    yield from _pooled(policy.spec.selector.cel, exposure)
    yield from _moved(exposure)
    yield from _never_had(exposure)
    yield from _shadows(policy, rivals)


def _in_bits(exposure: Exposure) -> Iterator[Finding]:
    """Amounts of bandwidth that are written in bits: more than any link has, so no device is offered."""
    amounts_of: list[tuple[Path, QuantityText]] = [
        (("capacity", name, "value"), capacity.value)
        for name, capacity in exposure.capacity.items()
        if names.qualified(name) == BANDWIDTH and capacity.value is not None
    ]
    amounts_of += [
        (("supportedCNIPlugins", at, "consumePerAllocation", name), amount)
        for at, plugin in enumerate(exposure.supported_cni_plugins)
        for name, amount in plugin.consume_per_allocation.items()
        if names.qualified(name) == BANDWIDTH
    ]
    for place, amount in amounts_of:
        mbits = quantity.parse(str(amount))
        if mbits > MOST_MBITS:
            what = f"bandwidth {amount} is {quantity.render(mbits)} Mbit/s"
            yield Finding(
                what, f"write it in Mbit/s, e.g. {int(mbits / BITS_PER_MBIT) or 1}", (*_EXPOSURE, *place), code="ND1465"
            )


def _lost(exposure: Exposure) -> Iterator[Finding]:
    """Addresses that a device has on the node and that its pod would do without."""
    moving = [plugin.name for plugin in exposure.supported_cni_plugins if plugin.name in KEEPING_TYPES]
    allowed = [
        word
        for word, given in (
            ("allowHostAddresses", exposure.allow_host_addresses),
            ("allowHostUse", exposure.allow_host_use),
        )
        if given
    ]
    if moving and allowed and "addresses" not in exposure.keep:
        what = (
            f"{allowed[0]} is set without keep: [addresses], so a device with an address on the node does not have one "
            "in the pod unless a step adds one"
        )
        yield Finding(what, "add keep: [addresses, routes]", (*_EXPOSURE, allowed[0]), code="ND1466")


def _kept_in_vain(exposure: Exposure) -> Iterator[Finding]:
    """Parts of a node's configuration that no offered device can have."""
    kept = [kind for kind in exposure.keep if kind != "mtu"]
    if kept and not (exposure.allow_host_addresses or exposure.allow_host_use):
        what = (
            f"keep: [{', '.join(kept)}] has no effect: without allowHostAddresses, an interface with addresses or "
            "routes on the node is not offered"
        )
        # Pooled VFs never contain one that the host uses.
        hint = "remove keep" if exposure.pooled_vfs is not None else "set allowHostAddresses: true"
        yield Finding(what, hint, (*_EXPOSURE, "keep"), code="ND1467")


def hidden(policies: Iterable[DeviceExposurePolicy]) -> Iterator[tuple[DeviceExposurePolicy, Finding]]:
    """Warnings for policies that offer interfaces hidden by an exclude policy of the same selector, at any priority.

    Args:
        policies: those that are written together and can be used.
    """
    given = tuple(policies)
    excluding = {policy.spec.selector.cel.strip(): policy for policy in given if policy.spec.action == "exclude"}
    for policy in given:
        other = excluding.get(policy.spec.selector.cel.strip())
        if policy.spec.action == "expose" and other is not None:
            nodes = other.spec.node_selector
            if nodes is None or nodes == policy.spec.node_selector:
                what = (
                    f'the selector is also that of exclude policy "{other.name}", which hides everything that '
                    "this policy offers"
                )
                yield policy, Finding(what, "change one of the two", _SELECTOR, code="ND1468")


def of_lanes(result: ExposureResult) -> Iterator[str]:
    """Warnings for the devices of pooled VFs of a node: VFs that the bandwidth does not reach for, and idle lanes."""
    lanes: dict[tuple[str, tuple[str, ...]], list[ExposedDevice]] = {}
    for device in result.devices:
        if device.lane is not None:
            lanes.setdefault((device.policy, device.lane.vfs), []).append(device)
    for (policy, vfs), devices in lanes.items():
        first = devices[0]
        if len(devices) == len(vfs) > 1:
            yield (
                f'policy "{policy}": {first.name} … {devices[-1].name} are as many devices as VFs '
                f"({len(vfs)}); reduce pooledVFs.lanes, because the scheduler searches as long as with "
                "one device per VF"
            )
        bandwidth = first.capacity.get(BANDWIDTH)
        default = _default(bandwidth)
        count = int(quantity.parse(first.capacity[VFS].value))
        if bandwidth is not None and default and default * count > int(quantity.parse(bandwidth.value)):
            served = int(quantity.parse(bandwidth.value)) // default
            yield (
                f'policy "{policy}": {first.name}: {served} claims with the default of {default} '
                f"Mbit/s consume its whole bandwidth of {bandwidth.value}, and {count - served} of its "
                f"{count} VFs remain unused; lower requestPolicy.default"
            )


def _default(capacity: DeviceCapacity | None) -> int:
    policy = capacity.request_policy if capacity is not None else None
    return int(quantity.parse(policy.default or 0)) if policy is not None else 0


def _pooled(selector: str, exposure: Exposure) -> Iterator[Finding]:
    """Pooled VFs that the selector takes one by one, and lanes without bandwidth for a single claim."""
    if exposure.pooled_vfs is None:
        return
    named = _ONE_VF.search(selector)
    if named is not None:
        what = (
            f"the selector selects a VF by {named[1]}, but with pooledVFs a claim gets any VF that the policy selects"
        )
        yield Finding(what, "for claims of a certain VF, remove pooledVFs", _SELECTOR, code="ND1469")
    lanes = exposure.pooled_vfs.lanes
    for name, capacity in exposure.capacity.items():
        value = _whole(capacity.value)
        default = _whole(capacity.request_policy.default) if capacity.request_policy is not None else None
        if value and default and value // lanes < default:
            what = (
                f"if a PF has VFs for {lanes} lanes, each has {value // lanes} of {value}, less than the default of "
                f"{default}, and is not offered"
            )
            hint = "lower requestPolicy.default or pooledVFs.lanes"
            yield Finding(what, hint, (*_EXPOSURE, "capacity", name), code="ND1470")


def misspelt_plugins(policy: DeviceExposurePolicy, types: Iterable[str]) -> Iterator[Finding]:
    """Warnings for plugins that are unknown and called almost like a known one; any other may be a node's own.

    Args:
        policy: one that can be used.
        types: the plugins that are known.
    """
    known = frozenset(types)
    for at, plugin in enumerate((policy.spec.exposure or Exposure()).supported_cni_plugins):
        likely = "" if plugin.name in known else closest(plugin.name, sorted(known), _LIKE)
        if likely:
            what = f'no CNIPluginSchema describes plugin "{plugin.name}"'
            yield Finding(what, f'did you mean "{likely}"?', (*_PLUGINS, at), code="ND1471")


def _moved(exposure: Exposure) -> Iterator[Finding]:
    """Plugins that take away a device that several claims share."""
    if sharing(exposure) == "exclusive":
        return
    plugins = exposure.supported_cni_plugins
    hint = "set exclusive: true"
    if exposure.allow_multiple_allocations and all(each.exclusive or each.name in MOVING_TYPES for each in plugins):
        hint = "set exclusive: true, and remove allowMultipleAllocations"
    for at, plugin in enumerate(plugins):
        if plugin.name in MOVING_TYPES and not plugin.exclusive:
            what = f'plugin "{plugin.name}" moves the device into the pod, and other claims that share it lose it'
            yield Finding(what, hint, (*_PLUGINS, at), code="ND1472")


class _Shares(msgspec.Struct, frozen=True):
    """The amounts of a capacity that claims can consume: each from `least` to `most`, a multiple of `step`.

    A step of 0 means any amount, and a least of 0 that a claim may take next to nothing.
    """

    value: int
    least: int
    most: int
    step: int

    @property
    def claims(self) -> int | None:
        """The largest number of claims that use it up; None without such a number."""
        return self.value // self.least if self.least else None

    def had(self, claims: int | None) -> int:
        """The most that so many claims, or fewer, can have of it together."""
        whole = self.value // self.step * self.step if self.step else self.value
        return whole if claims is None else min(whole, claims * self.most)


def _never_had(exposure: Exposure) -> Iterator[Finding]:
    """Parts of capacities that no claims can have: no amounts add up to them, or another capacity runs out first."""
    if sharing(exposure) == "exclusive":
        return
    shares = {name: share for name in exposure.capacity if (share := _shares(exposure, name)) is not None}
    limits = {name: share.claims for name, share in shares.items() if share.claims is not None}
    scarce = min(limits, key=lambda name: limits[name], default="")
    for name, share in shares.items():
        path: Path = (*_EXPOSURE, "capacity", name)
        alone = share.had(share.claims)
        together = share.had(limits[scarce]) if scarce else share.value
        if alone < share.value:
            rest = f"{share.value - alone} of {share.value}"
            yield Finding(
                f"{rest} can never be allocated: no sum of possible requests exceeds {alone}", path=path, code="ND1473"
            )
        elif together < share.value:
            rest = f"{share.value - together} of {share.value}"
            yield Finding(
                f"{rest} can never be allocated: {limits[scarce]} claims consume all of {scarce}",
                path=path,
                code="ND1474",
            )


def _shares(exposure: Exposure, name: str) -> _Shares | None:
    """The amounts of a capacity that claims can have; None where it is not in whole numbers, which is rare."""
    capacity = exposure.capacity[name]
    value, default = _whole(capacity.value), _whole(amounts(exposure, name)[0])
    if value is None or default is None:
        return None
    policy = capacity.request_policy or CapacityRequestPolicy()
    if policy.valid_range is not None:
        span = policy.valid_range
        least, step = _whole(span.min), _whole(span.step or "0")
        most = value if span.max is None else _whole(span.max)
        if least is None or step is None or most is None:
            return None
        return _Shares(value, min(least, default), max(most, default), gcd(least, step, default) if step else 0)
    choices = [_whole(text) for text in policy.valid_values]
    valid = [choice for choice in choices if choice is not None]
    if not valid or len(valid) < len(choices):
        return None if choices else _Shares(value, 0, value, 0)
    return _Shares(value, min(*valid, default), max(*valid, default), gcd(*valid, default))


def _whole(text: QuantityText | None) -> int | None:
    amount = number(text)
    return int(amount) if amount is not None and amount == int(amount) else None


def _shadows(policy: DeviceExposurePolicy, rivals: Rivals) -> Iterator[Finding]:
    """Policies of the same persona and rank for the same devices: only one of all is used."""
    hint = "give it another selector, priority or deviceNameSuffix"
    for name in rivals.names:
        same = f'the policy has the same selector, priority and suffix as "{name}"'
        if rivals.more:
            same += " and more policies"
        if name < policy.name and rivals.more:
            yield Finding(f"{same}, so it is not used", hint, ("spec",), code="ND1475")
        else:
            yield Finding(f'{same}, so only "{min(name, policy.name)}" is used', hint, ("spec",), code="ND1476")
