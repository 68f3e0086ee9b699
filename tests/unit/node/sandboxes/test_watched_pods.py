"""The cached part of a pod, the claims that it names, and those that are its own by its PodGroup."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from netdra.kube.client import Client
from netdra.model.claim import ResourceClaim
from netdra.model.plan import ClaimReference
from netdra.node.claims.store import ClaimStore, PodReference, PreparedClaim
from netdra.node.sandboxes.tracker import Tracker, WatchedPod, claim_names
from netdra.node.sandboxes.writer import StoredClaim
from netdra.ops.boot import boot_id


def pod(spec: dict[str, Any], status: dict[str, Any], **metadata: Any) -> WatchedPod:
    whole = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", **metadata}, "spec": spec, "status": status}
    return msgspec.json.decode(msgspec.json.encode(whole), type=WatchedPod)


BY_NAME = {"name": "a", "resourceClaimName": "shared"}
BY_TEMPLATE = {"name": "b", "resourceClaimTemplateName": "t"}


@pytest.mark.parametrize(
    ("claims", "status", "names"),
    [
        ([], {}, ()),
        (None, {"resourceClaimStatuses": None}, ()),
        ([BY_NAME], {}, ("shared",)),
        ([BY_TEMPLATE], {}, None),
        ([BY_TEMPLATE], {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-1"}]}, ("p-b-1",)),
        ([BY_TEMPLATE], {"resourceClaimStatuses": [{"name": "b"}]}, ()),
        ([BY_NAME, {"name": "again", "resourceClaimName": "shared"}], {}, ("shared",)),
        ([BY_NAME], {"extendedResourceClaimStatus": {"resourceClaimName": "x"}}, ("shared", "x")),
        ([], {"extendedResourceClaimStatus": {"resourceClaimName": "x"}}, ("x",)),
    ],
)
def test_the_claims_are_named_in_the_pods_order_or_not_yet_known(
    claims: list[Any] | None, status: dict[str, Any], names: tuple[str, ...] | None
) -> None:
    assert claim_names(pod({"resourceClaims": claims}, status)) == names


def test_a_static_pod_is_known_by_its_mirrors_mark() -> None:
    mirror = pod({}, {}, annotations={"kubernetes.io/config.mirror": "static-uid"})
    assert mirror.is_of("static-uid")
    assert mirror.is_of("u")
    assert not mirror.is_of("other")
    assert not pod({}, {}).is_of("")


def test_labels_and_annotations_are_not_kept() -> None:
    found = pod({}, {}, labels={"a": "b"}, annotations={"c": "d"}, finalizers=["f"])
    assert (found.metadata.labels, found.metadata.annotations, found.metadata.finalizers) == ({}, {}, ())


def of_group(name: str, phase: str = "Running", group: str = "workers", claim: str = "shared") -> WatchedPod:
    spec = {"resourceClaims": [{"name": "a", "resourceClaimName": claim}], "schedulingGroup": {"podGroupName": group}}
    return pod(spec, {"phase": phase}, name=name, uid=f"uid-of-{name}")


def claim_of_group(uid: str, driver: str = "dra.networking") -> ResourceClaim:
    """A claim with a device of a driver that is reserved for a PodGroup."""
    result = {"request": "r", "driver": driver, "pool": "node", "device": "eth7"}
    user = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "workers", "uid": f"group-of-{uid}"}
    whole = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "shared", "namespace": "ns", "uid": uid},
        "spec": {},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]},
    }
    return msgspec.convert(whole, ResourceClaim)


@dataclass
class Server:
    """Where the claim is read."""

    claim: ResourceClaim

    async def get_as_both(self, *_: object) -> tuple[ResourceClaim, StoredClaim]:
        return self.claim, StoredClaim(metadata=self.claim.metadata)


def tracker_of(server: Server, folder: Path) -> Tracker:
    return Tracker.of_node(cast("Client", server), "node", ClaimStore(folder))


def test_the_pods_of_a_group_that_name_its_claim_and_have_not_finished_are_its_users(tmp_path: Path) -> None:
    claim = claim_of_group("1")
    tracker = tracker_of(Server(claim), tmp_path)
    for each in (
        of_group("running"),
        of_group("pending", "Pending"),
        of_group("done", "Succeeded"),
        of_group("failed", "Failed"),
        of_group("stranger", group="others"),
        of_group("without", claim="another"),
    ):
        tracker.pods.put(f"ns/{each.metadata.name}", each)
    assert {user.pod.name for user in tracker.users(claim)} == {"running", "pending"}


def test_a_claim_of_a_pod_group_is_read_again_for_each_pod_that_comes(tmp_path: Path) -> None:
    server = Server(claim_of_group("former"))
    tracker = tracker_of(server, tmp_path)

    async def story() -> None:
        with tracker.pods.following(tracker._on_pod_change):
            tracker.pods.put("ns/first", of_group("first", "Succeeded"))
            await tracker.at_rest()
            server.claim = claim_of_group("new")
            tracker.pods.put("ns/next", of_group("next", "Pending"))
            await tracker.at_rest()
        assert [claim.metadata.uid for claim in tracker.claims] == ["new"]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("driver", "is_allocated", "noted"),
    [("dra.networking", True, ["1"]), ("gpu.example.com", True, []), ("dra.networking", False, [])],
)
def test_only_allocated_claims_of_netdra_are_noted_for_their_status(
    tmp_path: Path, driver: str, is_allocated: bool, noted: list[str]
) -> None:
    claim = claim_of_group("1", driver)
    status = claim.status if is_allocated else msgspec.structs.replace(claim.status, allocation=None)
    found: list[str] = []
    server = cast("Client", Server(msgspec.structs.replace(claim, status=status)))
    tracker = Tracker.of_node(server, "node", ClaimStore(tmp_path), lambda read: found.append(read.metadata.uid))

    async def story() -> None:
        with tracker.pods.following(tracker._on_pod_change):
            tracker.pods.put("ns/first", of_group("first"))
            await tracker.at_rest()

    asyncio.run(story())
    assert found == noted


@dataclass
class CountingServer(Server):
    """Counts how often the claim is read."""

    reads: int = 0

    async def get_as_both(self, *_: object) -> tuple[ResourceClaim, StoredClaim]:
        self.reads += 1
        return await super().get_as_both()


def prepared(name: str, uid: str, *pods: str) -> PreparedClaim:
    """The record of a claim that was prepared for pods."""
    users = tuple(PodReference(name=f"pod-{each}", uid=each) for each in pods)
    claim = ClaimReference(namespace="ns", name=name, uid=uid)
    return PreparedClaim(boot_id=boot_id(), claim=claim, devices=(), pods=users)


@pytest.mark.parametrize(
    ("record", "reads"),
    [
        (prepared("shared", "1", "u"), 0),
        (prepared("shared", "1", "another pod"), 1),
        (prepared("another", "1", "u"), 1),
        (msgspec.structs.replace(prepared("shared", "1", "u"), boot_id="an earlier one"), 1),
    ],
)
def test_after_a_restart_a_claim_is_read_unless_it_was_prepared_for_the_pod_in_this_boot(
    tmp_path: Path, record: PreparedClaim, reads: int
) -> None:
    server = CountingServer(claim_of_group("1"))
    tracker = tracker_of(server, tmp_path)
    tracker.records.put(record)

    async def story() -> None:
        tracker._read_records()
        with tracker.pods.following(tracker._on_pod_change):
            tracker.pods.put("ns/p", pod({"resourceClaims": [BY_NAME]}, {}))
            await tracker.at_rest()

    asyncio.run(story())
    assert server.reads == reads


def test_a_claim_that_was_prepared_after_the_records_were_read_is_found(tmp_path: Path) -> None:
    tracker = tracker_of(CountingServer(claim_of_group("1")), tmp_path)
    tracker.records.put(prepared("shared", "former", "another pod"))
    tracker._read_records()
    tracker.records.remove("former")
    tracker.records.put(prepared("shared", "1", "u"))
    assert tracker._recorded("ns", "shared", "u") == ClaimReference(namespace="ns", name="shared", uid="1")
    assert tracker._recorded("ns", "shared", "another pod") is None
