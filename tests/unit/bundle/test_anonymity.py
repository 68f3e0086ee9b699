"""Nothing of a cluster's owner is left in an anonymous bundle, and its objects still lead to the same cause."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netdra.bundle.anonymity import Anonymizer, Pseudonymity, known_words, restore
from netdra.bundle.archive import MIB, LeftOut
from netdra.bundle.content import Collected, content
from netdra.chain.checkpoint import Saved
from netdra.cli.support_objects import KINDS
from netdra.cluster.reading import WORKLOADS
from netdra.doctor.diagnosis import Diagnosis
from netdra.model.inventory import Inventory
from netdra.node.claims.store import PreparedClaim
from tests.unit.bundle.canaries import filled, in_turn

LETTERS = st.text("bcdfghjklmnpqrstvwz", min_size=5, max_size=9)
CANARIES = st.builds("q{}".format, LETTERS).filter(lambda word: word not in known_words().texts)
FORMS: tuple[Callable[[str], str], ...] = (
    str,
    "{}-0".format,
    "{}/db-0".format,
    "web-{}-7d4b9".format,
    "{}.corp.example/rack".format,
    "a pod of {} is not ready, see node {}.".replace("{}", "{0}").format,
    'device.attributes["{0}.example"].{0} == "{0}"'.format,
    "{}@mail.example".format,
    "https://user:{}@host/path?x=1".format,
    "kubernetes.io/{}".format,
    "{}_x: not found;".format,
    "{}=1,app in ({})".replace("{}", "{0}").format,
)
HARDWARE = (
    "3c:ec:ef:11:22:33",
    "203.0.113.77",
    "2a02:db8:5:77::9/64",
    "3cecef112233",
    "5f0c1d2e-aaaa-4bbb-8ccc-dddd0000eeee",
)
LEFT = tuple(value.partition("/")[0] for value in HARDWARE)
TYPES: tuple[Any, ...] = (*(kind.type for kind in KINDS), *(kind.type for kind in WORKLOADS.values()))


def texts(words: list[str]) -> list[str]:
    return [
        *(form(word) for word in words for form in FORMS),
        *HARDWARE,
        *(f"link {value}: lost" for value in HARDWARE),
    ]


def written(collected: Collected, *, is_anonymous: bool = True) -> str:
    made = content(collected, Anonymizer() if is_anonymous else None, 64 * MIB)
    left_out = msgspec.json.encode(made.left_out).decode()
    return "\n".join([*made.files, *(data.decode() for data in made.files.values()), left_out, made.namespace])


@given(words=st.lists(CANARIES, min_size=1, max_size=3, unique=True), kind=st.sampled_from(TYPES))
@settings(max_examples=40, deadline=None)
def test_no_canary_in_any_text_of_an_object_remains(words: list[str], kind: Any) -> None:
    turn = in_turn(texts(words))
    objects = [filled(kind, turn) for _ in range(2)]
    assert words[0] in written(Collected(objects={"things": objects}), is_anonymous=False)
    bundle = written(Collected(objects={"things": objects}))
    for value in (*words, *LEFT):
        assert value not in bundle, value


@pytest.mark.parametrize("kind", [Saved, PreparedClaim, Inventory, Diagnosis])
@given(words=st.lists(CANARIES, min_size=1, max_size=2, unique=True))
@settings(max_examples=10, deadline=None)
def test_no_canary_of_a_node_or_of_a_check_remains(kind: Any, words: list[str]) -> None:
    turn = in_turn(texts(words))
    bundle = written(Collected(data={("checkpoints", f"{words[0]}.json"): [filled(kind, turn) for _ in range(3)]}))
    for value in (*words, *LEFT):
        assert value not in bundle, value


@given(words=st.lists(CANARIES, min_size=1, max_size=2, unique=True))
@settings(max_examples=20, deadline=None)
def test_no_canary_in_logs_metrics_notes_and_names_of_files_remains(words: list[str]) -> None:
    lines = texts(words)
    log = [f"2026-11-21T12:00:00.000Z WARNING netdra.node.x: {line} pod={words[0]}/db" for line in lines]
    as_json = [
        msgspec.json.encode({"logger": "netdra.node", "message": line, line: line, "pod": line}).decode()
        for line in lines
    ]
    metrics = [f'netdra_pods{{node="{line}"}} 1.0' for line in lines if '"' not in line]
    bundle = written(
        Collected(
            logs={("logs", words[0], "node.log"): "\n".join([*log, *as_json, f"other program: {words[0]}"])},
            texts={("metrics", f"{words[0]}.txt"): "\n".join(metrics)},
            left_out=[LeftOut(part=f"logs/{words[0]}/x", reason=line, code=403) for line in lines],
            namespace=words[0],
        )
    )
    for value in (*words, *LEFT):
        assert value not in bundle, value
    assert "WARNING netdra.node.x: a pod of x" in bundle
    assert re.match(r"metrics/x\w+\.txt\nlogs/x\w+/node\.log\n", bundle)


def test_a_line_of_another_program_in_a_log_is_left_out() -> None:
    log = "2026-11-21T12:00:00.000Z INFO netdra.node: ready\n2026-11-21T12:00:00.000Z INFO app: secret\nsecret\n{}"
    bundle = written(Collected(logs={("logs", "p", "c.log"): log}), is_anonymous=False)
    assert "netdra.node: ready" in bundle
    assert "secret" not in bundle


def test_words_of_names_are_replaced_although_netdra_uses_them_in_sentences() -> None:
    anonymizer = Anonymizer()
    made = anonymizer.apply(
        lambda: [
            anonymizer.name("network-team"),
            anonymizer.text('the network of "network-team/db" is not ready on node worker-1'),
        ]
    )
    assert "network-team" not in " ".join(made)
    assert made[1].startswith(f'the network of "{made[0]}/')


@given(
    first=st.ip_addresses(v=4),
    second=st.ip_addresses(v=4),
    length=st.integers(0, 32),
    key=st.binary(min_size=32, max_size=32),
)
@example(ipaddress.ip_address("10.31.0.0"), ipaddress.ip_address("10.31.0.5"), 29, bytes(32))
@settings(deadline=None)
def test_an_address_stays_in_its_range_and_addresses_stay_different(
    first: ipaddress.IPv4Address, second: ipaddress.IPv4Address, length: int, key: bytes
) -> None:
    anonymizer = Anonymizer(Pseudonymity(key=key.hex()))
    network = ipaddress.ip_network(f"{first}/{length}", strict=False)
    made = ipaddress.ip_network(anonymizer.name(str(network)))  # without bits of a host
    assert made.prefixlen == length
    one, other = (ipaddress.ip_address(anonymizer.name(str(address))) for address in (first, second))
    assert (other in made) == (second in network)
    assert (one == other) == (first == second)
    assert one.is_private == first.is_private or not first.is_global


@given(first=st.ip_addresses(v=6), second=st.ip_addresses(v=6), length=st.integers(0, 128))
@settings(deadline=None)
def test_an_ipv6_address_stays_in_its_range(
    first: ipaddress.IPv6Address, second: ipaddress.IPv6Address, length: int
) -> None:
    anonymizer = Anonymizer()
    network = ipaddress.ip_network(f"{first}/{length}", strict=False)
    made = ipaddress.ip_network(anonymizer.name(str(network)))
    assert (ipaddress.ip_address(anonymizer.name(str(second))) in made) == (second in network)


@given(st.lists(st.one_of(CANARIES, st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)), max_size=5))
@settings(deadline=None)
def test_the_mapping_leads_back_to_every_name(names: list[str]) -> None:
    anonymizer = Anonymizer()
    made = anonymizer.apply(lambda: [anonymizer.name(name) for name in names])
    assert restore(made, anonymizer.mapping) == names
    assert len(set(made)) == len(set(names))
    continued = Anonymizer(anonymizer.mapping)
    assert continued.apply(lambda: [continued.name(name) for name in names]) == made


def test_pseudonyms_are_sorted_as_their_names_are() -> None:
    names = [f"{first}{second}-{number}" for first in "kqz" for second in ("aab", "qq", "zz") for number in range(3)]
    anonymizer = Anonymizer()
    made = anonymizer.apply(lambda: [anonymizer.name(name) for name in reversed(names)])
    assert sorted(made) == made[::-1]


def test_a_name_that_contains_others_is_made_of_their_pseudonyms() -> None:
    """DeviceClasses are called after a topology and a step; pods after their workloads; PodAddresses after networks."""
    anonymizer = Anonymizer()
    parts = ("payments", "uplink", "qlan")
    made = anonymizer.apply(
        lambda: [*map(anonymizer.name, parts), anonymizer.name("payments-uplink"), anonymizer.name("qlan.10.0.1.1")]
    )
    assert made[3] == f"{made[0]}-{made[1]}"
    assert re.fullmatch(rf"{made[2]}\.10\.\d+\.\d+\.1", made[4])


def test_values_of_kubernetes_netdra_and_the_kernel_stay() -> None:
    kept = [
        *("eth0", "enp3s0f0v2", "bond0", "lo", "br-int", "0000:03:00.0", "pci0000:00", "8086", "25G", "64Gi", "100m"),
        *(
            "kubernetes.io/hostname",
            "node-role.kubernetes.io/control-plane",
            "networking.dra.io/v1alpha1",
            "NoSchedule",
        ),
        *(
            "dra.networking/ifName",
            "macvlan",
            "host-device",
            "sriov",
            "2026-11-27T10:00:00Z",
            "v1.37.2",
            "Unschedulable",
        ),
        *("hugepages-2Mi", "ephemeral-storage", "cpu", "127.0.0.1", "00:00:00:00:00:00", "RollingUpdate", "default"),
        'device.attributes["dra.networking"].ifName.startsWith("eth") && device.driver == "dra.networking"',
    ]
    anonymizer = Anonymizer()
    assert anonymizer.apply(lambda: [anonymizer.name(value) for value in kept]) == kept
