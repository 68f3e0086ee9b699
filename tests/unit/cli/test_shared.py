"""Options that commands share: declared once, given to a command as one argument."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from netdra.cli import shared
from netdra.cli.main import cli
from netdra.cli.shared import ClusterAccess, option


def run(*arguments: str) -> tuple[Any, ...]:
    """A command's arguments, and its help if `--help` is among the given ones."""

    @click.command()
    @option("--first", "NAME", "The first.", default="a")
    @shared.cluster("Where it is.")
    @option("--last", "NAME", "The last.", "lasts", multiple=True)
    def command(first: str, cluster: ClusterAccess, lasts: tuple[str, ...]) -> None:
        click.echo(repr((first, tuple(cluster), lasts)))

    done = CliRunner().invoke(command, arguments)
    return done.exit_code, done.stdout


def test_options_of_a_group_reach_a_command_as_one_argument() -> None:
    given = ("a", (Path("/c"), "x"), ("y", "z"))
    assert run("--last=y", "--kubeconfig=/c", "--context=x", "--last=z") == (0, f"{given!r}\n")
    assert run() == (0, f"{('a', (None, None), ())!r}\n")


def test_help_has_the_options_in_the_order_of_their_decorators_and_shows_defaults() -> None:
    code, text = run("--help")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines() if line.startswith("  --")] == [
        "--first",
        "--kubeconfig",
        "--context",
        "--last",
        "--help",
    ]
    assert text.count("[default: ") == 1


def test_a_cluster_is_asked_for_by_either_option() -> None:
    assert not ClusterAccess(None, None).is_given
    assert ClusterAccess(Path("/c"), None).is_given
    assert ClusterAccess(None, "x").is_given


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(["version"], ["--version"]), (["help"], ["--help"]), (["help", "lab", "demo"], ["lab", "demo", "--help"])],
)
def test_version_and_help_are_also_commands(typed: list[str], meant: list[str]) -> None:
    done, expected = (CliRunner().invoke(cli, words) for words in (typed, meant))
    assert (done.exit_code, done.output) == (0, expected.output)
