"""Pooled VFs under any sequence of allocations, crashes, changes of the hardware and of the policies.

In all cases: no VF is in two claims, the bandwidth that claims were allocated of a PF is never more than it has, a
prepared claim keeps its VFs, no more VFs are offered than are free, and nothing is left over.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from netdra.chain import checkpoint
from netdra.model.claim import ResourceClaim
from netdra.model.errors import NetdraError
from netdra.model.policy import DeviceExposurePolicy
from netdra.node.claims.records import FollowedRecords
from tests.unit.node.claims.pooled_node import (
    SPEED,
    WHOLE,
    Daemon,
    World,
    card,
    claim_of,
    consumed,
    dying,
    pooled,
    refusal,
    request,
    results,
    single,
)

SEED = {"value": str(SPEED), "requestPolicy": {"default": 100, "validRange": {"min": 100, "max": SPEED, "step": 100}}}
MODES: dict[str, tuple[DeviceExposurePolicy, ...]] = {
    "one": (pooled(), WHOLE),
    "two lanes": (pooled(lanes=2), WHOLE),
    "many lanes": (pooled(lanes=9), WHOLE),
    "amounts": (pooled(capacity={"bandwidth": SEED}),),
    "two policies": (
        pooled(
            "low",
            'device.attributes["dra.networking"].type == "vf" && '
            'device.attributes["dra.networking"].ifName != "eth0v1"',
        ),
        pooled("high", 'device.attributes["dra.networking"].ifName == "eth0v1"', lanes=2, deviceNameSuffix="-b"),
    ),
    "single": (single(), WHOLE),
    "nothing": (),
}
VFS = 4
POINTS = ("prepare-begun", "prepare-described", "prepare-done")
UNDO_POINTS = ("unprepare-begun", "unprepare-removed")
ADDRESSES = [each.pci_address for each in card(count=VFS) if each.type == "vf"]


class PooledVFs(RuleBasedStateMachine):
    """One PF with VFs; `had` is the answers to the kubelet: claim -> its VFs; `is_prompt`: each step is published."""

    claims: Bundle[ResourceClaim] = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.world = World(Path(self.folder.name), card(count=VFS))
        self.following = ExitStack()
        self.following.enter_context(self.world.daemon.store.follow())
        self.following.enter_context(checkpoint.follow(self.world.folder / "checkpoints"))
        self.records = FollowedRecords(self.world.daemon.store)
        self.had: dict[str, list[str]] = {}
        self.lost: set[str] = set()
        self.is_prompt = False

    def teardown(self) -> None:
        try:
            self.all_ends()
        finally:
            self.following.close()
            self.world.daemon.table.namespaces.close()
            self.folder.cleanup()

    @initialize(
        mode=st.sampled_from(["one", "two lanes", "many lanes", "amounts", "two policies"]), is_prompt=st.booleans()
    )
    def begin(self, mode: str, is_prompt: bool) -> None:
        self.is_prompt = is_prompt
        self.world.policies = MODES[mode]
        self.world.publish()

    # Claims.

    @rule(
        target=claims,
        wanted=st.lists(
            st.tuples(st.one_of(st.none(), st.integers(1, 12).map(lambda n: n * 10_000 - 50)), st.integers(1, 2)),
            min_size=1,
            max_size=2,
        ),
    )
    def allocate(self, wanted: list[tuple[int | None, int]]) -> ResourceClaim | MultipleResults[ResourceClaim]:
        requests = [request(f"r{number}", amount, count) for number, (amount, count) in enumerate(wanted)]
        claim = self.world.server.allocate(claim_of(*requests))
        return claim if claim is not None else multiple()

    @rule(target=claims)
    def allocate_whole(self) -> ResourceClaim | MultipleResults[ResourceClaim]:
        claim = self.world.server.allocate(claim_of(request(device_class="pf")))
        return claim if claim is not None else multiple()

    def is_there(self, claim: ResourceClaim) -> bool:
        return claim.metadata.name in self.world.server.claims

    @rule(claim=claims)
    def prepare(self, claim: ResourceClaim) -> None:
        if self.is_there(claim):
            self.note(claim, refusal(lambda: self.world.prepare(claim)))

    @rule(claim=claims, at=st.sampled_from(POINTS))
    def prepare_and_die(self, claim: ResourceClaim, at: str) -> None:
        if self.is_there(claim):
            self.note(claim, refusal(lambda: self.world.prepare(claim, crash=at)), crashed=True)

    @rule(first=claims, second=claims, pause=st.booleans())
    def prepare_in_two_daemons(self, first: ResourceClaim, second: ResourceClaim, pause: bool) -> None:
        if not (self.is_there(first) and self.is_there(second)) or first is second:
            return
        other = Daemon(self.world.folder, self.world.server)
        other.publish(self.world)

        async def both() -> tuple[object, object]:
            return await asyncio.gather(
                self.world.daemon.claims.prepare(first.reference),
                other.claims.prepare(second.reference),
                return_exceptions=True,
            )

        with dying(""):
            outcomes = asyncio.run(both())
        other.table.namespaces.close()
        for claim, outcome in zip((first, second), outcomes, strict=True):
            assert not isinstance(outcome, BaseException) or isinstance(outcome, NetdraError), outcome
            self.note(claim, outcome if isinstance(outcome, NetdraError) else None)

    def note(self, claim: ResourceClaim, refused: NetdraError | None, *, crashed: bool = False) -> None:
        """Record the kubelet's view of a claim after its call."""
        uid = claim.metadata.uid
        if refused is not None:
            assert uid not in self.had or uid in self.lost, f"a prepared claim is refused: {refused}"
            return
        record = self.world.record(claim)
        if record is None:
            assert crashed
            return
        vfs = [device.facts.pci_address for device in record.devices]
        assert [result.device for result in results(claim)] == [device.told.device for device in record.devices]
        if uid in self.had and (uid not in self.lost or self.world.sandboxes(claim)):
            assert self.had[uid] == vfs
        self.had[uid] = vfs
        self.lost.discard(uid)

    @rule(claim=claims)
    def begin_pod(self, claim: ResourceClaim) -> None:
        uid = claim.metadata.uid
        if self.is_there(claim) and uid in self.had and uid not in self.lost and not self.world.sandboxes(claim):
            self.world.begin_pod(claim)

    @rule(claim=consumes(claims))
    def release(self, claim: ResourceClaim) -> None:
        if self.is_there(claim):
            self.world.release(claim)
            self.forget(claim)

    @rule(claim=claims, at=st.sampled_from(UNDO_POINTS))
    def unprepare_and_die(self, claim: ResourceClaim, at: str) -> None:
        if self.is_there(claim):
            for sandbox in self.world.sandboxes(claim):
                self.world.end_pod(sandbox)
            refusal(lambda: self.world.unprepare(claim, crash=at))
            self.world.unprepare(claim)
            self.forget(claim)

    @rule(claim=claims)
    def release_in_trouble(self, claim: ResourceClaim) -> None:
        """The VF cannot be returned: the pod goes anyway, and its claim is allocated no more."""
        sandboxes = self.world.sandboxes(claim)
        if self.is_there(claim) and sandboxes:
            self.world.end_pod(sandboxes[0], trouble="the driver hangs")
            self.world.unprepare(claim)
            self.world.server.claims.pop(claim.metadata.name)

    @rule()
    def give_back(self) -> None:
        """VFs that could not be returned can be now."""
        for sandbox, uid in tuple(self.world.in_pods.items()):
            if all(claim.metadata.uid != uid for claim in self.world.server.claims.values()):
                self.world.end_pod(sandbox)
                self.had.pop(uid, None)

    def forget(self, claim: ResourceClaim) -> None:
        self.had.pop(claim.metadata.uid, None)
        self.lost.discard(claim.metadata.uid)

    # Records.

    @rule(claim=claims, text=st.sampled_from([None, "", "{"]))
    def lose_record(self, claim: ResourceClaim, text: str | None) -> None:
        uid = claim.metadata.uid
        path = self.world.daemon.store.folder / f"{uid}.json"
        if not path.exists():
            return
        path.unlink()
        if text is not None:
            path.write_text(text)
        self.lost.add(uid)
        if not self.world.sandboxes(claim):
            self.had.pop(uid, None)

    # The node.

    @rule()
    def publish(self) -> None:
        self.world.publish()
        assert self.world.server.offered() <= len(self.free())

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @rule(mode=st.sampled_from(sorted(MODES)), at_once=st.booleans())
    def switch(self, mode: str, at_once: bool) -> None:
        self.world.policies = MODES[mode]
        if at_once:
            self.world.publish()

    @rule(
        address=st.sampled_from(ADDRESSES),
        fact=st.sampled_from(
            [
                {"driver": ""},
                {"driver": "iavf"},
                {"no_carrier": True},
                {"no_carrier": False},
                {"host_use": ("bridge-port br0",)},
                {"host_use": ()},
            ]
        ),
    )
    def change_vf(self, address: str, fact: dict[str, object]) -> None:
        if address in self.world.there and not (address in self.world.moved and "host_use" in fact):
            self.world.change(address, **fact)

    @rule(count=st.integers(1, VFS + 2))
    def change_number(self, count: int) -> None:
        interfaces = card(count=count)
        wanted = {each.pci_address: each for each in interfaces}
        for address in tuple(self.world.there):
            if address not in wanted:
                del self.world.there[address]
                self.world.moved.discard(address)
        self.world.there = {address: self.world.there.get(address, each) for address, each in wanted.items()}

    # What holds.

    @invariant()
    def no_vf_is_in_two_claims(self) -> None:
        vfs = [vf for vfs in self.had.values() for vf in set(vfs)]
        assert len(vfs) == len(set(vfs)), self.had
        assert all(len(each) == len(set(each)) for each in self.had.values())

    @invariant()
    def no_more_bandwidth_than_the_pf_has_is_in_claims(self) -> None:
        prepared = [claim for claim in self.world.server.claims.values() if claim.metadata.uid in self.had]
        assert sum(consumed(claim.status.allocation) for claim in prepared) <= SPEED

    @invariant()
    def no_more_vfs_than_are_free_are_offered(self) -> None:
        if self.is_prompt:
            self.publish()

    @invariant()
    def a_pooled_vf_that_is_gone_is_reported_with_its_claim(self) -> None:
        self.world.publish()
        assert self.world.daemon.last is not None
        troubles = {(trouble.claim.uid, trouble.vf): trouble for trouble in self.world.daemon.last.vf_troubles}
        held = [device for device in self.world.daemon.network.held if device.facts and device.facts.pooled]
        assert troubles.keys() <= {(device.claim, device.vf) for device in held}
        assert {key for key, trouble in troubles.items() if trouble.reason == "VFGone"} == {
            (device.claim, device.vf)
            for device in held
            if device.vf not in self.world.there and device.is_prepared and not device.trouble
        }

    @invariant()
    def what_no_record_has_is_known_without_the_devices_of_all_claims(self) -> None:
        network, store = self.world.daemon.network, self.world.daemon.store
        assert set(self.records.update().held) == {entry for record in store.all() for entry in record.held}
        assert self.records.update().unreadable == store.uids() - {record.claim.uid for record in store.all()}
        alone = [device for device in network.held if not device.is_prepared and device.claim]
        assert list(network.unrecorded(self.records.update())) == alone

    def free(self) -> list[str]:
        taken = {vf for vfs in self.had.values() for vf in vfs} | self.world.moved
        vfs = [each for each in self.world.there.values() if each.type == "vf"]
        driven = any(each.driver for each in vfs)
        is_single = self.world.policies == MODES["single"]  # a step may bind a driver to a VF that has none
        return [
            each.pci_address
            for each in vfs
            if each.pci_address not in taken
            and (each.driver or not driven or is_single)
            and not each.no_carrier
            and not each.host_use
        ]

    def all_ends(self) -> None:
        """Nothing is left over."""
        for claim in tuple(self.world.server.claims.values()):
            self.world.release(claim)
            self.forget(claim)
        self.give_back()
        assert not self.world.in_pods
        assert not self.world.daemon.network.held
        assert not self.world.daemon.store.uids()
        self.world.there = {each.pci_address: each for each in card(count=VFS)}
        for mode in ("one", "two lanes"):
            self.world.policies = MODES[mode]
            self.world.publish()
            with TemporaryDirectory() as folder:
                fresh = World(Path(folder), card(count=VFS), *MODES[mode])
                fresh.daemon.table.namespaces.close()
            assert self.world.server.slices == fresh.server.slices
            assert self.world.server.offered() == VFS


TestPooledVFs = PooledVFs.TestCase
TestPooledVFs.settings = hypothesis_settings(max_examples=40, stateful_step_count=30)
