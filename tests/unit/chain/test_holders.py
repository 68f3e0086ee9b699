"""A device is held by one sandbox at a time; the error for another one names the pod, the cause and the next step."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.chain import checkpoint, holders
from netdra.chain.checkpoint import Begun, Header, NamespaceId, PodIdentity
from netdra.cni.plugins import PluginPath
from netdra.model.errors import TemporaryError
from netdra.model.plan import ClaimReference
from netdra.ops.boot import boot_id
from tests.plans import plan, step

PF = "0000:03:00.0"
SANDBOXES = ("s1", "s2", "s3")
DEVICES = (PF, "0000:03:00.1", "0000:03:00.0/1")
"""The last one is the second port of the first."""


def save(directory: Path, sandbox: str, *, netns: str = "/proc/self/ns/net", claim: str = "u", **pod: str) -> Any:
    """The checkpoint of a sandbox of this boot with one step."""
    made = plan(step("a", "host-device", "net1"))
    header = Header(
        version=checkpoint.VERSION,
        boot_id=boot_id(),
        pod=PodIdentity(sandbox=sandbox, **pod),
        namespace=NamespaceId(path=netns, cookie=7),
        plugins=PluginPath(),
        plans=(msgspec.structs.replace(made, claim=ClaimReference(namespace="n", name="c", uid=claim)),),
    )
    return checkpoint.create(directory, header, 1)


@given(st.lists(st.tuples(st.sampled_from(("take", "give_up")), st.sampled_from(DEVICES), st.sampled_from(SANDBOXES))))
def test_the_first_sandbox_that_takes_a_device_holds_it_until_it_gives_the_device_up(
    calls: list[tuple[str, str, str]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, held = Path(name), dict.fromkeys(DEVICES, "")
        for sandbox in SANDBOXES:
            save(directory, sandbox).close()
        for call, device, sandbox in calls:
            if call == "give_up":
                assert holders.give_up(directory, device, sandbox)
                held[device] = "" if held[device] == sandbox else held[device]
            elif held[device] in ("", sandbox):
                holders.take(directory, device, sandbox)
                held[device] = sandbox
            else:
                with pytest.raises(TemporaryError, match=f"device {device} is still used by sandbox {held[device]}"):
                    holders.take(directory, device, sandbox)
            assert {each: holders.holder(directory, each) for each in DEVICES} == held
            assert holders.port_holder(directory, PF) == held[DEVICES[2]]


@pytest.mark.parametrize(
    ("pod", "named"), [({}, ""), ({"name": "web-0", "namespace": "shop"}, ', of pod "shop/web-0"')]
)
@pytest.mark.parametrize(
    ("netns", "held", "cause", "hint"),
    [
        ("/proc/self/ns/net", "", "", "the pod uses the device until it ends"),
        ("/proc/self/ns/gone", "", "", "netdra node undoes the sandbox automatically when it has ended"),
        ("/proc/self/ns/net/x", "", "", "netdra retries automatically"),
        ("/proc/self/ns/net", "its MTU is 9000", ": its MTU is 9000", "netdra detach s1 --accept-differences"),
    ],
)
def test_the_error_for_a_held_device_names_the_pod_and_the_next_step(
    tmp_path: Path, pod: dict[str, str], named: str, netns: str, held: str, cause: str, hint: str
) -> None:
    journal = save(tmp_path, "s1", netns=netns, **pod)
    journal.append(Begun(step="0/a", config={}, undo={checkpoint.HELD: held} if held else {}))
    journal.close()
    save(tmp_path, "s2").close()
    holders.take(tmp_path, PF, "s1")
    with pytest.raises(TemporaryError) as refused:
        holders.take(tmp_path, PF, "s2")
    assert refused.value.what == f"device {PF} is still used by sandbox s1{named}{cause}"
    assert hint in refused.value.hint


@pytest.mark.parametrize("place", ["step", "beside an RDMA device", "program"])
@pytest.mark.parametrize("pf", [PF, "0000:04:00.0"])
def test_the_settings_of_vfs_before_a_pod_are_those_of_the_same_pf(tmp_path: Path, place: str, pf: str) -> None:
    record = {"pf": pf, "count": 4}
    undos: dict[str, dict[str, Any]] = {
        "step": {"step": {"vfs": record}},
        "beside an RDMA device": {"step": {"netdev": {"vfs": record}}},
        "program": {holders.RECORD: {"netdev": {"vfs": record}}},
    }
    assert holders.vfs_before(tmp_path, PF) is None
    journal = save(tmp_path, "s1")
    journal.append(Begun(step="0/a", config={}, undo=undos[place]))
    journal.close()
    holders.take(tmp_path, PF, "s1")
    assert holders.vfs_before(tmp_path, PF) == (record if pf == PF else None)


@pytest.mark.parametrize(
    ("claim", "uid", "expected"), [("u", "p2", True), ("u", "p1", False), ("u", "", True), ("other", "p2", False)]
)
def test_a_device_is_shared_only_with_another_pod_of_the_same_claim(
    tmp_path: Path, claim: str, uid: str, expected: bool
) -> None:
    save(tmp_path, "s1", uid="p1").close()
    holders.take(tmp_path, PF, "s1")
    other = save(tmp_path, "s2", claim=claim, uid=uid)
    other.close()
    assert holders.shares_claim(tmp_path, PF, other.saved.header) is expected
    assert not holders.shares_claim(tmp_path, DEVICES[1], other.saved.header)
