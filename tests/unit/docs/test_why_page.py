"""The example on the page on `netdra why` is what the command prints.

`NETDRA_WRITE=1` writes it again.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from netdra.cli.why import lines
from netdra.story.pods import pod_story
from tests.unit.story.making import NODES, TOPOLOGY, claim, cluster, event, pod, report, slices

PAGE = Path(__file__).parents[3] / "docs" / "why.md"
EXAMPLE = re.compile(r"(<!-- written by .* -->\n```\n)(.*?)(```\n)", re.DOTALL)
DECISION = "0/2 nodes are available: 1 cannot allocate all claims, 1 node(s) had untolerated taint(s)."


def test_the_example_on_the_page_matches_the_output_of_the_command() -> None:
    status = f"""conditions:
  - {{type: PodScheduled, status: 'False', message: '{DECISION}', lastTransitionTime: '2026-11-27T10:00:01Z'}}"""
    state = cluster(
        TOPOLOGY,
        NODES,
        report("worker-1"),
        report("worker-2"),
        slices("eth0", "eth1"),
        claim("web-1-net", "eth0"),
        claim("web-2-net", "eth1"),
        claim("db-0-net"),
        pod("db-0", "db-0-net", status=status),
        event("FailedScheduling", DECISION, time="2026-11-27T10:00:01Z"),
    )
    printed = "".join(f"{line}\n" for line in lines(pod_story(state, "apps", "db-0")))
    now = EXAMPLE.sub(lambda match: f"{match[1]}{printed}{match[3]}", PAGE.read_text())
    if os.environ.get("NETDRA_WRITE"):
        PAGE.write_text(now)
    assert PAGE.read_text() == now, "write the page anew with NETDRA_WRITE=1"
