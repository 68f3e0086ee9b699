"""The objects that cannot end without netdra: claims with its devices, and no others."""

from __future__ import annotations

import msgspec

from netdra.controller.uninstall import AllocatedClaim, ClaimInUse, holders_of


def claim(name: str, *drivers: str, pods: tuple[str, ...] = ()) -> AllocatedClaim:
    results = [{"driver": driver, "pool": "node-1/data0", "device": "data0", "request": "a"} for driver in drivers]
    users = [{"resource": "pods", "name": pod, "uid": "1"} for pod in pods]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": users} if drivers else {}
    return msgspec.convert({"metadata": {"name": name, "namespace": "apps"}, "status": status}, AllocatedClaim)


def test_claims_with_devices_of_netdras_are_named_with_their_pods_and_devices() -> None:
    found = holders_of(
        [
            claim("unallocated"),
            claim("other", "gpu.example.com"),
            claim("second", "gpu.example.com", "dra.networking", pods=("b", "a")),
            claim("first", "dra.networking"),
        ]
    )
    devices = ("node-1/data0/data0",)
    assert found == [
        ClaimInUse(claim="apps/first", devices=devices),
        ClaimInUse(claim="apps/second", pods=("a", "b"), devices=devices),
    ]


def test_a_claim_that_only_a_pod_group_uses_is_not_shown_as_unused() -> None:
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "ring", "uid": "2"}
    used = claim("shared", "dra.networking")
    used = msgspec.convert(
        {**msgspec.to_builtins(used), "status": {**msgspec.to_builtins(used)["status"], "reservedFor": [group]}},
        AllocatedClaim,
    )
    assert [found.pods for found in holders_of([used])] == [("podgroups/ring",)]
