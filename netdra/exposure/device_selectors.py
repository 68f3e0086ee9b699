"""Selectors of devices that read facts which devices do not carry: of pooled VFs (D53), or by a policy's choice (D25).

Called at admission and by `netdra validate`, for the warnings of topologies, claims and DeviceClasses. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from netdra.cel import CelCompileError, CelEvaluationError, compile_selector, device_variables
from netdra.model import names
from netdra.model.inventory import CHOSEN_ATTRIBUTES, Interface, attributes
from netdra.model.policy import DeviceExposurePolicy, Exposure
from netdra.model.suggestions import listed

SINGLE = ("ifName", "mac", "pciAddress", "vfIndex")
"""The attributes that tell one VF from another; a device of pooled VFs has them empty, and vfIndex -1."""
_ATTRIBUTE = re.compile(r"\[\s*[\"']" + re.escape(names.DRIVER) + r"[\"']\s*\]\.(\w+)")
_CHOSEN = frozenset(CHOSEN_ATTRIBUTES)
_POOL = attributes(Interface(type="vf", called="vfs"))


def pooling(policies: Iterable[DeviceExposurePolicy]) -> str:
    """The policies with pooledVFs in words, "" without any."""
    found = sorted(policy.name for policy in policies if (policy.spec.exposure or Exposure()).pooled_vfs is not None)
    return listed((f'"{name}"' for name in found), 3)


def single_vf(expression: str, policies: Iterable[DeviceExposurePolicy]) -> str:
    """Why a selector of devices selects no pooled VF, "" if it may, or if it does not mean VFs.

    Args:
        expression: a selector that compiles.
        policies: those of the cluster; without pooledVFs in any, nothing is wrong.
    """
    used = set(_ATTRIBUTE.findall(expression))
    if not ("vfIndex" in used or re.search(r"[\"']vf[\"']", expression)) or re.search(r"\|\||\?", expression):
        return ""
    # Of all policies last: there may be thousands of them, and few selectors mean a single VF.
    if not used.intersection(SINGLE) or not (pools := pooling(policies)):
        return ""
    for part in expression.split("&&"):
        asked = [name for name in _ATTRIBUTE.findall(part) if name in SINGLE]
        if asked and len(asked) == len(_ATTRIBUTE.findall(part)) and not _holds(part):
            return (
                f"requires {asked[0]} of a single VF and therefore never selects devices of pooledVFs "
                f"(policy {pools}), which represent several VFs; to select a certain VF, offer each VF "
                "as its own device"
            )
    return ""


def left_out_fact(expression: str, policies: Iterable[DeviceExposurePolicy]) -> tuple[str, str] | None:
    """The first fact that a selector reads without asking for it, and that a policy's `facts` leaves out, and the hint.

    Args:
        expression: a selector that compiles.
        policies: those of the cluster; without `facts` in any, nothing is wrong.
    """
    used = [name for name in dict.fromkeys(_ATTRIBUTE.findall(expression)) if names.qualified(name) in _CHOSEN]
    for name in used:
        if re.search(rf"[\"']{name}[\"']\s*in\b|has\([^)]*\.{name}\)|\.\?{name}\b", expression):
            continue
        lacking = sorted(policy.name for policy in policies if _leaves_out(policy, names.qualified(name)))
        if lacking:
            told = listed((f'"{policy}"' for policy in lacking), 3)
            return (
                f"reads {name}, which devices of policy {told} do not have: if it fails on any device, the claim fails",
                f'test whether it exists first: "{name}" in device.attributes["{names.DRIVER}"] && ...',
            )
    return None


def _leaves_out(policy: DeviceExposurePolicy, name: str) -> bool:
    facts = (policy.spec.exposure or Exposure()).facts
    return facts is not None and name not in map(names.qualified, facts)


def _holds(part: str) -> bool:
    """Whether a part of a selector is true, or may be, of a device of pooled VFs."""
    try:
        return compile_selector(part.strip()).matches(device_variables(names.DRIVER, _POOL))
    except (CelCompileError, CelEvaluationError):
        return True
