"""Tables are as narrow as the terminal, wrap between words, and never break an address."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from netdra.cli import terminal

ROOT = Path(__file__).parents[3]
WORKER_1 = ROOT / "examples" / "worker-1"
SCENARIO = ROOT / "netdra" / "lab" / "scenarios" / "bonded-vlans"
COLUMNS = ("NAME", "MTU", "MORE")
ROWS = [("eth0", "1500", "uplink 192.0.2.2/24 fd00::2/64"), ("名前", "9", ""), ("lo",)]


def narrow(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, 40)))


def test_a_table_has_a_line_for_each_row_and_nothing_at_the_ends(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_table(COLUMNS, ROWS, right={"MTU"})
    assert capsys.readouterr().out == (
        "NAME   MTU  MORE\n"
        "eth0  1500  uplink 192.0.2.2/24 fd00::2/64\n"
        "名前     9\n"
        "lo\n"
    )  # fmt: skip


def test_cells_are_wrapped_between_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, 32)
    terminal.print_table(COLUMNS, ROWS[:1], right={"MTU"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["eth0  1500  uplink 192.0.2.2/24", "            fd00::2/64"]


def test_words_stay_whole_where_the_terminal_is_too_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch, 10)
    terminal.print_table(COLUMNS, ROWS[:1])
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["eth0", "1500", "uplink"],
        ["192.0.2.2/24"],
        ["fd00::2/64"],
    ]


def test_a_word_without_end_is_broken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, 60)
    terminal.print_table(("A", "B"), [("x" * 100, "two\nlines")])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[1:])) <= 60
    assert "".join(line.split()[0] for line in lines[1:]) == "x" * 100
    assert [line.split()[1] for line in lines[1:3]] == ["two", "lines"]


def test_terminal_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_table(("A",), [("\x1b[2J",)])
    assert capsys.readouterr().out == "A\n\\x1b[2J\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["discover"],
        ["plan", "--policies", f"{WORKER_1}/policies", "--inventory", f"{WORKER_1}/inventory.json", "-o", "table"],
        ["simulate", "--slices", f"{WORKER_1}/slices.yaml", "--claims", f"{SCENARIO}/claim.yaml"],
    ],
)
def test_without_a_terminal_no_library_for_terminals_is_imported(arguments: list[str]) -> None:
    program = (
        "import atexit, sys; atexit.register(lambda: print('rich' in sys.modules, file=sys.stderr));"
        f"sys.argv = {['netdra', *arguments]}; from netdra.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert len(done.stdout.splitlines()) > 1
    assert done.stderr.splitlines()[-1] == "False"


def test_a_command_on_a_few_files_hardly_collects_garbage() -> None:
    """It keeps nearly all of its objects until it ends: to inspect them takes a tenth of its time."""
    arguments = ["plan", "--policies", f"{WORKER_1}/policies", "--inventory", f"{WORKER_1}/inventory.json"]
    program = (
        "import atexit, gc, sys; collections = lambda: sum(each['collections'] for each in gc.get_stats());"
        "before = collections(); atexit.register(lambda: print(collections() - before, file=sys.stderr));"
        f"sys.argv = {['netdra', *arguments]}; from netdra.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stderr.splitlines()[-1]) <= 1


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = _Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    with terminal.progress("Writing", 2000, "PodAddresses") as advance:
        for _ in range(1000):
            advance()
        assert "Writing" in stderr.getvalue()
        assert "50%" in stderr.getvalue()
        for _ in range(1000):
            advance()
    assert "100%" in stderr.getvalue()


def test_progress_elsewhere_is_a_line_after_each_thousand(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.progress("Writing", 2500, "PodAddresses") as advance:
        for _ in range(2500):
            advance()
    assert capsys.readouterr().err.splitlines() == [
        "netdra: 1000 of 2500 PodAddresses",
        "netdra: 2000 of 2500 PodAddresses",
    ]
