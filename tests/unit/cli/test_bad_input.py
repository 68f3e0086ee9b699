"""On any input, a command answers with a message on stderr and the right exit code, and never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from netdra.cli import terminal
from netdra.cli.main import COMMANDS, cli, main
from netdra.model import documents
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import Interface, Inventory, InventoryNode
from testbed.waiting import waiting
from tests.documents import TOPOLOGIES

ROOT = Path(__file__).parents[3]
WORKER_1 = ROOT / "examples" / "worker-1"
PLAN = ["plan", "--inventory", str(WORKER_1 / "inventory.json"), "--policies"]
LIST = "apiVersion: v1\nkind: List\nitems: 5\n"
POLICY = "apiVersion: networking.dra.io/v1alpha1\nkind: DeviceExposurePolicy\nspec: {selector: {cel: 'true'}}\n"


def netdra(
    *arguments: str | bytes, stdout: int = subprocess.PIPE, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    with waiting("netdra"):
        return subprocess.run(
            [sys.executable, "-m", "netdra", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
        )


@pytest.mark.parametrize("before", [["plan"], ["graph"], ["render"]])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LIST, "document 1: kind 'List': expected a list of items, found a number"),
        ("kind: [" + "x, " * 100 + "x]", "kind of type list is not known"),
        ("kind: DeviceExposure\u0420olicy", r"kind 'DeviceExposure\u0420olicy' is not known"),
        ("a: b: c", "not YAML: line 1, column 5: mapping values are not allowed"),
        ('a: "\x1b"', "not YAML: unacceptable character #x001b"),
        ("kind: 1" + "0" * 5000, "not YAML: Exceeds the limit"),
        ("", "the input does not contain any objects"),
    ],
)
def test_a_bad_file_is_named_with_its_fault(before: list[str], text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text, encoding="utf-8")
    done = netdra(*before, str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"netdra: {file}")
    assert message in done.stderr
    assert len(done.stderr) < 1000


@pytest.mark.parametrize(
    "before",
    [
        [*PLAN[:1], "--policies", str(WORKER_1 / "policies"), "--inventory"],
        PLAN,
        ["explain", "lo", "--policies"],
        ["simulate", "--slices", str(WORKER_1 / "slices.yaml"), "--claims"],
        ["simulate", "--claims", str(WORKER_1 / "slices.yaml"), "--slices"],
        ["validate"],
        ["graph"],
        ["render", str(ROOT / "netdra/lab/scenarios/bonded-vlans/topology.yaml"), "--claim"],
        ["attach", "--netns", "/proc/self/ns/net", "--plan"],
        ["gc", "--plan"],
    ],
)
def test_an_unusable_file_is_reported_with_a_hint(before: list[str], tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\x00\xff" * 100)
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("only a text")
    (tmp_path / "bomb").write_text("- &a [" + "x, " * 2000 + "]\n- [" + "*a, " * 2000 + "]\n")
    for name in ("missing", "binary", "folder", "text", "bomb"):
        done = CliRunner().invoke(cli, [*before, str(tmp_path / name)])
        problem = done.exception
        if before == ["validate"] and name in {"binary", "text", "bomb"}:
            assert (done.exit_code, "; " in done.stdout) == (1, True), name
            continue
        assert isinstance(problem, InvalidInputError), name
        assert str(tmp_path / name) in problem.what
        assert problem.hint, name


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ('{name: "\\e[2J"}', r'DeviceExposurePolicy "\x1b[2J": no object can have this name'),
        ("{}", "no object can have this name"),
    ],
)
def test_a_broken_object_stops_the_commands_that_need_it_and_no_other(
    metadata: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(f"{POLICY}metadata: {metadata}")
    done = netdra("plan", str(file))
    assert (done.returncode, done.stderr.startswith(f"netdra: {file}")) == (2, True)
    assert message in done.stderr
    assert "NetworkTopology not found; the input contains DeviceExposurePolicy" in netdra("graph", str(file)).stderr


def test_validate_gives_a_bad_list_its_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(LIST)
    done = netdra("validate", str(file))
    assert done.returncode == 1
    assert done.stdout.startswith(f"{file}:3: kind 'List': expected a list of items, found a number")


def test_a_folder_without_files_to_read_is_an_error(tmp_path: Path) -> None:
    done = netdra("validate", str(tmp_path))
    assert done.returncode == 2
    assert f"{tmp_path}: no file in this directory has the suffix .yaml, .yml, .json" in done.stderr


def test_validate_reports_when_it_checked_nothing(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\n")
    done = netdra("validate", str(tmp_path))
    assert (done.returncode, done.stderr) == (
        0,
        "netdra: 0 objects checked, the files do not contain objects of netdra's kinds\n",
    )


def test_endless_files_are_not_read_to_the_end() -> None:
    done = netdra("validate", "/dev/zero")
    assert done.returncode == 1
    assert "/dev/zero: longer than" in done.stdout


def test_validate_continues_after_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes("kind: Pod".encode("utf-16"))
    (tmp_path / "b.yaml").write_text(f"{POLICY}metadata: {{}}")
    done = netdra("validate", str(tmp_path))
    assert done.returncode == 1
    first, second = done.stdout.splitlines()
    assert first == f"{tmp_path}/a.yaml: byte 0 is not valid UTF-8; save the file as YAML or JSON in UTF-8 (ND4027)"
    assert second.startswith(f"{tmp_path}/b.yaml:")


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_a_file_name_may_be_any_bytes(output: str, tmp_path: Path) -> None:
    file = os.fsencode(tmp_path) + b"/\xff.yaml"
    Path(os.fsdecode(file)).write_text(POLICY)
    done = netdra("validate", "-o", output, file)
    assert done.returncode == 1
    assert r"\xff.yaml" in done.stdout.replace("\\\\", "\\")
    assert "Traceback" not in done.stderr


def test_graph_reports_the_kinds_found_instead_of_a_topology() -> None:
    done = netdra("graph", str(WORKER_1 / "policies"))
    assert done.returncode == 2
    assert done.stderr.endswith(
        "NetworkTopology not found; the input contains DeviceExposurePolicy; "
        "add a PATH with such an object, or use --cluster (ND4035)\n"
    )


def test_an_inventory_of_another_kind_is_reported_with_a_hint() -> None:
    policies = str(WORKER_1 / "policies" / "20-pf0-macvlan.yaml")
    done = netdra("plan", "--policies", policies, "--inventory", policies)
    assert done.returncode == 2
    assert "20-pf0-macvlan.yaml: inventory not found; record one with: netdra capture FILE" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chek"], "No such command 'chek'. Did you mean 'check'"),
        (["frobnicate"], "No such command 'frobnicate'. The commands are discover, capture, plan, "),
        (["detach", "x", "--timeout", "nan"], "nan is not a number of seconds"),
        (["detach", "x", "--timeout", "inf"], "inf is not in the range"),
        (["plan"], "Missing argument 'PATH...': specify files or directories, or use --cluster."),
        (["explain", "eth0"], "Missing argument 'PATH...'"),
        (["graph", "x.yaml", "--context", "c"], "--context requires --cluster"),
        (["controller", "--drain-seconds", "nan"], "nan is not a number of seconds"),
        (["webhook", "--port", "99999"], "'--port': 99999 is not in the range 1<=x<=65535"),
        (["webhook", "--port", "-1"], "'--port': -1 is not in the range"),
        (["crds", "--output-dir", "/dev/null/x"], "netdra: --output-dir /dev/null/x: Not a directory"),
        (["detach", "--netns", "/"], 'netdra: --netns "/" does not determine the name of the sandbox'),
        ([*PLAN, str(WORKER_1 / "policies"), "--feature", "DRADeviceTaints"], "use GATE=true or GATE=false"),
    ],
)
def test_a_bad_argument_is_reported_with_a_hint(arguments: list[str], message: str) -> None:
    done = netdra(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_gc_reports_that_no_checkpoint_or_plan_contains_a_network(tmp_path: Path) -> None:
    done = netdra("gc", "--state", str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"netdra: nothing to collect: no checkpoint in {tmp_path} and no --plan contains a network\n"


def test_gc_reports_that_no_plugin_supports_it(tmp_path: Path) -> None:
    topology = tmp_path / "topology.yaml"
    topology.write_text(
        "apiVersion: networking.dra.io/v1alpha1\nkind: NetworkTopology\nmetadata: {name: t}\n"
        "spec: {steps: [{name: nic, type: host-device, selector: {cel: 'true'}, config: {device: x}}]}\n"
    )
    done = netdra("gc", "--state", str(tmp_path), "--plan", str(topology))
    message = f"nothing to collect: no plugin of the checkpoints in {tmp_path} and the plans supports GC"
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"netdra: {message}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--node-name", "B d"],
            'netdra: --node-name "B d" is not a valid node name; use lower-case letters, digits, - and .',
        ),
        (
            ["--node-name", "a", "--sysfs-root", "/nope"],
            "netdra: --sysfs-root /nope: directory not found; specify the directory",
        ),
    ],
)
def test_a_node_that_cannot_be_is_refused_at_once(arguments: list[str], message: str) -> None:
    done = netdra("node", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["webhook", "--address", "no host"], "--address no host: cannot listen: "),
        (["webhook", "--health-socket", "/nope/x"], "--health-socket /nope/x: cannot listen: "),
        (["controller", "--health-address", "192.0.2.1:80"], "--health-address 192.0.2.1:80: cannot listen"),
        (["uninstall", "check"], 'API server: list resourceclaims: host "none.invalid": '),
    ],
)
def test_an_address_that_cannot_be_used_is_named(arguments: list[str], words: str, tmp_path: Path) -> None:
    config = {
        "clusters": [{"name": "a", "cluster": {"server": "https://none.invalid:6443"}}],
        "users": [{"name": "a", "user": {"token": "none"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    done = netdra(*arguments, f"--kubeconfig={tmp_path}/config")
    assert done.returncode in {3, 4}
    assert done.stderr.startswith(f"netdra: {words}")
    assert done.returncode == 4 or "; use a" in done.stderr


@pytest.mark.parametrize("arguments", [["--only", "cluster"], ["--context", "none"]])
def test_a_requested_but_missing_cluster_is_an_error(arguments: list[str], tmp_path: Path) -> None:
    nowhere = {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none"), "KUBERNETES_SERVICE_HOST": ""}
    done = netdra("doctor", *arguments, environment=nowhere)
    assert (done.returncode, done.stdout) == (2, "")
    assert "none: not found; specify it with --kubeconfig" in done.stderr


def test_a_missing_namespace_is_bad_input(tmp_path: Path) -> None:
    topology = tmp_path / "topology.yaml"
    topology.write_text(
        "apiVersion: networking.dra.io/v1alpha1\nkind: NetworkTopology\nmetadata: {name: t}\n"
        "spec: {steps: [{name: nic, type: host-device, selector: {cel: 'true'}, config: {device: x}}]}\n"
    )
    done = netdra("attach", "--netns", str(tmp_path / "none"), "--plan", str(topology), "--state", str(tmp_path))
    assert done.returncode == 2
    assert "does not exist; list the named namespaces with: ls /run/netns" in done.stderr


@pytest.mark.parametrize("before", [["-o", "table", *PLAN[1:]], PLAN, ["graph"], ["render"]])
def test_a_reader_that_goes_away_ends_the_command_quietly(before: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    before = ["plan", *before] if before[0] == "-o" else before
    path = WORKER_1 / "policies" if before[0] == "plan" else TOPOLOGIES
    done = netdra(*before, str(path), stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize("output", ["yaml", "table"])
def test_output_to_a_full_disk_is_reported(output: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = netdra(*PLAN, str(WORKER_1 / "policies"), "-o", output, stdout=full.fileno())
    assert done.returncode == 3
    assert done.stderr == "netdra: the output cannot be written: No space left on device (ND9028)\n"


def closed(stream: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with one of its streams closed: 0<, 1> or 2>."""
    line = [*("bash", "-c", f'"$@" {stream}&-', "bash"), sys.executable, "-m", "netdra", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize(
    "arguments",
    [
        ["schemas"],
        ["discover"],
        ["graph", "netdra/lab/scenarios/bonded-vlans/topology.yaml"],
        ["render", "netdra/lab/scenarios/bonded-vlans/topology.yaml"],
        [*PLAN, "examples/worker-1/policies"],
        ["explain", "enp3s0f0", *PLAN[1:], "examples/worker-1/policies"],
        ["crds"],
        ["--help"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_closed_stdout_is_reported(arguments: list[str]) -> None:
    done = closed("1>", *arguments)
    assert done.returncode == 3
    assert done.stderr.endswith(
        "netdra: the output cannot be written: standard output is closed; redirect it to a file or a pipe (ND4056)\n"
    )


@pytest.mark.parametrize("before", [["validate", "-"], [*PLAN, "-"]])
def test_a_closed_stdin_is_reported(before: list[str]) -> None:
    done = closed("0<", *before)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("netdra: standard input: it is closed; specify a file")


def test_a_closed_stderr_changes_nothing_on_stdout() -> None:
    arguments = [*("simulate", "--slices", str(WORKER_1 / "slices.yaml")), "--claims", "tests/documents/graph/claims"]
    assert closed("2>", *arguments).stdout == netdra(*arguments).stdout != ""


def test_ctrl_c_while_the_command_line_is_imported_has_its_exit_code() -> None:
    program = """
import runpy, sys
class Interrupted:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
runpy.run_module("netdra", run_name="__main__")
"""
    for module in ("netdra.cli", "click", "netdra.model.errors", "netdra.cli.terminal"):
        done = subprocess.run(
            [sys.executable, "-c", program, module], capture_output=True, text=True, check=False, cwd=ROOT
        )
        assert (done.returncode, done.stdout, done.stderr) == (130, "", ""), module


def test_signs_that_stdout_has_not_are_escaped() -> None:
    program = """
import contextlib, sys
from netdra.cli import main
sys.argv = ["netdra", "--version"]
with contextlib.suppress(SystemExit):
    main.main()
print("\u00fc0")
"""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\xfc0" in done.stdout


def test_nothing_that_a_terminal_obeys_is_left_in_a_text() -> None:
    assert terminal.printable("a\x1b[2J\x9b\u202eb\n\tü") == "a\\x1b[2J\\x9b\\u202eb\n\tü"


def test_names_from_a_recorded_inventory_are_printed_harmlessly(tmp_path: Path) -> None:
    recorded = tmp_path / "inventory.json"
    node = Inventory(node=InventoryNode(name="n"), interfaces=(Interface(if_name="\x1b[2J", type="veth"),))
    recorded.write_text(documents.to_yaml(node))
    (tmp_path / "policy.yaml").write_text(POLICY + "metadata: {name: all}\n")
    arguments = ["--policies", str(tmp_path / "policy.yaml"), "--inventory", str(recorded)]
    done = netdra("explain", "\x1b[2J", *arguments)
    assert done.returncode == 0
    assert r"\x1b[2J" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_every_command_has_help() -> None:
    for name in COMMANDS:
        done = CliRunner().invoke(cli, [name, "--help"])
        assert done.exit_code == 0, name
        assert done.output.startswith(f"Usage: cli {name}")


def test_every_option_with_a_value_has_a_metavar() -> None:
    for name in COMMANDS:
        with click.Context(cli) as context:
            found = cli.get_command(context, name)
        assert found is not None
        for option in found.params:
            if isinstance(option, click.Option) and not option.is_flag and not isinstance(option.type, click.Choice):
                assert option.metavar, f"{name} {option.opts[0]}"


@pytest.mark.parametrize(
    ("line", "word", "offered"),
    [
        ("netdra graph -o ", "3", ["plain,terminal", "plain,mermaid", "plain,svg"]),
        (
            "netdra doctor --neutron",
            "2",
            [
                "plain,--neutron-clouds",
                "plain,--neutron-cloud",
                "plain,--neutron-physnets",
                "plain,--neutron-allow-project",
                "plain,--neutron-allow-network",
                "plain,--neutron-shared-names",
            ],
        ),
    ],
)
def test_completion_knows_commands_options_and_choices(line: str, word: str, offered: list[str]) -> None:
    words = {"_NETDRA_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": word}
    program = "import sys; sys.argv = ['netdra']; from netdra.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout.split() == offered


def test_ctrl_c_has_an_exit_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("netdra.cli.inputs.text", interrupted)
    monkeypatch.setattr("sys.argv", ["netdra", "validate", "-"])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 130


@pytest.mark.parametrize(
    ("plugin", "code", "message", "cause"),
    [
        (
            "netdra-no-such-plugin",
            2,
            'exec plugin "netdra-no-such-plugin": it cannot be run: No such file or directory',
            "ND3082",
        ),
        ("/bin/true", 2, 'exec plugin "/bin/true": it must print an ExecCredential, but printed nothing', "ND3082"),
        ("/bin/false", 4, 'exec plugin "/bin/false": it failed with 1', "ND8000"),
    ],
)
def test_a_failed_exec_login_is_reported_with_its_install_hint(
    tmp_path: Path, plugin: str, code: int, message: str, cause: str
) -> None:
    login = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "installHint": "get it at X"}
    config = {
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {"exec": {**login, "command": plugin}}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    done = netdra("plan", "--cluster", "--policies", str(WORKER_1 / "policies"), f"--kubeconfig={tmp_path}/config")
    assert done.returncode == code
    assert f'netdra: kubeconfig, context "a": {message}; get it at X ({cause})\n' == done.stderr
