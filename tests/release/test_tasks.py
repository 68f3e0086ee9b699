"""The tasks of a release's readers, with nothing but its folder: verify it, install and remove it, read its site.

`make test-release` runs them on the folder that `make release` wrote. The commands are those of the pages in the
folder's own site, the programs those of its wheel, and the objects of the first pod those of its tutorial.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from release import site as versions
from testbed import yaml
from testbed.api import Object
from testbed.chromium import Chromium
from testbed.image import NAME
from testbed.objects import POD
from testbed.pods import lives
from testbed.site import Site
from testbed.site_check import check
from tests.cluster.conftest import DEFINITION
from tests.cluster.install.releases import Release, check_what_runs, push_option, wait_until_ready
from tests.cluster.install.trying import warnings
from tests.release.pages import Pages

PICTURES = Path(__file__).parents[2] / "build" / "release-pictures"
FILES = {
    "policy.yaml": "DeviceExposurePolicy",
    "topology.yaml": "NetworkTopology",
    "claim.yaml": "ResourceClaim",
    "pod.yaml": "Pod",
}
"""The files of the tutorial."""
IMPORTS = {"kind": ("--all-platforms", "--digests"), "k3s": (), "minikube": ()}
"""The options with which each of the three imports an image by ctr; those of kind are in `kind load image-archive`."""
CHOOSE = """{
  const list = document.querySelector("select.versions");
  list.value = "VERSION";
  list.dispatchEvent(new Event("change"));
}"""
DAEMON_SET = "apps/v1/DaemonSet"
CHANGED = " --set logLevel=debug"
"""What an upgrade to the same version changes, so that the drivers are replaced."""


def test_the_folder_is_verified_by_the_pages_commands_and_a_changed_file_fails(
    release: Release, pages: Pages, tmp_path: Path
) -> None:
    lines = pages.lines("releases", "verify-a-release")
    printed = [release.run(line) for line in lines]
    assert 'Good "netdra-release" signature for netdra' in printed[0]
    assert {line.rpartition(": ")[2] for line in printed[1].splitlines()} == {"OK"}
    more = [
        line for line in pages.lines("releases", "with-cosign-openssl-and-helm") if line.startswith(("openssl", "helm"))
    ]
    assert [("Verified OK" in text, "Signed by: netdra" in text) for text in map(release.run, more)] == [
        (True, False),
        (False, True),
    ]
    copy = Release(tmp_path / "release", release.version)
    shutil.copytree(release.folder, copy.folder)
    copy.archive.write_bytes(copy.archive.read_bytes() + b" ")
    copy.run(lines[0])
    with pytest.raises(AssertionError, match=f"{re.escape(copy.archive.name)}: FAILED"):
        copy.run(lines[1])


def test_every_file_of_the_folder_is_listed_in_its_checksums_and_on_the_page(release: Release, pages: Pages) -> None:
    names = {path.name for path in release.folder.iterdir()}
    sums = {line.partition("  ")[2] for line in (release.folder / "SHA256SUMS").read_text().splitlines()}
    assert names - sums == {"SHA256SUMS", "SHA256SUMS.sig", "SHA256SUMS.cosign"}
    assert sums <= names
    listed = pages.names("releases", "files-of-a-release")
    assert [name for name in names if not any(is_named(name, each) for each in listed)] == []


def test_the_wheel_plans_and_validates_the_tutorials_files(
    release: Release, pages: Pages, environment: Path, tmp_path: Path
) -> None:
    write_tutorial(pages, tmp_path)
    printed = release.run(f"cd {tmp_path} && netdra --version && netdra validate *.yaml 2>&1", None, environment)
    assert printed == f"netdra, version {release.version}\nnetdra: 4 objects checked, no problems\n"


def test_helm_installs_it_from_a_registry_a_pod_lives_through_an_upgrade_and_it_is_removed(
    site: Site, release: Release, before: Release, pages: Pages, registry: str, tmp_path: Path
) -> None:
    for one in (before, release):
        push(one, pages, registry)
    install = pages.lines("releases", "install-a-release", registry)[-1].replace(
        version_option(release), version_option(before)
    )
    before.run(f"{install} --plain-http", site)
    check_what_runs(site, before, f"{registry}/netdra")
    tested, listed = (release.run(line, site) for line in pages.lines("installing", "installing")[1:])
    assert "Phase:          Succeeded" in tested
    assert site.node.name in listed
    life = run_first_pod(site, release, pages, tmp_path)
    (line,) = pages.lines("installing", "upgrading")
    line = line.replace("charts/netdra", f"oci://{registry}/charts/netdra {version_option(release)}")
    release.run(f"{line} --plain-http{CHANGED if before == release else ''}", site)
    wait_until_ready(site)
    check_what_runs(site, release, f"{registry}/netdra")
    assert life_of_first(site) == life
    remove_first_pod(site, release, pages, tmp_path)
    (line,) = pages.lines("installing", "uninstalling")
    release.run(f"{line} --wait", site)
    assert not site.api.list(DAEMON_SET, "netdra")
    assert warnings(site.api) == []


def test_kubectl_installs_the_file_for_it_twice_without_a_difference_and_it_is_removed(
    site: Site, release: Release, before: Release, pages: Pages, registry: str, environment: Path, tmp_path: Path
) -> None:
    for one in {before.version: before, release.version: release}.values():
        push(one, pages, registry)
    lines = "\n".join(pages.lines("releases", "install-a-release", registry, 1))
    before.run(lines, site)
    wait_until_ready(site)
    check_what_runs(site, before, f"{registry}/netdra")
    life = run_first_pod(site, release, pages, tmp_path)
    release.run(lines, site)
    wait_until_ready(site)
    check_what_runs(site, release, f"{registry}/netdra")
    assert release.run("kubectl diff --server-side -f netdra.yaml", site) == ""
    assert life_of_first(site) == life
    remove_first_pod(site, release, pages, tmp_path)
    removal = "\n".join(pages.lines("installing", "uninstalling-without-helm"))
    release.run(removal.replace("charts/netdra", release.chart.name), site, environment)
    assert not site.api.list(DAEMON_SET, "netdra")
    assert site.api.list(DEFINITION), "with the definitions all of their objects would go"
    assert warnings(site.api) == []


def test_the_image_is_imported_on_a_node_without_a_registry_and_runs_with_the_values_for_kind(
    site: Site, release: Release, pages: Pages
) -> None:
    """The values of k3s and minikube differ in the node's folders alone."""
    values, lines = (pages.blocks("local-clusters", "kind")[number] for number in (-2, -1))
    (line,) = (line for line in lines.splitlines() if line.startswith("helm"))
    (release.folder / "values.yaml").write_text(values)
    release.run(line, site)
    image = f"localhost/netdra:{yaml.safe_load(values)['image']['tag']}"
    for namespace, options in IMPORTS.items():
        site.containerd.ctr(f"--namespace={namespace}", "images", "import", *options, str(release.archive))
        assert image in site.containerd.ctr(f"--namespace={namespace}", "images", "list", "--quiet").splitlines()
    pods = site.api.list(POD, "netdra")
    assert {each["spec"]["containers"][0]["image"] for each in pods} == {image}
    (release.folder / "values.yaml").unlink()


def test_the_site_is_read_without_a_request_and_nothing_is_cut(pages: Pages) -> None:
    assert list(check(pages.folder, PICTURES)) == []
    assert len(list(PICTURES.glob("*.png"))) > 10


def test_a_reader_switches_between_versions_of_the_site_on_a_disk(release: Release, tmp_path: Path) -> None:
    name = f"netdra-{release.version}-site.tar.gz"
    former = tmp_path / "netdra-0.1.0-site.tar.gz"
    shutil.copy(release.folder / name, former)
    public = tmp_path / "public"
    versions.add(former, public)
    (public / "0.1.0" / "steps.html").unlink()
    assert versions.add(release.folder / name, public) == [release.version, "0.1.0"]
    with Chromium(tmp_path / "profile") as browser:
        browser.open((public / "index.html").as_uri())
        browser.wait("document.querySelector('select.versions') !== null")
        for page, own, chosen, reached in (
            ("charts/netdra", release.version, "0.1.0", "0.1.0/charts/netdra.html"),
            ("charts/netdra", "0.1.0", release.version, f"{release.version}/charts/netdra.html"),
            ("steps", release.version, "0.1.0", "0.1.0/index.html"),
        ):
            browser.open((public / own / f"{page}.html").as_uri())
            assert browser.evaluate("document.querySelectorAll('select.versions option').length") == 2
            browser.evaluate(CHOOSE.replace("VERSION", chosen))
            browser.wait(f"decodeURIComponent(location.pathname).endsWith('/public/{reached}')")
            browser.wait(f"document.querySelector('select.versions')?.value === '{chosen}'")
        browser.screenshot(PICTURES / "versions.png")
        assert [url for url in browser.requests if not url.startswith(("file:", "about:", "data:"))] == []
        assert browser.complaints == []


def test_each_schema_of_the_folder_is_for_a_kind_that_its_definitions_have(release: Release) -> None:
    printed = release.run(f"tar -tzf ./netdra-{release.version}-json-schemas.tar.gz")
    named = {line.rpartition("/")[2].partition("_")[0] for line in printed.splitlines() if line.endswith(".json")}
    text = (release.folder / f"netdra-{release.version}-crds.yaml").read_text()
    assert named == {each["spec"]["names"]["singular"] for each in yaml.safe_load_all(text)}
    for bill in release.folder.glob("*.cdx.json"):
        assert json.loads(bill.read_text())["specVersion"] == "1.6"


def is_named(name: str, listed: str) -> bool:
    """Whether a page's entry is a file's name, or its end after an ellipsis."""
    return name.endswith(listed.removeprefix("…")) if listed.startswith("…") else name == listed


def version_option(release: Release) -> str:
    """The option of helm with the version of a release's chart."""
    return f"--version {release.chart.name.removeprefix('netdra-').removesuffix('.tgz')}"


def push(release: Release, pages: Pages, registry: str) -> None:
    """Push the image and the chart by the page's lines."""
    written = Pages(release, pages.folder).lines("releases", "install-a-release", registry)
    for line in written[:2]:
        release.run(line + push_option(line))


def write_tutorial(pages: Pages, folder: Path) -> None:
    """Write the files of the tutorial; the pod has the image of the test bed, which needs no registry."""
    written = pages.files("tutorial")
    for name, kind in FILES.items():
        text, count = re.subn(r"image: \S+", f"image: {NAME}\n      imagePullPolicy: Never", written[kind])
        assert count == (kind == "Pod")
        (folder / name).write_text(text)


def run_first_pod(site: Site, release: Release, pages: Pages, folder: Path) -> list[tuple[str, int, Object]]:
    """Start the pod of the tutorial by its commands, which print what the page shows; return its containers."""
    write_tutorial(pages, folder)
    site.node.run("ip", "link", "add", "data0", "type", "veth", "peer", "name", "data1")
    for name in ("data0", "data1"):
        site.node.run("ip", "link", "set", name, "up")
    follow(site, release, pages, "start-the-pod", folder)
    return life_of_first(site)


def life_of_first(site: Site) -> list[tuple[str, int, Object]]:
    """The containers of the first pod, which has its network."""
    assert site.plane.kubectl("exec", "first", "--", "cat", "/sys/class/net/data/mtu") == "1400\n"
    return lives(site.api.get(POD, "first", "default"))


def remove_first_pod(site: Site, release: Release, pages: Pages, folder: Path) -> None:
    """Remove the tutorial's objects by its commands."""
    follow(site, release, pages, "clean-up", folder)


def follow(site: Site, release: Release, pages: Pages, section: str, folder: Path) -> None:
    """Run the commands of a section of the tutorial in a folder: each prints what the page shows."""
    for command, expected in pages.commands(section):
        printed = release.run(f"cd {folder} && {command}", site)
        assert printed.rstrip("\n").replace(" from default namespace", "") == expected.rstrip("\n"), command
