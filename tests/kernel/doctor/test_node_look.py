"""The doctor sees this machine's kernel as other programs see it, and states what it cannot see."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from netdra.doctor import node_look
from netdra.doctor.node_look import Places, look
from netdra.doctor.node_verdicts import KINDS, NodeFacts
from netdra.ops.descriptors import Descriptors
from testbed import build
from testbed.waiting import until
from tests.kernel.conftest import Machine

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_link_is_there_where_ip_link_knows_it(machine: Machine, kind: str) -> None:
    done = subprocess.run(
        ("ip", "-n", machine.name, "link", "add", "probe", "type", kind), capture_output=True, text=True, check=False
    )
    known = "Unknown device type" not in done.stderr
    assert (look(Places()).kinds[kind] == "there") == known


def test_the_doctor_reports_kernel_interfaces_and_cgroup_as_the_system_does() -> None:
    found, count = until(looked_at_rest, "this machine's links to come to rest")
    assert found.privileged
    assert found.kernel == platform.release()
    assert found.interfaces == count
    fstype = subprocess.run(("stat", "-fc", "%T", "/sys/fs/cgroup"), capture_output=True, text=True, check=True).stdout
    assert (found.cgroup == 2) == (fstype.strip() == "cgroup2fs")


def looked_at_rest() -> tuple[NodeFacts, int] | None:
    """The facts, and the number of links; None if others make or end some meanwhile."""
    before, found = links(), look(Places())
    return (found, len(before)) if before == links() else None


def links() -> set[str]:
    """The links of this machine, as iproute2 sees them."""
    listed = json.loads(subprocess.run(("ip", "-j", "link"), capture_output=True, check=True).stdout)
    return {each["ifname"] for each in listed}


def test_programs_are_asked_without_any_rights(tmp_path: Path) -> None:
    program, trace = tmp_path / "hostile", tmp_path / "trace"
    program.write_text(f'#!/bin/sh\ntouch {trace}; echo \'{{"supportedVersions": ["1.0.0"]}}\'\n')
    program.chmod(0o755)
    assert [(each.name, each.version) for each in look(Places(cni_path=(tmp_path,))).plugins] == [("hostile", "1.0.0")]
    assert not trace.exists()


def test_the_folders_sockets_and_plugins_of_a_node_are_found() -> None:
    plugin = build.program("host-local")
    with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX) as nri:
        folder = Path(name)
        nri.bind(str(folder / "nri.sock"))
        nri.listen()
        (folder / "kubelet" / "plugins").mkdir(parents=True)
        (folder / "bin").mkdir()
        (folder / "bin" / "host-local").write_bytes(plugin.read_bytes())
        (folder / "bin" / "host-local").chmod(0o755)
        (folder / "bin" / "license").write_text("no program")
        (folder / "bin" / "broken").write_text("#!/bin/false\n")
        (folder / "bin" / "broken").chmod(0o755)
        places = Places(
            kubelet_root=folder / "kubelet",
            nri_socket=folder / "nri.sock",
            cdi_dir=folder / "cdi",
            cni_path=(folder / "bin", folder / "none"),
        )
        found = look(places)
        gone = look(Places(nri_socket=folder / "none.sock", cni_path=()))
    assert found.nri == "listens"
    assert gone.nri == "absent"
    assert [(each.exists, each.writable) for each in found.kubelet] == [(True, True), (False, True)]
    assert (found.cdi.exists, found.cdi.writable) == (False, True)
    broken, local = found.plugins
    assert (broken.name, broken.version) == ("broken", "")
    assert broken.problem
    assert (local.name, local.version) == ("host-local", "1.1.0")


def test_modules_on_disk_are_known_where_the_kernel_may_not_be_asked(tmp_path: Path) -> None:
    folder = tmp_path / "lib" / "modules" / platform.release()
    folder.mkdir(parents=True)
    (folder / "modules.builtin").write_text("kernel/drivers/net/veth.ko\n")
    (folder / "modules.dep").write_text("kernel/drivers/vfio/pci/vfio-pci.ko.xz: kernel/drivers/vfio/vfio.ko.xz\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "modules").write_text("bonding 200704 0 - Live 0x0\n")
    modules = node_look.Modules(Places(root=tmp_path))
    told = {name: modules.presence(name) for name in ("bond", "veth", "vfio-pci", "vlan")}
    assert told == {"bond": "there", "veth": "there", "vfio-pci": "loadable", "vlan": "absent"}
    assert node_look.Modules(Places(root=tmp_path / "none")).presence("vlan") == "unknown"


@pytest.mark.parametrize("hidden", ["kubelet", "root"])
def test_the_doctor_without_root_names_unchecked_items_and_checks_the_rest(hidden: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    option = {"kubelet": f"--kubelet-root={tmp_path}/kubelet", "root": f"--host-root={tmp_path}"}[hidden]
    # The checkout may be where only root can go, as root's own folder is.
    seen = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /var/tmp && exec "$@"', str(ROOT))
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": "/var/tmp"}
    done = subprocess.run(
        (
            *seen,
            *nobody,
            sys.executable.replace(str(ROOT), "/var/tmp", 1),
            "-m",
            "netdra",
            "doctor",
            "--output=json",
            option,
        ),
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    if hidden == "root":
        assert f'"{tmp_path}" cannot be read: Permission denied' in done.stderr
        return
    assert done.stdout, done.stderr
    found = {each["check"]: each for each in json.loads(done.stdout)}
    assert found["API server"]["level"] == "warning"
    assert "not checked" in found["API server"]["seen"]
    assert found["rights"]["level"] == "warning"
    assert "not checked as root" in found["rights"]["seen"]
    assert found["interfaces"]["level"] == "ok"
    assert found["NRI"]["level"] == "error"
    assert done.returncode == 1


def test_the_descriptors_of_the_nodes_daemon_are_found_and_no_others(tmp_path: Path) -> None:
    for number, words, used in (
        (41, ("python", "-m", "netdra", "controller"), 3),
        (42, ("/bin/netdra", "node", "-v"), 5),
    ):
        process = tmp_path / "proc" / str(number)
        (process / "fd").mkdir(parents=True)
        for descriptor in range(used):
            (process / "fd" / str(descriptor)).touch()
        (process / "cmdline").write_bytes(b"\0".join(map(str.encode, words)) + b"\0")
        (process / "limits").write_text(
            "Max open files            1024                 524288               files     \n"
        )
    assert look(Places(root=tmp_path, cni_path=())).descriptors == Descriptors(5, 1024)
    assert look(Places(root=tmp_path / "proc", cni_path=())).descriptors is None
