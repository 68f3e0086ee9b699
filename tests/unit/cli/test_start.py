"""Commands start and end fast: help imports few modules, and the end of a command collects no garbage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import atexit, gc, sys
atexit.register(lambda: print(gc.get_freeze_count() > 1_000, *sys.modules, file=sys.stderr))
sys.argv[0] = "netdra"
from netdra.__main__ import main
main()
"""


def ended(*arguments: str) -> tuple[bool, set[str]]:
    """Whether a command left the last garbage collection nothing to search, and the modules that it had imported."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    is_frozen, *modules = done.stderr.splitlines()[-1].split()
    return is_frozen == "True", set(modules)


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (["--help"], {"msgspec", "pathlib", "yaml", "asyncio"}),
        (["why", "--help"], {"msgspec", "difflib", "yaml", "asyncio"}),
        (["plan", "--help"], {"cel_expr_python", "netdra.exposure", "asyncio"}),
        (["validate", "--help"], {"netdra.review", "netdra.exposure", "asyncio"}),
    ],
)
def test_help_is_printed_without_importing_modules_only_the_work_needs(
    arguments: list[str], unneeded: set[str]
) -> None:
    _, modules = ended(*arguments)
    assert "netdra.cli.main" in modules
    assert not modules & unneeded


def test_commands_on_files_import_no_module_of_a_cluster_or_a_node() -> None:
    for command in ("plan", "validate"):
        _, modules = ended(command, "examples/first-pod")
        assert "netdra.cel.engine" in modules
        assert not modules & {"asyncio", "aiohttp", "cryptography", "netdra.kube", "netdra.kernel", "netdra.chain"}


def test_the_collection_at_the_end_of_a_command_has_nothing_to_search() -> None:
    assert ended("--help")[0]
