import errno
import os
import threading
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from netdra.chain import checkpoint
from netdra.chain.checkpoint import (
    Amended,
    BadCheckpointError,
    Begun,
    CheckpointExistsError,
    Complete,
    Done,
    Header,
    NamespaceId,
    PodIdentity,
    UndoneEntry,
)
from netdra.chain.detach import detach
from netdra.chain.site import ChainSettings
from netdra.cni.plugins import PluginPath
from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.plan import ClaimReference, Plan, PlannedStep
from netdra.model.result import CNIInterface, StepResult
from netdra.ops import files
from netdra.ops.files import NewerStateError
from tests.disks import Faults
from tests.refusing import Refusal, refusing

PLAN = Plan(
    topology="t",
    claim=ClaimReference(namespace="default", name="c", uid="u"),
    steps=(
        PlannedStep(name="a", type="host-device", if_name="net1", network="t-a", execution="Builtin"),
        PlannedStep(name="b", type="tuning", if_name="net1", network="t-b", execution="Builtin", depend_on=("a",)),
    ),
)
HEADER = Header(
    version=checkpoint.VERSION,
    boot_id="b",
    pod=PodIdentity(sandbox="s1", name="p"),
    namespace=NamespaceId(path="/run/netns/x", cookie=7),
    plugins=PluginPath(),
    plans=(PLAN,),
)
RESULT = StepResult(interfaces=(CNIInterface(name="net1"),))
ENTRIES = (
    Begun(step="0/a", config={"mtu": 1400}, undo={"name": "eth7"}),
    Done(step="0/a", result=RESULT),
    Begun(step="0/b", config={}),
    Amended(step="0/b", undo={"addresses": ["10.0.0.1/24"]}),
    Done(step="0/b", result=RESULT),
    Complete(),
    UndoneEntry(step="0/b"),
)


def written(directory: Path) -> Path:
    journal = checkpoint.create(directory, HEADER, 1)
    for entry in ENTRIES:
        journal.append(entry)
    journal.close()
    return journal.path


def test_appended_checkpoint_entries_are_read_back(tmp_path: Path) -> None:
    journal = checkpoint.create(tmp_path, HEADER, 1)
    for entry in ENTRIES:
        journal.append(entry)
        assert checkpoint.read(journal.path.read_bytes(), "it") == journal.saved
        assert checkpoint.load(tmp_path, "s1") == journal.saved
    saved = journal.saved
    journal.close()
    assert list(saved.steps) == ["0/a", "0/b"]
    assert saved.steps["0/a"].undo == {"name": "eth7"}
    assert saved.steps["0/b"].undo == {"addresses": ["10.0.0.1/24"]}
    assert saved.steps["0/b"].undone
    assert not saved.steps["0/a"].undone
    assert saved.complete
    assert saved.damaged == 0


def test_a_journal_cut_at_any_byte_yields_its_complete_entries(tmp_path: Path) -> None:
    text = written(tmp_path).read_bytes()
    ends = [place for place, byte in enumerate(text) if byte == ord("\n")]
    expected = [checkpoint.read(text[: end + 1], "it") for end in ends]
    for size in range(len(text)):
        whole = sum(end < size for end in ends)
        if whole == 0:
            with pytest.raises(BadCheckpointError, match="does not have a readable header"):
                checkpoint.read(text[:size], "it")
        else:
            assert checkpoint.read(text[:size], "it") == expected[whole - 1]


def test_after_a_cut_the_next_entry_begins_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path)
    text = path.read_bytes()
    for size in range(text.index(b"\n") + 1, len(text), 7):
        path.write_bytes(text[:size])
        journal = checkpoint.open_existing(tmp_path, "s1", 1)
        assert journal is not None
        journal.append(Begun(step="0/a", config={"again": True}))
        journal.close()
        saved = checkpoint.read(path.read_bytes(), "it")
        assert saved.damaged == 0
        assert saved.steps["0/a"].config == {"again": True}


def test_a_line_that_cannot_be_read_is_counted_and_the_others_hold(tmp_path: Path) -> None:
    lines = written(tmp_path).read_bytes().split(b"\n")
    lines[2] = b"\0" * len(lines[2])
    saved = checkpoint.read(b"\n".join(lines), "it")
    assert saved.damaged == 1
    assert saved.steps["0/a"].undo == {"name": "eth7"}
    assert saved.steps["0/a"].result is None
    assert saved.steps["0/b"].result == RESULT


def test_an_entry_of_a_step_that_never_began_is_damage(tmp_path: Path) -> None:
    text = msgspec.json.encode(HEADER) + b"\n" + msgspec.json.encode(UndoneEntry(step="0/zzz")) + b"\n"
    assert checkpoint.read(text, "it").damaged == 1


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"{}\n",
        b"rubbish\n",
        b'{"entry":"complete"}\n',
        b"\0" * 4096 + b"\n",
        b"[" * 100_000 + b"\n",
        msgspec.json.encode(msgspec.structs.replace(HEADER, version=0)) + b"\n",
    ],
)
def test_a_file_without_a_header_that_is_understood_is_bad_and_stops_no_one(tmp_path: Path, text: bytes) -> None:
    good = written(tmp_path)
    bad = tmp_path / "other.jsonl"
    bad.write_bytes(text)
    found, unreadable = checkpoint.load_all(tmp_path)
    assert [saved.header.pod.sandbox for saved in found] == ["s1"]
    assert [path for path, _ in unreadable] == [bad]
    assert files.put_aside(bad).name == "other.jsonl.bad-0"
    bad.write_bytes(text)
    assert files.put_aside(bad).name == "other.jsonl.bad-1"
    assert checkpoint.load_all(tmp_path) == (found, [])
    assert good.exists()


def test_a_sandbox_has_one_checkpoint(tmp_path: Path) -> None:
    journal = checkpoint.create(tmp_path, HEADER, 1)
    with pytest.raises(CheckpointExistsError):
        checkpoint.create(tmp_path, HEADER, 1)
    journal.remove()
    checkpoint.create(tmp_path, HEADER, 1).remove()
    assert list(tmp_path.iterdir()) == []


def test_a_second_opener_waits_until_the_first_closes_the_checkpoint(tmp_path: Path) -> None:
    first = checkpoint.create(tmp_path, HEADER, 1)
    with pytest.raises(TemporaryError, match=r"still being attached or detached after 0\.1 s"):
        checkpoint.open_existing(tmp_path, "s1", 0.1)
    ending = threading.Timer(0.1, first.close)
    ending.start()
    second = checkpoint.open_existing(tmp_path, "s1", 10)
    ending.join()
    assert second is not None
    second.close()


def test_a_waiting_opener_gets_none_when_the_checkpoint_is_removed(tmp_path: Path) -> None:
    first = checkpoint.create(tmp_path, HEADER, 1)
    ending = threading.Timer(0.1, first.remove)
    ending.start()
    assert checkpoint.open_existing(tmp_path, "s1", 10) is None
    ending.join()


def test_a_program_that_acts_for_a_step_is_waited_for_beyond_our_end(tmp_path: Path) -> None:
    journal = checkpoint.create(tmp_path, HEADER, 1)
    journal.hold()
    inherited = os.dup(journal.inherited)
    os.close(journal.inherited)  # as a process that is killed closes its files
    os.close(journal._lock)
    again = checkpoint.open_existing(tmp_path, "s1", 0)
    assert again is not None
    assert not again.await_programs(0.05)
    ending = threading.Timer(0.1, os.close, (inherited,))
    ending.start()
    assert again.await_programs(10)
    ending.join()
    again.close()


def test_a_program_that_undoes_a_step_is_waited_for_too(tmp_path: Path) -> None:
    checkpoint.create(tmp_path, HEADER, 1).close()
    journal = checkpoint.open_existing(tmp_path, "s1", 0)
    assert journal is not None
    assert journal.await_programs(0)
    inherited = os.dup(journal.inherited)
    os.close(journal.inherited)
    os.close(journal._lock)
    again = checkpoint.open_existing(tmp_path, "s1", 0)
    assert again is not None
    assert not again.await_programs(0.05)
    os.close(inherited)
    assert again.await_programs(10)
    again.close()


def test_a_daemon_left_by_an_ended_program_is_not_waited_for(tmp_path: Path) -> None:
    journal = checkpoint.create(tmp_path, HEADER, 1)
    journal.hold()
    daemons = os.dup(journal.inherited)
    journal.close()
    again = checkpoint.open_existing(tmp_path, "s1", 0)
    assert again is not None
    assert again.await_programs(0)
    again.close()
    os.close(daemons)


def test_a_folder_where_a_checkpoint_should_be_stops_no_one(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "other.jsonl").mkdir()
    found, unreadable = checkpoint.load_all(tmp_path)
    assert [saved.header.pod.sandbox for saved in found] == ["s1"]
    assert ["Is a directory" in problem.what for _, problem in unreadable] == [True]


def test_a_checkpoint_on_a_failing_disk_is_as_this_process_has_last_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "read")
    written(tmp_path / "unread")
    saved = checkpoint.load(tmp_path / "read", "s1")
    monkeypatch.setattr(files, "open_lockable", mock.Mock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO))))
    journal = checkpoint.open_existing(tmp_path / "read", "s1", 0)
    assert journal is not None
    assert journal.saved == saved
    journal.close()
    with pytest.raises(TemporaryError, match="Input/output error"):
        checkpoint.open_existing(tmp_path / "unread", "s1", 0)


def test_a_missing_checkpoint_is_not_an_error(tmp_path: Path) -> None:
    assert checkpoint.open_existing(tmp_path / "nowhere", "s1", 0) is None
    assert checkpoint.load_all(tmp_path / "nowhere") == ([], [])


@pytest.mark.parametrize("sandbox", ["", "..", ".hidden", "a/b", "a\0b", "x" * 300, "ö" * 150])
def test_a_sandbox_id_that_would_be_another_path_is_refused(tmp_path: Path, sandbox: str) -> None:
    with pytest.raises(InvalidInputError):
        checkpoint.open_existing(tmp_path, sandbox, 0)


def test_a_full_disk_is_reported_and_keeps_the_journal_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = checkpoint.create(tmp_path, HEADER, 1)
    before = journal.path.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
    with pytest.raises(TemporaryError, match="No space left on device"):
        journal.append(Complete())
    monkeypatch.undo()
    assert journal.path.read_bytes() == before
    assert not journal.saved.complete
    journal.append(Complete())
    assert checkpoint.read(journal.path.read_bytes(), "it").complete
    journal.remove()


def test_only_root_can_read_it(tmp_path: Path) -> None:
    path = written(tmp_path / "state")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", [b"", b'{"version": 7, "boot_id"', bytes(4096)])
def test_a_checkpoint_without_a_whole_header_after_a_power_failure_is_removed_and_treated_as_missing(
    tmp_path: Path, content: bytes
) -> None:
    path = written(tmp_path)
    path.write_bytes(content)
    settings = ChainSettings(state=tmp_path)
    assert detach("s1", settings).is_undone
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith("s1")] == []
    path.write_bytes(content)
    assert checkpoint.open_existing(tmp_path, "s1", 1) is None
    assert not path.exists()


RECORDED = Path(__file__).with_name("checkpoints")
"""A checkpoint of each version that there was, as a netdra of that time wrote it. They stay as they are."""


def test_checkpoints_of_every_former_version_are_read(tmp_path: Path) -> None:
    recorded = sorted(RECORDED.glob("version-*.jsonl"))
    assert [path.name for path in recorded] == [f"version-{each}.jsonl" for each in range(1, checkpoint.VERSION + 1)]
    for path in recorded:
        saved = checkpoint.read(path.read_bytes(), path.name)
        assert (saved.header.pod.sandbox, saved.complete, saved.damaged) == ("s1", True, 0)
        assert saved.steps["0/a"].undo == {"name": "eth7"}


@pytest.mark.parametrize(
    "header",
    [
        msgspec.json.encode(msgspec.structs.replace(HEADER, version=checkpoint.VERSION + 1)),
        b'{"version": 7, "entry": "of-a-kind-that-nobody-here-knows", "plans": 3}',
    ],
)
def test_a_checkpoint_of_a_newer_netdra_is_rejected_and_left_unchanged(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(header + b"\n")
    settings = ChainSettings(state=tmp_path)
    for act in (lambda: detach("s1", settings), lambda: checkpoint.open_existing(tmp_path, "s1", 1)):
        with pytest.raises(NewerStateError, match="a newer netdra wrote it") as refused:
            act()
        assert "helm rollback" in refused.value.hint
    found, unreadable = checkpoint.load_all(tmp_path)
    assert (found, [path for path, _ in unreadable]) == ([], [path])
    assert path.read_bytes() == header + b"\n"
    assert [each.name for each in tmp_path.iterdir()] == ["s1.jsonl"]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO], ids=errno.errorcode.get)
def test_undo_records_that_cannot_be_written_count_in_process_and_are_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    path = written(tmp_path)
    faults = Faults(tmp_path, error)
    faults.install(monkeypatch)
    before = path.read_bytes()
    faults.begin(0)
    journal = checkpoint.open_existing(tmp_path, "s1", 1)
    assert journal is not None
    assert journal.await_programs(0)
    journal.note(UndoneEntry(step="0/a"))
    with pytest.raises(TemporaryError, match=os.strerror(error)):
        journal.append(Complete())
    journal.close()
    assert path.read_bytes() == before
    for saved in (checkpoint.load(tmp_path, "s1"), checkpoint.load_all(tmp_path)[0][0]):
        assert all(state.undone for state in saved.steps.values())
    faults.end()
    again = checkpoint.open_existing(tmp_path, "s1", 1)
    assert again is not None
    assert all(state.undone for state in again.saved.steps.values())
    again.note(Amended(step="0/b", undo={}))
    again.close()
    assert all(state.undone for state in checkpoint.read(path.read_bytes(), "").steps.values())
    assert checkpoint.load(tmp_path, "s1").damaged == 0


def test_a_checkpoint_that_cannot_be_opened_at_all_is_an_error_that_is_tried_again(tmp_path: Path) -> None:
    written(tmp_path)
    checkpoint.load(tmp_path, "s1")
    with refusing(Refusal(errno.EIO, 1, 10**6)), pytest.raises(TemporaryError, match="cannot be read"):
        checkpoint.open_existing(tmp_path, "s1", 1)
