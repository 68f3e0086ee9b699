"""The parsers of foreign bytes accept any input: an answer or their own error, in time, and nothing else.

`tests.foreign` makes the bytes. Its findings are added to `FOUND`.
"""

from __future__ import annotations

import ipaddress
import json
import struct
from collections.abc import Callable

import pytest
from google.protobuf.message import DecodeError

from netdra.cni import results
from netdra.kernel import address, link, link_settings, netlink, probe, route, uapi
from netdra.kernel.netlink import Message, attribute, nested, u32
from netdra.model import documents
from netdra.model.errors import InvalidInputError
from netdra.nri import nri_pb2, ttrpc_pb2
from netdra.nri.framing import Demux, Frame, FrameKind, ProtocolError, Reader, encode, frames
from tests import foreign
from tests.foreign import Parser

HEADER = struct.Struct("=IHHI4x")


def of_ttrpc(data: bytes) -> None:
    """As the NRI connection reads: streams, frames, the request and its contents."""
    reader, demux = Reader(FrameKind.REQUEST), Demux()
    for half in (data[: len(data) // 2], data[len(data) // 2 :]):
        for _, payload in demux.feed(half):
            for frame in reader.feed(payload):
                request = ttrpc_pb2.Request.FromString(frame.data)
                nri_pb2.PodSandboxRequest.FromString(request.payload)


def of_netlink(data: bytes) -> None:
    """As the monitor reads: messages, and their contents."""
    parsers: dict[int, Callable[[bytes], object]] = {
        uapi.RTM_NEWLINK: link.parse,
        uapi.RTM_NEWADDR: address.parse,
        uapi.RTM_NEWROUTE: route.parse,
    }
    for kind, _, _, body in netlink.messages(data):
        found = netlink.attributes(body)
        assert all(len(value) <= len(body) for value in found.values())
        if kind in parsers:
            parsers[kind](body)
        if kind == uapi.RTM_NEWLINK:
            of_link_settings(link.parse(body, whole=True).message)


def of_link_settings(message: Message) -> None:
    """As steps read the settings of a device."""
    for read in (link_settings.sizes, link_settings.group, link_settings.sysctls, link_settings.bridge_port):
        read(message)


def of_probe(data: bytes) -> None:
    """As the node reads ARP and neighbour discovery of other machines on a pod's wire."""
    probe.claimed(data, MAC)


def of_yaml(data: bytes) -> None:
    """As the commands read files."""
    list(documents.read(data.decode(errors="replace"), "fuzzed"))


def message(kind: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return HEADER.pack(16 + len(body), kind, 0, 1) + body


SANDBOX = nri_pb2.PodSandboxRequest(
    pod=nri_pb2.PodSandbox(id="s", name="pod", uid="u", namespace="team", pid=7)
).SerializeToString()
REQUEST = ttrpc_pb2.Request(service="nri.pkg.api.v1alpha1.Plugin", method="RunPodSandbox", payload=SANDBOX)
MAC, OTHER = b"\2\0\0\0\0\1", b"\2\0\0\0\0\2"
NEIGHBOURS = tuple(
    make(OTHER, ipaddress.ip_address(text))
    for text in ("10.0.0.2", "2001:db8::2")
    for make in (probe.question, probe.announcement)
)
FRAME = encode(Frame(1, FrameKind.REQUEST, REQUEST.SerializeToString()))
LINK = message(
    uapi.RTM_NEWLINK,
    struct.pack("=BxHiII", 0, 1, 7, 0x1043, 0),
    attribute(uapi.IFLA_IFNAME, b"eth0\0"),
    attribute(uapi.IFLA_MTU, u32(1500)),
    attribute(uapi.IFLA_OPERSTATE, b"\6"),
    nested(
        uapi.IFLA_LINKINFO,
        attribute(uapi.IFLA_INFO_KIND, b"veth\0"),
        attribute(uapi.IFLA_INFO_SLAVE_KIND, b"bridge\0"),
        nested(uapi.IFLA_INFO_SLAVE_DATA, attribute(2, b"\0\x20"), attribute(3, u32(2)), attribute(8, b"\1")),
    ),
    attribute(uapi.IFLA_GSO_MAX_SIZE, u32(65536)),
    nested(uapi.IFLA_AF_SPEC, nested(2, attribute(uapi.IFLA_INET_CONF, bytes(132)))),
    nested(uapi.IFLA_PROP_LIST, attribute(uapi.IFLA_ALT_IFNAME, b"enp0s1\0")),
)
ADDRESS = message(uapi.RTM_NEWADDR, struct.pack("=BBBBi", 2, 24, 0, 0, 7), attribute(uapi.IFA_ADDRESS, b"\n\0\0\1"))
ROUTE = message(
    uapi.RTM_NEWROUTE,
    struct.pack("=BBBBBBBBI", 2, 24, 0, 0, 254, 3, 0, 1, 0),
    attribute(uapi.RTA_DST, b"\n\0\0\0"),
    attribute(uapi.RTA_OIF, u32(7)),
    attribute(uapi.RTA_MULTIPATH, struct.pack("=HBBi", 16, 0, 0, 7) + attribute(uapi.RTA_GATEWAY, b"\n\0\0\1")),
)
RESULT = json.dumps(
    {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:01", "mtu": 1500, "sandbox": "/run/netns/x"}],
        "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1", "interface": 0}, {"address": "fd00::2/64"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1", "mtu": 1400, "table": 100}],
        "dns": {"nameservers": ["10.0.0.53"], "search": ["example.org"], "options": ["ndots:2"]},
    }
).encode()
TOPOLOGY = b"""apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: pair, labels: &labels {a: b, "c": 'd'}}
spec:
  steps:
    - {name: vf, type: sriov, selector: {cel: "device.driver == 'x'"}}
    - name: vlan
      type: vlan
      dependOn: [vf]
      config: {master: "{{ vf.interfaceName }}", vlanId: 0x64, more: [1, 2.5, ~, on, 2026-01-01], labels: *labels}
--- # another one
kind: List
apiVersion: v1
items:
  - apiVersion: networking.dra.io/v1alpha1
    kind: DeviceExposurePolicy
    metadata: {name: p}
    spec:
      selector:
        cel: |-
          true
"""
WORDS = {
    "neighbours": (b"\x08\x06", b"\x86\xdd", b"\0\1", b"\0\2", b"\x3a\xff", MAC, OTHER, b"\x87\0", b"\x88\0"),
    "ttrpc": (b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\1\1\0", b"\n\xff\xff\xff\xff\x0f"),
    "netlink": (b"\xff\xff", b"\0\0", b"\4\0", b"\5\0\0\0", struct.pack("=H", uapi.IFLA_PROP_LIST)),
    "CNI results": (b"null", b"[]", b"{}", b"-1", b"1e999", b'"', b"[" * 300, b"\\ud800", b"99999999999999999999"),
    "YAML": (
        b"*labels",
        b"&a [*a]",
        b"<<: *labels",
        b"!!python/object:os.system",
        b"? ",
        b"[" * 40,
        b"0o9",
        b"\t",
        b"1_0:0",
    ),
}
FOUND: dict[str, tuple[bytes, ...]] = {
    "neighbours": (b"", NEIGHBOURS[0][:20], NEIGHBOURS[3][:60]),
    "ttrpc": (),
    "netlink": (message(uapi.RTM_NEWLINK, struct.pack("=BxHiII", 0, 1, 7, 0, 0), attribute(uapi.IFLA_OPERSTATE, b"")),),
    "CNI results": (b'{"cniVersion": "\x80"}', b"[" * 100_000, b'{"ips": [{"address": "' + b"1" * 100_000 + b'/24"}]}'),
    "YAML": (
        b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n",
        b"{" * 100_000,
        b"- " * 50_000,
        b"? " * 10_000,
        b"'" * 9_999,
    ),
}


PARSERS = {
    "neighbours": Parser(of_probe, (), NEIGHBOURS, WORDS["neighbours"], FOUND["neighbours"]),
    "ttrpc": Parser(
        of_ttrpc,
        (ProtocolError, DecodeError),
        (frames(1, FRAME), frames(1, FRAME * 2), frames(2, FRAME)),
        WORDS["ttrpc"],
        FOUND["ttrpc"],
    ),
    "netlink": Parser(
        of_netlink,
        (struct.error, ValueError, IndexError, OSError),
        (LINK, ADDRESS, ROUTE, LINK + ADDRESS + ROUTE),
        WORDS["netlink"],
        FOUND["netlink"],
    ),
    "CNI results": Parser(results.parse, (ValueError,), (RESULT,), WORDS["CNI results"], FOUND["CNI results"]),
    "YAML": Parser(of_yaml, (InvalidInputError,), (TOPOLOGY,), WORDS["YAML"], FOUND["YAML"]),
}


@pytest.mark.parametrize("name", PARSERS)
def test_sound_messages_are_taken(name: str) -> None:
    for data in PARSERS[name].sound:
        PARSERS[name].parse(data)


@pytest.mark.timeout(foreign.LIMIT)
@pytest.mark.parametrize("name", PARSERS)
def test_each_parser_accepts_input_or_raises_its_documented_error_in_time(name: str) -> None:
    if problem := foreign.wrong(name, PARSERS[name]):
        pytest.fail(problem)


@pytest.mark.parametrize("name", PARSERS)
def test_no_message_is_many_times_larger_in_memory(name: str) -> None:
    most = foreign.memory(name, PARSERS[name])
    assert most < foreign.MOST_MEMORY, f"{most >> 20} MiB"
