"""netdra without Helm's releases: the page's lines with kubectl and kustomize, again and with other values."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed import helm, yaml
from testbed.api import Object
from testbed.build import program
from testbed.objects import CLASS
from testbed.site import VALUES, Site
from tests.cluster.conftest import DEFINITION
from tests.cluster.install.rendering import CHART, HOOKS, of_kind
from tests.cluster.install.test_applied import applied, until_next_second
from tests.cluster.install.test_lifetime import GONE, GONE_HERE, ours
from tests.cluster.install.trying import run_lines

ROOT = helm.CHARTS.parent
PAGE = ROOT / "docs" / "installing.md"
WAY_BACK = ROOT / "docs" / "without-netdra.md"
EXAMPLE = ROOT / "examples" / "first-pod"
TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
JOB = "batch/v1/Job"
READY_SECONDS = 300


def block(title: str, number: int = 0, page: Path = PAGE) -> str:
    """One of the blocks below a title of a page."""
    found = re.search(rf"^#+ {title}\n(.*?)(?=^#+ |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, title
    lines: str = re.findall(r"^```[a-z]*\n(.*?)^```$", found[1], re.MULTILINE | re.DOTALL)[number]
    return lines


@dataclass(frozen=True)
class Shell:
    """A folder in which a user types the page's lines; the installation uses the node's image."""

    site: Site
    folder: Path

    def run(self, lines: str, *options: str) -> str:
        """Run lines, all of which must succeed; `helm template` has these options, and the values of the test bed."""
        more = " ".join([f"--values {self.folder / 'values.json'}", *options])
        lines = re.sub(r"(helm template \S+ \S+)", rf"\1 {more}", lines)
        folders = {str(program(name).parent) for name in ("helm", "kubectl")} | {str(ROOT / ".venv" / "bin")}
        environment = {
            **os.environ,
            "PATH": ":".join([*folders, os.environ["PATH"]]),
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.site.plane.kubeconfig()),
        }
        return run_lines(lines, self.folder, environment)

    def rendered(self) -> list[Object]:
        """The objects of the file that the lines wrote."""
        return [found for found in yaml.safe_load_all((self.folder / "netdra.yaml").read_text()) if found]


@pytest.fixture(scope="module")
def shell(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """netdra is installed by the page's lines with kubectl."""
    folder = tmp_path_factory.mktemp("shell")
    (folder / "charts").symlink_to(helm.CHARTS)
    (folder / "values.json").write_text(json.dumps(VALUES))
    opened = Shell(site, folder)
    opened.run(block("With kubectl"))
    until_ready(site)
    return opened


def until_ready(site: Site) -> None:
    """Wait until all workloads have the pods of their newest template, ready."""
    for workload in ("daemonset/netdra-node", "deployment/netdra-controller", "deployment/netdra-webhook"):
        site.plane.kubectl("--namespace=netdra", "rollout", "status", workload, f"--timeout={READY_SECONDS}s")


def test_a_second_apply_changes_no_object(site: Site, shell: Shell) -> None:
    objects = shell.rendered()
    before = applied(site.api, objects)
    until_next_second()
    shell.run(block("With kubectl"))
    assert applied(site.api, objects) == before


def test_other_values_can_be_applied(site: Site, shell: Shell) -> None:
    shell.run(block("With kubectl"), "--set logLevel=debug", "--set 'networkPolicy.apiServerPorts={443,6443}'")
    until_ready(site)
    policy = site.api.get("networking.k8s.io/v1/NetworkPolicy", "netdra-webhook", "netdra")
    assert [len(rule["ports"]) for rule in policy["spec"]["egress"]][-1] == 2
    shell.run(block("With kubectl"))
    until_ready(site)


def test_applying_the_hooks_does_not_disturb_the_running_installation(site: Site, shell: Shell) -> None:
    for name in ("policy", "topology"):
        site.api.apply(yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text()))
    site.api.wait_for(CLASS, "data-lan", lambda found: found is not None)
    before = identities(site)
    hooks = helm.template(CHART, "netdra", "netdra", {**VALUES, **HOOKS})
    jobs = of_kind([each for each in yaml.safe_load_all(hooks) if each], "Job")
    assert len(jobs) == 2
    site.plane.kubectl("apply", "--server-side", "-f", "-", text=hooks)
    failed = {
        each["metadata"]["name"]: site.api.wait_for(JOB, each["metadata"]["name"], has_ended, namespace="netdra")
        for each in jobs
    }
    assert has_failed(failed["netdra-uninstall-clean"])
    until_ready(site)
    assert before - identities(site) == set()
    usual = {(each["kind"], each["metadata"]["name"]) for each in shell.rendered()}
    added = [
        each for each in yaml.safe_load_all(hooks) if each and (each["kind"], each["metadata"]["name"]) not in usual
    ]
    site.plane.kubectl("delete", "-f", "-", text=yaml.safe_dump_all(added))


def identities(site: Site) -> set[tuple[str, str, str]]:
    """Kind, name and uid of everything that an uninstall removes, and of the definitions; not of hooks."""
    return {
        (kind, each["metadata"]["name"], each["metadata"]["uid"])
        for kind in {CLASS, *GONE, *GONE_HERE, DEFINITION} - {JOB}
        for each in site.api.list(kind)
    }


def has_ended(job: Object | None) -> bool:
    return any(each["type"] in ("Complete", "Failed") for each in (job or {}).get("status", {}).get("conditions", ()))


def has_failed(job: Object | None) -> bool:
    conditions = (job or {}).get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Failed", "True") for each in conditions)


def test_a_kustomization_changes_fields_that_no_chart_value_covers(site: Site, shell: Shell) -> None:
    (shell.folder / "kustomization.yaml").write_text(block("With kustomize", 0))
    shell.run(block("With kustomize", 1))
    until_ready(site)
    deployment = site.api.get("apps/v1/Deployment", "netdra-controller", "netdra")
    assert deployment["spec"]["minReadySeconds"] == 5
    assert deployment["metadata"]["annotations"]["example.com/team"] == "network"


def test_it_is_removed_by_the_pages_lines(site: Site, shell: Shell) -> None:
    printed = shell.run(block("Uninstalling without Helm"))
    assert "NodeNetwork" in printed
    assert {kind: ours(site.api.list(kind)) for kind in GONE if ours(site.api.list(kind))} == {}
    assert {
        kind: ours(site.api.list(kind, "netdra")) for kind in GONE_HERE if ours(site.api.list(kind, "netdra"))
    } == {}
    assert ours(site.api.list(DEFINITION)), "with the definitions all of their objects would go"
    site.api.delete(TOPOLOGY, "data")
    assert not site.api.list(TOPOLOGY), "nothing holds it"


def test_the_lines_of_the_way_back_leave_nothing_in_the_cluster(site: Site, shell: Shell) -> None:
    """After the test above: netdra is uninstalled, and its definitions are there."""
    title = "Remove what an uninstall keeps"
    assert shell.run(block(title, 2, WAY_BACK)) != ""
    shell.run(block(title, 0, WAY_BACK))
    site.api.wait_for("v1/Namespace", "netdra", lambda found: found is None)
    assert shell.run(block(title, 2, WAY_BACK)) == ""
    assert ours(site.api.list(DEFINITION)) == []
