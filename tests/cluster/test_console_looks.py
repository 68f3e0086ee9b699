"""The looks of the console's pages, in Debian's Chromium: contrast, width, keyboard, print. No cluster is needed.

The pages are those of `tests.unit.console.gallery`. Their pictures are kept in build/console; with NETDRA_WRITE=1,
those of docs/console.md are written.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from netdra.console.access import ConsoleAccess
from netdra.console.server import Console
from testbed.chromium import Chromium
from tests.cluster.test_console import PICTURES
from tests.unit.console import gallery

DOCS = Path("docs/pictures")
PAGES = {
    "overview": "/",
    "nodes": "/nodes",
    "node": "/nodes/worker-05",
    "devices": "/devices",
    "device": "/devices/worker-01/ens1f0v0",
    "pods": "/pods",
    "pod": "/pods/shop/api-1",
    "claims": "/claims",
    "claim": "/claims/shop/api-1-net",
    "topology": "/topologies/storage-lan",
    "policies": "/policies",
    "policy": "/policies/uplinks",
    "networks": "/networks",
    "network": "/networks/storage",
    "plugin": "/plugins/ovs",
    "traffic": "/traffic",
    "search": "/search?q=10.77",
    "what-if": "/what-if",
}
SHOWN = {"overview": 960, "node": 760, "pod": 1000, "network": 640, "traffic": 760}
"""The pages that docs/console.md shows, and the height of their pictures."""
MAX_PICTURE = 64 * 1024
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

AXE = Path(sysconfig.get_path("purelib")) / "axe_playwright_python/axe.min.js"
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
# Rules, and where each is violated.
VIOLATIONS = f"""
axe.run({{runOnly: {STANDARDS}}}).then((found) => ({{
  passed: found.passes.length,
  violations: found.violations.map((rule) => [rule.id, rule.nodes.map((node) => node.html)]),
}}))
"""


class Gallery(NamedTuple):
    """The console of the gallery, with a browser that has a session."""

    browser: Chromium
    url: str

    def open(self, path: str, scheme: str = "light", width: int = 1280, height: int = 900) -> None:
        """Open a page for a reader with a scheme and a window."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.browser.call("Emulation.setDeviceMetricsOverride", **metrics)
        self.browser.prefer(scheme)
        self.browser.open(f"{self.url}{path}")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    tokens, ports, begun = list[str](), list[int](), threading.Event()
    stops: list[Callable[[], object]] = []

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        stops.append(lambda: loop.call_soon_threadsafe(stop.set))
        async with Console(gallery.GallerySource(), ConsoleAccess(tokens.append)).serving("127.0.0.1", 0) as server:
            ports.append(server.port)
            begun.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert begun.wait(60)
        url = f"http://127.0.0.1:{ports[0]}"
        with Chromium(tmp_path_factory.mktemp("chromium")) as browser:
            browser.open(f"{url}/enter?token={tokens[-1]}")
            browser.wait("location.pathname === '/' && document.querySelector('h1')?.innerText === 'Overview'")
            yield Gallery(browser, url)
    finally:
        stops[0]()
        thread.join()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_and_axe_finds_no_violation_of_wcag_2_2_aa(shown: Gallery, scheme: str) -> None:
    axe = AXE.read_text()
    for name, path in PAGES.items():
        shown.open(path, scheme)
        found = shown.browser.evaluate(CONTRASTS)
        assert found["seen"] > 20
        assert found["weak"] == [], path
        shown.browser.evaluate(f"{axe}; 0")
        judged = shown.browser.evaluate(VIOLATIONS)
        assert judged["passed"] > 10
        assert judged["violations"] == [], path
        shown.browser.screenshot(PICTURES / f"{name}-{scheme}.png")
    assert not shown.browser.complaints


@pytest.mark.parametrize("width", [420, *(pytest.param(each, marks=pytest.mark.repeats) for each in (768, 1280))])
def test_no_page_is_wider_than_the_window(shown: Gallery, width: int) -> None:
    for name, path in PAGES.items():
        shown.open(path, width=width)
        left = shown.browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert left <= 0, path
        if width == 420:
            shown.browser.screenshot(PICTURES / f"{name}-small.png")


def test_a_printed_page_has_its_content_alone(shown: Gallery) -> None:
    shown.open(PAGES["node"])
    shown.browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        hidden = "['header', 'footer'].map((name) => getComputedStyle(document.querySelector(name)).display)"
        assert shown.browser.evaluate(hidden) == ["none", "none"]
        document = shown.browser.call("Page.printToPDF", printBackground=True)["data"]
        assert base64.b64decode(document).startswith(b"%PDF")
    finally:
        shown.browser.call("Emulation.setEmulatedMedia", media="")


def test_the_pictures_of_the_documentation_are_small(shown: Gallery) -> None:
    for name, height in SHOWN.items():
        shown.open(PAGES[name], height=height)
        picture = shown.browser.call("Page.captureScreenshot", format="webp", quality=50)["data"]
        path = DOCS / f"console-{name}.webp"
        if os.environ.get("NETDRA_WRITE"):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(base64.b64decode(picture))
        assert 0 < path.stat().st_size < MAX_PICTURE
        assert f"(pictures/{path.name})" in Path("docs/console.md").read_text()
