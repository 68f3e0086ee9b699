"""Reads a built site as a person does, in Chromium, in `make test-site`.

`python -m testbed.site_check SITE [PICTURES]`: each page is opened at the width of a desk and of a phone. A code block,
a table or a page that is wider than its place, a request to anything but the site's files, and a task that a search
does not find are findings.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from testbed.chromium import Chromium

WIDTHS = (1400, 420)
SEARCHES = {
    "bond": "Bond two VFs",
    "error": "Why does my pod",
    "quick start": "Quick start",
    "faq": "Questions",
    "air-gapped": "air-gapped",
    "grafana": "Grafana",
}
"""What a person types, and words of the first task that the site must find."""
_PICTURED = ("index", "installing", "console", "faq", "examples/cookbook")
_CUT = """
[...document.querySelectorAll("pre, table.docutils, .table-wrapper")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0)
  .map((each) => each.tagName + " " + each.textContent.trim().slice(0, 60))
  .concat(document.documentElement.scrollWidth > innerWidth + 1 ? ["the page"] : [])
  .concat([...document.querySelectorAll("article, .toc-drawer .toc-tree")]
    .map((each) => [each, each.getBoundingClientRect()])
    .filter(([, place]) => place.left < innerWidth && place.right > innerWidth + 1)
    .map(([each]) => "the place of " + each.className))
"""


def check(site: Path, pictures: Path | None) -> Iterator[str]:
    """The findings of a site; pictures of some of its pages are written if a folder is named."""
    names = sorted(str(path.relative_to(site).with_suffix("")) for path in site.rglob("*.html"))
    with tempfile.TemporaryDirectory() as profile, Chromium(Path(profile)) as browser:
        for width in WIDTHS:
            metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
            browser.call("Emulation.setDeviceMetricsOverride", **metrics)
            for name in names:
                browser.open((site / f"{name}.html").as_uri())
                yield from (f"{name} at {width}: {cut}" for cut in browser.evaluate(_CUT))
                if pictures is not None and name in _PICTURED:
                    browser.screenshot(pictures / f"{name.replace('/', '-')}-{width}.png")
        for words, expected in SEARCHES.items():
            yield from _search(browser, site, words, expected, pictures)
        yield from (f"request: {url}" for url in browser.requests if not url.startswith(("file:", "about:", "data:")))
        yield from (f"complaint: {each}" for each in browser.complaints)


def _search(browser: Chromium, site: Path, words: str, expected: str, pictures: Path | None) -> Iterator[str]:
    browser.open(f"{(site / 'search.html').as_uri()}?q={words.replace(' ', '+')}")
    browser.wait("document.querySelector('#search-results h2')?.textContent === 'Search Results'")
    titles = browser.evaluate("[...document.querySelectorAll('.tasks a')].map((each) => each.textContent)")
    if not titles or expected not in titles[0]:
        yield f"search {words!r}: {json.dumps(titles)}, not first: {expected!r}"
    links = browser.evaluate("[...document.querySelectorAll('.tasks a')].map((each) => each.href)")
    yield from (f"search {words!r}: {link} not found" for link in links if not _exists(link))
    found = browser.evaluate("[...document.querySelectorAll('#search-results a')].map((each) => each.href)")
    yield from (f"search {words!r}: {link}" for link in found if "/messages.html" in link)
    if pictures is not None:
        browser.screenshot(pictures / f"search-{words.replace(' ', '-')}.png")


def _exists(link: str) -> bool:
    return Path(unquote(link.removeprefix("file://").partition("#")[0])).is_file()


def main() -> int:
    """Print the findings; the exit code is 1 if there are any."""
    site = Path(sys.argv[1]).resolve()
    pictures = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
    findings = [*check(site, pictures)]
    print("".join(f"{each}\n" for each in findings), end="")
    print(f"site: {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
