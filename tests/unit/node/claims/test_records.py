"""Records and checkpoints of a node are known by their devices as one who reads all of them each time knows them."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from netdra.chain import checkpoint
from netdra.chain.checkpoint import CheckpointExistsError, Header, NamespaceId, PodIdentity
from netdra.chain.site import ChainSettings
from netdra.cni.plugins import PluginPath
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.records import FollowedRecords
from netdra.node.claims.store import ClaimStore, KeptDevice, PreparedClaim, PreparedDevice
from netdra.node.sandboxes.network import Network
from netdra.node.sandboxes.table import Table
from netdra.node.view import vf_of
from netdra.ops import files
from netdra.ops.file_cache import FileCache
from tests.plans import plan, step

UIDS = ("1", "2")
DEVICES = ("a", "b")


def claim(uid: str, *devices: str) -> PreparedClaim:
    return PreparedClaim(
        boot_id="b", claim=ClaimReference(namespace="ns", name=uid, uid=uid), devices=tuple(map(kept, devices))
    )


def kept(device: str) -> KeptDevice:
    facts = PlannedDevice(request="nic", pool="p", device=device, type="vf", pci_address=f"vf-{device}")
    return KeptDevice(told=PreparedDevice(requests=("nic",), pool="p", device=device), facts=facts)


def header(sandbox: str, record: PreparedClaim) -> Header:
    """The beginning of the checkpoint of a pod with a claim's devices."""
    steps = [step(f"s{number}", "sriov", f"net{number}", device=kept.facts) for number, kept in enumerate(record.owned)]
    return Header(
        version=checkpoint.VERSION,
        boot_id=record.boot_id,
        pod=PodIdentity(sandbox=sandbox, name=sandbox, namespace="ns", uid=sandbox),
        namespace=NamespaceId(path=f"/nowhere/{sandbox}", cookie=1),
        plugins=PluginPath(),
        plans=(msgspec.structs.replace(plan(*steps), claim=record.claim),),
    )


class Node(RuleBasedStateMachine):
    """One daemon keeps up with the files; another one, of an update, changes them too."""

    CLAIMS = st.builds(claim, st.sampled_from(UIDS), st.sampled_from(DEVICES), st.sampled_from(DEVICES))
    SANDBOXES = st.sampled_from(("x", "y"))

    def __init__(self) -> None:
        super().__init__()
        self.closing = ExitStack()
        folder = Path(self.closing.enter_context(TemporaryDirectory(prefix="netdra-")))
        self.store, self.state = ClaimStore(folder / "claims"), folder / "checkpoints"
        for made in (self.store.folder, self.state):
            made.mkdir()
        table = Table(ClaimFiles(plugin=folder / "plugin", cdi=folder / "cdi"), self.store)
        self.closing.callback(table.namespaces.close)
        self.network = Network(ChainSettings(state=self.state), table)
        self.records = FollowedRecords(self.store)

    @initialize(follows=st.booleans())
    def begin(self, follows: bool) -> None:
        if follows:
            self.closing.enter_context(self.store.follow())
            self.closing.enter_context(checkpoint.follow(self.state))

    def teardown(self) -> None:
        for uid in self.store.given_up():
            self.store.remove(uid)
        self.closing.close()

    @rule(record=CLAIMS)
    def this_daemon_writes_a_record(self, record: PreparedClaim) -> None:
        self.store.put(record)

    @rule(record=CLAIMS)
    def another_daemon_writes_a_record(self, record: PreparedClaim) -> None:
        files.replace(self.store.folder / f"{record.claim.uid}.json", msgspec.json.encode(record), 1.0, lasting=False)

    @rule(uid=st.sampled_from(UIDS))
    def a_claim_is_released(self, uid: str) -> None:
        self.store.remove(uid)

    @rule(sandbox=SANDBOXES, record=CLAIMS)
    def a_pod_begins(self, sandbox: str, record: PreparedClaim) -> None:
        with suppress(CheckpointExistsError):
            checkpoint.create(self.state, header(sandbox, record), 1.0, lasting=False).close()

    @rule(sandbox=SANDBOXES)
    def a_pod_ends(self, sandbox: str) -> None:
        checkpoint.path_of(self.state, sandbox).unlink(missing_ok=True)

    @invariant()
    def devices_that_only_checkpoints_have_are_known(self) -> None:
        present = {held for record in self.store.all() for held in record.held}
        had = {
            ((step.device.pool, step.device.device), plan.claim.uid, vf_of(step.device))
            for saved in checkpoint.load_all(self.state)[0]
            for plan in saved.header.plans
            for step in plan.steps
            if step.device is not None
        }
        found = self.network.unrecorded(self.records.update())
        assert {(device.key, device.claim, device.vf) for device in found} == had - present

    @invariant()
    def the_records_are_those_on_the_disk(self) -> None:
        records, present = self.records.update(), self.store.all()
        uids = {record.claim.uid for record in present}
        # Two files may be of one claim, if a person renamed one: the devices of both are held.
        assert records.held == {held for record in present for held in record.held}
        assert records.unreadable == self.store.uids() - uids
        for device in DEVICES:
            having = {
                record.claim.uid for record in present if any(kept.told.device == device for kept in record.owned)
            }
            assert {record.claim.uid for record in records.of_device(("p", device))} == having
            assert {record.claim.uid for record in records.of_vf(f"vf-{device}")} == having
        assert {uid for uid in UIDS if uid in records} == uids


class DisturbedNode(Node):
    """A person, a full disk and a kernel that reports no changes disturb them in every way."""

    NAMES = st.sampled_from([f"{uid}.json" for uid in UIDS])
    SANDBOXES = Node.SANDBOXES

    @rule(name=NAMES, text=st.sampled_from([b"", b"{", b'{"version": 9}', b'{"version": 0}']))
    def a_record_is_damaged_or_of_another_version(self, name: str, text: bytes) -> None:
        (self.store.folder / name).write_bytes(text)

    @rule(uid=st.sampled_from(UIDS))
    def a_claim_is_released_but_its_files_cannot_be_removed(self, uid: str) -> None:
        self.store.give_up(uid)

    @rule(uid=st.sampled_from(UIDS))
    def a_damaged_record_of_a_claim_that_is_gone_is_put_aside(self, uid: str) -> None:
        if uid in self.store.damaged():
            self.store.put_aside(uid)

    @rule(name=NAMES, other=NAMES)
    def a_person_renames_a_record(self, name: str, other: str) -> None:
        with suppress(FileNotFoundError):
            (self.store.folder / name).rename(self.store.folder / other)

    @rule()
    def the_folder_is_replaced(self) -> None:
        shutil.rmtree(self.store.folder)
        self.store.folder.mkdir()

    @rule(sandbox=SANDBOXES)
    def a_checkpoint_is_damaged(self, sandbox: str) -> None:
        checkpoint.path_of(self.state, sandbox).write_bytes(b"{\n")


for each in (Node, DisturbedNode):
    each.TestCase.settings = settings(max_examples=100, stateful_step_count=20)
TestNode, TestDisturbedNode = Node.TestCase, DisturbedNode.TestCase


def test_a_claim_costs_the_same_among_many_records_as_among_few(tmp_path: Path) -> None:
    """Files read and inspected, for one changed record."""
    costs = []
    for count in (2, 200):
        store = ClaimStore(tmp_path / str(count))
        for number in range(count):
            store.put(claim(str(number), "a"))
        with store.follow():
            records = FollowedRecords(store)
            records.update()
            store.put(claim("0", "b"))
            with (
                mock.patch.object(os, "stat", side_effect=os.stat) as inspected,
                mock.patch.object(FileCache, "of", autospec=True, side_effect=FileCache.of) as read,
            ):
                assert len(records.update().held) == count
            costs.append((inspected.call_count, read.call_count))
    assert costs[0] == costs[1]
