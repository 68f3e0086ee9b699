"""`netdra console` with the rights of the chart, on a real control plane, in Debian's Chromium.

Nodes have no machine: netdra's own publishing half makes their slices and NodeNetworks. Pictures are kept in
build/console.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.api import Api
from testbed.chromium import Chromium
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, CLASS, POD
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import open_workspace
from tests import builders
from tests.cluster import identities
from tests.cluster.daemons import running_controller
from tests.cluster.test_why import REPORT, Scene, nic, step

PICTURES = Path("build/console")
HOSTILE = "<img src=x onerror=alert(1)>\u202e"
POLICY = """
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: %s}
spec:
  selector: {cel: 'device.attributes["dra.networking"].ifName == "eth1"'}
  action: exclude
"""
FOCUS = "(document.activeElement.getAttribute('href') || document.activeElement.name || document.activeElement.type)"


@dataclass
class Opened:
    """A console with its browser, which has a session."""

    scene: Scene
    process: Process
    browser: Chromium
    url: str

    def open(self, path: str) -> str:
        """Open a page; the text of its content."""
        self.browser.open(f"{self.url}{path}")
        return str(self.browser.evaluate("document.body.innerText"))


def urls(process: Process) -> list[str]:
    """The URLs that a console has printed."""
    return re.findall(r"http://127\.0\.0\.1:\d+/enter\?token=\S+", process.log.read_text())


@pytest.fixture(scope="module")
def opened(
    control_plane: ControlPlane, api: Api, custom_kinds: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opened]:
    with running_controller(control_plane, api), open_workspace(api) as workspace:
        scene = Scene(control_plane, workspace)
        scene.policy("nics", f'{builders.OURS}.ifName.startsWith("eth")', "host-device")
        scene.policy("vfs", f'{builders.OURS}.type == "vf"', "sriov")
        used = nic("eth2", host_use=("address",))
        scene.node("main", nic("eth0"), nic("eth1"), used, nic("wlan0", alias=HOSTILE), *builders.sriov("enp3s0f0", 3))
        vlan = step("data", "vlan", after="nic", config={"name": "data", "vlanId": 100})
        scene.topology("net", step("nic", "host-device", "eth0"), vlan)
        _prepare_pod(scene)
        account = identities.kubeconfig(control_plane, api, "netdra-console")
        command = [sys.executable, "-m", "netdra", "console", f"--kubeconfig={account}"]
        name = "netdra-console"
        process = control_plane.run(name, command, lambda: bool(urls(control_plane.processes[name])))
        try:
            with Chromium(tmp_path_factory.mktemp("chromium")) as browser:
                url = urls(process)[0]
                browser.open(url)
                browser.wait("location.pathname === '/' && document.querySelector('h1')?.innerText === 'Overview'")
                yield Opened(scene, process, browser, url.partition("/enter")[0])
        finally:
            process.stop()


def _prepare_pod(scene: Scene) -> None:
    """A pod whose first step has run, as its node's driver reports it."""
    api, namespace = scene.api, scene.workspace.namespace
    claim = scene.workspace.add_claim("db", scene.request("net"))
    api.wait_for(CLASS, f"{scene.topologies['net']}-nic", lambda found: bool(found))
    scene.workspace.settle(scene.nodes["main"])
    pod = api.get(POD, scene.pod("db", claim, node="main"), namespace)
    scene.workspace.wait_placed("db", scene.nodes["main"])
    found = api.get(CLAIM, claim, namespace)
    (result,) = found["status"]["allocation"]["devices"]["results"]
    done = {"topology": scene.topologies["net"], "step": "nic", "type": "host-device", "interface": "net1"}
    status = {
        **{name: result[name] for name in ("driver", "pool", "device")},
        "data": {
            "pods": [
                {"uid": pod["metadata"]["uid"], "steps": [{**done, "result": {"ips": [{"address": "10.9.8.7/24"}]}}]}
            ]
        },
    }
    api.patch(CLAIM, claim, {"status": {"devices": [status]}}, namespace=namespace, subresource="status")


def test_the_pages_send_no_request_to_others(opened: Opened) -> None:
    node = opened.scene.nodes["main"]
    opened.browser.wait(f"document.querySelector('a[href=\"/nodes/{node}\"]')")
    for path in ("/", "/nodes", "/devices", "/search?q=db"):
        assert node in opened.open(path)
    assert opened.browser.evaluate("document.cookie") == ""
    assert {url.split("/")[2] for url in opened.browser.requests if url.startswith("http")} == {
        opened.url.split("/")[2]
    }


def test_a_node_is_a_board_and_hostile_names_are_text(opened: Opened) -> None:
    node = opened.scene.nodes["main"]
    words = opened.open(f"/nodes/{node}")
    assert "PCIe root pci0000:00" in words
    assert "3 VFs in use" in words
    assert "the host uses it" in words
    status = opened.scene.api.get(REPORT, node)["status"]
    group = {"type": "nic", "count": 1, "names": [HOSTILE], "reason": HOSTILE}
    changed = {"status": {**status, "interfaces": [*status["interfaces"], group]}}
    opened.scene.api.patch(REPORT, node, changed, subresource="status")
    try:
        for path in (f"/nodes/{node}", f"/devices/{node}/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%E2%80%AE"):
            assert "<img src=x onerror=alert(1)>\\u202e" in opened.open(path)
            assert opened.browser.evaluate("document.querySelectorAll('main img').length") == 0
    finally:
        opened.scene.api.patch(REPORT, node, {"status": status}, subresource="status")
    assert not opened.browser.dialogs
    assert not [text for text in opened.browser.complaints if "favicon" not in text]


def test_a_pod_is_a_graph_with_its_steps(opened: Opened) -> None:
    namespace = opened.scene.workspace.namespace
    words = opened.open(f"/pods/{namespace}/db")
    assert f"NetworkTopology {opened.scene.topologies['net']}" in words
    drawn = opened.browser.evaluate("[...document.querySelectorAll('.graph text')].map((text) => text.textContent)")
    assert drawn == ["nic", "host-device · net1", "eth0", "10.9.8.7/24", "done", "data", "vlan · data", "done"]
    assert opened.browser.evaluate("document.querySelector('.graph a').getAttribute('href')").endswith("/eth0")
    told = json.loads(opened.scene.why("pod", "db", "-o", "json").stdout)
    assert told["statements"][-1]["text"].removeprefix("event ") in words


def test_the_preview_of_a_policy_lists_the_interfaces_it_would_hide(opened: Opened) -> None:
    opened.open("/what-if")
    policy = POLICY % opened.scene.workspace.name("what-if")
    opened.browser.evaluate(f"document.querySelector('textarea').value = {json.dumps(policy)}")
    opened.browser.evaluate("document.querySelector('main button').click()")
    opened.browser.wait("location.pathname === '/what-if/result' && document.readyState === 'complete'")
    words = opened.browser.evaluate("document.body.innerText")
    assert "1 hidden, 0 offered, 0 by another policy, on 1 node." in words
    assert f"eth1\t{opened.scene.nodes['main']}" in words


def test_a_change_is_shown_without_a_reload_and_touches_nothing_else(opened: Opened) -> None:
    node = opened.scene.nodes["main"]
    opened.open("/nodes")
    link = f'table a[href="/nodes/{node}"]'
    opened.browser.evaluate(f"window.link = document.querySelector('{link}'); window.link.focus()")
    watch = (
        "window.touched = []; new MutationObserver((changes) => window.touched.push("
        "...changes.map((change) => (change.target.closest || (() => null)).call(change.target, 'td') ? 'cell' : "
        "change.target.nodeName))).observe(document.getElementById('main'), {subtree: true, childList: true})"
    )
    opened.browser.evaluate(f"{watch}; 1")
    opened.browser.wait("document.getElementById('live').innerText === 'Live'")
    message = "the selector fails on purpose"
    problems = {"summary": {"problems": 1}, "problems": [{"message": message, "policy": "nics", "interfaces": 1}]}
    opened.scene.api.patch(REPORT, node, {"status": problems}, subresource="status")
    opened.browser.wait(f"document.querySelector('{link}').closest('tr').innerText.includes('Trouble')")
    assert opened.browser.evaluate(f"document.querySelector('{link}') === window.link") is True
    assert opened.browser.evaluate(FOCUS) == f"/nodes/{node}"
    assert "TABLE" not in opened.browser.evaluate("window.touched")
    opened.open("/")
    opened.browser.wait(f"document.querySelector('main').innerText.includes({json.dumps(message)})", 60)


def test_the_keyboard_reaches_everything_in_its_order(opened: Opened) -> None:
    node = opened.scene.nodes["main"]
    opened.open("/nodes")
    reached = []
    for _ in range(24):
        opened.browser.press("Tab")
        reached.append(opened.browser.evaluate(FOCUS))
        assert opened.browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    pages = [*("/nodes", "/devices", "/pods", "/claims", "/topologies", "/policies", "/networks", "/plugins")]
    assert reached[:14] == ["#main", "/", "/", *pages, "/traffic", "/what-if", "q"]
    assert {"/nodes?state=Trouble", "text", "submit", "/nodes?sort=name"} <= {*reached}
    opened.browser.evaluate(f"document.querySelector('table a[href=\"/nodes/{node}\"]').focus()")
    opened.browser.press("Enter")
    opened.browser.wait(f"document.querySelector('h1').innerText.includes('{node}')")


def test_a_cluster_without_drivers_has_a_page_of_the_traffic_with_the_reason(opened: Opened) -> None:
    words = opened.open("/traffic")
    assert 'namespace "netdra" has no pod of netdra\'s DaemonSet' in words
    assert "Check --node and --namespace" in words


def test_the_token_was_spent_and_the_next_one_printed(opened: Opened) -> None:
    until(lambda: len(urls(opened.process)) == 2, "the next URL")
    opened.browser.open(urls(opened.process)[0])
    assert "Each URL opens one session" in opened.browser.evaluate("document.body.innerText")
