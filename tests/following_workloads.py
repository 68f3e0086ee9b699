"""How hints about pods, workloads and claims are followed: rules for `tests.following`, and their corrections."""

from __future__ import annotations

import re

from tests import corrections
from tests.corrections import Correction, Place, Value, holder


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


RULES: tuple[tuple[re.Pattern[str], Correction], ...] = (
    (
        re.compile(
            r"; (?:the claim's requests|the pod's claims|its requests|the classes|its root steps) are "
            r"(?:[^;]*, )?(?P<meant>[\w/-]+)\Z"
        ),
        corrections.write_name,
    ),
    (re.compile(r"; add \{name: (?P<meant>[\w-]+)\} to resources\.claims "), list_claim),
    (re.compile(r'; it exists in namespace "(?P<meant>[^"]+)", but '), move),
    (re.compile(r": set (?P<meant>resourceClaim\w*Name)\Z"), refer_by),
    (
        re.compile(r"; set (?P<meant>resourceClaimName) or resourceClaimTemplateName\Z"),
        corrections.add(resourceClaimName="one"),
    ),
    (re.compile(r"; remove hostNetwork: "), corrections.remove),
    (re.compile(r"; add limits, e\.g\. hugepages-1Gi: 2Gi, and a volume "), add_hugepages),
    (re.compile(r'lists claim "(?P<meant>[^"]+)", .*; add it to resourceClaims\Z'), add_claim),
    (re.compile(r"; use unique names\Z"), corrections.put(lambda name: f"{name}-2")),
    (re.compile(r"; set it in a claim \(perPod, in a StatefulSet\), or "), corrections.put("numbered")),
    (re.compile(r"; create one claim per pod: "), own_claims),
)
