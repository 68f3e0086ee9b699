"""The image: it runs every command as the user `nobody`, on a read-only root, and nothing else is in it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from image.__main__ import MAX_COMPRESSED, Built, build, configuration, names, read
from image.rootfs import SBOM, USER
from netdra.cli.main import COMMANDS
from testbed.containerd import Containerd
from testbed.node import CommandError, Node

EXAMPLES = Path(__file__).parents[3] / "examples"
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def containerd(image: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    """A node without a kubelet, with a container of the image: its own user, no network, a root that is read-only."""
    with Node("image-node", folder=tmp_path_factory.mktemp("node")) as node:
        runtime = Containerd(node)
        runtime.ctr("images", "import", "--local", str(image.archive))
        folder = f"type=bind,src={EXAMPLES},dst=/examples,options=rbind:ro"
        options = ("--detach", "--read-only", "--snapshotter=native", f"--mount={folder}")
        runtime.ctr("run", *options, image.name, "asleep", "/usr/bin/python3", "-c", "import time; time.sleep(9999)")
        yield runtime


def run(containerd: Containerd, *command: str) -> str:
    """The output of a program in the container."""
    return containerd.ctr("tasks", "exec", f"--exec-id=run-{next(NUMBERS)}", "asleep", *command)


def netdra(containerd: Containerd, *arguments: str) -> str:
    """The output of netdra in the container."""
    return run(containerd, "/usr/bin/netdra", *arguments)


def test_every_command_starts(containerd: Containerd) -> None:
    for command in COMMANDS:
        assert f"netdra {command}" in netdra(containerd, command, "--help")


def test_files_are_judged_without_a_cluster(containerd: Containerd, image: Built) -> None:
    assert netdra(containerd, "--version") == f"netdra, version {image.version}\n"
    files = [f"/examples/first-pod/{name}.yaml" for name in ("claim", "pod", "policy", "topology")]
    netdra(containerd, "validate", *files)
    place = "/examples/worker-1"
    slices = netdra(containerd, "plan", f"--policies={place}/policies", f"--inventory={place}/inventory.json")
    assert "kind: ResourceSlice" in slices


def test_discover_and_doctor_inspect_the_container_they_run_in(containerd: Containerd) -> None:
    assert "lo " in netdra(containerd, "discover", "--output", "table")
    with pytest.raises(CommandError, match="ended with 1"):  # a container is no node: findings, and no traceback
        netdra(containerd, "doctor", "--only", "node")


def test_it_completes_commands(containerd: Containerd) -> None:
    script = "import os; os.environ.update(_NETDRA_COMPLETE='bash_complete', COMP_WORDS='netdra val', COMP_CWORD='1')"
    start = f"{script}; os.execv('/usr/bin/netdra', ['netdra'])"
    assert "plain,validate" in run(containerd, "/usr/bin/python3", "-c", start)


def test_the_health_probe_reports_a_missing_health_socket(containerd: Containerd) -> None:
    with pytest.raises(CommandError, match="ended with 1"):
        run(containerd, "/usr/bin/netdra-health", "live")
    asked = "import subprocess as s; print(s.run(('netdra-health', 'live'), capture_output=True, text=True).stdout)"
    assert "/run/netdra/health.sock is not there" in run(containerd, "/usr/bin/python3", "-c", asked)


def test_the_image_runs_as_an_unprivileged_user_without_a_shell(containerd: Containerd, image: Built) -> None:
    assert run(containerd, "/usr/bin/python3", "-c", "import os; print(os.getuid(), os.getgid())") == f"{USER} {USER}\n"
    with pytest.raises(CommandError, match=r"Read-only file system|Permission denied"):
        run(containerd, "/usr/bin/python3", "-c", "open('/usr/x', 'w')")
    with pytest.raises(CommandError, match="no such file or directory"):
        run(containerd, "/bin/sh")
    assert configuration(image.archive)["config"]["User"] == f"{USER}:{USER}"


def test_nothing_is_in_it_but_python_and_netdra(image: Built) -> None:
    members = names(image.archive)
    programs = {path for path, member in members.items() if member.isfile() and member.mode & 0o111 and "/bin/" in path}
    assert {Path(path).name.rstrip("0123456789.") for path in programs} == {"netdra", "netdra-health", "python"}
    assert [path for path, member in members.items() if member.mode & 0o6000] == []
    assert [path for path, member in members.items() if (member.uid, member.gid) != (0, 0)] == []
    assert [path for path in members if re.search(r"/(pip|ensurepip|hatchling|test|tests)/|\.pyi$", path)] == []
    modules = [path for path in members if path.endswith(".py") and "/netdra/" in path]
    compiled = [path for path in members if path.endswith(".pyc") and "/netdra/" in path]
    assert len(modules) == len(compiled) > 100


def test_it_is_small(image: Built) -> None:
    assert image.size <= MAX_COMPRESSED


def test_its_bill_of_materials_names_all_that_is_in_it(image: Built) -> None:
    bill = json.loads(read(image.archive, SBOM))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    named = {tuple(each["purl"].removeprefix("pkg:").partition("@")[0].rsplit("/", 1)) for each in bill["components"]}
    members = names(image.archive)
    python = {
        re.sub(r"[-_.]+", "-", match[1]).lower()
        for path in members
        if (match := re.search(r"/([^/]+)-[^-/]+\.dist-info/METADATA$", path))
    }
    assert {name for kind, name in named if kind == "pypi"} == python - {"netdra"}
    debian = {Path(path).name for path in members if path.startswith("var/lib/dpkg/status.d/")}
    assert {name for kind, name in named if kind != "pypi"} == debian
    assert {"libc6", "libssl3", "libstdc++6"} <= debian


def test_the_image_labels_contain_version_license_creation_time_and_revision(image: Built) -> None:
    labels = configuration(image.archive)["config"]["Labels"]
    prefix = "org.opencontainers.image."
    assert labels[f"{prefix}version"] == image.version
    assert labels[f"{prefix}licenses"] == "Apache-2.0"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", labels[f"{prefix}created"])
    assert f"{prefix}revision" in labels


def test_built_anew_it_is_the_same(image: Built) -> None:
    reproduced = image.archive.with_suffix(".reproduced")
    if not reproduced.exists():  # of the same sources it need not be shown again
        assert build(anew=True).identity == image.identity
        reproduced.touch()
