"""A release as a user has it: the folder alone, verified, pushed to a registry, installed from there, and removed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from image.__main__ import Built, build, configuration, names, read
from image.rootfs import SBOM
from release import home, signatures
from release.folder import ImageFile, assemble
from release.version import ROOT, Checkout, image_tag
from testbed import archives, yaml
from testbed.build import program
from testbed.site import VALUES, Site
from testbed.workspace import open_workspace
from tests.cluster.install.releases import (
    HOST,
    Release,
    check_what_runs,
    open_registry,
    push_option,
    wait_until_ready,
)
from tests.cluster.install.trying import first_pod

PAGE = ROOT / "docs" / "releases.md"
EXAMPLE = ROOT / "examples" / "first-pod"
ACCOUNTS = {"node": "driver", "controller": "operator", "webhook": "admission"}
"""The names that the release's accounts get: admission policies must follow them."""
EPOCH = 1_700_000_000


@pytest.fixture(scope="module")
def foreign() -> Built:
    """The image of these sources for arm64."""
    return build(architecture="arm64")


def lines(release: Release, title: str, host: str = HOST) -> list[str]:
    """The commands of the page below a title, for a release and a registry."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("```\n")[2].partition("```")[0]
    return release.written(text, host).replace("\\\n", " ").splitlines()


@pytest.fixture(scope="module")
def release(image: Built, foreign: Built, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The files that `make release` writes for these images, signed with a key of the test's own."""
    folder = tmp_path_factory.mktemp("release") / "folder"
    images = {"amd64": image, "arm64": foreign}
    files = {name: ImageFile(each.archive, read(each.archive, SBOM)) for name, each in images.items()}
    assemble(folder, image.version, Checkout("1a2b3c4d5e6f", "", 5, False), EPOCH, files)
    key = folder.parent / "key"
    signatures.make_key(key, "a maintainer", "")
    signatures.sign_release(folder, key, home.read(), EPOCH, local=True)
    return Release(folder, image.version)


@pytest.fixture(scope="module")
def registry(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real registry, which this machine and the node reach under one address."""
    with open_registry(site, tmp_path_factory.mktemp("registry")) as host:
        yield host


def test_helm_verifies_the_chart_by_the_pages_line_and_notices_a_change(release: Release, tmp_path: Path) -> None:
    (line,) = (line for line in lines(release, "With cosign, openssl and helm") if line.startswith("helm"))
    assert "Signed by: netdra" in release.run(line)
    copy = Release(tmp_path / "release", release.version)
    shutil.copytree(release.folder, copy.folder)
    copy.chart.write_bytes(copy.chart.read_bytes() + b" ")
    with pytest.raises(AssertionError, match="sha256 sum does not match"):
        copy.run(line)


def test_the_file_for_kubectl_has_the_objects_that_helm_renders_of_the_packed_chart(release: Release) -> None:
    options = "--namespace netdra --set namespace.create=true"
    rendered = yaml.safe_load_all(release.run(f"helm template netdra {release.chart.name} {options}"))
    written = yaml.safe_load_all((release.folder / "install.yaml").read_text(encoding="utf-8"))
    wanted, found = (
        {(each["kind"], each["metadata"]["name"]): each for each in objects if each} for objects in (rendered, written)
    )
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if found[name] != wanted[name]] == []


def test_it_is_verified_pushed_installed_used_and_removed(site: Site, release: Release, registry: str) -> None:
    verified = "\n".join(release.run(line) for line in lines(release, "Verify a release"))
    assert 'Good "netdra-release" signature for netdra' in verified
    values = release.folder / "values.json"
    own = {name: {**VALUES.get(name, {}), "serviceAccountName": account} for name, account in ACCOUNTS.items()}
    values.write_text(json.dumps({name: value for name, value in {**VALUES, **own}.items() if name != "image"}))
    for line in lines(release, "Install a release", registry):
        more = f" --values {values}" if line.startswith("helm install") else ""
        release.run(f"{line}{push_option(line)}{more}", site)
    check_what_runs(site, release, f"{registry}/netdra")
    with open_workspace(site.api) as workspace:
        pods = site.pods(workspace.namespace)
        first_pod(site, pods)
        pods.delete_all()
    release.run("helm uninstall netdra --namespace netdra --wait", site)
    assert not site.api.list("apps/v1/DaemonSet", "netdra")


def test_kubectl_alone_installs_the_output_of_helm_template(site: Site, release: Release, registry: str) -> None:
    """After the test above: the image is in the registry."""
    options = f"--set image.repository={registry}/netdra --values values.json"
    apply = "kubectl apply --server-side -n netdra -f -"
    release.run(f"helm template netdra {release.chart.name} -n netdra {options} | {apply}", site)
    wait_until_ready(site)
    check_what_runs(site, release, f"{registry}/netdra")


def test_an_image_of_the_folder_is_imported_without_a_registry(site: Site, release: Release) -> None:
    site.containerd.ctr("--namespace=release", "images", "import", "--local", str(release.archive))
    listed = site.containerd.ctr("--namespace=release", "images", "list", "--quiet").splitlines()
    assert f"localhost/netdra:{image_tag(release.version)}" in listed


def test_the_image_for_arm64_has_the_same_python_modules(image: Built, foreign: Built) -> None:
    """A package of which no wheel with machine code was found would come as pure Python, and be slow."""
    here, there = (
        {path.replace("aarch64", "x86_64") for path in names(each.archive) if "/python3" in path}
        for each in (image, foreign)
    )
    assert here == there


def test_programs_of_the_image_for_arm64_work(foreign: Built, tmp_path: Path) -> None:
    """Under Debian's qemu-user: the commands, every library with machine code, and a plan as on this machine."""
    assert configuration(foreign.archive)["architecture"] == "arm64"
    root = tmp_path / "root"
    unpack(foreign.archive, root)
    shutil.copy(shutil.which("qemu-aarch64-static") or "", root / "qemu")
    shutil.copytree(ROOT / "examples", root / "examples")
    run = ("chroot", str(root), "/qemu", "/usr/bin/python3")
    assert printed(*run, "/usr/bin/netdra", "--version") == f"netdra, version {foreign.version}\n"
    modules = [*root.glob("usr/lib/python3*/lib-dynload/*.so"), *root.glob("usr/local/lib/python3*/*-packages/**/*.so")]
    assert len(modules) > 30
    said, *outputs = printed(*run, "-c", IN_ONE_PROCESS).split("\0")
    assert said == f"aarch64 {len(modules)}\n"
    planned = printed(sys.executable, "-m", "netdra", "plan", str(ROOT / "examples" / "worker-1"))
    assert outputs[0] == planned
    for command, output in zip(DAEMONS, outputs[1:], strict=True):
        assert f"netdra {command}" in output


DAEMONS = ("node", "controller", "webhook")
IN_ONE_PROCESS = f"""
import importlib, pathlib, platform, sys
number = 0
for folder in (pathlib.Path(path) for path in sys.path if path.endswith(("/lib-dynload", "-packages"))):
    for file in folder.rglob("*.so"):
        name = str(file.relative_to(folder)).partition(".")[0].replace("/", ".")
        importlib.import_module(name)
        number += 1
print(platform.machine(), number)
from netdra.__main__ import main
for arguments in (["plan", "/examples/worker-1"], *([command, "--help"] for command in {DAEMONS})):
    print(end="\\0")
    sys.argv = ["netdra", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code
"""
"""Imports every module that is machine code, and runs commands: emulated, Python takes ten seconds to begin."""


def printed(*command: str) -> str:
    """The output of a program."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def unpack(archive: Path, root: Path) -> None:
    """Unpack an image's layers."""
    with tarfile.open(archive) as layout:
        index = json.load(layout.extractfile("index.json"))  # type: ignore[arg-type]
        place = index["manifests"][0]["digest"].replace(":", "/")
        manifest = json.load(layout.extractfile(f"blobs/{place}"))  # type: ignore[arg-type]
        for layer in manifest["layers"]:
            content = layout.extractfile(f"blobs/{layer['digest'].replace(':', '/')}")
            with tarfile.open(fileobj=content) as files:
                archives.unpack(files, root)


def test_actionlint_finds_nothing_in_the_definitions_of_ci() -> None:
    workflows = sorted(str(path) for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    assert len(workflows) == 2
    assert printed(str(program("actionlint")), "-no-color", *workflows) == ""
