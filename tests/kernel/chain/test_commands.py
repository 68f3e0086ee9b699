"""The commands attach, check and detach, as a person runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed.waiting import until, waiting
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import plan, step

TOPOLOGY = """
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: by-hand}
spec:
  steps:
    - name: nic
      type: host-device
      selector: {cel: "true"}
      config: {device: eth7}
    - name: tune
      type: tuning
      dependOn: [nic]
      config: {dev: "{{ nic.interfaceName }}", mtu: 1400, addresses: ["10.1.0.5/24"]}
"""


def netdra(bed: Bed, *arguments: str, stdin: str = "", under: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a command as a person does; the state and the plugins are the test's."""
    named = ("--state", str(bed.settings.state), "--cni-path", str(bed.plugins), "--timeout", "60")
    with waiting(f"netdra {arguments[0]}"):
        return subprocess.run(
            (*under, sys.executable, "-m", "netdra", *arguments, *named),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"COLUMNS": "200"},
        )


@pytest.fixture
def topology(bed: Bed, tmp_path: Path) -> str:
    bed.veth("eth7", "peer7")
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY)
    return str(path)


def plans_file(tmp_path: Path, value: Any) -> str:
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(value))
    return str(path)


def test_a_topology_is_attached_checked_and_detached(bed: Bed, topology: str) -> None:
    sandbox = Path(bed.pod.path).name
    before = bed.state()
    attached = netdra(bed, "attach", "--netns", bed.pod.path, "--plan", topology)
    assert (attached.returncode, attached.stderr) == (0, "")
    assert attached.stdout.split()[:3] == ["STEP", "TYPE", "INTERFACE"]
    assert "10.1.0.5/24" in attached.stdout
    repaired = netdra(bed, "check", Path(bed.pod.path).name, "--repair")
    assert (repaired.returncode, repaired.stderr) == (0, "")
    again = netdra(bed, "attach", "--netns", bed.pod.path, "--plan", topology)
    assert again.returncode == 0
    assert "is already attached" in again.stderr
    checked = netdra(bed, "check", sandbox)
    assert (checked.returncode, checked.stdout.count(" ok")) == (0, 2)
    bed.run("ip", "link", "set", "net1", "mtu", "1300", inside=True)
    drifted = netdra(bed, "check", sandbox)
    assert drifted.returncode == 1
    assert "has MTU 1300, not 1400" in drifted.stdout
    detached = netdra(bed, "detach", "--netns", bed.pod.path)
    assert (detached.returncode, detached.stdout.count("undone")) == (0, 2)
    assert differences(before, bed.state()) == []
    gone = netdra(bed, "detach", sandbox)
    assert (gone.returncode, gone.stdout) == (0, "")
    assert "is not attached" in gone.stderr
    assert netdra(bed, "check", sandbox).returncode == 1


@pytest.mark.parametrize("shape", ["one", "list", "plans"])
def test_plans_are_taken_as_they_are_printed(bed: Bed, tmp_path: Path, shape: str) -> None:
    bed.veth("eth7", "peer7")
    one = plan(step("dev", "host-device", "net1", device=device("eth7")))
    path = plans_file(tmp_path, {"one": one, "list": [one], "plans": {"plans": [one]}}[shape])
    done = netdra(bed, "attach", "--netns", bed.pod.path, "--plan", path, "--sandbox", "mine", "--output", "json")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert (report["sandbox"], report["steps"][0]["interface"]) == ("mine", "net1")
    checked = netdra(bed, "check", "mine", "--output", "yaml")
    assert "sandbox: mine" in checked.stdout
    assert json.loads(netdra(bed, "detach", "mine", "-o", "json").stdout)["undone"][0]["outcome"] == "undone"


def test_a_plan_comes_from_standard_input(bed: Bed, topology: str) -> None:
    done = netdra(bed, "attach", "--netns", bed.pod.path, "--plan", "-", stdin=TOPOLOGY)
    assert done.returncode == 0
    assert bed.link("net1", inside=True)["mtu"] == 1400


def test_a_failed_attach_reports_the_failed_step_and_the_undone_steps(bed: Bed, tmp_path: Path) -> None:
    bed.veth("eth7", "peer7")
    recorder(bed, "fake").fails("ADD", code=7, message="no", details="because")
    steps = (step("dev", "host-device", "net1", device=device("eth7")), step("bad", "fake", "net2", after=["dev"]))
    path = plans_file(tmp_path, plan(*steps))
    before = bed.state()
    done = netdra(bed, "attach", "--netns", bed.pod.path, "--plan", path)
    assert done.returncode == 3
    assert done.stdout == ""
    assert 'step "bad" (fake binary): no (code 7: its configuration is invalid): because' in done.stderr
    assert "undone: bad, dev" in done.stderr
    told = netdra(bed, "attach", "--netns", bed.pod.path, "--plan", path, "-o", "json")
    assert told.returncode == 3
    assert json.loads(told.stdout)["failures"][0]["details"] == "because"
    assert differences(before, bed.state()) == []


def test_a_temporary_failure_uses_a_separate_exit_code(bed: Bed, tmp_path: Path) -> None:
    fake = recorder(bed, "fake")
    fake.fails("ADD", code=11, message="busy")
    path = plans_file(tmp_path, plan(step("a", "fake", "net1")))
    assert netdra(bed, "attach", "--netns", bed.pod.path, "--plan", path).returncode == 4
    fake.prints("ADD", {})
    fake.fails("DEL", message="stuck")
    assert netdra(bed, "attach", "--netns", bed.pod.path, "--plan", path, "--sandbox", "x").returncode == 0
    left = netdra(bed, "detach", "x")
    assert left.returncode == 4
    assert "stuck" in left.stdout


@contextmanager
def attaching(bed: Bed, plan_path: str, begun: Path) -> Iterator[subprocess.Popen[str]]:
    """`netdra attach` while a plugin of it runs."""
    named = ("--state", str(bed.settings.state), "--cni-path", str(bed.plugins), "--timeout", "60", "--sandbox", "mine")
    command = (sys.executable, "-m", "netdra", "attach", "--netns", bed.pod.path, "--plan", plan_path, *named)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        appears(begun)
        yield process
        process.kill()


def appears(path: Path) -> None:
    """Wait until a file is there."""
    until(path.exists, f"{path.name} to appear")


def slow_chains(bed: Bed, count: int) -> Any:
    """A device that is moved, then as many slow plugins beside one another; one runs in the main thread, two do not."""
    bed.veth("eth7", "peer7")
    steps = [step("dev", "host-device", "net1", device=device("eth7"))]
    for number in range(count):
        make = f'ip -n "$(basename "$CNI_NETNS")" link add late{number} type bridge'
        fake = recorder(bed, f"slow{number}")
        fake.does("ADD", f"{make}; touch {bed.plugins / f'begun{number}'}; sleep 1000; touch {bed.plugins / 'ended'}")
        fake.does("DEL", make.replace(" add ", " del ").replace(" type bridge", "") + " 2>/dev/null; true")
        steps.append(step(f"s{number}", f"slow{number}", f"late{number}", after=["dev"]))
    return plan(*steps)


@pytest.mark.parametrize("count", [1, 2])
def test_ctrl_c_undoes_started_steps_and_ends_the_running_plugin(bed: Bed, tmp_path: Path, count: int) -> None:
    path = plans_file(tmp_path, slow_chains(bed, count))
    before = bed.state()
    with attaching(bed, path, bed.plugins / "begun0") as process:
        appears(bed.plugins / f"begun{count - 1}")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=50)
    assert process.returncode == 130
    assert told.strip() == "netdra: interrupted; all is undone"
    assert differences(before, bed.state()) == []
    assert not (bed.plugins / "ended").exists()


@pytest.mark.parametrize("count", [1, 2])
def test_a_second_ctrl_c_leaves_the_rest_to_detach(bed: Bed, tmp_path: Path, count: int) -> None:
    path = plans_file(tmp_path, slow_chains(bed, count))
    stuck = recorder_of(bed, "slow0")
    undo = (stuck / "DEL.sh").read_text()
    (stuck / "DEL.sh").write_text(f"touch {bed.plugins / 'undoing'}; sleep 1000\n")
    before = bed.state()
    with attaching(bed, path, bed.plugins / "begun0") as process:
        appears(bed.plugins / f"begun{count - 1}")
        process.send_signal(signal.SIGINT)
        appears(bed.plugins / "undoing")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=50)
    assert process.returncode == 130
    assert told.strip() == "netdra: interrupted; finish with: netdra detach mine"
    (stuck / "DEL.sh").write_text(undo)
    assert netdra(bed, "detach", "mine").returncode == 0
    assert differences(before, bed.state()) == []


def recorder_of(bed: Bed, name: str) -> Path:
    """Where what a recorder does is written."""
    return bed.plugins / f".{name}.recorded"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no plan"),
        ("[]", "no plan"),
        ("{", "not YAML"),
        ("7", "plan 1"),
        ('{"plans": 7}', "plan 1"),
        ('{"topology": "t"}', "claim"),
        (TOPOLOGY.replace("dependOn: [nic]", "dependOn: [nci]"), "nci"),
        (TOPOLOGY.replace("mtu: 1400", "mtu: many"), "mtu"),
        (TOPOLOGY.replace("type: tuning", "type: ../sh"), "../sh"),
        ("\0", "not YAML"),
    ],
)
def test_bad_input_is_reported_and_changes_nothing(bed: Bed, tmp_path: Path, text: str, complaint: str) -> None:
    bed.veth("eth7", "peer7")
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    before = bed.state()
    done = netdra(bed, "attach", "--netns", bed.pod.path, "--plan", str(path))
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert differences(before, bed.state()) == []


def test_a_missing_namespace_or_plan_file_is_reported(bed: Bed, topology: str) -> None:
    missing = netdra(bed, "attach", "--netns", "/run/netns/no-such", "--plan", topology)
    assert (missing.returncode, "no-such" in missing.stderr) == (2, True)
    no_file = netdra(bed, "attach", "--netns", bed.pod.path, "--plan", "/no/such/file")
    assert (no_file.returncode, "/no/such/file" in no_file.stderr) == (2, True)
    assert netdra(bed, "detach").returncode == 2


def test_missing_permission_for_a_namespace_and_a_plain_file_give_different_errors(
    bed: Bed, topology: str, tmp_path: Path
) -> None:
    plain = tmp_path / "file"
    plain.touch()
    before = bed.state()
    no_namespace = netdra(bed, "attach", "--netns", str(plain), "--plan", topology)
    assert (no_namespace.returncode, f'"{plain}" is not a network namespace' in no_namespace.stderr) == (2, True)
    without_rights = netdra(bed, "attach", "--netns", bed.pod.path, "--plan", topology, under=("unshare", "--user"))
    assert without_rights.returncode == 3
    assert f'cannot enter network namespace "{bed.pod.path}": Operation not permitted' in without_rights.stderr
    assert "CAP_SYS_ADMIN" in without_rights.stderr
    assert differences(before, bed.state()) == []


def test_plugins_receive_the_namespace_and_name_of_the_given_pod(bed: Bed, tmp_path: Path) -> None:
    fake = recorder(bed, "fake")
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(plan(step("a", "fake", "net1"))))
    for wrong in ("web-0", "default/", "/web-0", "Default/web-0", "default/web_0", "a/b/c"):
        done = netdra(bed, "attach", "--netns", bed.pod.path, "--plan", str(path), "--pod", wrong)
        assert (done.returncode, f'--pod "{wrong}" is not NAMESPACE/NAME' in done.stderr) == (2, True)
    done = netdra(bed, "attach", "--netns", bed.pod.path, "--plan", str(path), "--pod", "default/web-0")
    assert done.returncode == 0, done.stderr
    arguments = dict(entry.split("=", 1) for entry in fake.calls("ADD")[0].environment["CNI_ARGS"].split(";"))
    assert (arguments["K8S_POD_NAMESPACE"], arguments["K8S_POD_NAME"]) == ("default", "web-0")
