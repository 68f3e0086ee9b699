"""The corrections of an author of a pod or workload who follows a hint; as those of `tests.corrections`."""

from __future__ import annotations

import re

from tests.corrections import Place, Value, holder


def _pod(value: Value, path: Place) -> Value:
    """The pod's spec that a place is in."""
    ends = [at for at, part in enumerate(path) if part in ("containers", "resourceClaims")]
    return holder(value, path[: ends[0] + 1])


def list_claim(value: Value, path: Place, found: re.Match[str]) -> bool:
    for container in _pod(value, path)["containers"]:
        listed = container.setdefault("resources", {}).setdefault("claims", [])
        listed[:] = [each for each in listed if each["name"] != found["meant"]] + [{"name": found["meant"]}]
    return True


def move(value: Value, _path: Place, found: re.Match[str]) -> bool:
    value["metadata"]["namespace"] = found["meant"]
    return True


def refer_by(value: Value, path: Place, found: re.Match[str]) -> bool:
    reference = holder(value, path)
    reference[found["meant"]] = reference.pop(path[-1])
    return True


def own_claims(value: Value, path: Place, _: re.Match[str]) -> bool:
    reference = holder(value, path)
    del reference[path[-1]]
    reference["resourceClaimTemplateName"] = "lan"
    return True


def add_hugepages(value: Value, path: Place, _: re.Match[str]) -> bool:
    resources = holder(value, path[:-2])["resources"]
    resources["limits"] = {**resources.get("limits", {}), "hugepages-1Gi": "2Gi"}
    _pod(value, path)["volumes"] = [{"name": "huge", "emptyDir": {"medium": "HugePages"}}]
    return True


def add_claim(value: Value, path: Place, found: re.Match[str]) -> bool:
    _pod(value, path)["resourceClaims"] = [{"name": found["meant"], "resourceClaimTemplateName": "lan"}]
    return True
