"""Two topologies whose steps state one network have one store of leases: with the real host-local, in the kernel."""

from __future__ import annotations

import msgspec
import pytest

from netdra.chain.checkpoint import PodIdentity
from netdra.chain.collect import collect
from netdra.chain.detach import detach
from netdra.model.plan import Plan
from netdra.topology.bind import unbound
from tests import builders
from tests.kernel.chain.conftest import Bed, device, recorder
from tests.kernel.chain.test_collect import valid
from tests.plans import attach, plan, step

SUBNET = "10.77.0"


def of(bed: Bed, topology: str, nic: str, if_name: str, network: str) -> Plan:
    """A topology of one NIC with an address of the subnet, with the device that a claim would bring."""
    folder = bed.settings.state.parent / "ipam"
    named = f", network: {network}" if network else ""
    made = unbound(
        builders.topology(
            f"- {{name: nic, type: host-device{named}, config: {{name: {if_name}, "
            f"ipam: {{type: host-local, subnet: {SUBNET}.0/24, dataDir: {folder}}}}}}}",
            name=topology,
        )
    )
    (only,) = made.steps
    return msgspec.structs.replace(made, steps=(msgspec.structs.replace(only, device=device(nic)),))


@pytest.mark.parametrize(("network", "last"), [("storage", [2, 3, 4]), ("", [2, 2, 2])])
def test_steps_of_one_network_have_addresses_of_their_own(bed: Bed, network: str, last: list[int]) -> None:
    for number in range(3):
        bed.veth(f"eth{number}", f"peer{number}")
    mine = tuple(of(bed, f"t{number}", f"eth{number}", f"net{number}", network) for number in range(2))
    attach(mine, bed.container, bed.pod.path, bed.settings)
    attach((of(bed, "t2", "eth2", "net2", network),), PodIdentity(sandbox="other"), bed.pod.path, bed.settings)
    assert [bed.addresses(f"net{at}", inside=True) for at in range(3)] == [{f"{SUBNET}.{each}/24"} for each in last]
    for sandbox in (bed.container.sandbox, "other"):
        assert detach(sandbox, bed.settings).is_clean
    leases = bed.settings.state.parent / "ipam"
    assert not list(leases.rglob(f"{SUBNET}.*"))


def test_plugins_of_a_shared_network_receive_all_its_attachments_for_gc(bed: Bed) -> None:
    # Each hands its own GC on to the network's IPAM plugin, which frees all that it is not told of.
    one, other = recorder(bed, "one"), recorder(bed, "other")
    for number, kind in enumerate(("one", "other")):
        only = msgspec.structs.replace(step("a", kind, f"net{number}"), network="netdra_n")
        attach((plan(only),), PodIdentity(sandbox=f"s{number}"), bed.pod.path, bed.settings)
    collect(bed.settings)
    everyone = [[("s0", "net0"), ("s1", "net1")]]
    assert (valid(one), valid(other)) == (everyone, everyone)
