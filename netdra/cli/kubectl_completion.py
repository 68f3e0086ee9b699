"""`kubectl_complete-netdra`: kubectl runs it for the completion of `kubectl netdra …`.

kubectl gives the words after `netdra`, the last one incomplete, and expects a line a word and a directive of cobra
(k8s.io/kubectl, pkg/cmd/plugin_completion.go).
"""

from __future__ import annotations

import sys

import click
from click.shell_completion import ShellComplete

from netdra.cli.main import cli

_NO_FILES = ":4"
"""Cobra's ShellCompDirectiveNoFileComp."""


def main() -> None:
    """Print the words that can follow."""
    *words, incomplete = sys.argv[1:] or [""]
    completion = ShellComplete(cli, {}, "netdra", "_NETDRA_COMPLETE")
    for item in completion.get_completions(words, incomplete):
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(_NO_FILES)
