"""A release as a user has it: the folder alone, verified, pushed to a registry, installed from there, and removed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from image.__main__ import Built, build, configuration, names, read
from image.rootfs import SBOM
from release import home, signatures
from release.folder import ImageFile, assemble
from release.layouts import DIGEST_ANNOTATION
from release.version import ROOT, Checkout, chart_version, image_tag
from testbed import archives, yaml
from testbed.build import program
from testbed.objects import POD
from testbed.process import Ports, Process, answers
from testbed.site import VALUES, Site, relay
from testbed.workspace import open_workspace
from tests.cluster.install.trying import first_pod, run_lines

PAGE = ROOT / "docs" / "releases.md"
EXAMPLE = ROOT / "examples" / "first-pod"
ACCOUNTS = {"node": "driver", "controller": "operator", "webhook": "admission"}
"""The names that the release's accounts get: admission policies must follow them."""
NAMED = "0.2.0"
"""The version that the page's lines name."""
EPOCH = 1_700_000_000
PART_OF = "app.kubernetes.io/part-of"


@pytest.fixture(scope="module")
def foreign() -> Built:
    """The image of these sources for arm64."""
    return build(architecture="arm64")


@dataclass(frozen=True)
class Release:
    """A user's folder, and the version of its files."""

    folder: Path
    version: str

    def lines(self, title: str, host: str = "registry.example.com") -> list[str]:
        """The commands of the page below a title, for this version and a registry."""
        text = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("```\n")[2].partition("```")[0]
        chart = chart_version(self.version)
        text = re.sub(rf"(netdra|cni-plugins)-{NAMED}\.tgz", rf"\1-{chart}.tgz", text)
        text = text.replace(f"--version {NAMED}", f"--version {chart}").replace(
            f":{NAMED}", f":{image_tag(self.version)}"
        )
        text = text.replace(f"netdra-{NAMED}.", f"netdra-{self.version}.").replace("registry.example.com", host)
        return text.replace("\\\n", " ").splitlines()


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
    folder = tmp_path_factory.mktemp("registry")
    with closing(Ports("127.0.0.1")) as ports:
        port = ports.take()
        (folder / "config.yml").write_text(
            f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}/data}}}}\n"
            f"http: {{addr: '127.0.0.1:{port}'}}\n"
        )
        command = (str(program("registry")), "serve", str(folder / "config.yml"))
        ready = answers(f"http://127.0.0.1:{port}/v2/")
        process = Process("registry", command, folder / "log", ready, {"OTEL_TRACES_EXPORTER": "none"})
        process.start()
        try:
            process.wait_ready()
            relay(site.node, "registry", str(port), ready=lambda: site.node.listens(port))
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def user_runs(release: Release, line: str, site: Site | None = None) -> str:
    """Run a line in the release's folder, and return what it printed."""
    folders = [str(program(name).parent) for name in ("helm", "kubectl")]
    home = release.folder.parent / "home"
    home.mkdir(exist_ok=True)
    kubeconfig = str(site.plane.kubeconfig()) if site else "/nowhere"
    environment = {"PATH": ":".join([*folders, os.environ["PATH"]]), "HOME": str(home), "KUBECONFIG": kubeconfig}
    return run_lines(line, release.folder, environment)


def test_helm_verifies_the_chart_by_the_pages_line_and_notices_a_change(release: Release, tmp_path: Path) -> None:
    (line,) = (line for line in release.lines("With cosign, openssl and helm") if line.startswith("helm"))
    assert "Signed by: netdra" in user_runs(release, line)
    copy = Release(tmp_path / "release", release.version)
    shutil.copytree(release.folder, copy.folder)
    chart = copy.folder / f"netdra-{chart_version(release.version)}.tgz"
    chart.write_bytes(chart.read_bytes() + b" ")
    with pytest.raises(AssertionError, match="sha256 sum does not match"):
        user_runs(copy, line)


def test_the_file_for_kubectl_has_the_objects_that_helm_renders_of_the_packed_chart(release: Release) -> None:
    chart = f"netdra-{chart_version(release.version)}.tgz"
    options = "--namespace netdra --set namespace.create=true"
    rendered = yaml.safe_load_all(user_runs(release, f"helm template netdra {chart} {options}"))
    written = yaml.safe_load_all((release.folder / "install.yaml").read_text(encoding="utf-8"))
    wanted, found = (
        {(each["kind"], each["metadata"]["name"]): each for each in objects if each} for objects in (rendered, written)
    )
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if found[name] != wanted[name]] == []


def test_it_is_verified_pushed_installed_used_and_removed(site: Site, release: Release, registry: str) -> None:
    verified = "\n".join(user_runs(release, line) for line in release.lines("Verify a release"))
    assert 'Good "netdra-release" signature for netdra' in verified
    values = release.folder / "values.json"
    own = {name: {**VALUES.get(name, {}), "serviceAccountName": account} for name, account in ACCOUNTS.items()}
    values.write_text(json.dumps({name: value for name, value in {**VALUES, **own}.items() if name != "image"}))
    for line in release.lines("Install a release", registry):
        plain = {"skopeo": "--dest-tls-verify=false", "helm": "--plain-http"}[line.split()[0]]
        more = f" --values {values}" if line.startswith("helm install") else ""
        user_runs(release, f"{line} {plain}{more}", site)
    check_what_runs(site, release, registry)
    with open_workspace(site.api) as workspace:
        pods = site.pods(workspace.namespace)
        first_pod(site, pods)
        pods.delete_all()
    user_runs(release, "helm uninstall netdra --namespace netdra --wait", site)
    assert not site.api.list("apps/v1/DaemonSet", "netdra")


def test_kubectl_alone_installs_the_output_of_helm_template(site: Site, release: Release, registry: str) -> None:
    """After the test above: the image is in the registry."""
    chart = f"netdra-{chart_version(release.version)}.tgz"
    options = f"--set image.repository={registry}/netdra --values values.json"
    apply = "kubectl apply --server-side -n netdra -f -"
    user_runs(release, f"helm template netdra {chart} -n netdra {options} | {apply}", site)
    for workload in ("daemonset/netdra-node", "deployment/netdra-controller", "deployment/netdra-webhook"):
        site.plane.kubectl("--namespace=netdra", "rollout", "status", workload, "--timeout=120s")
    check_what_runs(site, release, registry)


def check_what_runs(site: Site, release: Release, registry: str) -> None:
    """All of netdra's pods run the image that the chart names, which is of the release's version."""
    pods = [each for each in site.api.list(POD, "netdra") if "netdra" in each["metadata"]["labels"].get(PART_OF, "")]
    assert {each["spec"]["containers"][0]["image"] for each in pods} == {f"{registry}/netdra@{digest_of(release)}"}
    for workload in ("daemonset/netdra-node", "deployment/netdra-controller", "deployment/netdra-webhook"):
        said = site.plane.kubectl("--namespace=netdra", "exec", workload, "--", "netdra", "--version")
        assert said == f"netdra, version {release.version}\n"


def digest_of(release: Release) -> str:
    """The digest of the image that the packed chart names."""
    with tarfile.open(release.folder / f"netdra-{chart_version(release.version)}.tgz") as archive:
        text = archive.extractfile("netdra/Chart.yaml").read()  # type: ignore[union-attr]
    digest: str = yaml.safe_load(text)["annotations"][DIGEST_ANNOTATION]
    return digest


def test_an_image_of_the_folder_is_imported_without_a_registry(site: Site, release: Release) -> None:
    archive = str(release.folder / f"netdra-{release.version}.oci.tar")
    site.containerd.ctr("--namespace=release", "images", "import", "--local", archive)
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
