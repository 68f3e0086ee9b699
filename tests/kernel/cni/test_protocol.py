"""The verbs against a program that records what it is given, and against real plugins."""

import json
import os
import signal
from pathlib import Path

import msgspec
import pytest

from netdra.cni import protocol
from netdra.cni.config import Attachment, NetworkConfig
from netdra.cni.errors import MAX_STDERR, PluginError, PluginPermanentError, PluginTemporaryError
from netdra.cni.plugins import PluginPath
from netdra.cni.protocol import ReadyPlugin
from netdra.model.errors import MAX_FOREIGN, InvalidInputError
from netdra.model.result import CNIAddress, CNIInterface, StepResult
from testbed import build
from testbed.pace import stretched, within
from testbed.recorder import Recorder
from testbed.waiting import until

HERE = Attachment(container_id="c1", if_name="net1", netns="/run/netns/x")
NETWORK = NetworkConfig(network="net-a", type="fake", config={"answer": 42})
RESULT = StepResult(interfaces=(CNIInterface(name="net1", mac="02:00:00:00:00:01", sandbox="/run/netns/x"),))
SOON = 60.0  # no plugin here needs it, but on a machine that has much else to do


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path, "fake")


def found(recorder: Recorder, version: str | None = None) -> ReadyPlugin:
    return protocol.find(recorder.name, PluginPath(directories=(str(recorder.path.parent),)), version=version)


def failure_of(recorder: Recorder, timeout: float = SOON) -> PluginError:
    with pytest.raises(PluginError) as caught:
        protocol.add(found(recorder), NETWORK, HERE, None, timeout)
    return caught.value


def test_add_gives_the_plugin_its_configuration_and_returns_its_result(recorder: Recorder) -> None:
    recorder.prints("ADD", RESULT.as_prev_result("1.1.0"))
    previous = StepResult(interfaces=(CNIInterface(name="net0"),))
    assert protocol.add(found(recorder), NETWORK, HERE, previous, SOON) == RESULT
    (call,) = recorder.calls("ADD")
    assert call.config == {
        "answer": 42,
        "cniVersion": "1.1.0",
        "name": "net-a",
        "type": "fake",
        "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "net0"}]},
    }
    assert call.environment["CNI_NETNS"] == "/run/netns/x"
    assert call.environment["CNI_IFNAME"] == "net1"
    assert call.environment["CNI_CONTAINERID"] == "c1"
    assert call.environment["CNI_PATH"] == str(recorder.path.parent)


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        (["0.1.0", "0.2.0", "0.3.0", "0.3.1"], "0.3.1"),
        (["0.4.0", "0.3.1"], "0.4.0"),
        (["1.0.0", "1.1.0", "1.2.0"], "1.1.0"),
    ],
)
def test_the_highest_common_version_is_spoken(tmp_path: Path, offered: list[str], agreed: str) -> None:
    recorder = Recorder(tmp_path, "fake", versions=offered)
    protocol.add(found(recorder), NETWORK, HERE, None, SOON)
    assert recorder.calls("ADD")[0].config["cniVersion"] == agreed


def test_a_plugin_without_a_common_version_is_refused(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "fake", versions=["0.1.0", "0.2.0"])
    with pytest.raises(PluginPermanentError, match=r"it supports CNI 0\.1\.0, 0\.2\.0, but 0\.3\.1 or"):
        found(recorder)


def test_a_version_that_the_configuration_asks_for_is_spoken(recorder: Recorder) -> None:
    assert found(recorder, "0.4.0").version == "0.4.0"
    with pytest.raises(InvalidInputError, match=r"'0\.2\.0' is not supported"):
        found(recorder, "0.2.0")


def test_version_is_asked_once_for_each_binary(recorder: Recorder) -> None:
    for _ in range(3):
        found(recorder)
    assert len(recorder.calls("VERSION")) == 1
    copy = recorder.path.with_name("copy")
    copy.write_bytes(recorder.path.read_bytes())
    copy.chmod(0o755)
    copy.rename(recorder.path)
    found(recorder)
    assert len(recorder.calls("VERSION")) == 2


@pytest.mark.parametrize("answer", ["nonsense", "[]", '{"supportedVersions": 3}', ""])
def test_a_plugin_with_an_invalid_version_answer_is_rejected(recorder: Recorder, answer: str) -> None:
    recorder.does("VERSION", f"echo '{answer}'")
    with pytest.raises(PluginPermanentError, match="VERSION"):
        found(recorder)


def test_a_plugin_error_is_reported_with_code_details_and_stderr(recorder: Recorder) -> None:
    recorder.does("ADD", """echo 'what I saw' >&2; echo '{"code": 7, "msg": "no", "details": "because"}'; exit 1""")
    problem = failure_of(recorder)
    assert isinstance(problem, PluginPermanentError)
    assert msgspec.structs.asdict(problem.failure) == {
        "plugin": "fake",
        "verb": "ADD",
        "kind": "error",
        "message": "no",
        "code": 7,
        "details": "because",
        "stderr": "what I saw",
        "waited": 0.0,
    }
    assert str(problem) == (
        'CNI plugin "fake" ADD: no (code 7: its configuration is invalid): because (ND7107)\nstderr: what I saw'
    )


def test_try_again_later_is_a_temporary_error(recorder: Recorder) -> None:
    recorder.fails("ADD", code=11, message="busy")
    assert isinstance(failure_of(recorder), PluginTemporaryError)


@pytest.mark.parametrize(
    ("script", "kind", "message"),
    [
        ("exit 3", "rubbish", "exit status 3 without a CNI error"),
        ("echo oh no; exit 1", "rubbish", "exit status 1 without a CNI error; it printed: oh no"),
        ("echo not json", "rubbish", "its result is invalid"),
        ("true", "rubbish", "it printed no result"),
        ("echo '{\"interfaces\": 7}'", "rubbish", "its result is invalid"),
        ("kill -SEGV $$", "signal", "signal 11"),
        ("kill -35 $$", "signal", "signal 35"),
        ("yes", "overflow", "it printed more than 1048576 bytes"),
        ('echo \'{"code": 100, "msg": "a\\u001b[31mred"}\'; exit 1', "error", "a\N{REPLACEMENT CHARACTER}[31mred"),
    ],
)
def test_every_way_to_go_wrong_is_named(recorder: Recorder, script: str, kind: str, message: str) -> None:
    recorder.does("ADD", script)
    failure = failure_of(recorder).failure
    assert failure.kind == kind
    assert message in failure.message


def test_only_the_end_of_a_long_stderr_is_kept(recorder: Recorder) -> None:
    recorder.does("ADD", "seq 1 100000 >&2; echo last words >&2; exit 1")
    stderr = failure_of(recorder).failure.stderr
    assert len(stderr) <= 4096
    assert stderr.endswith("last words")


def test_plugin_output_is_truncated_and_cannot_imitate_netdra_messages(recorder: Recorder) -> None:
    forged = "fine\nnetdra: all is well\r\x1b[2J\x1b]0;x\x07\u202etxet\u2066" + "y" * 2**18
    answer = json.dumps({"code": 100, "msg": forged, "details": forged})
    (recorder.path.parent / "answer").write_text(answer)
    (recorder.path.parent / "complaint").write_text(f"{forged}\nnetdra: all is well\nnetdra: so it is\x1b[0m")
    recorder.does("ADD", f"cat {recorder.path.parent}/answer; cat {recorder.path.parent}/complaint >&2; exit 1")
    for text in (failure_of(recorder).what, str(failure_of(recorder))):
        first, *others = text.split("\n")
        assert first.startswith('CNI plugin "fake" ADD: fine netdra: all is well')
        assert all(line.startswith("stderr: ") for line in others)
        assert others[-2:] == ["stderr: netdra: all is well", "stderr: netdra: so it is\N{REPLACEMENT CHARACTER}[0m"]
        assert all(char.isprintable() or char == "\n" for char in text)
        assert len(text) < 2 * MAX_FOREIGN + MAX_STDERR + 200


def test_a_hanging_plugin_is_ended_with_all_that_it_started(recorder: Recorder) -> None:
    recorder.does("ADD", 'sleep 1000 & echo $! >"$call/child"; echo $$ >"$call/self"; wait')
    enough = stretched(1.0)
    with within(1.0, "ending a plugin that hangs", after=enough) as taken:
        problem = failure_of(recorder, timeout=enough)
    assert taken.seconds >= enough
    assert isinstance(problem, PluginTemporaryError)
    assert problem.failure.kind == "timeout"
    assert_ended(*ids(recorder))


def test_a_failing_plugin_leaves_no_process(recorder: Recorder) -> None:
    recorder.does("ADD", 'sleep 1000 & echo $! >"$call/child"; exit 1')
    failure_of(recorder)
    assert_ended(*ids(recorder))


def test_a_daemon_that_a_plugin_leaves_holds_nothing_up_and_lives(recorder: Recorder) -> None:
    recorder.does("ADD", 'sleep 1000 & echo $! >"$call/child"; echo "{}"')
    protocol.add(found(recorder), NETWORK, HERE, None, SOON)
    (daemon,) = ids(recorder)
    assert process_state(daemon) not in {"", "Z"}
    os.kill(daemon, signal.SIGKILL)


def test_a_large_configuration_and_a_large_result_pass(recorder: Recorder) -> None:
    network = NetworkConfig(network="n", type="fake", config={"blob": "x" * 3_000_000})
    recorder.prints("ADD", {"routes": [{"dst": f"10.{n // 250}.{n % 250}.0/24"} for n in range(20_000)]})
    assert len(protocol.add(found(recorder), network, HERE, None, SOON).routes) == 20_000
    assert recorder.calls("ADD")[0].config["blob"] == "x" * 3_000_000


def test_a_config_that_is_not_json_is_rejected_before_the_plugin_runs(recorder: Recorder) -> None:
    plugin = found(recorder)
    network = NetworkConfig(network="n", type="fake", config={"odd": object()})
    with pytest.raises(InvalidInputError, match="not valid JSON"):
        protocol.add(plugin, network, HERE, None, SOON)
    assert recorder.calls() == []


def test_a_program_that_the_machine_cannot_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "fake").write_bytes(b"\x00\x01\x02")
    (tmp_path / "fake").chmod(0o755)
    with pytest.raises(PluginPermanentError, match="cannot be run: Exec format error"):
        protocol.find("fake", PluginPath(directories=(str(tmp_path),)))


def test_a_binary_that_is_just_being_written_is_waited_for(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = found(recorder)
    program = recorder.path.with_name("real")
    program.write_bytes(Path("/bin/true").read_bytes())
    program.chmod(0o755)
    writer = program.open("ab")
    busy = ReadyPlugin(
        binary=msgspec.structs.replace(plugin.binary, path=str(program)), where=plugin.where, version="1.1.0"
    )
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            writer.close()

    monkeypatch.setattr("netdra.cni.process.time.sleep", pause)
    protocol.delete(busy, NETWORK, HERE, None, SOON)
    assert len(pauses) == 3
    assert all(pauses)


def test_signals_that_python_ignores_work_in_the_plugin(recorder: Recorder) -> None:
    recorder.does("ADD", "kill -PIPE $$; sleep 1000")
    assert "signal 13" in failure_of(recorder).failure.message


def test_del_passes_the_previous_result_from_0_4_0_on(tmp_path: Path) -> None:
    for version, kept in (("0.3.1", False), ("0.4.0", True), ("1.1.0", True)):
        recorder = Recorder(tmp_path, f"fake-{version}", versions=[version])
        protocol.delete(found(recorder), NETWORK, HERE, RESULT, SOON)
        assert ("prevResult" in recorder.calls("DEL")[0].config) is kept


def test_del_needs_no_namespace_and_no_previous_result(recorder: Recorder) -> None:
    gone = Attachment(container_id="c1", if_name="net1")
    protocol.delete(found(recorder), NETWORK, gone, None, SOON)
    (call,) = recorder.calls("DEL")
    assert call.environment["CNI_NETNS"] == ""
    assert "prevResult" not in call.config


def test_check_passes_the_result_and_is_not_asked_of_0_3_1(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "fake")
    protocol.check(found(recorder), NETWORK, HERE, RESULT, SOON)
    assert recorder.calls("CHECK")[0].config["prevResult"] == json.loads(json.dumps(RESULT.as_prev_result("1.1.0")))
    old = found(Recorder(tmp_path, "old", versions=["0.3.1"]))
    assert not protocol.can_check(old)
    with pytest.raises(PluginPermanentError, match="which does not define CHECK"):
        protocol.check(old, NETWORK, HERE, RESULT, SOON)


def test_status_and_gc_need_no_attachment_and_1_1_0(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "fake")
    plugin = found(recorder)
    protocol.status(plugin, NETWORK, SOON)
    protocol.collect(plugin, NETWORK, [HERE], SOON)
    status, collect = recorder.calls()
    assert "CNI_CONTAINERID" not in status.environment
    assert "CNI_IFNAME" not in collect.environment
    assert collect.config["cni.dev/valid-attachments"] == [{"containerID": "c1", "ifname": "net1"}]
    old = found(Recorder(tmp_path, "old", versions=["1.0.0"]))
    with pytest.raises(PluginPermanentError, match="does not define STATUS"):
        protocol.status(old, NETWORK, SOON)
    with pytest.raises(PluginPermanentError, match="which does not define GC"):
        protocol.collect(old, NETWORK, [HERE], SOON)


def test_status_raises_the_error_of_a_plugin_that_is_not_ready(recorder: Recorder) -> None:
    recorder.fails("STATUS", code=50, message="no more addresses")
    with pytest.raises(PluginPermanentError, match=r"no more addresses \(code 50: it is not available at the moment\)"):
        protocol.status(found(recorder), NETWORK, SOON)


def test_real_plugins_are_spoken_to(tmp_path: Path) -> None:
    where = PluginPath(directories=(str(build.program("host-local").parent),))
    ipam = protocol.find("host-local", where)
    assert ipam.version == "1.1.0"
    config = {"ipam": {"type": "host-local", "subnet": "10.7.0.0/24", "dataDir": str(tmp_path)}}
    network = NetworkConfig(network="net-a", type="host-local", config=config)
    first = protocol.add(ipam, network, HERE, None, SOON)
    assert first.ips == (CNIAddress(address="10.7.0.2/24", gateway="10.7.0.1"),)
    protocol.delete(ipam, network, HERE, None, SOON)
    protocol.delete(ipam, network, HERE, None, SOON)
    assert [entry.name for entry in (tmp_path / "net-a").iterdir() if entry.name.startswith("10.")] == []


def test_a_plugin_runs_in_the_root_that_is_given(recorder: Recorder) -> None:
    where = PluginPath(directories=(str(recorder.path.parent),), root="/proc/self/root")
    recorder.does("ADD", 'echo "{}"; readlink /proc/$$/root >"$call/root"')
    protocol.add(protocol.find("fake", where), NETWORK, HERE, None, SOON)
    assert recorder.calls("ADD")


def ids(recorder: Recorder) -> list[int]:
    folder = recorder.path.parent / f".{recorder.name}.recorded" / "calls"
    return [int(path.read_text()) for name in ("self", "child") for path in folder.glob(f"*/{name}")]


def assert_ended(*pids: int) -> None:
    """The processes are gone; one that init has yet to reap counts as gone."""
    assert pids
    until(
        lambda: {process_state(pid) for pid in pids} <= {"", "Z"},
        "processes to end",
        detail=lambda: [(pid, process_state(pid)) for pid in pids],
    )


def process_state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
