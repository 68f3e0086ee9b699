"""Whether a request may take a tainted device.

Called by `search` and `explain`. Follows k8s.io/dynamic-resource-allocation v0.37, resourceclaim/devicetoleration.go;
which effects block at all is judged by `pools`.
"""

from __future__ import annotations

from collections.abc import Iterable

from netdra.model.claim import DeviceToleration
from netdra.model.resource import DeviceTaint


def untolerated(taints: Iterable[DeviceTaint], tolerations: Iterable[DeviceToleration]) -> DeviceTaint | None:
    """The first taint that no toleration covers."""
    tolerations = tuple(tolerations)
    for taint in taints:
        if not any(_tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    return (
        toleration.effect in ("", taint.effect)
        and toleration.key in ("", taint.key)
        and (toleration.operator == "Exists" or toleration.value == taint.value)
    )
