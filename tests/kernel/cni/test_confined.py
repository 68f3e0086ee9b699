"""A plugin that is asked for its versions has no rights: hostile programs try what they may, and the kernel refuses."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdra.cni import confined, plugins, protocol
from netdra.cni.confined import ConfinedPrograms
from netdra.cni.confining import FIRST_USER
from netdra.cni.plugins import PluginPath
from netdra.cni.process import Finished
from testbed import build, yaml
from testbed.pace import stretched
from testbed.waiting import until

PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
CHART = Path(__file__).parents[2] / "cluster" / "install" / "golden.yaml"
"""The chart with its own values, as a test of the cluster level holds it."""
SOON = stretched(20.0)
HANGS = 1.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that any user may enter and write to."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o777)
        yield path


@pytest.fixture
def programs() -> Iterator[ConfinedPrograms]:
    found = ConfinedPrograms()
    yield found
    found.close()


def run(programs: ConfinedPrograms, folder: Path, lines: str, timeout: float = SOON, mode: int = 0o755) -> Finished:
    """Run a program of these lines."""
    path = folder / "plugin"
    path.write_text(f"#!/bin/bash\n{lines}\n")
    path.chmod(mode)
    (binary,) = (each for each in plugins.installed(PluginPath(directories=(str(folder),))) if each.name == "plugin")
    return programs.run(binary, {"CNI_COMMAND": "VERSION"}, b"{}", timeout)


def users() -> list[int]:
    """The processes that confined programs have left."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            owner = path.stat().st_uid if path.name.isdigit() else 0
            line = (path / "status").read_text() if path.name.isdigit() else ""
        except OSError:
            continue
        real = next((int(each.split()[1]) for each in line.splitlines() if each.startswith("Uid:")), owner)
        if real >= FIRST_USER and "State:\tZ" not in line:
            found.append(int(path.name))
    return found


def test_a_program_has_no_rights_no_environment_and_no_descriptors(programs: ConfinedPrograms, folder: Path) -> None:
    inherited = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    # The numbers of its processes are others in its namespace than in /proc.
    lines = (
        "mapfile -d '' variables </proc/self/environ; echo \"${variables[@]}\"; echo /proc/self/fd/*",
        *('echo "$(</proc/self/status)"', "readlink /proc/self/ns/*"),
    )
    try:
        printed = run(programs, folder, "\n".join(lines)).stdout.decode()
    finally:
        os.close(inherited)
    environment, descriptors, rest = printed.split("\n", 2)
    assert environment == "CNI_COMMAND=VERSION"
    # The shell has the script open itself, and the folder that it lists.
    assert {Path(path).name for path in descriptors.split()} == {"0", "1", "2", "3", "255"}
    status = dict(line.split(":", 1) for line in rest.splitlines() if ":\t" in line)
    assert {int(status[kind], 16) for kind in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
    assert status["NoNewPrivs"].split() == ["1"]
    assert all(int(user) >= FIRST_USER for user in (*status["Uid"].split(), *status["Gid"].split()))
    assert status["Groups"].split() == []
    assert len(status["NSpid"].split()) == 2
    for namespace in ("net", "ipc", "pid"):
        assert str(Path(f"/proc/self/ns/{namespace}").readlink()) not in rest


def test_each_program_is_another_user(programs: ConfinedPrograms, folder: Path) -> None:
    assert len({run(programs, folder, "id -u").stdout for _ in range(3)}) == 3


def test_it_reads_no_secret_and_writes_nothing(programs: ConfinedPrograms, folder: Path) -> None:
    secret, open_to_all = folder / "secret", folder / "open"
    secret.write_text("secret")
    secret.chmod(0o600)
    open_to_all.write_text("as it was")
    open_to_all.chmod(0o666)
    lines = f"""
cat {secret}; cat /proc/1/environ; ls /root
touch /root/hostile; echo x >{folder}/new; echo x >>{open_to_all}; : >{open_to_all}; rm {open_to_all}
mkdir {folder}/made; mkfifo {folder}/pipe; ln -s x {folder}/link; mv {secret} {folder}/moved; chmod 777 {folder}
echo fine >/dev/null && echo "all tried"
"""
    finished = run(programs, folder, lines)
    assert (finished.status, finished.stdout) == (0, b"all tried\n")
    assert finished.stderr.count(b"denied") + finished.stderr.count(b"not permitted") >= 10
    assert sorted(path.name for path in folder.iterdir()) == ["open", "plugin", "secret"]
    assert open_to_all.read_text() == "as it was"
    assert not Path("/root/hostile").exists()


def test_a_confined_plugin_cannot_reach_a_server_by_tcp_or_udp(programs: ConfinedPrograms, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        lines = (
            f"(: </dev/tcp/127.0.0.1/{port}) && echo reached; echo x >/dev/udp/127.0.0.1/{port} && echo sent; exit 0"
        )
        assert run(programs, folder, lines).stdout == b""
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


STAYS = "(trap '' TERM INT HUP; setsid sleep 600 & setsid bash -c 'trap \"\" TERM; sleep 600 & wait' &) "


@pytest.mark.parametrize("end", ["exit 0", "exit 3", "kill -9 $$", "trap '' TERM; sleep 600"])
def test_nothing_is_left_of_it_however_it_ends(programs: ConfinedPrograms, folder: Path, end: str) -> None:
    finished = run(programs, folder, f"{STAYS}\n{end}", HANGS if "600" in end else SOON)
    assert finished.timed_out == ("600" in end)
    assert (finished.status == 0) == (end == "exit 0")
    until(lambda: not users(), "its processes to end", detail=users)


def test_nothing_is_left_of_it_when_netdra_dies(folder: Path) -> None:
    program = folder / "plugin"
    program.write_text(f"#!/bin/bash\n{STAYS}\ntrap '' TERM\nsleep 600\n")
    program.chmod(0o755)
    ask = f"""
from netdra.cni import plugins, protocol
from netdra.cni.confined import ConfinedPrograms
protocol.find("plugin", plugins.PluginPath(directories=({str(folder)!r},)), timeout=600, confined=ConfinedPrograms())
"""
    with subprocess.Popen((sys.executable, "-c", ask)) as netdra:
        until(lambda: len(users()) >= 4, "the program to run", detail=users)
        netdra.kill()
        netdra.wait()
    until(lambda: not users(), "its processes to end", detail=users)


def test_it_starts_no_more_processes_than_it_may(programs: ConfinedPrograms, folder: Path) -> None:
    counted: list[int] = []

    def count() -> None:
        while not done.wait(0.01):
            counted.append(len(users()))

    done = threading.Event()
    counting = threading.Thread(target=count)
    counting.start()
    for seconds in (HANGS, SOON):  # a busy machine starts few processes in the first
        run(programs, folder, "f() { f | f & }; f; sleep 600", seconds)
        if max(counted) > 10:
            break
    done.set()
    counting.join()
    assert 10 < max(counted) <= 128
    until(lambda: not users(), "its processes to end", detail=users)


def test_it_has_little_memory_and_is_the_first_to_go(programs: ConfinedPrograms, folder: Path) -> None:
    lines = "ulimit -d; ulimit -t; ulimit -f; ulimit -c; cat /proc/self/oom_score_adj"
    assert run(programs, folder, lines, 5.0).stdout.split() == [b"524288", b"6", b"0", b"0", b"1000"]
    assert run(programs, folder, "x=$(head -c 700M /dev/zero | tr '\\0' x); echo ${#x}").stdout == b""


@pytest.mark.parametrize(("mode", "inside"), [(0o700, 0o755), (0o755, 0o700), (0o700, 0o700)])
def test_a_program_that_only_root_may_run_is_asked_all_the_same(
    programs: ConfinedPrograms, folder: Path, mode: int, inside: int
) -> None:
    folder.chmod(inside)
    finished = run(programs, folder, "echo $CNI_COMMAND; id -u", mode=mode)
    verb, user = finished.stdout.split()
    assert verb == b"VERSION"
    assert int(user) >= FIRST_USER
    program = folder / "bridge"
    program.write_bytes(build.program("bridge").read_bytes())
    program.chmod(mode)
    found = protocol.find("bridge", PluginPath(directories=(str(folder),)), confined=programs)
    assert found.version == "1.1.0"


def test_it_is_asked_in_its_root(programs: ConfinedPrograms) -> None:
    """It contains nothing else, not even the libraries of a program."""
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        folder = Path(root, "opt")
        folder.mkdir()
        program = folder / "macvlan"
        program.write_bytes(build.program("macvlan").read_bytes())
        program.chmod(0o755)
        where = PluginPath(directories=("/opt",), root=root)
        assert protocol.find("macvlan", where, confined=programs).version == "1.1.0"


def test_the_process_that_starts_programs_is_there_while_it_is_needed(programs: ConfinedPrograms, folder: Path) -> None:
    def children() -> set[str]:
        return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())

    before = children()
    assert run(programs, folder, "echo 1").stdout == b"1\n"
    (starter,) = children() - before
    os.kill(int(starter), 9)
    assert run(programs, folder, "echo 2").stdout == b"2\n"
    assert run(programs, folder, "echo 3").stdout == b"3\n"
    programs.rest()
    assert not children() - before - {starter}
    assert run(programs, folder, "echo 4").stdout == b"4\n"
    programs.close()
    with pytest.raises(OSError, match="shutdown"):
        run(programs, folder, "echo 5")
    assert stat.S_ISREG(confined._PROGRAM.stat().st_mode)


CAPABILITIES = {
    "NET_ADMIN": 12,
    "NET_BROADCAST": 11,
    "NET_RAW": 13,
    "SETGID": 6,
    "SETUID": 7,
    "SYS_ADMIN": 21,
    "SYS_CHROOT": 18,
    "SYS_PTRACE": 19,
}
"""By their numbers in linux/capability.h."""
_ASK = """
import json, sys
from netdra.cni import plugins, protocol
from netdra.cni.confined import ConfinedPrograms
from netdra.model.errors import NetdraError
try:
    where = plugins.PluginPath(directories=(sys.argv[1],))
    protocol.find("plugin", where, timeout=float(sys.argv[2]), confined=ConfinedPrograms())
except NetdraError as problem:
    print(json.dumps(problem.what))
"""


def asked_with(capabilities: set[int], folder: Path, timeout: float = SOON) -> str:
    """Why a driver with these capabilities alone, which it cannot add to, finds a program unusable."""

    def give_up() -> None:
        libc = ctypes.CDLL(None)
        for number in range(64):
            if number not in capabilities:
                libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)

    command = (sys.executable, "-c", _ASK, str(folder), str(timeout))
    done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=give_up)
    return str(json.loads(done.stdout)) if done.stdout else ""


def test_the_charts_container_may_do_all_that_is_needed(folder: Path) -> None:
    rendered = yaml.safe_load_all(CHART.read_text())
    (driver,) = (each["spec"]["template"]["spec"] for each in rendered if each["kind"] == "DaemonSet")
    names = driver["containers"][0]["securityContext"]["capabilities"]["add"]
    assert names == sorted(CAPABILITIES)
    numbers = set(CAPABILITIES.values())
    program = folder / "plugin"
    program.write_bytes(build.program("macvlan").read_bytes())
    program.chmod(0o700)
    assert asked_with(numbers, folder) == ""
    program.unlink()  # nobody may write to what runs
    program.write_text(
        f"#!/bin/bash\n{STAYS}\n{{ id -u; grep CapEff /proc/self/status; }} >&2; trap '' TERM\nsleep 600\n"
    )
    program.chmod(0o755)
    why = asked_with(numbers, folder, HANGS)
    assert f"it timed out after {HANGS:.1f} s" in why
    assert "CapEff:\t0000000000000000".replace("\t", "\N{REPLACEMENT CHARACTER}") in why
    assert "stderr: 19000000" in why
    # It has no CAP_KILL.
    until(lambda: not users(), "its processes to end", detail=users)


def test_without_the_right_to_change_its_user_no_program_is_run(folder: Path) -> None:
    program = folder / "plugin"
    program.write_text("#!/bin/bash\necho ran >&2\n")
    program.chmod(0o755)
    for lacking in ("SETUID", "SETGID"):
        what = asked_with(set(CAPABILITIES.values()) - {CAPABILITIES[lacking]}, folder)
        assert "add the capabilities SETUID and SETGID to its container" in what
        assert "ran" not in what.replace("driver", "")
