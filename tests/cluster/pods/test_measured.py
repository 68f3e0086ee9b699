"""The driver's metrics and health show the progress of real pods, and it ends in good order beside them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from testbed.control_plane import ControlPlane
from testbed.driver import Driver
from testbed.pods import Pods
from testbed.workspace import Workspace
from tests.cluster.pods.conftest import Machine
from tests.cluster.pods.driver import Offer


@pytest.fixture(scope="module")
def driver(machine: Machine, control_plane: ControlPlane, custom_kinds: None) -> Driver:
    """The node's driver, begun by its command line: the exit code of one that is forked is not known."""
    machine.node.forks = None
    found = Driver(machine.node, control_plane.kubeconfig())
    found.start()
    return found


@pytest.fixture
def offer(driver: Driver, workspace: Workspace, pods: Pods) -> Iterator[Offer]:
    """The devices that a test offers on the node."""
    yield Offer(workspace, driver, pods)
    pods.delete_all()


def samples(driver: Driver) -> dict[str, float]:
    """Every sample by its name and labels, as they are written."""
    found = {}
    for family in text_string_to_metric_families(driver.metrics()):
        for each in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(each.labels.items()))
            found[f"{each.name}{{{labels}}}"] = each.value
    return found


def test_a_pod_with_a_device_is_measured_from_its_claim_to_its_end(offer: Offer) -> None:
    offer.veth("data0")
    offer.policy("data", "data0", supportedCNIPlugins=[{"name": "host-device", "exclusive": True}])
    offer.wait_published("data0")
    offer.claim("one", nic=offer.device_class("host-device"))
    offer.pods.run("pod", "one")
    running = samples(offer.driver)
    assert running["netdra_kubelet_registered{}"] == 1
    assert running["netdra_kubelet_registrations_total{outcome=ok}"] == 1
    assert running["netdra_nri_connected{}"] == 1
    assert running["netdra_published_devices{}"] == 1
    assert running["netdra_publish_delay_seconds_count{}"] >= 1
    assert running["netdra_claim_prepare_duration_seconds_count{outcome=ok}"] == 1
    assert running["netdra_nri_hook_duration_seconds_count{hook=run,outcome=ok}"] >= 1
    assert running["netdra_attach_duration_seconds_count{outcome=ok}"] == 1
    assert running["netdra_chain_step_duration_seconds_count{action=add,type=host-device}"] == 1
    assert running["netdra_attachments{}"] == 1
    assert running["netdra_claims_prepared{}"] == 1

    offer.pods.delete("pod")
    ended = samples(offer.driver)
    assert ended["netdra_claim_unprepare_duration_seconds_count{outcome=ok}"] == 1
    assert ended["netdra_detach_duration_seconds_count{outcome=ok}"] >= 1
    assert ended["netdra_chain_step_duration_seconds_count{action=del,type=host-device}"] == 1
    assert ended["netdra_attachments{}"] == 0
    assert ended["netdra_claims_prepared{}"] == 0
    assert {name: value for name, value in ended.items() if "defect" in name and value} == {}


def test_no_label_names_a_pod_or_a_claim(offer: Offer) -> None:
    names = {
        label
        for family in text_string_to_metric_families(offer.driver.metrics())
        for each in family.samples
        for label in each.labels
    }
    assert not names & {"pod", "claim", "sandbox", "namespace", "uid", "device"}


def test_the_driver_passes_all_readiness_checks_and_exits_on_sigterm(offer: Offer) -> None:
    answer = offer.driver.node.run("busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:8490/readyz?verbose")
    checks = {each["name"]: each["ok"] for each in json.loads(answer)["checks"]}
    assert checks == dict.fromkeys(("api-server", "caches", "slices", "kubelet", "runtime", "descriptors"), True)
    process = offer.driver.process
    assert process.pid is not None
    process._signal(signal.SIGTERM)
    assert process._exit_code(60.0) == 0
    process.start()
    process.wait_ready()
