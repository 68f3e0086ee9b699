"""A release's folder in tests: the lines of a page for its version, a registry of the user's own, and the running pods.

Used by `test_release.py` for a folder of its own, and by `tests/release` for the folder of `make release`.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from release.layouts import DIGEST_ANNOTATION
from release.version import chart_version, image_tag
from testbed import yaml
from testbed.api import Object
from testbed.build import program
from testbed.objects import POD
from testbed.process import Ports, Process, answers
from testbed.site import Site, relay
from tests.cluster.install.trying import run_lines

HOST = "registry.example.com"
"""The registry that the pages' lines name."""
# The version that the pages' lines name: of a chart, in a tag, and in the names of other files.
_NAMED = re.compile(
    r"(?:(?P<chart>(?:netdra|cni-plugins)-(?=0\.2\.0\.tgz)|--version )|(?P<tag>:|tag: |tag=)|(?P<file>netdra-))0\.2\.0"
)
WORKLOADS = ("daemonset/netdra-node", "deployment/netdra-controller", "deployment/netdra-webhook")
_PART_OF = "app.kubernetes.io/part-of"


@dataclass(frozen=True)
class Release:
    """A user's folder, and the version of its files."""

    folder: Path
    version: str

    @property
    def chart(self) -> Path:
        """The packed chart of netdra."""
        return self.folder / f"netdra-{chart_version(self.version)}.tgz"

    @property
    def archive(self) -> Path:
        """The image for all architectures."""
        return self.folder / f"netdra-{self.version}.oci.tar"

    @property
    def digest(self) -> str:
        """The digest of the image that the packed chart names."""
        with tarfile.open(self.chart) as archive:
            text = archive.extractfile("netdra/Chart.yaml").read()  # type: ignore[union-attr]
        digest: str = yaml.safe_load(text)["annotations"][DIGEST_ANNOTATION]
        return digest

    def written(self, text: str, host: str = HOST) -> str:
        """Lines of a page for this version and a registry."""
        versions = {"chart": chart_version(self.version), "tag": image_tag(self.version), "file": self.version}

        def replaced(found: re.Match[str]) -> str:
            place = found.lastgroup or ""
            return f"{found[place]}{versions[place]}"

        return _NAMED.sub(replaced, text).replace(HOST, host)

    def run(self, lines: str, site: Site | None = None, *paths: Path, home: Path | None = None) -> str:
        """The output of lines that a user's shell runs in the folder.

        Args:
            lines: all of them must succeed.
            site: the cluster; without one kubectl and helm find none.
            paths: folders of further programs.
            home: the user's home folder; one beside the release if it is None.
        """
        home = home or self.folder.parent / "home"
        home.mkdir(exist_ok=True)
        folders = [*map(str, paths), *(str(program(name).parent) for name in ("helm", "kubectl"))]
        kubeconfig = str(site.plane.kubeconfig()) if site else "/nowhere"
        environment = {"PATH": ":".join([*folders, os.environ["PATH"]]), "HOME": str(home), "KUBECONFIG": kubeconfig}
        return run_lines(lines, self.folder, environment)


@contextmanager
def open_registry(site: Site, folder: Path) -> Iterator[str]:
    """A real registry, which this machine and the node reach under one address.

    Args:
        site: the cluster of the node.
        folder: an empty one.
    """
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


def push_option(line: str) -> str:
    """The option for a registry without TLS, of the program that a line runs."""
    return {"skopeo": " --dest-tls-verify=false", "helm": " --plain-http"}[line.split()[0]]


def wait_until_ready(site: Site, seconds: int = 120) -> None:
    """Wait until all workloads have the pods of their newest template, ready."""
    for workload in WORKLOADS:
        site.plane.kubectl("--namespace=netdra", "rollout", "status", workload, f"--timeout={seconds}s")


def check_what_runs(site: Site, release: Release, repository: str) -> None:
    """All of netdra's pods run the image that the chart names, which is of the release's version.

    Pods that an upgrade has replaced may still end.
    """
    pods = [each["spec"] for each in site.api.list(POD, "netdra") if _is_part(each) and not _is_ending(each)]
    images = {each["containers"][0]["image"] for each in pods}
    assert images == {f"{repository}@{release.digest}"}, images
    for workload in WORKLOADS:
        printed = site.plane.kubectl("--namespace=netdra", "exec", workload, "--", "netdra", "--version")
        assert printed == f"netdra, version {release.version}\n"


def _is_part(pod: Object) -> bool:
    return "netdra" in pod["metadata"]["labels"].get(_PART_OF, "")


def _is_ending(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]
