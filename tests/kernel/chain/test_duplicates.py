"""Addresses of PodNetworks that another machine on the wire has: found when a pod is attached, as the network wants."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from netdra.chain import duplicates
from netdra.chain.detach import detach
from netdra.chain.report import AttachTemporaryError, DuplicateAddress
from netdra.chain.site import open_pod
from netdra.kernel import kinds, link, probe
from netdra.kernel.netlink import Socket
from netdra.model.plan import PlannedStep
from tests.kernel.chain.conftest import Bed, device, differences
from tests.kernel.conftest import Machine, new_machine
from tests.plans import attach, plan, step

FOUR, SIX = "10.66.0.5", "2001:db8:66::5"
OTHER = (FOUR, SIX)


@pytest.fixture
def neighbour(bed: Bed) -> Iterator[Machine]:
    """A machine at the other end of the node's wire `wire`, as `far`."""
    for made in new_machine():
        with Socket() as sock:
            link.create(sock, "wire", "veth", kinds.veth(kinds.Peer("far", netns_fd=made.namespace.fd)), up=True)
        link.change(made.sock, "far", up=True)
        link.change(made.sock, "lo", up=True)
        yield made


def addressed(kind: str, action: str, *texts: str) -> PlannedStep:
    """A step with addresses of a PodNetwork, as a node makes it from PodAddresses."""
    written = [{"address": f"{text}/{64 if ':' in text else 24}"} for text in texts]
    config = {"ipam": {"type": "static", "addresses": written}}
    made = (
        step("lan", "macvlan", "net1", {"mode": "bridge", "master": "wire", **config}, device=device("wire"))
        if kind == "macvlan"
        else step("lan", "host-device", "net1", config, device=device("wire"))
    )
    return msgspec.structs.replace(made, pod_network="storage", on_duplicate=action)


def give(neighbour: Machine, *texts: str) -> str:
    """The neighbour has these addresses; returns its MAC."""
    for text in texts:
        neighbour.run("ip", "address", "add", f"{text}/{64 if ':' in text else 24}", "dev", "far", "nodad")
    return link.get(neighbour.sock, "far").address


def known(neighbour: Machine) -> dict[str, str]:
    """The neighbours that the machine knows, with their MACs."""
    return {entry["dst"]: entry.get("lladdr", "") for entry in neighbour.ip("neigh", "show", "dev", "far") or []}


def reported(bed: Bed, made: PlannedStep) -> tuple[DuplicateAddress, ...]:
    """The findings of the daemon when a pod with this step has its network."""
    attach((plan(made),), bed.container, bed.pod.path, bed.settings)
    with open_pod(bed.pod.path) as space:
        return duplicates.look((plan(made),), space)


@contextmanager
def heard(neighbour: Machine) -> Iterator[list[str]]:
    """The addresses that a machine is asked for by others who may have them."""
    found: list[str] = []
    (wire,) = neighbour.namespace.run(lambda: probe.open_wires(neighbour.sock, ["far"])).values()
    with wire:
        yield found
        frames = [frame for version in (4, 6) for frame in wire.frames(version)]
    for text in OTHER:
        asked = probe.question(bytes(6), ipaddress.ip_address(text))
        found += [text for frame in frames if frame[12:22] == asked[12:22] and frame[28:] == asked[28 : len(frame)]]


def test_a_wire_is_asked_for_each_address_several_times(bed: Bed, neighbour: Machine) -> None:
    with heard(neighbour) as asked:
        reported(bed, addressed("host-device", "Report", *OTHER))
    assert sorted(asked) == sorted(OTHER * probe.PROBES)


def test_a_pod_does_not_wait_for_a_report(bed: Bed, neighbour: Machine) -> None:
    give(neighbour, *OTHER)
    with heard(neighbour) as asked:
        attach((plan(addressed("host-device", "Report", *OTHER)),), bed.container, bed.pod.path, bed.settings)
    assert asked == []


@pytest.mark.parametrize("kind", ["macvlan", "host-device"])
def test_a_pod_starts_with_a_duplicate_that_is_to_be_reported(bed: Bed, neighbour: Machine, kind: str) -> None:
    mac = give(neighbour, *OTHER)
    found = reported(bed, addressed(kind, "Report", *OTHER))

    assert {(entry.address, entry.mac, entry.network, entry.if_name, entry.claim) for entry in found} == {
        (text, mac, "storage", "net1", "u") for text in OTHER
    }
    assert bed.addresses("net1", inside=True) == {f"{FOUR}/24", f"{SIX}/64"}
    assert detach(bed.container.sandbox, bed.settings).is_clean


@pytest.mark.parametrize("kind", ["macvlan", "host-device"])
@pytest.mark.parametrize("text", OTHER)
def test_a_pod_with_a_duplicate_that_is_to_be_replaced_gets_no_network(
    bed: Bed, neighbour: Machine, kind: str, text: str
) -> None:
    mac, before = give(neighbour, text), bed.state()
    with pytest.raises(AttachTemporaryError, match="also used by the machine with MAC") as caught:
        attach((plan(addressed(kind, "Reassign", *OTHER)),), bed.container, bed.pod.path, bed.settings)

    (failure,) = caught.value.report.failures
    assert [(entry.address, entry.mac) for entry in failure.duplicates] == [(text, mac)]
    assert caught.value.report.is_clean
    assert differences(before, bed.state()) == []


@pytest.mark.parametrize("kind", ["macvlan", "host-device"])
@pytest.mark.parametrize("action", ["Ignore", "Report", "Reassign"])
def test_on_a_silent_wire_neighbours_learn_the_addresses(bed: Bed, neighbour: Machine, kind: str, action: str) -> None:
    give(neighbour, "10.66.0.9", "2001:db8:66::9")
    for text in OTHER:
        neighbour.run("ip", "neigh", "replace", text, "lladdr", "02:00:00:00:00:99", "dev", "far", "nud", "stale")
    assert reported(bed, addressed(kind, action, *OTHER)) == ()

    mac = bed.link("net1", inside=True)["address"]
    assert {text: known(neighbour)[text] for text in OTHER} == dict.fromkeys(OTHER, mac)


def test_a_wire_that_is_not_to_be_asked_is_not(bed: Bed, neighbour: Machine) -> None:
    give(neighbour, *OTHER)
    with heard(neighbour) as asked:
        assert reported(bed, addressed("host-device", "Ignore", *OTHER)) == ()
    assert asked == []


def test_a_duplicate_that_the_kernel_has_found_counts(bed: Bed, neighbour: Machine) -> None:
    """The other machine answers the kernel's detection, which programs may leave on, and is gone when netdra asks."""
    program = bed.plugins / "with-detection"
    make = (
        "#!/bin/sh\ncat >/dev/null\n"
        'test "$CNI_COMMAND" = ADD || { echo \'{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}\'; exit; }\n'
        'enter="nsenter --net=$CNI_NETNS"\n'
        "ip link set wire netns $(basename $CNI_NETNS) && $enter ip link set wire name net1 up\n"
        f"$enter ip address add {SIX}/64 dev net1\n"
        "for try in $(seq 50); do $enter ip address show dev net1 | grep -q dadfailed && break; sleep 0.1; done\n"
        f"ip -n {neighbour.name} address delete {SIX}/64 dev far\n"
        'echo \'{"cniVersion":"1.1.0","interfaces":[{"name":"net1","sandbox":"\'$CNI_NETNS\'"}]}\'\n'
    )
    program.write_text(make)
    program.chmod(0o755)
    give(neighbour, SIX)
    made = step("lan", "with-detection", "net1", {"ipam": {"type": "static", "addresses": [{"address": f"{SIX}/64"}]}})
    made = msgspec.structs.replace(made, pod_network="storage", on_duplicate="Report")
    found = reported(bed, made)

    (entry,) = bed.ip("-6", "address", "show", "dev", "net1", inside=True)
    assert "dadfailed" in json.dumps(entry)
    assert [(entry.address, entry.mac) for entry in found] == [(SIX, "")]
    assert str(found[0]).endswith("is also used by another machine")


def test_an_interface_without_neighbours_is_not_asked(bed: Bed, neighbour: Machine) -> None:
    give(neighbour, *OTHER)
    bed.run("ip", "link", "set", "dev", "wire", "arp", "off")
    with heard(neighbour) as asked:
        assert reported(bed, addressed("host-device", "Report", *OTHER)) == ()
    assert asked == []


def test_addresses_outside_pod_networks_are_not_probed_for_duplicates(bed: Bed, neighbour: Machine) -> None:
    give(neighbour, *OTHER)
    made = msgspec.structs.replace(addressed("host-device", "", *OTHER), pod_network="")
    with heard(neighbour) as asked:
        assert reported(bed, made) == ()
    assert asked == []
