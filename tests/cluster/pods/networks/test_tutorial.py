"""The tutorial, word for word: its commands with the cluster print on a real node the output of the page.

tests/unit/docs/test_cookbook.py runs its commands on files alone. `NETDRA_WRITE=1` writes the page again.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.image import NAME
from tests.cluster.daemons import running_controller
from tests.cluster.pods.driver import Offer

pytestmark = pytest.mark.usefixtures("controller")

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "tutorial.md"
_BLOCK = re.compile(r"^```console cluster\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The controller, at work."""
    with running_controller(control_plane, api):
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tutorial's files, with the image that the test bed has; what its pod names comes from elsewhere."""
    shutil.copytree(ROOT / "examples" / "first-pod", tmp_path, dirs_exist_ok=True)
    pod = tmp_path / "pod.yaml"
    text, count = re.subn(r"image: \S+", f"image: {NAME}\n      imagePullPolicy: Never", pod.read_text())
    assert count == 1
    pod.write_text(text)
    return tmp_path


def run(line: str, offer: Offer, plane: ControlPlane, folder: Path) -> str:
    """The output of a command of the page, without a last empty line."""
    program, verb, *rest = shlex.split(line)
    assert program == "kubectl", line
    if verb == "exec":
        pod, dashes, *command = rest
        assert dashes == "--"
        return offer.pods.exec(pod, *command).strip()
    arguments = [str(folder / each) if (folder / each).is_file() else each for each in rest]
    return plane.kubectl("--namespace", offer.workspace.namespace, verb, *arguments).strip()


def test_the_tutorial_commands_for_a_cluster_print_the_documented_output(
    offer: Offer, control_plane: ControlPlane, folder: Path
) -> None:
    offer.veth("data0")

    def block(found: re.Match[str]) -> str:
        commands = [line for line in found.group(1).splitlines() if line.startswith("$ ")]
        parts = [f"{line}\n{run(line.removeprefix('$ '), offer, control_plane, folder)}\n" for line in commands]
        # kubectl names the namespace of what it deletes, which is the test's.
        printed = "".join(parts).replace(f" from {offer.workspace.namespace} namespace", "")
        return f"```console cluster\n{printed}```"

    try:
        now = _BLOCK.sub(block, PAGE.read_text())
    finally:
        control_plane.kubectl("delete", "--ignore-not-found", "deviceexposurepolicies/data0", "networktopologies/data")
    assert "data0" in offer.links()
    if os.environ.get("NETDRA_WRITE"):
        PAGE.write_text(now)
    assert PAGE.read_text() == now, "write the page anew with NETDRA_WRITE=1"
