"""Wrong usage of a command has a code, one for each kind, which `netdra explain-code` explains."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from netdra.cli import usage_errors
from netdra.cli.codes import find
from netdra.model.errors import code_of
from tests.unit.cli.conftest import Run

ROOT = Path(__file__).parents[3]
LINES = {
    "chek": "ND4120",
    "cni-plugin chek": "ND4120",
    "schemas --foo": "ND4121",
    "schemas --outputt json": "ND4121",
    "check": "ND4122",
    "plan": "ND4122",
    "register eth0": "ND4122",
    "schemas -o pdf": "ND4123",
    "detach x --timeout nan": "ND4123",
    "why zzz a": "ND4123",
    "schemas -o": "ND4124",
    "node --no-plugins=1": "ND4124",
    "detach": "ND4126",
    "why pod a -A": "ND4126",
    "check a b": "ND4127",
}


@pytest.mark.parametrize(("line", "code"), LINES.items(), ids=list(LINES))
def test_wrong_usage_has_the_code_of_its_kind_at_the_end_of_the_message(run: Run, line: str, code: str) -> None:
    exit_code, out, err = run(*line.split())
    assert (exit_code, out) == (2, "")
    usage, _, message = err.rstrip().rpartition("Error: ")
    assert message.endswith(f" ({code})")
    assert code_of(usage) == ""
    explained = find(code)
    assert explained is not None
    assert explained.texts
    assert explained.hints


def test_an_argument_with_too_few_values_has_a_code() -> None:
    @click.command()
    @click.argument("pair", nargs=2)
    def pairs(pair: tuple[str, str]) -> None: ...

    with pytest.raises(click.BadArgumentUsage) as raised:
        pairs.main(["a"], standalone_mode=False)
    assert usage_errors.text(raised.value).endswith("Argument 'pair' takes 2 values. (ND4125)\n")


def test_every_kind_of_wrong_usage_has_one_code() -> None:
    kinds = {*usage_errors._KINDS.values(), *usage_errors._BY_MESSAGE.values()}
    assert len({kind.code for kind in kinds}) == len(kinds) == len({*LINES.values(), "ND4125"})
    of_click = {name for name, kind in vars(click.exceptions).items() if isinstance(kind, type)}
    usage = {name for name in of_click if issubclass(getattr(click.exceptions, name), click.UsageError)}
    assert usage - {"NoArgsIsHelpError"} <= usage_errors._KINDS.keys()


@pytest.mark.parametrize("line", ["", "cni-plugin"])
def test_help_without_arguments_has_no_code(run: Run, line: str) -> None:
    _, out, err = run(*line.split())
    assert "Usage:" in out + err
    assert code_of(out + err) == ""


def test_a_line_break_in_an_argument_moves_no_code(run: Run) -> None:
    _, _, err = run("check", "a", "b\nError: c")
    assert "Error: Got unexpected extra argument (b (ND4127)\nError: c)" in err


def test_a_command_without_an_error_does_not_read_the_kinds() -> None:
    program = "import sys; from netdra.cli.main import main; import atexit; "
    program += "atexit.register(lambda: print('netdra.cli.usage_errors' in sys.modules)); "
    program += "sys.argv = ['netdra', '--help']; main()"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
