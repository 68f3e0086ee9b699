"""The release's chart in Argo CD and Flux: both install it, and a second look shows no difference until one is made.

Both use what they are made of: Argo CD its packages for rendering, synchronization and comparison (`testbed.gitops`),
Flux its helm-controller. netdra's pods run, and the webhook has written its certificate authority.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from testbed import archives
from testbed.api import Object
from testbed.gitops import RELEASE, SOURCE, Flux, argo, flux
from testbed.objects import add_namespace, manifest
from testbed.site import IMAGE_VALUES, Site
from tests.cluster.conftest import DEFINITION
from tests.cluster.daemons import CONFIGURATION, bundle_of
from tests.cluster.install.releases import WORKLOADS, Release, wait_until_ready

DEPLOYMENT = "apps/v1/Deployment"
DAEMON_SET = "apps/v1/DaemonSet"
EVENT = "v1/Event"
PLUGIN = "networking.dra.io/v1alpha1/CNIPlugin"
VALUES = {"image": IMAGE_VALUES}
"""The image is on the node."""
OTHER = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 77}}}}
"""A change by hand, which both must see."""


@pytest.fixture
def chart(release: Release, tmp_path: Path) -> Path:
    """The chart of the release, unpacked as in a repository."""
    with tarfile.open(release.chart) as archive:
        archives.unpack(archive, tmp_path)
    return tmp_path / "netdra"


@pytest.fixture
def flux_at_work(site: Site, tmp_path: Path) -> Iterator[Flux]:
    """Flux, for the cluster of the site."""
    with flux(site.plane, site.api, tmp_path) as running:
        yield running


def webhook_has_written(site: Site) -> bool:
    """Whether the webhook's certificate authority is in the configuration of admission."""
    found = site.api.get(CONFIGURATION, "netdra")
    return bundle_of(found) != b""


@pytest.mark.parametrize("server_side_diff", [False, True], ids=["three-way", "server-side"])
def test_argo_cd_finds_the_synchronized_chart_in_sync(site: Site, chart: Path, server_side_diff: bool) -> None:
    add_namespace(site.api, "netdra")
    options = {"serverSideApply": True, "serverSideDiff": server_side_diff}

    def application(values: Mapping[str, Any] = VALUES, **fields: Any) -> Mapping[str, Any]:
        return argo(site.plane, chart, "netdra", "netdra", values=json.dumps(values), **options, **fields)

    first = application(sync=True)
    assert (first["phase"], first["failed"], first["hooks"]) == ("Succeeded", [], []), first["message"]
    assert first["rendered"] > 50
    wait_until_ready(site)
    assert webhook_has_written(site)
    assert application()["differences"] == []
    second = application(sync=True)
    assert (second["phase"], second["failed"], second["differences"]) == ("Succeeded", [], []), second["message"]
    assert webhook_has_written(site), "a synchronization keeps what the webhook has written"
    site.api.patch(DEPLOYMENT, "netdra-controller", OTHER, namespace="netdra")
    assert named(application()) == ["Deployment netdra-controller"]
    hooked = application({**VALUES, "hooks": {"render": "always"}})
    assert {"Job netdra-uninstall-check", "Job netdra-uninstall-clean"} <= set(hooked["hooks"])
    assert not [each for each in named(hooked) if each.startswith(("Job", "Pod"))], "a sync would run the jobs"
    assert application(sync=True)["differences"] == []


def named(report: Mapping[str, Any]) -> list[str]:
    """The objects that are out of sync."""
    return [f"{each['kind']} {each['name']}" for each in report["differences"]]


def test_flux_installs_the_chart_finds_no_drift_until_there_is_one_and_removes_it(
    site: Site, release: Release, flux_at_work: Flux
) -> None:
    add_namespace(site.api, "netdra")
    flux_at_work.add_source("netdra", "netdra", release.chart)
    kind = SOURCE.rpartition("/")[2]
    spec = {
        "interval": "1h",
        "chartRef": {"kind": kind, "name": "netdra"},
        "driftDetection": {"mode": "enabled"},
        "values": VALUES,
    }
    site.api.create(manifest(RELEASE, "netdra", "netdra", spec=spec))
    installed = flux_at_work.wait("netdra", "netdra")
    wait_until_ready(site)
    assert webhook_has_written(site)
    before = generations(site)
    again = flux_at_work.reconcile("netdra", "netdra", "first")
    assert again["status"]["history"] == installed["status"]["history"], "no further release of helm"
    assert len(again["status"]["history"]) == 1
    assert (drifts(site), generations(site)) == ([], before)

    site.api.patch(DEPLOYMENT, "netdra-controller", OTHER, namespace="netdra")
    flux_at_work.reconcile("netdra", "netdra", "second")
    assert "Deployment/netdra/netdra-controller" in "\n".join(drifts(site))
    corrected = site.api.get(DEPLOYMENT, "netdra-controller", "netdra")
    assert corrected["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] != 77

    site.api.create(manifest(PLUGIN, "ovs", spec={"image": "none", "binaryPath": "/ovs", "imagePullPolicy": "Never"}))
    site.api.wait_for(PLUGIN, "ovs", lambda found: found is not None and "finalizers" in found["metadata"])
    site.api.delete(RELEASE, "netdra", "netdra")
    site.api.wait_for(RELEASE, "netdra", is_refused, namespace="netdra", timeout=300)
    assert "still needed by CNIPlugin ovs" in site.plane.kubectl("-n", "netdra", "logs", "job/netdra-uninstall-check")
    site.api.delete(PLUGIN, "ovs")
    site.api.wait_for(RELEASE, "netdra", lambda found: found is None, namespace="netdra", timeout=300)
    assert site.api.list(DAEMON_SET, "netdra") == []
    assert site.api.list(DEFINITION, labels="app.kubernetes.io/part-of=netdra"), "with them all objects would go"


def is_refused(release: Object | None) -> bool:
    """Whether Flux reports that the release cannot be removed."""
    conditions = (release or {}).get("status", {}).get("conditions", ())
    return any((each["type"], each["reason"]) == ("Ready", "UninstallFailed") for each in conditions)


def drifts(site: Site) -> list[str]:
    """The texts of Flux' events about a difference."""
    events = site.api.list(EVENT, "netdra")
    return [each["message"] for each in events if each["reason"] in ("DriftDetected", "DriftCorrected")]


def generations(site: Site) -> list[int]:
    """How often the workloads have changed."""
    kinds = {"daemonset": DAEMON_SET, "deployment": DEPLOYMENT}
    pairs = [workload.split("/") for workload in WORKLOADS]
    return [site.api.get(kinds[kind], name, "netdra")["metadata"]["generation"] for kind, name in pairs]
