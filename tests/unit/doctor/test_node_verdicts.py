"""The verdicts on a node's facts, one table: the fact, its check, the level, and a word of the next step."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netdra.doctor.diagnosis import Diagnosis, worst
from netdra.doctor.node_verdicts import KINDS, InstalledPlugin, NodeFacts, NodeFolder, SriovNic, Trouble, verdicts
from netdra.ops.descriptors import Descriptors

WELL = NodeFacts(
    kernel="6.12.1",
    privileged=True,
    kinds=dict.fromkeys(KINDS, "there"),
    interfaces=7,
    iommu_groups=40,
    sriov=(SriovNic("eno1", 8, 8),),
    vfio="loadable",
    rdma_devices=("mlx5_0",),
    rdma_mode="exclusive",
    nri_socket="/var/run/nri/nri.sock",
    nri="listens",
    kubelet=(NodeFolder("/var/lib/kubelet/plugins", exists=True, writable=True),),
    cdi=NodeFolder("/var/run/cdi", exists=True, writable=True),
    cni_path=("/opt/cni/bin",),
    plugins=(InstalledPlugin("macvlan", "1.1.0"),),
    cgroup=2,
    user_namespaces=15000,
    descriptors=Descriptors(300, 1048576),
)


def finding(check: str, **changed: Any) -> Diagnosis:
    """The one finding of a check that is not well, about a node that is otherwise well."""
    (found,) = (
        each
        for each in verdicts(msgspec.structs.replace(WELL, **changed))
        if each.check == check and (each.level != "ok" or not changed)
    )
    return found


def test_a_node_that_has_everything_has_no_trouble_and_nothing_to_do() -> None:
    found = verdicts(WELL)
    assert [each for each in found if each.level != "ok" or each.fix] == []
    assert worst(found) == "ok"
    assert {each.where for each in found} == {"node"}


@pytest.mark.parametrize(
    ("changed", "check", "level", "seen", "fix"),
    [
        ({"privileged": False}, "rights", "warning", "not checked as root", "as root"),
        ({"interfaces": -1}, "interfaces", "error", "cannot be listed", "rtnetlink"),
        (
            {"kinds": {**WELL.kinds, "bond": "absent"}},
            "link kind bond",
            "warning",
            "step bond",
            "modprobe rtnl-link-bond",
        ),
        ({"kinds": {**WELL.kinds, "vlan": "unknown"}}, "link kinds", "warning", "unknown: vlan", "root"),
        (
            {"sriov": (SriovNic("eno1", 0, 8),)},
            "SR-IOV",
            "warning",
            "eno1 0 of 8",
            "/sys/class/net/eno1/device/sriov_numvfs",
        ),
        ({"iommu_groups": 0}, "IOMMU", "warning", "vfio-pci", "intel_iommu=on"),
        ({"vfio": "absent"}, "vfio-pci", "warning", "not supported by this kernel", "modprobe vfio-pci"),
        ({"vfio": "unknown"}, "vfio-pci", "warning", "unknown", "modprobe vfio-pci"),
        ({"rdma_mode": "shared"}, "RDMA", "warning", "every pod sees", "rdma system set netns exclusive"),
        ({"rdma_mode": ""}, "RDMA", "warning", "unknown", "rdma system"),
        ({"nri": "absent"}, "NRI", "error", "does not exist", "containerd"),
        ({"nri": "Permission denied"}, "NRI", "error", "Permission denied", "containerd"),
        ({"kubelet": (NodeFolder("/k/plugins", False, True),)}, "kubelet", "error", "/k/plugins", "--kubelet-root"),
        (
            {"kubelet": (NodeFolder("/k/plugins", True, False),)},
            "kubelet",
            "error",
            ("not even by root"),
            "findmnt -T /k",
        ),
        ({"cdi": NodeFolder("/cdi", True, False)}, "CDI", "error", "not even by root", "read-only"),
        ({"cdi": NodeFolder("/cdi", False, False), "privileged": False}, "CDI", "warning", "by this user", "as root"),
        ({"plugins": ()}, "CNI plugins", "warning", "none in /opt/cni/bin", "containernetworking"),
        (
            {"plugins": (InstalledPlugin("old", "0.3.1"),)},
            "CNI plugin old",
            "warning",
            ("does not define CHECK"),
            "newer old",
        ),
        (
            {"plugins": (InstalledPlugin("bad", "", "exit 1"),)},
            "CNI plugin bad",
            "warning",
            "exit 1",
            "a working bad",
        ),
        ({"descriptors": Descriptors(1000, 1024)}, "file descriptors", "warning", "1000 of 1024", "LimitNOFILE"),
        ({"cgroup": 1}, "cgroup", "warning", "version 1", "failCgroupV1"),
        ({"cgroup": 0}, "cgroup", "warning", "not mounted", "cgroup2"),
        ({"user_namespaces": 0}, "user namespaces", "warning", "hostUsers: false", "sysctl"),
        ({"user_namespaces": -1}, "user namespaces", "warning", "unknown", "sysctl"),
    ],
)
def test_each_node_problem_is_reported_with_a_level_and_a_fix(
    changed: dict[str, Any], check: str, level: str, seen: str, fix: str
) -> None:
    found = finding(check, **changed)
    assert found.level == level
    assert seen in found.seen
    assert fix in found.fix


def test_a_node_without_sriov_nics_and_rdma_devices_is_still_ok() -> None:
    found = verdicts(msgspec.structs.replace(WELL, sriov=(), rdma_devices=(), rdma_mode=""))
    assert worst(found) == "ok"


def test_a_cdi_folder_that_can_be_made_is_well() -> None:
    found = verdicts(msgspec.structs.replace(WELL, cdi=NodeFolder("/cdi", exists=False, writable=True)))
    assert worst(found) == "ok"


def test_a_restriction_of_the_container_is_an_error_with_a_fix() -> None:
    found = finding("container", troubles=(Trouble("no step can set a sysctl", "give it CAP_SYS_ADMIN"),))
    assert (found.level, found.seen, found.fix) == ("error", "no step can set a sysctl", "give it CAP_SYS_ADMIN")
