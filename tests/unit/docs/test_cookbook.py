"""Cookbook, tutorial and the pages of physnets and Neutron are true: they show their files and the output of commands.

`NETDRA_WRITE=1` writes the pages again: the files in their yaml blocks, and below each command its output.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from netdra.cel.analysis import examine
from netdra.cli.main import cli
from netdra.model import documents
from netdra.model.claim import DeviceClass
from netdra.model.policy import DeviceExposurePolicy
from netdra.vocabulary import added, of_devices

BOOK = Path(__file__).parents[3] / "examples" / "cookbook"
FOLDERS = sorted(path.parent for path in BOOK.glob("*/README.md"))
TUTORIAL = BOOK.parents[1] / "docs" / "tutorial.md"
PAGES = [
    *((folder / "README.md", folder) for folder in FOLDERS),
    (TUTORIAL, BOOK.parent / "first-pod"),
    (BOOK.parents[1] / "docs" / "physnets.md", BOOK.parent / "physnets"),
    (BOOK.parents[1] / "docs" / "pooled-vfs.md", BOOK.parent / "pooled-vfs"),
    (BOOK.parents[1] / "docs" / "rails.md", BOOK.parent / "rails"),
    (BOOK.parents[1] / "docs" / "gpu.md", BOOK.parent / "gpu"),
    (BOOK.parents[1] / "docs" / "dpdk.md", BOOK.parent / "dpdk"),
    (BOOK.parents[1] / "docs" / "neutron.md", BOOK.parent / "neutron"),
]
_BLOCK = re.compile(r"^```(yaml|console)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def printed(command: str) -> str:
    """The output of a line of commands: each is one of netdra's, and reads the output of the one before."""
    out, err = "", ""
    for part in command.split(" | "):
        name, *arguments = shlex.split(part)
        assert name == "netdra"
        done = CliRunner().invoke(cli, arguments, input=out)
        assert done.exit_code in {0, 1}, done.output
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        out, err = done.stdout, err + done.stderr
    return out + err


def rebuilt(page: str, folder: Path) -> str:
    """The page with its files and its commands' output as they are now."""

    def block(found: re.Match[str]) -> str:
        kind, file, content = found.groups()
        if kind == "yaml" and file == "netdra":  # a part of an example, not a file
            return found.group()
        if kind == "console" and file:  # what needs a cluster is run by tests/cluster/pods/networks/test_tutorial.py
            return found.group()
        if kind == "yaml":
            return f"```yaml {file}\n{(folder / file).read_text()}```"
        commands = [line for line in content.splitlines() if line.startswith("$ ")]
        parts = [f"{line}\n{printed(line.removeprefix('$ '))}" for line in commands]
        return "```console\n" + "".join(parts) + "```"

    return _BLOCK.sub(block, page)


@pytest.mark.parametrize(("page", "folder"), PAGES, ids=lambda path: path.name)
def test_a_cookbook_page_shows_its_files_and_the_output_of_its_commands(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    now = rebuilt(page.read_text(), folder)
    if os.environ.get("NETDRA_WRITE"):
        page.write_text(now)
    assert page.read_text() == now, "write the pages anew with NETDRA_WRITE=1"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_cookbook_page_contains_a_policy_a_class_a_claim_and_the_plan_and_simulate_commands(folder: Path) -> None:
    page = (folder / "README.md").read_text()
    for file in ("policies.yaml", "classes.yaml", "claims.yaml"):
        assert f"```yaml {file}" in page
    assert "$ netdra plan" in page
    assert "| netdra simulate" in page


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_cookbook_files_pass_validation_and_their_class_selectors_raise_no_findings(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(cli, ["validate", "policies.yaml", "classes.yaml", "claims.yaml"])
    assert (done.exit_code, done.stdout) == (0, "")
    read = [
        each for file in ("policies.yaml", "classes.yaml") for each in documents.read((folder / file).read_text(), file)
    ]
    known = of_devices(added(each for each in read if isinstance(each, DeviceExposurePolicy)))
    for given in (each for each in read if isinstance(each, DeviceClass)):
        for selector in given.spec.selectors:
            assert selector.cel is not None
            assert examine(selector.cel.expression, known) == ()


def test_the_index_names_every_page() -> None:
    index = (BOOK / "README.md").read_text()
    assert re.findall(r"\]\(([^)/]+)/README\.md\)", index) == [folder.name for folder in FOLDERS]
