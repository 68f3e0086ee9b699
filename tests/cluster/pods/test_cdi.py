"""Claims' CDI specifications and a real container runtime: a container has a claim's devices as long as the claim.

A runtime's CDI library does not read its cached files again when a container is made, so it must get an event for each
change. `tests/unit/node/cdi/test_watched.py` has the events of the oldest one.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import KeptDevice, PreparedClaim, PreparedDevice
from testbed.node import CommandError, Node
from testbed.runtime import Runtime
from testbed.runtimes import started
from testbed.waiting import until

WITHIN = 10.0
"""Seconds that the runtime may take to look at a folder that has changed; the kubelet tries no more often."""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with Node("cdi", folder=tmp_path_factory.mktemp("node")) as node:
        yield started(node)


@pytest.fixture
def files(runtime: Runtime, tmp_path: Path) -> ClaimFiles:
    return ClaimFiles(plugin=tmp_path, cdi=runtime.node.folder / "run" / "cdi")


@pytest.fixture
def sandbox(runtime: Runtime) -> Iterator[str]:
    key = runtime.run_pod_sandbox("pod")
    yield key
    runtime.stop_pod_sandbox(key)
    runtime.remove_pod_sandbox(key)


def claim(*devices: str) -> PreparedClaim:
    """A new claim, with one request for these devices."""
    return PreparedClaim(
        boot_id="b",
        claim=ClaimReference(namespace="ns", name="net", uid=str(uuid.uuid4())),
        devices=tuple(
            KeptDevice(
                told=PreparedDevice(requests=("nic",), pool="p", device=device),
                facts=PlannedDevice(request="nic", pool="p", device=device),
            )
            for device in devices
        ),
    )


def container(runtime: Runtime, sandbox: str, wanted: PreparedClaim) -> str:
    """A container with a claim's devices; their names as the container sees them, "" if it is not made."""
    device = f"dra.networking/claim={wanted.claim.uid}-nic"
    try:
        made = runtime.run_container(sandbox, name=f"c{uuid.uuid4().hex[:8]}", cdi_devices=[device])
    except CommandError as problem:
        if not re.search(f"unresolvable CDI devices.* {re.escape(device)}", str(problem)):
            raise
        return ""
    found = runtime.crictl("exec", "--sync", made, "sh", "-c", "echo $NETDRA_NET_NIC_DEVICES").strip()
    runtime.crictl("rm", "--force", made)
    assert found
    return found


def seen(runtime: Runtime, sandbox: str, wanted: PreparedClaim, devices: str) -> None:
    """Wait until a container gets these devices, or none is made."""
    until(lambda: container(runtime, sandbox, wanted) == devices, "the runtime to look at the folder", seconds=WITHIN)


@pytest.mark.oldest
def test_a_container_is_made_while_its_claim_is_specified_and_only_then(
    runtime: Runtime, files: ClaimFiles, sandbox: str
) -> None:
    for number in range(3):
        wanted = claim(f"eth{number}")
        assert container(runtime, sandbox, wanted) == ""
        files.write_spec(wanted, ())
        seen(runtime, sandbox, wanted, f"eth{number}")
        files.remove_spec(wanted.claim.uid)
        seen(runtime, sandbox, wanted, "")


def test_a_replaced_cdi_specification_applies_to_the_next_container(
    runtime: Runtime, files: ClaimFiles, sandbox: str
) -> None:
    wanted = claim("eth1")
    files.write_spec(wanted, ())
    seen(runtime, sandbox, wanted, "eth1")
    files.write_spec(PreparedClaim(boot_id="b", claim=wanted.claim, devices=claim("eth1", "eth2").devices), ())
    seen(runtime, sandbox, wanted, "eth1,eth2")
    files.remove_spec(wanted.claim.uid)
    seen(runtime, sandbox, wanted, "")


@pytest.mark.oldest
def test_a_folder_that_was_not_there_when_the_runtime_began_is_watched_from_the_first_claim_on(
    runtime: Runtime, files: ClaimFiles, sandbox: str
) -> None:
    runtime.process.stop()
    shutil.rmtree(files.cdi)
    runtime.process.start()
    runtime.process.wait_ready()
    first, second = claim("eth1"), claim("eth2")
    for wanted in (first, second):
        files.write_spec(wanted, ())
        seen(runtime, sandbox, wanted, wanted.devices[0].told.device)
    files.remove_spec(first.claim.uid)
    seen(runtime, sandbox, first, "")
    seen(runtime, sandbox, second, "eth2")


def test_a_leftover_file_of_a_killed_process_is_not_read_as_a_specification(
    runtime: Runtime, files: ClaimFiles, sandbox: str
) -> None:
    files.cdi.mkdir(exist_ok=True)
    (files.cdi / ".new").write_text('{"cdiVersion": "0.')
    wanted = claim("eth1")
    files.write_spec(wanted, ())
    seen(runtime, sandbox, wanted, "eth1")
