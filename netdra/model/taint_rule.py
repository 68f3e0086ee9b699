"""DeviceTaintRule (resource.k8s.io/v1): a taint on devices beside those in their slices, as the controller writes it.

Follows k8s.io/api/resource/v1. `netdra.cluster.objects.TaintRule` reads those of administrators.
"""

from __future__ import annotations

from typing import Literal

from netdra.model.meta import ObjectMeta
from netdra.model.resource import API_VERSION, DeviceTaint, Wire


class DeviceTaintSelector(Wire, frozen=True):
    """The one device that a rule of netdra taints."""

    driver: str
    pool: str
    device: str


class DeviceTaintRuleSpec(Wire, frozen=True):
    """A taint for exactly one device: netdra writes no rule that matches several."""

    device_selector: DeviceTaintSelector
    taint: DeviceTaint


class DeviceTaintRule(Wire, frozen=True, omit_defaults=False):
    """A rule as the controller writes it, in `resource.k8s.io/v1`; rules of others are read by another type."""

    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec
    api_version: Literal["resource.k8s.io/v1"] = API_VERSION
    kind: Literal["DeviceTaintRule"] = "DeviceTaintRule"
