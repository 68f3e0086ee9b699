"""Texts of plugins, providers, servers, administrators and the disk: an answer or the documented error, in time.

As `test_foreign_bytes`, for texts, and for messages of the kubelet's and providers' sockets. Findings are
added to the parser's `found`.
"""

from __future__ import annotations

import json
import logging
import shutil
import socket
import struct
import tempfile
import threading
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from google.protobuf.message import DecodeError, Message

from netdra.chain import checkpoint, shares
from netdra.chain.checkpoint import BadCheckpointError, Begun, Complete, Done
from netdra.cni import process, protocol
from netdra.cni.errors import PluginError
from netdra.cni.plugins import Binary, PluginPath
from netdra.cni.process import Finished
from netdra.controller.plugins.installers import PlannedSchema, status
from netdra.controller.status import Desired
from netdra.discovery import ovs
from netdra.discovery.scan import scan_recorded
from netdra.kernel import devlink, ethtool, netlink, rdma, vf
from netdra.kernel.netlink import attribute, nested, u32
from netdra.kube import answers as api_answers
from netdra.kube import kubeconfig
from netdra.kube.auth import auth_of
from netdra.kube.errors import ApiError
from netdra.kube.resources import NODES
from netdra.model.cni_plugin import MAX_UNPACKED, DescribedPlugin
from netdra.model.errors import InvalidInputError, NetdraError
from netdra.model.identity import DeviceIdentity
from netdra.model.plan import ClaimReference, Plan
from netdra.model.registration import Registration
from netdra.model.result import CNIInterface, StepResult
from netdra.neutron import answers, clouds, physnets, session
from netdra.neutron.answers import NeutronNetwork, Port, QosPolicy, Subnet
from netdra.neutron.errors import CloudsError, NeutronError
from netdra.node.claims.store import ClaimStore, PreparedClaim
from netdra.node.hardware import Hardware, HardwareTable
from netdra.node.nri import plugin as nri_plugin
from netdra.node.registry.journal import VERSION as JOURNAL_VERSION
from netdra.node.registry.journal import Grant, JournalLine, RegistrationJournal
from netdra.node.registry.messages import from_request
from netdra.node.registry.table import RegistrationTable
from netdra.node.wire import kubelet_pb2, registry_pb2
from netdra.nri import nri_pb2
from netdra.ops import files
from netdra.ops.boot import boot_id
from tests import foreign
from tests.foreign import Parser
from tests.trees import Tree
from tests.unit.controller.test_installers import DESCRIBED, plugin, pod, seen

FOLDER = Path(tempfile.mkdtemp(prefix="foreign-"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
BINARY = Binary(name="ovs", path="/opt/cni/bin/ovs", root="/", identity=(1, 2, 3, 4))
MAX_SHOWN = 16 * 1024
"""Characters of a status or an error that quotes foreign text."""
UID = "00000000-0000-4000-8000-000000000001"
DEEP = b"[" * 100_000


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Without a log of a million damaged files; the folder goes at the end."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    shutil.rmtree(FOLDER)


def encoded(*values: object) -> bytes:
    return b"\n".join(msgspec.json.encode(value) for value in values)


def printing(code: int) -> Callable[[bytes], None]:
    """As a plugin is asked for its versions that prints this, and states it on stderr too."""

    def parse(data: bytes) -> None:
        finished = Finished(status=code, stdout=data, stderr=data[-4096:])
        forget = dict[tuple[str, str], tuple[Binary, tuple[str, ...]]]()
        with mock.patch.object(process, "run", return_value=finished), mock.patch.object(protocol, "_answers", forget):
            refused = None
            try:
                protocol.supported_versions(BINARY)
            except PluginError as problem:
                refused = problem
        if refused is not None:
            assert len(str(refused)) < MAX_SHOWN
            assert all(char.isprintable() or char == "\n" for char in str(refused))
            raise refused

    return parse


def failing(data: bytes) -> None:
    """As a plugin fails that prints this."""
    with pytest.raises(PluginError):
        printing(1)(data)


def of_termination_message(data: bytes) -> None:
    """As the controller makes a CNIPlugin's status of a pod whose containers left this."""
    text = data.decode(errors="replace")
    described = DescribedPlugin.of_text(text)
    assert described is None or len(msgspec.json.encode(described)) <= 2 * MAX_UNPACKED
    for end in ({"terminated": {"message": text}}, {"waiting": {"reason": "CrashLoopBackOff", "message": text}}):
        one = {"name": "describe", "state": end}
        other = {"name": "install", "lastState": end, "state": end}
        strange = pod("b", ready=False, initContainerStatuses=[one], containerStatuses=[other])
        quiet = PlannedSchema(condition=Desired("SchemaApplied", True, "Present"))
        shown = status(plugin(), seen(pod("a"), strange), quiet, NOW)
        assert shown.ready_nodes == 1
        assert len(msgspec.json.encode(shown)) < MAX_SHOWN
        assert all(failure.message.isprintable() for failure in shown.failures)


def of_registration() -> Callable[[bytes], None]:
    """As the registry takes a provider's message."""
    table = RegistrationTable(FOLDER / "registry" / "registrations.jsonl")

    def parse(data: bytes) -> None:
        for form in (registry_pb2.RegisterDeviceRequest, registry_pb2.RegisterAttributesRequest):
            with suppress(DecodeError):
                request: Any = form.FromString(data)
                file = request.device_file if form is registry_pb2.RegisterDeviceRequest else ""
                registration = from_request(request, adds=bool(file), device_file=file)
                with suppress(NetdraError):
                    grant = table.put(registration, "account:a", float(request.ttl_seconds))
                    table.remove(grant.registration.provider, grant.registration.device, "account:a")

    return parse


def of_message(*kinds: tuple[type[Message], Callable[[Any], object]]) -> Callable[[bytes], None]:
    """As each of these messages is read, and then used."""

    def parse(data: bytes) -> None:
        for kind, use in kinds:
            with suppress(DecodeError):
                use(kind.FromString(data))

    return parse


def of_checkpoint(data: bytes) -> None:
    saved = checkpoint.read(data, "it")
    assert len(saved.steps) + saved.damaged <= data.count(b"\n")


def kept_in(path: Path, read: Callable[[], object]) -> Callable[[bytes], None]:
    """As a file of these bytes is read at the start; renamed files are deleted."""

    def parse(data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        read()
        for aside in path.parent.glob(f"{path.name}.*-*"):
            aside.unlink()

    return parse


def of_claim() -> Callable[[bytes], None]:
    return kept_in(FOLDER / "claims" / f"{UID}.json", lambda: ClaimStore(FOLDER / "claims").get(UID))


def of_neutron(data: bytes) -> None:
    """As Neutron's answers are read: lists, a port with its network, a refusal."""
    with suppress(NeutronError):
        ports = session.read(data, "ports", list[Port])
        for port in ports:
            nets, subnets = (
                session.read(data, "networks", list[NeutronNetwork]),
                session.read(data, "subnets", list[Subnet]),
            )
            policy = session.read(data, "policy", QosPolicy)
            for network in nets:
                answers.settings(port, network, subnets, policy)
            assert port.is_bound in (True, False)
            assert port.pci_slot is not None
    for code in (403, 404, 409, 503):
        assert len(str(answers.refusal("port", code, data, "user"))) < MAX_SHOWN


def of_kubeconfig(data: bytes) -> None:
    path = FOLDER / "kubeconfig"
    path.write_bytes(data)
    auth_of(kubeconfig.find_config(path))


def of_api_server(data: bytes) -> None:
    """As the API server's answers are read: a page and its objects, a refusal."""
    assert len(str(api_answers.refusal("list nodes", 403, data, "7"))) < MAX_SHOWN
    for item in api_answers.page("list nodes", data).items or ():
        api_answers.one(NODES, item)


def of_ovs(data: bytes) -> None:
    """As Open vSwitch's database is asked that answers with this."""
    path = str(FOLDER / "db.sock")
    Path(path).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def answer() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(data)

        thread = threading.Thread(target=answer)
        thread.start()
        ports = ovs.bridges(path)
        thread.join()
    assert ports is None or all(isinstance(text, str) for pair in ports.items() for text in pair)


def of_sysfs() -> Callable[[bytes], None]:
    """As a tree is scanned in which one file after the other has these bytes."""
    tree = Tree(FOLDER / "sys")
    tree.pci("0000:03:00.0", driver="ice", iommu_group="7")
    tree.sriov("0000:03:00.0", ["0000:03:10.0"])
    tree.netdev("ens1", "0000:03:00.0", speed=1000, phys_port_name="p0", phys_switch_id="00")
    tree.netdev("br0", uevent="DEVTYPE=bridge", bridge__vlan_filtering=1)
    tree.write("class/infiniband/mlx5_0", parent="ens1")
    names = sorted(path for path in tree.root.rglob("*") if path.is_file() and not path.is_symlink())

    def parse(data: bytes) -> None:
        path = names[zlib.crc32(data) % len(names)]
        before = path.read_bytes()
        path.write_bytes(data)
        try:
            inventory = scan_recorded(str(tree.root))
            assert msgspec.json.encode(inventory)
        finally:
            path.write_bytes(before)

    return parse


def of_dumps(data: bytes) -> None:
    """As answers of generic netlink and of a PF's VFs are read."""
    once = mock.Mock(return_value=[data])
    sock = mock.Mock(request=once, dump=once, families={"ethtool": 21, "devlink": 22})
    asked: tuple[Callable[[], object], ...] = (
        lambda: vf.read(sock, 7),
        lambda: ethtool.speed(sock, 7),
        lambda: ethtool.speeds(sock),
        lambda: devlink.eswitch_mode(sock, "0000:03:00.0"),
        lambda: rdma.netns_mode(sock),
    )
    for ask in asked:
        with suppress(struct.error, ValueError, IndexError, KeyError, OSError, NetdraError):
            ask()
    assert all(len(value) <= len(data) for value in netlink.attributes(data).values())


CLAIM = PreparedClaim(boot_id="b", claim=ClaimReference(namespace="default", name="c", uid=UID), devices=())
PLAN = Plan(topology="t", claim=CLAIM.claim, steps=())
HEADER = checkpoint.Header(
    version=checkpoint.VERSION,
    boot_id="b",
    pod=checkpoint.PodIdentity(sandbox="s1"),
    namespace=checkpoint.NamespaceId(path="/run/netns/x", cookie=7),
    plugins=PluginPath(),
    plans=(PLAN,),
)
RESULT = StepResult(interfaces=(CNIInterface(name="net1"),))
CHECKPOINT = encoded(HEADER, Begun(step="a", config={"mtu": 1}), Done(step="a", result=RESULT), Complete()) + b"\n"
REGISTRATION = Registration(provider="bctl", device="eth7")
JOURNAL = encoded(
    JournalLine(version=JOURNAL_VERSION, boot_id=boot_id(), wall=1.0),
    JournalLine(granted=Grant(registration=REGISTRATION, owner="root", ttl=60.0, ends=1e9)),
)
HARDWARE = Hardware(pool="n/nic", device="eth7", now=DeviceIdentity(bus="pci", address="0000:03:00.0"))
CHANGED = shares.ChangedDevice(pool="p", device="d", text="t", plugin=BINARY, where=PluginPath(), boot_id="b", at=1.0)
DEVICE = registry_pb2.RegisterDeviceRequest(
    device="eth7",
    provider="bctl",
    device_file="/dev/acme0",
    ttl_seconds=60,
    attributes={
        "rdma": registry_pb2.DeviceAttribute(bool=True),
        "acme.example/speed": registry_pb2.DeviceAttribute(int=7),
    },
    capacity={
        "bandwidth": registry_pb2.DeviceCapacity(
            value="10G",
            request_policy=registry_pb2.CapacityRequestPolicy(
                default="1G", valid_range=registry_pb2.CapacityRequestPolicyRange(min="1G", step="1G")
            ),
        )
    },
)
PREPARE = kubelet_pb2.PrepareRequest(claims=[kubelet_pb2.Claim(namespace="ns", name="n", uid=UID)])
SANDBOX = nri_pb2.PodSandbox(
    id="s",
    name="pod",
    uid="u",
    namespace="team",
    pid=7,
    linux=nri_pb2.LinuxPodSandbox(namespaces=[nri_pb2.LinuxNamespace(type="network", path="/run/netns/x")]),
)
PORT = {
    "id": "p",
    "network_id": "n",
    "mac_address": "fa:16:3e:00:00:01",
    "fixed_ips": [{"ip_address": "10.0.0.7", "subnet_id": "s"}],
    "binding:vif_type": "hw_veb",
    "binding:vif_details": {"vlan": "7"},
    "binding:profile": {"pci_slot": "0000:03:00.2"},
}
NEUTRON = json.dumps(
    {
        "ports": [PORT],
        "networks": [{"id": "n", "mtu": 1500, "provider:physical_network": "physnet1"}],
        "subnets": [
            {
                "id": "s",
                "network_id": "n",
                "cidr": "10.0.0.0/24",
                "host_routes": [{"destination": "0.0.0.0/0", "nexthop": "10.0.0.1"}],
            }
        ],
        "policy": {"id": "q", "rules": [{"type": "bandwidth_limit", "max_kbps": 1000}]},
        "NeutronError": {"type": "PortNotFound", "message": "not found", "detail": ""},
    }
).encode()
CLOUDS = b"""clouds:
  openstack:
    auth:
      {auth_url: "https://keystone.example.com:5000/v3", application_credential_id: a, application_credential_secret: b}
    region_name: one
    interface: public
    verify: true
"""
KUBECONFIG = b"""apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: c, user: u, namespace: team}}]
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: abc}}]
"""
PAGE = json.dumps(
    {"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a", "labels": {"a": "b"}}}], "message": "m"}
).encode()
OVS = json.dumps(
    {
        "id": 0,
        "result": [
            {"rows": [{"name": "br0", "ports": ["set", [["uuid", "p0"], ["uuid", "p1"]]]}]},
            {
                "rows": [
                    {"_uuid": ["uuid", "p0"], "interfaces": ["uuid", "i0"]},
                    {"_uuid": ["uuid", "p1"], "interfaces": ["uuid", "i1"]},
                ]
            },
            {"rows": [{"_uuid": ["uuid", "i0"], "name": "br0"}, {"_uuid": ["uuid", "i1"], "name": "ens1"}]},
        ],
    }
).encode()
FAMILY = struct.pack("=BBH", 1, 1, 0) + attribute(1, struct.pack("=H", 21)) + attribute(2, b"ethtool\0")
VFS = struct.pack("=BxHiII", 0, 1, 7, 0, 0) + nested(22, nested(1, attribute(1, u32(0) + bytes(32))))

JSON_WORDS = (
    b"null",
    b"[]",
    b"{}",
    b"-1",
    b"1e999",
    b'"',
    b'""',
    b"true",
    b"\\ud800",
    b"\xff",
    b"9" * 40,
    b"1.5",
    b"[" * 300,
)
YAML_WORDS = (
    b"*a",
    b"&a [*a]",
    b"!!python/object:os.system",
    b"!!int ",
    b"!!timestamp ",
    b"!!set ",
    b"9" * 400,
    b"? ",
    b"[" * 40,
    b"0o9",
    b"\t",
    b"1_0:0",
    b"~",
    b"{}",
    b"'",
    b"http://[",
    b"certificate-authority-data: AAAA",
    b"client-certificate-data: '\xc3\xa9'",
    b"exec: {command: x}",
    b"\0",
    b"2026-01-01",
)
WIRE_WORDS = (b"\xff\xff\xff\xff\x0f", b"\x80" * 12, b"\0", b"\n\xff", b"\xc3\x28", b"\x1a\0", b"\xe2\x80\xae")
TEXT_WORDS = (
    b"panic: runtime error\n\ngoroutine 1 [running]:\n",
    b"\xc3\xa9",
    b"\xe2\x80\xae",
    b"\x1b[2J",
    b"=",
    b"====",
    b"A" * 64,
    b"\0",
    b"\n",
    b"\xff\xfe",
)
SYSFS_WORDS = (
    b"-1",
    b"9" * 30,
    b"0x",
    b"\0",
    b"\xff",
    b" ",
    b"e",
    b"\n\n",
    b"up",
    b"INTERFACE=",
    b"DEVTYPE=",
    b"DEVTYPE=bond",
)
BOMB = b64encode(zlib.compress(b'{"digest": "' + b"a" * 10_000_000 + b'"}', 9))

PARSERS = {
    "VERSION": Parser(
        printing(0),
        (PluginError,),
        (b'{"cniVersion": "1.1.0", "supportedVersions": ["0.4.0", "1.0.0"]}',),
        JSON_WORDS,
        (DEEP, b"\xff" * 100_000),
    ),
    "errors of plugins": Parser(
        failing,
        (),
        (b'{"cniVersion": "1.1.0", "code": 7, "msg": "no", "details": "link \xe2\x80\xae not found"}',),
        JSON_WORDS + TEXT_WORDS,
        (DEEP, b'{"msg": "' + b"x" * 1_000_000 + b'"}'),
    ),
    "termination messages": Parser(
        of_termination_message,
        (),
        (
            DESCRIBED.as_text().encode(),
            b"netdra: no\nhint",
            b"panic: runtime error\n\ngoroutine 1 [running]:\nmain.main()",
        ),
        TEXT_WORDS,
        (
            "pânic: é".encode(),
            "é".encode() * 2048,
            BOMB,
            b64encode(zlib.compress(DEEP)),
            DESCRIBED.as_text()[:-9].encode(),
        ),
    ),
    "registrations": Parser(
        of_registration(),
        (),
        (
            DEVICE.SerializeToString(),
            registry_pb2.RegisterAttributesRequest(device="eth7", provider="b", ttl_seconds=9).SerializeToString(),
        ),
        WIRE_WORDS,
    ),
    "kubelet and runtime": Parser(
        of_message(
            (kubelet_pb2.PrepareRequest, str),
            (kubelet_pb2.UnprepareRequest, str),
            (kubelet_pb2.RegistrationStatus, str),
            (nri_pb2.ConfigureRequest, nri_plugin.runtime),
            (nri_pb2.SynchronizeRequest, lambda listed: list(map(nri_plugin.running, listed.pods))),
            (nri_pb2.StateChangeEvent, lambda event: nri_plugin.sandbox(event.pod)),
            (nri_pb2.PodSandboxRequest, lambda event: nri_plugin.running(event.pod)),
        ),
        (),
        (
            PREPARE.SerializeToString(),
            nri_pb2.ConfigureRequest(runtime_name="containerd", request_timeout=2000).SerializeToString(),
            nri_pb2.SynchronizeRequest(pods=[SANDBOX] * 2, more=True).SerializeToString(),
            nri_pb2.StateChangeEvent(event=nri_pb2.RUN_POD_SANDBOX, pod=SANDBOX).SerializeToString(),
        ),
        WIRE_WORDS,
    ),
    "checkpoints": Parser(
        of_checkpoint,
        (BadCheckpointError, files.NewerStateError),
        (CHECKPOINT,),
        JSON_WORDS,
        (DEEP + b"\n", b"\n" + CHECKPOINT),
    ),
    "prepared claims": Parser(of_claim(), (files.NewerStateError,), (encoded(CLAIM),), JSON_WORDS, (DEEP,)),
    "journal of registrations": Parser(
        kept_in(FOLDER / "journal.jsonl", lambda: RegistrationJournal(FOLDER / "journal.jsonl").read()),
        (),
        (JOURNAL,),
        JSON_WORDS,
        (DEEP, JOURNAL + b"\n" + b'{"x": ' + DEEP),
    ),
    "hardware": Parser(
        kept_in(FOLDER / "hardware.json", lambda: HardwareTable(FOLDER / "hardware.json")),
        (),
        (encoded({"version": 1, "devices": [HARDWARE]}),),
        JSON_WORDS,
        (DEEP, b'{"version": 1, "devices": [{"pool": "\x80"}]}'),
    ),
    "changed devices": Parser(
        kept_in(FOLDER / "changed" / "d", lambda: list(shares.changed_devices(FOLDER))),
        (),
        (encoded(CHANGED),),
        JSON_WORDS,
        (DEEP, b'{"x": ' + DEEP),
    ),
    "Neutron": Parser(
        of_neutron,
        (),
        (NEUTRON,),
        JSON_WORDS,
        (DEEP, NEUTRON.replace(b'"7"', b'"' + b"9" * 5000 + b'"'), NEUTRON.replace(b"10.0.0.0/24", b"x/24")),
    ),
    "clouds.yaml": Parser(
        kept_in(FOLDER / "clouds.yaml", lambda: clouds.read(FOLDER / "clouds.yaml")),
        (CloudsError,),
        (CLOUDS,),
        YAML_WORDS,
        (DEEP,),
    ),
    "physnets": Parser(
        kept_in(FOLDER / "physnets.yaml", lambda: physnets.read(FOLDER / "physnets.yaml")),
        (CloudsError,),
        (b"physnet2: {network: blue, subnet: blue-v4}\n",),
        YAML_WORDS,
        (DEEP, b"7: {network: a}", b"[]", b"0"),
    ),
    "kubeconfig": Parser(of_kubeconfig, (InvalidInputError,), (KUBECONFIG,), YAML_WORDS, (DEEP,)),
    "API server": Parser(of_api_server, (ApiError, InvalidInputError), (PAGE,), JSON_WORDS, (DEEP,)),
    "Open vSwitch": Parser(
        of_ovs,
        (),
        (OVS, b'{"method": "echo", "id": "e", "params": []}' + OVS),
        JSON_WORDS,
        (DEEP, b'["result"]', b'"result"', b"7"),
    ),
    "sysfs": Parser(
        of_sysfs(), (), (b"1000\n", b"0x8086\n", b"INTERFACE=ens1\nIFINDEX=1\n", b"up\n"), SYSFS_WORDS, (b"9" * 5000,)
    ),
    "netlink dumps": Parser(of_dumps, (), (FAMILY, VFS), (b"\xff\xff", b"\0\0", b"\4\0", b"\5\0\0\0"), (b"",)),
}


@pytest.mark.parametrize("name", PARSERS)
def test_sound_texts_are_taken(name: str) -> None:
    for data in PARSERS[name].sound:
        PARSERS[name].parse(data)


@pytest.mark.timeout(foreign.LIMIT)
@pytest.mark.parametrize("name", PARSERS)
def test_each_parser_accepts_input_or_raises_its_documented_error_in_time(name: str) -> None:
    if problem := foreign.wrong(name, PARSERS[name]):
        pytest.fail(problem)


@pytest.mark.parametrize("name", PARSERS)
def test_no_text_is_many_times_larger_in_memory(name: str) -> None:
    most = foreign.memory(name, PARSERS[name])
    assert most < foreign.MOST_MEMORY, f"{most >> 20} MiB"
