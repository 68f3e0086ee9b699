"""DeviceParameters (networking.dra.io/v1alpha1): how a device is attached that no NetworkTopology describes.

Opaque configuration of a DeviceClass that an administrator wrote; never an object of its own, and in a claim it is
ignored (decision D32). Read by `netdra.topology.plain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

KIND = "DeviceParameters"


class DeviceStep(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The one step that a device is attached with.

    Attributes:
        type: the CNI plugin.
        config: its configuration; it cannot refer to other steps.
        execution: `Binary` runs the plugin's binary even where netdra has the type built in.
    """

    type: str
    config: Mapping[str, Any] = {}
    execution: Literal["Auto", "Binary"] = "Auto"


class DeviceParameters(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The parameters of a DeviceClass for its devices."""

    step: DeviceStep
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["DeviceParameters"]
