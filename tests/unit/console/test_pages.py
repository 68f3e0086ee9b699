"""Each page shows what the cluster has, in words and not in colours alone; hostile names are text on every page."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from netdra.console.pod_page import pod_page

from netdra.console.fleet import ROWS, CountedNode, NodeCounts, Shown, count, fleet_page
from netdra.console.forecast_page import MAX_YAML, Forecast, ForecastDevice, forecast_page, policies_of
from netdra.console.frame import MAX_ROWS
from netdra.console.node_page import node_page, placed_devices
from netdra.console.story_page import story_page
from netdra.model.errors import InvalidInputError
from netdra.story.objects import ClusterState, PlacedPodStatus
from netdra.story.subjects import object_story
from tests.unit.console import scene
from tests.unit.console.reading import Page
from tests.unit.console.scene import GROUPS, HOSTILE, NODE, claim, cluster, event, pod, report, slices, vf

_HEAD = {"html", "head", "meta", "title", "link", "script", "body", "header", "nav", "main", "footer"}
_TEXTS = {
    "h1",
    "h2",
    "h3",
    "p",
    "ul",
    "ol",
    "li",
    "dl",
    "dt",
    "dd",
    "a",
    "b",
    "span",
    "small",
    "time",
    "div",
    "section",
}
_TABLES = {"table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "figcaption"}
_FORMS = {"form", "label", "input", "select", "option", "button", "textarea"}
SAFE_TAGS = {"svg", "rect", "path", "g", "text", *_HEAD, *_TEXTS, *_TABLES, *_FORMS}


def _assert_harmless(page: Page) -> None:
    """No element, no attribute and no address comes of a name."""
    for found in page.elements:
        assert found.tag in SAFE_TAGS
        assert not any(name.startswith("on") or name == "style" for name in found.attributes)
        for name in ("href", "src", "action"):
            assert found.attributes.get(name, "/").startswith(("/", "#main"))
    assert [found.attributes for found in page.all("script")] in ([], [{"src": "/console.js", "defer": ""}])


def _counted(*groups: dict[str, Any], name: str = NODE, problems: int = 0) -> NodeCounts:
    status = {"interfaces": groups, "summary": {"problems": problems}}
    return count(msgspec.convert({"metadata": {"name": name}, "status": status}, CountedNode))


def test_devices_and_interfaces_are_counted_by_their_state() -> None:
    counts = _counted(
        {"type": "vf", "count": 6, "devices": [{"policy": "vfs"}]},
        {"type": "vf", "count": 2, "devices": [{"policy": "vfs", "allocated": True}, {"suffix": "-shared"}]},
        {"type": "nic", "count": 1, "reason": "the host uses it", "attributes": {"hostUse": "address"}},
        {"type": "nic", "count": 1, "reason": "uplink", "attributes": {"hostUplink": True}},
        {"type": "veth", "count": 3, "reason": "no policy matches it"},
        {"type": "vf", "count": 1, "state": "gone", "devices": [{"policy": "vfs", "allocated": True}]},
        {"type": "vf", "count": 4, "reason": "pooled: one of the 4 VFs of lane0"},
        problems=2,
    )
    assert counts == NodeCounts(NODE, offered=8, allocated=2, host=2, hidden=3, gone=1, problems=2)
    assert counts.words == f"{NODE}: 8 offered, 2 allocated, 2 host, 3 hidden, 1 gone, 2 problems"


@pytest.mark.parametrize(
    ("counts", "cell"),
    [((0, 0), "none"), ((4, 0), "s0"), ((19, 1), "s1"), ((10, 10), "s2"), ((1, 19), "s4"), ((0, 20), "s4")],
)
def test_a_cell_is_darker_the_more_is_allocated(counts: tuple[int, int], cell: str) -> None:
    assert NodeCounts("n", *counts).cell == cell


def test_the_fleet_has_a_cell_for_each_node_and_a_table_by_pages() -> None:
    nodes = [NodeCounts(f"node-{at:04}", 20, gone=at == 7) for at in range(250)]
    page = Page(fleet_page(nodes, Shown(number=3)))
    assert len([*page.all("rect", "s0")]) == 249 + 1  # one of them is the scale's
    assert [found.text[0] for found in page.all("th") if found.attributes["scope"] == "row"] == [
        f"node-{at:04}" for at in range(2 * ROWS, 250)
    ]
    assert "250 nodes report: 5000 offered, 0 allocated, 0 host, 0 hidden, 1 gone." in page.words
    assert "/?page=2" in page.links
    assert "/?page=4" not in page.links
    assert all(
        found.attributes["tabindex"] == "-1"
        for found in page.all("a")
        if "/nodes/node-0000" in found.attributes["href"]
    )
    few = Page(fleet_page(nodes, Shown(state="gone")))
    assert [found.attributes["href"] for found in few.all("a") if "nodes/" in found.attributes["href"]] == [
        "/nodes/node-0007"
    ] * 2
    assert "Nodes: 100" in Page(fleet_page(nodes, Shown(text="node-00"))).words


def test_five_thousand_nodes_are_a_page_in_less_than_a_second() -> None:
    nodes = [NodeCounts(f"node-{at:04}", 20, at % 20) for at in range(5000)]
    began = time.process_time()
    made = fleet_page(nodes, Shown())
    assert time.process_time() - began < 1.0
    assert len(made) < 2_000_000


def test_a_node_shows_nics_vfs_stacks_and_gpus_by_pcie_root_with_their_state() -> None:
    found = {entry.name: entry for entry in placed_devices(cluster(), NODE)}
    states = {name: (entry.root, entry.parent, entry.kind, entry.state) for name, entry in found.items()}
    assert states == {
        "enp3s0f0": ("", "enp3s0f0", "pf", "host"),
        "enp3s0f0v0": ("pci0000:00", "enp3s0f0", "vf", "allocated"),
        "enp3s0f0v1": ("pci0000:00", "enp3s0f0", "vf", "offered"),
        "gpu-0": ("pci0000:00", "gpu.example.com", "GPU", "offered"),
        "bond0": ("", "bond0", "bond", "hidden"),
    }
    page = Page(node_page(cluster(), NODE))
    assert [found.words for found in page.all("h2")] == ["PCIe root pci0000:00", "Stacks", "Without a PCIe root"]
    chips = {found.words.split()[0]: found for found in page.all("li", "chip")}
    assert "allocated claim default/db-net , Pod db-0" in chips["enp3s0f0v0"].words
    assert "hidden no policy matches it" in chips["bond0"].words
    assert {"/pod/default/db-0", "/why/claim/default/db-net", f"/why/device/{NODE}/enp3s0f0v0"} <= {*page.links}


def test_a_gone_device_is_shown_as_gone_with_its_taint() -> None:
    taint = [{"key": "dra.networking/gone", "effect": "NoExecute"}]
    published = slices("dra.networking", f"{NODE}/pf", {"enp3s0f0v0": vf(0)}, taints=taint)
    (entry,) = placed_devices(cluster(slices=(published,), node_networks=()), NODE)
    assert (entry.state, entry.remark) == ("gone", "taints: dra.networking/gone:NoExecute")


def _steps(found: ClusterState) -> dict[str, tuple[str, str, str]]:
    page = Page(pod_page(found, "default", "db-0"))
    cells = [entry.words for entry in page.all("td")]
    names = [entry.words for entry in page.all("th") if entry.attributes["scope"] == "row"]
    rows = [cells[at * 5 : at * 5 + 5] for at in range(len(names))]
    drawn = [entry.words for entry in page.all("text", "word")]
    assert sorted(drawn) == sorted(row[3] for row in rows)
    return {name: (row[2], row[3], row[4]) for name, row in zip(names, rows, strict=True)}


def test_a_pod_that_runs_has_its_graph_with_interfaces_and_addresses() -> None:
    made = [
        {"topology": "net", "step": "a", "interface": "net1", "result": {"ips": [{"address": "10.0.0.5/24"}]}},
        {"topology": "net", "step": "vlan", "interface": "data", "result": {}},
    ]
    assert _steps(cluster(claims=(claim(steps=made),))) == {
        "a": ("net1", "done", "10.0.0.5/24"),
        "b": ("net2", "done", ""),
        "bond": ("bond0", "done", ""),
        "vlan": ("data", "done", ""),
    }


def test_the_step_that_failed_is_marked_and_its_message_shown() -> None:
    text = 'NetworkTopology "net", step "bond": the kernel refuses the mode'
    found = cluster(claims=(claim(message=text),), pods=(pod(running=False),))
    assert {name: step[1] for name, step in _steps(found).items()} == {
        "a": "waiting",
        "b": "waiting",
        "bond": "failed",
        "vlan": "waiting",
    }
    assert text in Page(pod_page(found, "default", "db-0")).words
    by_event = cluster(claims=(claim(uid="other"),), pods=(pod(running=False),), events=(event(text),))
    assert _steps(by_event)["bond"][1] == "failed"


def test_a_pod_that_has_ended_has_no_failed_step_and_no_claims() -> None:
    ended = msgspec.structs.replace(pod(), status=PlacedPodStatus(phase="Succeeded"))
    of_another = claim(message='NetworkTopology "net", step "bond": the kernel refuses the mode', uid="other")
    assert {step[1] for step in _steps(cluster(claims=(of_another,), pods=(ended,))).values()} == {"unknown"}
    gone = Page(pod_page(cluster(claims=(), pods=(ended,)), "default", "db-0")).words
    assert "No problem was found." in gone
    assert "The pod has ended, and has no claims any more." in gone


def test_a_story_begins_with_its_cause() -> None:
    page = Page(story_page(object_story(cluster(unread={"nodes": "no right"}), "device", NODE, "bond0")))
    assert [found.words for found in page.all("h1")] == [f"Why: Device {NODE}/bond0"]
    (cause,) = page.all("section", "cause")
    assert 'Cause: interface "bond0" is hidden: no policy matches it Next: change the policies' in cause.words
    assert [found.words for found in page.all("b")] == ["error"]


def test_a_forecast_counts_and_lists_the_devices() -> None:
    devices = [
        ForecastDevice(NODE, "v0", "vfs", "", allocated=True),
        ForecastDevice(NODE, "v1", "", "new", allocated=False),
    ]
    page = Page(forecast_page("a: b", NODE, Forecast(1, 700, 0, 1, 1, devices, ["a note"])))
    assert "1 hidden (1 in use), 700 offered, 0 by another policy, on 1 node." in page.words
    assert "699 more devices are not shown." in page.words
    assert next(page.all("textarea")).words == "a: b"


WRONG_KIND = """
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: a}
spec: {steps: [{name: a, type: host-device, selector: {cel: "true"}}]}
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x" * (MAX_YAML + 1), "longer than"),
        ("a: [", "form"),
        ("", "1 to 8 policies"),
        (WRONG_KIND, "DeviceExposurePolicies only"),
    ],
)
def test_a_forecast_takes_policies_alone_and_not_too_many(text: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        policies_of(text)


def test_long_tables_are_cut() -> None:
    devices = [ForecastDevice(NODE, f"v{at}", "", "p", allocated=False) for at in range(MAX_ROWS + 5)]
    page = Page(forecast_page("", "", Forecast(0, len(devices), 0, 0, 1, devices)))
    assert "5 more rows are not shown." in page.words
    assert len([*page.all("tr")]) == MAX_ROWS + 1


def _hostile() -> ClusterState:
    groups = (
        *GROUPS,
        {
            "type": "nic",
            "count": 1,
            "names": [HOSTILE],
            "reason": HOSTILE,
            "attributes": {"master": HOSTILE, "alias": HOSTILE},
        },
    )
    text = f'NetworkTopology "net", step "bond": {HOSTILE}'
    steps = [{"topology": "net", "step": "a", "interface": HOSTILE, "result": {"ips": [{"address": HOSTILE}]}}]
    foreign = slices("gpu.example.com", HOSTILE, {HOSTILE: {scene.ROOT: {"string": HOSTILE}}})
    return cluster(
        slices=(slices("dra.networking", f"{NODE}/pf", {HOSTILE: vf(0, HOSTILE)}), foreign),
        node_networks=(report(*groups, problems=[{"message": HOSTILE, "policy": HOSTILE, "interfaces": 1}]),),
        claims=(claim(HOSTILE, message=text, steps=steps),),
        pods=(pod(running=False, labels={HOSTILE: HOSTILE}, annotations={HOSTILE: HOSTILE}),),
        events=(event(text), event(HOSTILE, HOSTILE)),
        unread={"nodes": HOSTILE},
    )


def test_hostile_names_are_text_on_every_page() -> None:
    found = _hostile()
    pages = {
        "fleet": fleet_page([NodeCounts(HOSTILE, 1)], Shown(text=HOSTILE, state=HOSTILE), HOSTILE),
        "found": fleet_page([NodeCounts(HOSTILE, 1)], Shown()),
        "node": node_page(found, NODE),
        "pod": pod_page(found, "default", "db-0"),
        "device": story_page(object_story(found, "device", NODE, HOSTILE)),
        "claim": story_page(object_story(found, "claim", "default", "db-net")),
        "topology": story_page(object_story(found, "topology", "", "net")),
        "missing": story_page(object_story(found, "pod", HOSTILE, HOSTILE)),
        "forecast": forecast_page(
            HOSTILE,
            HOSTILE,
            Forecast(1, 0, 0, 0, 1, [ForecastDevice(HOSTILE, HOSTILE, HOSTILE, HOSTILE, allocated=True)], [HOSTILE]),
            HOSTILE,
        ),
    }
    for name, made in pages.items():
        page = Page(made)
        _assert_harmless(page)
        shown = name == "topology" or "<script>alert(1)</script>" in page.words
        assert shown, name
