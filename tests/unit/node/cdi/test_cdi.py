"""Containers' view of a claim: outcomes, specification, environment and metadata, as texts beside the steps."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.chain.outcome import DeviceOutcome, device_outcomes
from netdra.chain.report import StepReport
from netdra.model.claim import NetworkDeviceData
from netdra.model.errors import NetdraError
from netdra.model.neutron_port import PortSettings
from netdra.model.plan import ClaimReference, Plan, PlannedDevice, PlannedPort, PlannedStep
from netdra.model.resource import DeviceAttribute
from netdra.model.result import CNIAddress, CNIInterface, StepDevice, StepResult
from netdra.node.cdi import files as claim_files
from netdra.node.cdi.files import ClaimFiles
from netdra.node.cdi.spec import of_claim
from netdra.node.claims.store import KeptDevice, PreparedClaim, PreparedDevice
from testbed.dra import read_sequence

UID = "7b0e8a5e-0000-4000-8000-000000000001"
CLAIM = ClaimReference(namespace="ns", name="train-net-x7k2p", uid=UID)
SANDBOX = "/var/run/netns/cni-1"


def ran(plan: Plan, results: Mapping[str, StepResult]) -> tuple[DeviceOutcome, ...]:
    """The outcomes of a plan's devices for these results of its steps."""
    reports = [
        StepReport(
            topology=plan.topology,
            step=step.name,
            plugin=step.type,
            execution=step.execution,
            interface=step.if_name,
            result=results[step.name],
        )
        for step in plan.steps
    ]
    return device_outcomes([plan], reports)


def planned(request: str, device: str, address: str = "") -> PlannedDevice:
    return PlannedDevice(request=request, pool="p", device=device, pci_address=address)


def kept(request: str, device: str, address: str = "", **further: Any) -> KeptDevice:
    told = PreparedDevice(requests=(request,), pool="p", device=device, share_id=further.pop("share_id", ""))
    return KeptDevice(told=told, facts=planned(request, device, address), **further)


def prepared(*devices: KeptDevice, pod_claim_name: str = "train-net") -> PreparedClaim:
    return PreparedClaim(boot_id="b", claim=CLAIM, devices=devices, pod_claim_name=pod_claim_name)


def step(name: str, kind: str, if_name: str, *after: str, device: PlannedDevice | None = None) -> PlannedStep:
    return PlannedStep(
        name=name, type=kind, if_name=if_name, network="n", execution="Builtin", depend_on=after, device=device
    )


def inside(name: str, mac: str = "02:00:00:00:00:01") -> CNIInterface:
    return CNIInterface(name=name, mac=mac, sandbox=SANDBOX)


VF0, VF1 = planned("vf0", "eth0v0", "0000:03:00.2"), planned("vf1/good", "eth1v0", "0000:03:10.2")
BONDED_PLAN = Plan(
    topology="bonded",
    claim=CLAIM,
    steps=(
        step("vf0", "sriov", "net1", device=VF0),
        step("vf1", "sriov", "net2", device=VF1),
        step("rdma0", "rdma", "net1", "vf0"),
        step("bond0", "bond", "bond0", "rdma0", "vf1"),
        step("tune", "tuning", "bond0", "bond0"),
        step("own", "tuning", "net1", "vf0"),
    ),
)
BONDED_RESULTS = {
    "vf0": StepResult(interfaces=(CNIInterface(name="eth0v0", mac="host"), inside("net1"))),
    "vf1": StepResult(interfaces=(inside("net2", "02:00:00:00:00:02"),)),
    "rdma0": StepResult(
        interfaces=(inside("net1"),),
        devices=(
            StepDevice(
                pci_address="0000:03:00.2",
                rdma_device="mlx5_2",
                device_nodes=("/dev/infiniband/uverbs2", "/dev/infiniband/rdma_cm"),
            ),
        ),
    ),
    "bond0": StepResult(interfaces=(inside("net1"), inside("net2"), inside("bond0", "02:00:00:00:00:01"))),
    "tune": StepResult(interfaces=(inside("bond0"),), ips=(CNIAddress(address="10.0.0.5/24", interface=0),)),
    "own": StepResult(
        interfaces=(CNIInterface(name="eth0v0", mac="host"), inside("net1", "02:00:00:00:00:09")),
        ips=(
            CNIAddress(address="10.1.0.5/24", interface=1),
            CNIAddress(address="fd00::5/64", interface=1),
            CNIAddress(address="10.9.9.9/24"),
        ),
    ),
}
BONDED = ran(BONDED_PLAN, BONDED_RESULTS)
RDMA = step("rdma0", "rdma", "bond0", "bond0")
VFIO_PLAN = Plan(
    topology="",
    claim=CLAIM,
    steps=(step("dpdk", "vfio-pci", "net3", device=planned("dpdk", "eth2v0", "0000:05:00.1")),),
)
VFIO_RESULTS = {
    "dpdk": StepResult(
        devices=(
            StepDevice(pci_address="0000:05:00.1", iommu_group="42", device_nodes=("/dev/vfio/42", "/dev/vfio/vfio")),
        )
    )
}
VFIO = ran(VFIO_PLAN, VFIO_RESULTS)
WHOLE = prepared(
    kept("vf0", "eth0v0", "0000:03:00.2", attributes={"dra.networking/mtu": DeviceAttribute(int_=1500)}),
    kept("vf1/good", "eth1v0", "0000:03:10.2"),
    kept("dpdk", "eth2v0", "0000:05:00.1"),
    kept("look", "eth3", "0000:06:00.0", admin_access=True),
)


def test_each_device_is_listed_with_its_network_data_rdma_devices_and_device_nodes() -> None:
    vf0, vf1, dpdk, look = of_claim(WHOLE, [*BONDED, *VFIO])
    assert vf0.network == NetworkDeviceData(
        interface_name="net1", ips=("10.1.0.5/24", "fd00::5/64"), hardware_address="02:00:00:00:00:09"
    )
    assert (vf0.rdma_devices, vf0.device_nodes) == (("mlx5_2",), ("/dev/infiniband/uverbs2", "/dev/infiniband/rdma_cm"))
    assert (vf1.device.request, vf1.rdma_devices) == ("vf1/good", ())
    # A bond gives its members one MAC.
    assert vf1.network == NetworkDeviceData(interface_name="net2", hardware_address="02:00:00:00:00:01")
    assert (dpdk.network, dpdk.device_nodes) == (None, ("/dev/vfio/42", "/dev/vfio/vfio"))
    assert (look.network, look.device.pci_address) == (None, "0000:06:00.0")


@pytest.mark.parametrize(
    ("address", "told"), [("0000:03:00.2", [("mlx5_9",), ()]), ("0000:0a:00.0", [("mlx5_9",), ("mlx5_9",)])]
)
def test_a_device_that_a_step_on_several_hands_out_goes_to_whose_it_is_else_to_all(
    address: str, told: list[tuple[str, ...]]
) -> None:
    plan = msgspec.structs.replace(
        BONDED_PLAN, steps=(*BONDED_PLAN.steps[:2], step("bond0", "bond", "bond0", "vf0", "vf1"), RDMA)
    )
    results = {
        **{name: BONDED_RESULTS[name] for name in ("vf0", "vf1", "bond0")},
        "rdma0": StepResult(devices=(StepDevice(pci_address=address, rdma_device="mlx5_9"),)),
    }
    became = of_claim(WHOLE, ran(plan, results))
    assert [outcome.rdma_devices for outcome in became[:2]] == told


def test_plans_of_other_claims_are_passed_over() -> None:
    other = msgspec.structs.replace(BONDED_PLAN, claim=msgspec.structs.replace(CLAIM, uid="another"))
    assert all(outcome.network is None for outcome in of_claim(WHOLE, ran(other, BONDED_RESULTS)))


def test_the_specification_has_a_device_for_each_request(tmp_path: Path) -> None:
    files = ClaimFiles(plugin=tmp_path / "plugin", cdi=tmp_path / "cdi")
    files.write_spec(WHOLE, [*BONDED, *VFIO])
    path = tmp_path / "cdi" / f"dra.networking-claim-{UID}.json"
    written = json.loads(path.read_text())
    assert (written["cdiVersion"], written["kind"]) == ("0.5.0", "dra.networking/claim")
    edits = {each["name"].removeprefix(f"{UID}-"): each["containerEdits"] for each in written["devices"]}
    assert list(edits) == ["vf0", "vf1", "dpdk", "look"]
    assert edits["vf0"]["env"] == [
        "NETDRA_TRAIN_NET_VF0_DEVICES=eth0v0",
        "NETDRA_TRAIN_NET_VF0_INTERFACES=net1",
        "NETDRA_TRAIN_NET_VF0_PCI_ADDRESSES=0000:03:00.2",
        "NETDRA_TRAIN_NET_VF0_RDMA_DEVICES=mlx5_2",
    ]
    assert edits["vf0"]["deviceNodes"] == [
        {"path": "/dev/infiniband/uverbs2", "permissions": "rw"},
        {"path": "/dev/infiniband/rdma_cm", "permissions": "rw"},
    ]
    assert edits["dpdk"]["env"] == [
        "NETDRA_TRAIN_NET_DPDK_DEVICES=eth2v0",
        "NETDRA_TRAIN_NET_DPDK_PCI_ADDRESSES=0000:05:00.1",
    ]
    assert [each["path"] for each in edits["dpdk"]["deviceNodes"]] == ["/dev/vfio/42", "/dev/vfio/vfio"]
    assert "deviceNodes" not in edits["look"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_device_file_is_given_by_its_numbers_and_named_by_a_variable(tmp_path: Path) -> None:
    device = PlannedDevice(request="file", pool="p", device="fpga0", device_file="/dev/fpga0")
    plan = Plan(topology="", claim=CLAIM, steps=(step("file", "device-file", "net1", device=device),))
    given = StepResult(devices=(StepDevice(device_nodes=("/dev/fpga0",), number=(240, 7)),))
    claim = prepared(kept("file", "fpga0"))
    files = ClaimFiles(plugin=tmp_path / "plugin", cdi=tmp_path / "cdi")
    files.write_spec(claim, ran(plan, {"file": given}))
    (written,) = json.loads(files.spec_path(UID).read_text())["devices"]
    assert written["containerEdits"]["deviceNodes"] == [
        {"path": "/dev/fpga0", "permissions": "rw", "type": "c", "major": 240, "minor": 7}
    ]
    assert written["containerEdits"]["env"] == [
        "NETDRA_TRAIN_NET_FILE_DEVICES=fpga0",
        "NETDRA_TRAIN_NET_FILE_DEVICE_FILES=/dev/fpga0",
    ]


@pytest.mark.parametrize(("uid", "version"), [("b" + UID[1:], "0.3.0"), (UID, "0.5.0")])
def test_the_version_is_the_lowest_that_takes_the_names(tmp_path: Path, uid: str, version: str) -> None:
    files = ClaimFiles(plugin=tmp_path, cdi=tmp_path)
    claim = msgspec.structs.replace(WHOLE, claim=msgspec.structs.replace(CLAIM, uid=uid))
    files.write_spec(claim, ())
    assert json.loads(files.spec_path(uid).read_text())["cdiVersion"] == version


@pytest.mark.parametrize(
    ("pod_claim_name", "where"),
    [("train-net", "resourceclaimtemplates/train-net"), ("", "resourceclaims/train-net-x7k2p")],
)
def test_the_container_finds_the_metadata_under_the_name_that_its_pod_knows(
    tmp_path: Path, pod_claim_name: str, where: str
) -> None:
    files = ClaimFiles(plugin=tmp_path / "plugin", cdi=tmp_path / "cdi")
    claim = msgspec.structs.replace(WHOLE, pod_claim_name=pod_claim_name)
    files.write_spec(claim, [*BONDED, *VFIO])
    written = json.loads(files.spec_path(UID).read_text())
    (mount,) = written["devices"][0]["containerEdits"]["mounts"]
    root = "/var/run/kubernetes.io/dra-device-attributes"
    assert mount["containerPath"] == f"{root}/{where}/vf0/dra.networking-metadata.json"
    assert "ro" in mount["options"]
    assert Path(mount["hostPath"]).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["../../../../etc", "a/b", "..", "A", "x" * 64, "a\n"])
def test_an_invalid_pod_claim_name_is_not_used_in_the_container_path(tmp_path: Path, name: str) -> None:
    claim = msgspec.structs.replace(WHOLE, pod_claim_name=name)
    found = claim_files.container_path(claim, "nic")
    assert found == f"{claim_files.CONTAINER_FOLDER}/resourceclaims/{CLAIM.name}/nic/dra.networking-metadata.json"
    assert str(tmp_path) not in found

    (metadata, _) = documents(claim_files.ClaimFiles(plugin=tmp_path, cdi=tmp_path), claim, "vf0")
    assert "podClaimName" not in metadata


def documents(files: ClaimFiles, claim: PreparedClaim, request: str) -> list[Any]:
    """The objects in a metadata file that is written now, in their order."""
    files.write_metadata(claim)
    return read_sequence(files.metadata_path(UID, request).read_text())


def test_a_metadata_file_has_the_same_object_in_each_version_newest_first(tmp_path: Path) -> None:
    files = ClaimFiles(plugin=tmp_path / "plugin", cdi=tmp_path / "cdi")
    newest, oldest = documents(files, WHOLE, "vf1")
    assert newest.pop("apiVersion") == "metadata.resource.k8s.io/v1beta1"
    assert oldest.pop("apiVersion") == "metadata.resource.k8s.io/v1alpha1"
    assert newest == oldest
    # The file is the request's, and its content names the alternative that was chosen.
    assert [each["name"] for each in newest["requests"]] == ["vf1/good"]


def test_metadata_keeps_the_attributes_added_last_within_the_limit(tmp_path: Path) -> None:
    settings = PortSettings(mac="02:00:00:00:00:01", vlan=7, addresses=("10.0.0.5/24",))
    port = PlannedPort(port_id="port", network_id="network", settings=settings)
    attributes = {f"dra.networking/a{number:02}": DeviceAttribute(int_=number) for number in range(32)}
    claim = prepared(kept("vf0", "eth0v0", attributes=attributes, port=port))
    metadata, _ = documents(ClaimFiles(plugin=tmp_path, cdi=tmp_path), claim, "vf0")
    (device,) = metadata["requests"][0]["devices"]
    own = {name for name in device["attributes"] if "neutron" in name}
    assert len(device["attributes"]) == 32
    assert own == {f"dra.networking/neutron{name}" for name in ("PortID", "NetworkID", "MAC", "VLAN", "Addresses")}


def test_the_metadata_is_fuller_once_the_network_is_there(tmp_path: Path) -> None:
    files = ClaimFiles(plugin=tmp_path / "plugin", cdi=tmp_path / "cdi")
    before, _ = documents(files, WHOLE, "vf0")
    path = files.metadata_path(UID, "vf0")
    assert before == {
        "apiVersion": "metadata.resource.k8s.io/v1beta1",
        "kind": "DeviceMetadata",
        "metadata": {"name": CLAIM.name, "namespace": "ns", "uid": UID, "generation": 1},
        "podClaimName": "train-net",
        "requests": [
            {
                "name": "vf0",
                "devices": [
                    {
                        "driver": "dra.networking",
                        "pool": "p",
                        "name": "eth0v0",
                        "attributes": {"dra.networking/mtu": {"int": 1500}},
                    }
                ],
            }
        ],
    }
    files.write_spec(WHOLE, [*BONDED, *VFIO])
    after, _ = read_sequence(path.read_text())
    assert after["metadata"]["generation"] == 2
    assert after["requests"][0]["devices"][0]["networkData"] == {
        "interfaceName": "net1",
        "ips": ["10.1.0.5/24", "fd00::5/64"],
        "hardwareAddress": "02:00:00:00:00:09",
    }


def test_a_running_container_keeps_the_file_that_it_was_given(tmp_path: Path) -> None:
    """A claim that pods share is described again for the second; a mount of the first one's file must not change."""
    files = ClaimFiles(plugin=tmp_path / "plugin", cdi=tmp_path / "cdi")
    files.write_spec(WHOLE, [*BONDED, *VFIO])
    path = files.metadata_path(UID, "vf0")
    with path.open() as mounted:
        files.remove_spec(UID)
        files.write_metadata(WHOLE)
        assert "networkData" in mounted.read()
    assert "networkData" not in path.read_text()


def test_metadata_read_by_containers_is_unchanged_when_the_kubelet_prepares_again(tmp_path: Path) -> None:
    files = ClaimFiles(plugin=tmp_path / "plugin", cdi=tmp_path / "cdi")
    files.write_spec(WHOLE, [*BONDED, *VFIO])
    path = files.metadata_path(UID, "vf0")
    before = path.read_text()
    files.write_metadata(WHOLE)
    assert "networkData" in before
    assert path.read_text() == before


def test_removing_claim_files_twice_succeeds_and_keeps_files_of_other_drivers(tmp_path: Path) -> None:
    files = ClaimFiles(plugin=tmp_path / "plugin", cdi=tmp_path / "cdi")
    assert files.specified() == ()
    files.write_spec(WHOLE, [*BONDED, *VFIO])
    (tmp_path / "cdi" / "nvidia.com-gpu.json").write_text("{}")
    assert files.specified() == (UID,)
    assert files.retain([UID]) == ()
    for _ in range(2):
        files.remove_spec(UID)
    assert files.specified() == ()
    files.write_spec(WHOLE, ())
    assert files.retain(["another"]) == (UID,)
    files.write_spec(WHOLE, ())
    for _ in range(2):
        files.remove_all(UID)
    assert [path.name for path in (tmp_path / "cdi").iterdir() if not path.name.startswith(".")] == [
        "nvidia.com-gpu.json"
    ]
    assert list((tmp_path / "plugin" / claim_files.METADATA_FOLDER).iterdir()) == []


def test_the_files_of_a_claim_go_and_those_of_others_stay(tmp_path: Path) -> None:
    files = ClaimFiles(plugin=tmp_path / "plugin", cdi=tmp_path / "cdi")
    other = msgspec.structs.replace(WHOLE, claim=msgspec.structs.replace(CLAIM, uid=f"{UID}-1"))
    for claim in (WHOLE, other):
        files.write_metadata(claim)
    files.remove_all(UID)
    assert not files.metadata_path(UID, "vf0").exists()
    assert all(files.metadata_path(other.claim.uid, request).exists() for request in other.requests)


@pytest.mark.parametrize("uid", ["../x", "a/b", "", ".", "a\0b", "é", "x" * 300])
def test_an_invalid_claim_uid_is_rejected_as_part_of_a_file_name(tmp_path: Path, uid: str) -> None:
    files = ClaimFiles(plugin=tmp_path / "plugin", cdi=tmp_path / "cdi")
    claim = msgspec.structs.replace(WHOLE, claim=msgspec.structs.replace(CLAIM, uid=uid))
    acts: list[Callable[[], None]] = [
        lambda: files.write_spec(claim, ()),
        lambda: files.remove_all(uid),
        lambda: files.remove_spec(uid),
    ]
    for act in acts:
        with pytest.raises(NetdraError, match="cannot be part of a file's name"):
            act()
    assert os.listdir(tmp_path) == []  # noqa: PTH208
