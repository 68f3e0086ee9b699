"""`netdra console` in trouble, on a real control plane, in Debian's Chromium: from the start page to each cause.

The faults are those of `test_why`, all at one time. The console reads with the rights of the chart.
"""

from __future__ import annotations

import base64
import json
import os
import re
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from testbed import objects
from testbed.api import Api
from testbed.chromium import Chromium
from testbed.control_plane import ControlPlane
from testbed.objects import POD, manifest
from testbed.waiting import until
from tests.cluster import identities, test_why
from tests.cluster.test_console import PICTURES, urls
from tests.cluster.test_why import POLICY, REPORT, TOGETHER, TOPOLOGY, Fault, Scene, open_scene, prepared

FAULTS: tuple[Fault, ...] = (*TOGETHER, test_why.no_template, test_why.unknown_class, test_why.claim_elsewhere)
MAX_CLICKS = 2
LISTED = {
    "nodes": REPORT,
    "claims": objects.CLAIM,
    "topologies": TOPOLOGY,
    "policies": POLICY,
    "networks": f"{test_why.GROUP}/PodNetwork",
    "plugins": f"{test_why.GROUP}/CNIPlugin",
}
_PLURAL = {"pod": "pods", "claim": "claims", "device": "devices", "topology": "topologies"}


class TroubledCluster(NamedTuple):
    """A cluster in trouble, with a console that shows it.

    Attributes:
        arguments: by fault, those of `netdra why` for its object.
    """

    scene: Scene
    browser: Chromium
    url: str
    arguments: dict[Fault, list[str]]

    def page_of(self, fault: Fault) -> str:
        """The address of the page of a fault's object."""
        kind, name = self.arguments[fault][:2]
        place = f"{self.scene.workspace.namespace}/" if kind in ("pod", "claim") else ""
        return f"/{_PLURAL[kind]}/{place}{name}"

    def cause(self, fault: Fault) -> str:
        """The cause as `netdra why` states it."""
        told = json.loads(self.scene.why(*self.arguments[fault], "-o", "json").stdout)
        return str(told["cause"]["text"].splitlines()[0])


@pytest.fixture(scope="module")
def trouble(
    control_plane: ControlPlane, api: Api, custom_kinds: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TroubledCluster]:
    with ExitStack() as opened:
        scene = opened.enter_context(open_scene(control_plane, api))
        arguments = {fault: [*opened.enter_context(prepared(scene, fault))] for fault in FAULTS}
        account = identities.kubeconfig(control_plane, api, "netdra-console")
        command = [sys.executable, "-m", "netdra", "console", f"--kubeconfig={account}"]
        name = "netdra-console-in-trouble"
        process = control_plane.run(name, command, lambda: bool(urls(control_plane.processes[name])))
        opened.callback(process.stop)
        browser = opened.enter_context(Chromium(tmp_path_factory.mktemp("chromium")))
        url = urls(process)[0]
        browser.open(url)
        browser.wait("location.pathname === '/' && document.querySelector('h1')?.innerText === 'Overview'")
        yield TroubledCluster(scene, browser, url.partition("/enter")[0], arguments)


def _click(browser: Chromium, selector: str) -> bool:
    """Click a link, and wait for its page; false if the page has no such link."""
    if not browser.evaluate(f"!!document.querySelector({json.dumps(selector)})"):
        return False
    browser.evaluate("window.isOld = true")
    browser.evaluate(f"document.querySelector({json.dumps(selector)}).click()")
    browser.wait("!window.isOld && document.readyState === 'complete'")
    return True


def test_the_start_page_leads_to_each_cause_in_two_clicks(trouble: TroubledCluster) -> None:
    browser = trouble.browser
    browser.open(f"{trouble.url}/")
    browser.wait("document.querySelector('.trouble')")
    browser.screenshot(PICTURES / "troubles.png")
    for fault in FAULTS:
        page, clicks = trouble.page_of(fault), 1
        browser.open(f"{trouble.url}/")
        if not _click(browser, f'main a[href="{page}"]'):
            more = f'main .subjects a[href*="{page.split("/")[1]}?code="]'
            places = browser.evaluate(
                f"[...document.querySelectorAll({json.dumps(more)})].map((a) => a.getAttribute('href'))"
            )
            assert any(_reaches(trouble, place, page) for place in places), fault
            clicks = 2
        assert clicks <= MAX_CLICKS
        words = browser.evaluate("document.querySelector('section.cause .trouble').innerText")
        assert trouble.cause(fault) in " ".join(words.split()), fault


def _reaches(trouble: TroubledCluster, place: str, page: str) -> bool:
    trouble.browser.open(f"{trouble.url}{place}")
    return _click(trouble.browser, f'main a[href="{page}"]')


@pytest.mark.parametrize("kind", LISTED)
def test_a_list_has_as_many_objects_as_the_cluster(trouble: TroubledCluster, kind: str) -> None:
    trouble.browser.open(f"{trouble.url}/{kind}")
    number = len(trouble.scene.api.list(LISTED[kind]))
    words = trouble.browser.evaluate("document.querySelector('main').innerText")
    assert (f"{kind.capitalize()}: {number}" in words) if number else f"The cluster has no {kind}." in words


def test_pods_are_counted_by_their_claims_and_found_by_name(trouble: TroubledCluster) -> None:
    pods = [pod for pod in trouble.scene.api.list(POD) if pod["spec"].get("resourceClaims")]
    trouble.browser.open(f"{trouble.url}/pods")
    assert f"Pods: {len(pods)}" in trouble.browser.evaluate("document.querySelector('main').innerText")
    trouble.browser.open(f"{trouble.url}/")
    trouble.browser.press("/")
    assert trouble.browser.evaluate("document.activeElement.id") == "search"
    trouble.browser.evaluate("document.activeElement.value = '0000:03:01.1'")
    trouble.browser.press("Enter")
    trouble.browser.wait("location.pathname === '/search' && document.querySelector('h1')?.innerText === 'Search'")
    node = trouble.scene.nodes["nics"]
    assert trouble.browser.evaluate(f"!!document.querySelector('a[href=\"/devices/{node}/enp3s0f0v1\"]')")


def test_a_signed_on_user_sees_objects_that_kubernetes_allows_this_user(
    trouble: TroubledCluster, tmp_path: Path
) -> None:
    scene, namespace = trouble.scene, trouble.scene.workspace.namespace
    (tmp_path / "password").write_text("a password that only the proxy knows")
    user = scene.workspace.name("ann")
    rules = [{"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list"]}]
    reader = manifest("rbac.authorization.k8s.io/v1/Role", user, namespace, rules=rules)
    subject = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": f"{user}-group"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user}
    for made in (reader, manifest(test_why.BINDING, user, namespace, roleRef=role, subjects=[subject])):
        scene.workspace.create(made)
    options = ["--sign-on-password-file", str(tmp_path / "password"), "--sign-on-origin=https://console.example.com"]
    command = [sys.executable, "-m", "netdra", "console", f"--kubeconfig={scene.plane.kubeconfig()}", *options]
    name = "netdra-console-sign-on"
    process = scene.plane.run(name, command, lambda: "http://127" in scene.plane.processes[name].log.read_text())
    try:
        (url,) = re.findall(r"^http://127\.0\.0\.1:\d+$", process.log.read_text(), re.MULTILINE)

        def read(path: str, who: str = user, groups: str = f"{user}-group") -> str:
            coded = base64.b64encode(f"{who}:a password that only the proxy knows".encode()).decode()
            headers = {"Authorization": f"Basic {coded}", "X-Forwarded-Groups": groups}
            with urlopen(Request(f"{url}{path}", headers=headers)) as answer:
                return str(answer.read().decode())

        start = read("/")
        assert f"/pods/{namespace}/no-policy" in start
        assert "You are not allowed to list NodeNetworks" in start
        assert scene.nodes["nics"] not in read("/nodes")
        assert scene.topologies["one"] not in read("/topologies")
        stranger = read("/", "stranger", "")
        assert namespace not in stranger
        assert namespace in read("/", "stranger", f"other,{user}-group")
        with pytest.raises(HTTPError, match="401"):
            read("/", "system:admin", "")
    finally:
        process.stop()


def test_the_dashboard_of_the_terminal_opens_a_cause_and_leaves_the_terminal_as_it_was(
    trouble: TroubledCluster,
) -> None:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-m", "netdra", "top", "--watch", f"--kubeconfig={trouble.scene.plane.kubeconfig()}"]
    child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    shown = ""

    def shows(*texts: str) -> bool:
        nonlocal shown
        while select.select([ours], [], [], 0.1)[0]:
            shown += os.read(ours, 65536).decode(errors="replace")
        return all(text in shown for text in texts)

    try:
        until(lambda: shows("pods stuck", "InvalidPod", "checked "), "the trouble")
        shown = ""
        os.write(ours, b"2")
        until(lambda: shows("[2 Nodes]", trouble.scene.nodes["nics"]), "the nodes")
        shown = ""
        os.write(ours, b"1\r")
        until(lambda: shows("Next: ", "Esc back"), "the details")
        os.write(ours, b"q")
        until(lambda: shows("\x1b[?1049l") and child.poll() == 0, "the end")
        assert termios.tcgetattr(theirs) == before
    finally:
        child.kill()
        child.wait()
        os.close(ours)
        os.close(theirs)
