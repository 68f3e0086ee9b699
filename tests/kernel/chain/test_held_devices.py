"""A device that cannot be made what it was is held: no other pod gets it, and a person sees what differs and acts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netdra.chain import checkpoint
from netdra.chain.check import check
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.doctor.node_look import Places, look
from netdra.doctor.node_verdicts import verdicts
from netdra.kernel import netns
from netdra.kernel.netns import Namespace
from netdra.model.errors import PermanentError
from tests.kernel.chain.conftest import Bed, device
from tests.kernel.chain.test_commands import netdra
from tests.plans import attach, plan, step

OTHER = PodIdentity(sandbox="other", name="web-1", namespace="default")


@pytest.fixture
def held(bed: Bed) -> Bed:
    """A sandbox that has ended, and whose device cannot get its MTU back: the link under it has a smaller one."""
    bed.veth("eth7", "peer7", up=True)
    bed.run("ip", "link", "add", "link", "eth7", "name", "mv0", "mtu", "1450", "type", "macvlan")
    nic = step("nic", "host-device", "net1", {"mtu": 1350}, device=device("mv0"))
    attach((plan(nic),), bed.container, bed.pod.path, bed.settings)
    bed.run("ip", "link", "set", "eth7", "mtu", "1400")
    assert detach(bed.container.sandbox, bed.settings).is_stranded
    return bed


def end(bed: Bed) -> str:
    """End the sandbox's namespace; returns the sandbox."""
    name = Path(bed.pod.path).name
    bed.pod.close()
    netns.delete(name)
    return bed.container.sandbox


def test_the_checkpoint_has_the_differences_once(held: Bed) -> None:
    sandbox = held.container.sandbox
    path = checkpoint.path_of(held.settings.state, sandbox)
    before = path.read_bytes()
    (text,) = checkpoint.load(held.settings.state, sandbox).held.values()
    assert "mtu" in text.lower()
    assert not detach(sandbox, held.settings).is_clean
    assert path.read_bytes() == before


def test_the_error_of_another_claim_names_the_sandbox_the_differences_and_the_next_step(held: Bed) -> None:
    sandbox = held.container.sandbox
    (text,) = checkpoint.load(held.settings.state, sandbox).held.values()
    nic = step("nic", "host-device", "net1", device=device("mv0"))
    with pytest.raises(AttachError) as caught:
        attach((plan(nic),), OTHER, held.pod.path, held.settings)
    (failure,) = caught.value.report.failures
    assert f"is still used by sandbox {sandbox}" in failure.message
    assert text in failure.message
    assert f"netdra detach {sandbox} --accept-differences" in failure.hint
    assert failure.temporary


def test_check_names_the_differences_and_repair_undoes_the_sandbox_as_soon_as_that_is_possible(held: Bed) -> None:
    sandbox = end(held)
    (text,) = checkpoint.load(held.settings.state, sandbox).held.values()
    report = check(sandbox, held.settings)
    assert report.problems == (f'NetworkTopology "t", step "nic" (host-device) is not undone: {text}',)
    assert f"netdra detach {sandbox} --accept-differences" in report.hint
    repaired = check(sandbox, held.settings, repair=True)
    assert not repaired.is_clean
    assert [(each.outcome, each.stranded) for each in repaired.undone] == [("failed", True)]
    held.run("ip", "link", "set", "eth7", "mtu", "1500")
    repaired = check(sandbox, held.settings, repair=True)
    assert repaired.is_clean
    assert [each.outcome for each in repaired.undone] == ["undone"]
    assert held.link("mv0")["mtu"] == 1450
    assert not check(sandbox, held.settings, repair=True).is_clean  # it is not attached any more


def test_the_command_check_repairs_a_sandbox_that_has_ended(held: Bed) -> None:
    sandbox = end(held)
    failed = netdra(held, "check", sandbox, "--repair")
    assert failed.returncode == 1
    assert "failed" in failed.stdout
    assert "hint: set it by hand on the node" in failed.stderr
    held.run("ip", "link", "set", "eth7", "mtu", "1500")
    done = netdra(held, "check", sandbox, "--repair", "--output=json")
    assert (done.returncode, json.loads(done.stdout)["undone"][0]["outcome"]) == (0, "undone")


def test_differences_are_accepted_and_the_device_is_another_pods(held: Bed) -> None:
    sandbox = end(held)
    report = detach(sandbox, held.settings, accept_differences=True)
    (nic,) = report.undone
    assert (nic.outcome, report.is_clean) == ("accepted", True)
    assert "mtu" in nic.message.lower()
    assert Path(report.record).name == f"{sandbox}.jsonl.given-up-0"
    assert Path(report.record).exists()
    assert not checkpoint.path_of(held.settings.state, sandbox).exists()
    assert not any((held.settings.state / "devices").iterdir())
    with Namespace.create("netdra-test-next") as space:
        try:
            again = plan(step("nic", "host-device", "net1", device=device("mv0")))
            attach((again,), OTHER, space.path, held.settings)
            assert detach(OTHER.sandbox, held.settings).is_clean
        finally:
            netns.delete("netdra-test-next")


def test_the_command_prints_the_remaining_differences_and_the_new_name_of_the_checkpoint(held: Bed) -> None:
    sandbox = end(held)
    refused = netdra(held, "detach", sandbox)
    assert refused.returncode == 4
    assert f"netdra detach {sandbox} --accept-differences" in refused.stderr
    done = netdra(held, "detach", sandbox, "--accept-differences")
    assert done.returncode == 0
    assert "accepted" in done.stdout
    assert "mtu" in done.stdout.lower()
    assert f"{sandbox}.jsonl.given-up-0" in done.stderr
    assert netdra(held, "detach", sandbox, "--accept-differences").returncode == 0


def test_differences_are_not_accepted_while_the_namespace_of_the_sandbox_exists(held: Bed) -> None:
    sandbox = held.container.sandbox
    with pytest.raises(PermanentError, match="still exists, and its pod may run"):
        detach(sandbox, held.settings, accept_differences=True)
    assert checkpoint.load(held.settings.state, sandbox).held
    assert netdra(held, "detach", sandbox, "--accept-differences").returncode == 3


def test_doctor_lists_held_devices_with_their_differences_and_the_command(held: Bed) -> None:
    sandbox = end(held)
    (text,) = checkpoint.load(held.settings.state, sandbox).held.values()
    (held.settings.state.parent / "sandboxes").symlink_to(held.settings.state)
    places = Places(state_dir=held.settings.state.parent)
    (finding,) = [each for each in verdicts(look(places)) if each.check == "held devices"]
    assert finding.level == "warning"
    assert sandbox in finding.seen
    assert text in finding.coded
    assert f"netdra detach {sandbox} --accept-differences" in finding.fix
