"""The checks of several installations: lines of a page as a user's shell runs them, and the first pod."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from netdra.model.names import DRIVER
from testbed import yaml
from testbed.api import Api
from testbed.pods import Pods
from testbed.site import Site
from testbed.waiting import waiting
from tests.cluster.pods.running import publish

EVENT = "events.k8s.io/v1/Event"
EXAMPLE = Path(__file__).parents[3] / "examples" / "first-pod"


def warnings(api: Api) -> list[str]:
    """The warnings of netdra's processes, about any object. A cluster without faults has no warnings."""
    return sorted(
        f"{each['regarding']['kind']} {each['regarding']['name']}: {each['reason']}: {each['note']}"
        for each in api.list(EVENT)
        if each["type"] == "Warning" and each["reportingController"].startswith(f"{DRIVER}/")
    )


def run_lines(lines: str, folder: Path, environment: Mapping[str, str]) -> str:
    """The output of a page's lines that bash runs in a folder; all of them must succeed."""
    with waiting("the page's lines"):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", lines],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, f"{lines}\n{done.stdout}{done.stderr}"
    return done.stdout


def first_pod(site: Site, pods: Pods) -> None:
    """The pod of the README gets its network, and goes."""
    for name in ("policy", "topology"):
        site.api.create(yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text()))
    publish(site.node, site.api, "data0")
    site.plane.kubectl("--namespace", pods.namespace, "apply", "-f", str(EXAMPLE / "claim.yaml"))
    pods.run("first", "data")
    (link,) = (link for link in pods.ip("first", "link") if link["ifname"] not in {"lo", "eth0"})
    assert link["linkinfo"]["info_kind"] == "macvlan"
    pods.delete("first")
