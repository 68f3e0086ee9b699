"""`netdra console` with the rights of the chart, on a real control plane, in Debian's Chromium.

Nodes have no machine: netdra's own publishing half makes their slices and NodeNetworks. Pictures of the pages are kept
in build/console.
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
# Every text that is seen, and its colour on the nearest background that is not transparent.
CONTRASTS = """
(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const weak = [];
  let seen = 0;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !element.getClientRects().length || element.closest("title")) continue;
    const style = getComputedStyle(element);
    const isDrawn = element instanceof SVGElement;
    const box = isDrawn && element.parentElement.querySelector("rect");
    const front = light(parse(isDrawn ? style.fill : style.color));
    const back = light(box ? parse(getComputedStyle(box).fill) : behind(element));
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    seen += 1;
    if (ratio < 4.5) weak.push([walk.currentNode.data.trim(), element.className, ratio]);
  }
  return {seen, weak};
})()
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

    def picture(self, name: str) -> None:
        self.browser.screenshot(PICTURES / f"{name}.png")
        assert (PICTURES / f"{name}.png").read_bytes().startswith(b"\x89PNG")


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


def test_the_fleet_is_shown_without_any_request_to_others(opened: Opened) -> None:
    node = opened.scene.nodes["main"]
    opened.browser.wait(f"document.querySelector('a[href=\"/nodes/{node}\"]')")
    words = opened.open("/")
    counts = re.search(rf"{node}\t(\d+)\t(\d+)\t(\d+)\t(\d+)\t(\d+)", words)
    assert counts is not None, words
    assert tuple(map(int, counts.groups()))[2:4] == (1, 2)  # eth2 is the host's; wlan0 and the PF match no policy
    assert opened.browser.evaluate("document.cookie") == ""
    assert {url.split("/")[2] for url in opened.browser.requests if url.startswith("http")} == {
        opened.url.split("/")[2]
    }
    opened.picture("fleet")


def test_a_node_is_shown_by_pcie_root_and_hostile_names_are_text(opened: Opened) -> None:
    node = opened.scene.nodes["main"]
    words = opened.open(f"/nodes/{node}")
    assert "PCIe root pci0000:00" in words
    assert "enp3s0f0v2" in words
    assert "the host uses it" in words
    opened.picture("node")
    status = opened.scene.api.get(REPORT, node)["status"]
    group = {"type": "nic", "count": 1, "names": [HOSTILE], "reason": HOSTILE}
    changed = {"status": {**status, "interfaces": [*status["interfaces"], group]}}
    opened.scene.api.patch(REPORT, node, changed, subresource="status")
    try:
        for path in (f"/nodes/{node}", f"/why/device/{node}/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%E2%80%AE"):
            assert "<img src=x onerror=alert(1)>\\u202e" in opened.open(path)
            assert opened.browser.evaluate("document.querySelectorAll('main img').length") == 0
    finally:
        opened.scene.api.patch(REPORT, node, {"status": status}, subresource="status")
    assert not opened.browser.dialogs
    assert not [text for text in opened.browser.complaints if "favicon" not in text]


def test_a_pod_is_a_graph_with_its_steps(opened: Opened) -> None:
    namespace = opened.scene.workspace.namespace
    words = opened.open(f"/pod/{namespace}/db")
    assert f"NetworkTopology {opened.scene.topologies['net']}" in words
    drawn = opened.browser.evaluate("[...document.querySelectorAll('.graph text')].map((text) => text.textContent)")
    assert drawn == ["nic", "host-device · net1", "done", "data", "vlan · data", "done"]
    assert "10.9.8.7/24" in words
    opened.picture("pod")
    told = json.loads(opened.scene.why("pod", "db", "-o", "json").stdout)
    assert told["statements"][0]["text"] in opened.open(f"/why/pod/{namespace}/db")
    opened.picture("why")


def test_the_preview_of_a_policy_lists_the_interfaces_it_would_hide(opened: Opened) -> None:
    opened.open("/what-if")
    policy = POLICY % opened.scene.workspace.name("what-if")
    opened.browser.evaluate(f"document.querySelector('textarea').value = {json.dumps(policy)}")
    opened.browser.evaluate("document.querySelector('button').click()")
    opened.browser.wait("location.pathname === '/what-if/result' && document.readyState === 'complete'")
    words = opened.browser.evaluate("document.body.innerText")
    assert "1 hidden, 0 offered, 0 by another policy, on 1 node." in words
    assert f"eth1\t{opened.scene.nodes['main']}" in words
    opened.picture("what-if")


def test_a_change_is_shown_without_a_reload_and_keeps_the_focus(opened: Opened) -> None:
    node = opened.scene.nodes["main"]
    opened.open("/")
    link = f'table a[href="/nodes/{node}"]'
    opened.browser.evaluate(f"window.isSame = true; document.querySelector('{link}').focus()")
    opened.browser.wait("document.getElementById('live').innerText === 'Live'")
    summary = {"status": {"summary": {"problems": 7}}}
    opened.scene.api.patch(REPORT, node, summary, subresource="status")
    opened.browser.wait(f"document.querySelector('{link}').closest('tr').innerText.endsWith('7')")
    assert opened.browser.evaluate("window.isSame") is True
    assert opened.browser.evaluate(FOCUS) == f"/nodes/{node}"


def test_the_keyboard_reaches_everything_in_its_order(opened: Opened) -> None:
    node = opened.scene.nodes["main"]
    opened.open("/")
    reached = []
    for _ in range(9):
        opened.browser.press("Tab")
        reached.append(opened.browser.evaluate(FOCUS))
        assert opened.browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    nodes = [link for link in reached if str(link).startswith("/nodes/")]
    assert reached[:8] == ["#main", "/", "/pod", "/why", "/what-if", "text", "state", "submit"]
    assert nodes
    opened.browser.evaluate(f"document.querySelector('table a[href=\"/nodes/{node}\"]').focus()")
    opened.browser.press("Enter")
    opened.browser.wait(f"document.querySelector('h1').innerText === 'Node {node}'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(opened: Opened, scheme: str) -> None:
    opened.browser.prefer(scheme)
    namespace, node = opened.scene.workspace.namespace, opened.scene.nodes["main"]
    for path in ("/", f"/nodes/{node}", f"/pod/{namespace}/db", f"/why/device/{node}/wlan0", "/what-if", "/why"):
        opened.open(path)
        found = opened.browser.evaluate(CONTRASTS)
        assert found["seen"] > 10
        assert found["weak"] == [], path
        width = opened.browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert width <= 0, path
    opened.picture(f"form-{scheme}")


def test_the_token_was_spent_and_the_next_one_printed(opened: Opened) -> None:
    until(lambda: len(urls(opened.process)) == 2, "the next URL")
    opened.browser.open(urls(opened.process)[0])
    assert "Each URL opens one session" in opened.browser.evaluate("document.body.innerText")
