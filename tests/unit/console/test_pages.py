"""Each page shows what the cluster has, in words and not in colours alone; hostile names are text on every page."""

from __future__ import annotations

import time
from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from netdra.cluster.devices import DeviceLine, DeviceLines
from netdra.cluster.fleet import CountedNode
from netdra.cluster.objects import ClusterState, PlacedPodStatus
from netdra.console.fleet import ClassShare, NodeCounts, count
from netdra.console.forecast_page import MAX_YAML, Forecast, ForecastDevice, forecast_page, policies_of
from netdra.console.frame import MAX_ROWS, PageLife
from netdra.console.listing import ROWS, Shown, list_page
from netdra.console.node_page import placed_devices
from netdra.console.object_page import object_page
from netdra.console.routes import route
from netdra.console.rows import LISTS, codes_of, device_list, node_list
from netdra.console.search_page import Hit, HitGroup, of_addresses, search_page
from netdra.console.start_page import ClassChoice, start_page
from netdra.console.story_page import folded
from netdra.console.times import age
from netdra.console.troubles import ClusterExamination, ClusterTrouble, TroubleSubject
from netdra.model.errors import InvalidInputError
from netdra.model.meta import time_of, time_text
from netdra.story.statement import fact, wrong
from tests.unit.console import gallery, scene
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
    "code",
    "kbd",
    "i",
    "pre",
    "details",
    "summary",
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


def test_the_map_has_a_cell_for_each_node_and_the_list_has_pages() -> None:
    nodes = [NodeCounts(f"node-{at:04}", 20, gone=at == 7) for at in range(250)]
    start = Page(start_page(nodes, ClusterExamination()))
    cells = [found for found in start.all("a") if found.attributes["href"].startswith("/nodes/")]
    assert len(cells) == 250
    assert {found.attributes["tabindex"] for found in cells} == {"-1"}
    assert [found.attributes["href"] for found in cells if "trouble" in found.attributes["class"]] == [
        "/nodes/node-0007"
    ]
    third = Page(list_page(node_list(nodes, {}), Shown(number=3)))
    assert _rows(third) == [f"node-{at:04}" for at in range(2 * ROWS, 250)]
    assert "Nodes: 250" in third.words
    assert "/nodes?page=2" in third.links
    assert "/nodes?page=4" not in third.links
    assert _rows(Page(list_page(node_list(nodes, {}), Shown(state="Trouble")))) == ["node-0007"]
    assert "Nodes: 100 of 250" in Page(list_page(node_list(nodes, {}), Shown(text="NODE-00"))).words


def _rows(page: Page) -> list[str]:
    return [found.words for found in page.all("th") if found.attributes.get("scope") == "row"]


def test_five_thousand_nodes_are_a_page_in_less_than_a_second() -> None:
    nodes = [NodeCounts(f"node-{at:04}", 20, at % 20) for at in range(5000)]
    began = time.process_time()
    made = start_page(nodes, ClusterExamination())
    assert time.process_time() - began < 1.0
    assert len(made) < 1_000_000


def test_devices_of_a_class_shade_the_map() -> None:
    nodes = [NodeCounts("a", 20), NodeCounts("b", 20)]
    classes = ClassChoice(("net-a",), "net-a", {"b": ClassShare(4, 4)})
    page = Page(start_page(nodes, ClusterExamination(), classes))
    assert {
        found.attributes["href"]: found.attributes["class"] for found in page.all("a") if "tabindex" in found.attributes
    } == {
        "/nodes/a": "none",
        "/nodes/b": "s4",
    }


def test_a_node_shows_nics_vfs_stacks_and_gpus_by_pcie_root_with_their_state() -> None:
    found = {entry.name: entry for entry in placed_devices(cluster(), NODE)}
    states = {name: (entry.root, entry.parent, entry.kind, entry.state) for name, entry in found.items()}
    assert states == {
        "enp3s0f0": ("pci0000:00", "enp3s0f0", "pf", "host"),
        "enp3s0f0v0": ("pci0000:00", "enp3s0f0", "vf", "allocated"),
        "enp3s0f0v1": ("pci0000:00", "enp3s0f0", "vf", "offered"),
        "gpu-0": ("pci0000:00", "gpu.example.com", "GPU", "offered"),
        "bond0": ("", "bond0", "bond", "hidden"),
    }
    page = Page(object_page(cluster(), "nodes", "", NODE))
    assert [found.words for found in page.all("h3")] == ["NUMA node unknown", "PCIe root pci0000:00", "Stacks"]
    (cell,) = [found for found in page.all("a") if found.attributes.get("title", "").startswith("enp3s0f0v0 ")]
    assert cell.attributes["title"] == "enp3s0f0v0 (vf): allocated by pod default/db-0"
    assert {"/pods/default/db-0", "/claims/default/db-net", f"/devices/{NODE}/enp3s0f0v0"} <= {
        *page.links,
        "/pods/default/db-0",
    }


def test_the_board_has_numa_nodes_links_speeds_and_bandwidth() -> None:
    page = Page(object_page(gallery.cluster(), "nodes", "", "worker-05"))
    titles = [found.words for found in page.all("h3")]
    assert titles == [
        "NUMA node 0",
        "PCIe root pci0000:00",
        "PCIe root pci0000:3a",
        "NUMA node 1",
        "PCIe root pci0000:ae",
    ]
    (block,) = [found for found in page.all("div", "nic") if found.words.startswith("ens1f0 ")]
    assert "pf · link up · 25 Gbit/s · 0000:3b:00.0" in block.words
    assert "18.75 Gbit/s of 25 Gbit/s allocated" in block.words
    assert "6 of 8 VFs in use" in block.words
    assert len([*page.all("div", "other")]) == 4


def test_a_gone_device_is_shown_as_gone_with_its_taint() -> None:
    taint = [{"key": "dra.networking/gone", "effect": "NoExecute"}]
    published = slices("dra.networking", f"{NODE}/pf", {"enp3s0f0v0": vf(0)}, taints=taint)
    (entry,) = placed_devices(cluster(slices=(published,), node_networks=()), NODE)
    assert (entry.state, entry.remark) == ("gone", "taints: dra.networking/gone:NoExecute")


def _steps(found: ClusterState) -> dict[str, tuple[str, str, str]]:
    page = Page(object_page(found, "pods", "default", "db-0"))
    cells = [entry.words for entry in page.all("td")]
    names = [entry.words for entry in page.all("th") if entry.attributes["scope"] == "row"]
    rows = [cells[at * 6 : at * 6 + 6] for at in range(len(names))]
    drawn = [entry.words for entry in page.all("text", "word")]
    assert sorted(drawn) == sorted(row[4] for row in rows)
    return {name: (row[3], row[4], row[5]) for name, row in zip(names, rows, strict=True)}


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
    assert text in Page(object_page(found, "pods", "default", "db-0")).words
    by_event = cluster(claims=(claim(uid="other"),), pods=(pod(running=False),), events=(event(text),))
    assert _steps(by_event)["bond"][1] == "failed"


def test_a_pod_that_has_ended_has_no_failed_step_and_no_claims() -> None:
    ended = msgspec.structs.replace(pod(), status=PlacedPodStatus(phase="Succeeded"))
    of_another = claim(message='NetworkTopology "net", step "bond": the kernel refuses the mode', uid="other")
    assert {step[1] for step in _steps(cluster(claims=(of_another,), pods=(ended,))).values()} == {"unknown"}
    gone = Page(object_page(cluster(claims=(), pods=(ended,)), "pods", "default", "db-0")).words
    assert "No problem was found." in gone
    assert "The pod has ended, and has no claims any more." in gone


def test_a_page_begins_with_the_cause() -> None:
    page = Page(object_page(cluster(unread={"nodes": "no right"}), "devices", NODE, "bond0"))
    assert [found.words for found in page.all("h1")] == [f"Device {NODE}/bond0"]
    (cause,) = page.all("section", "cause")
    assert 'interface "bond0" is hidden: no policy matches it' in cause.words
    assert "Next: change the policies" in cause.words
    assert "no right" in page.words


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
    changed = ForecastDevice(HOSTILE, HOSTILE, HOSTILE, HOSTILE, allocated=True)
    subject = TroubleSubject("pods", HOSTILE, HOSTILE)
    trouble = ClusterTrouble("pods", True, HOSTILE, HOSTILE, HOSTILE, (subject,), 1)
    line = DeviceLine(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), (HOSTILE,), (HOSTILE,), HOSTILE)
    pages = {
        "start": start_page(
            [NodeCounts(HOSTILE, 1)], ClusterExamination((trouble,), "", 1, 1, (HOSTILE,), HOSTILE), problem=HOSTILE
        ),
        "nodes": list_page(node_list([NodeCounts(HOSTILE, 1)], codes_of([trouble])), Shown(HOSTILE, sort=HOSTILE)),
        "devices": list_page(device_list(DeviceLines((line,), 1), 1), Shown()),
        **{
            kind: list_page(made(found, codes_of([trouble])), Shown())
            for kind, made in LISTS.items()
            if kind in ("pods", "claims")
        },
        "node": object_page(found, "nodes", "", NODE),
        "pod": object_page(found, "pods", "default", "db-0"),
        "device": object_page(found, "devices", NODE, HOSTILE),
        "claim": object_page(found, "claims", "default", "db-net"),
        "topology": object_page(found, "topologies", "", "net"),
        "missing": object_page(found, "pods", HOSTILE, HOSTILE),
        "search": search_page(HOSTILE, [HitGroup(HOSTILE, [Hit((HOSTILE,), HOSTILE, HOSTILE)], 1)]),
        "forecast": forecast_page(HOSTILE, HOSTILE, Forecast(1, 0, 0, 0, 1, [changed], [HOSTILE]), HOSTILE),
    }
    for name, made in pages.items():
        page = Page(made)
        _assert_harmless(page)
        shown = name in ("topology", "pods") or "<script>alert(1)</script>" in page.words
        assert shown, name


def test_each_trouble_is_on_the_start_page_with_its_code_next_step_and_links() -> None:
    found = gallery.examination()
    page = Page(start_page(gallery.fleet(), found, life=PageLife(now=gallery.NOW)))
    cards = [entry.words for entry in page.all("li", "trouble")]
    assert len(cards) == len(found.troubles)
    for card, trouble in zip(cards, found.troubles, strict=True):
        assert trouble.code in card
        assert " ".join(trouble.text.split()) in card
        assert trouble.next_step in card
    links = [link for link in page.links if route(link, "") is None and "?" not in link]
    assert links == ["#main"]
    assert {
        "/pods/shop/api-0",
        "/pods/ml/train-0",
        "/pods/web/web-4",
        "/topologies/storage-lan",
        "/policies/uplinks",
    } <= {*page.links}
    assert {"/networks/lan", "/nodes/worker-12", "/plugins/ovs", "/devices/worker-10/ens1f0v0"} <= {*page.links}
    assert "9 Pods stuck of 25 with claims" in page.words


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (ClusterExamination(checked=gallery.NOW), "Nothing is wrong."),
        (ClusterExamination(), "The cluster is being checked."),
        (ClusterExamination(checked=gallery.NOW, problem="no answer"), "The last examination failed: no answer"),
    ],
)
def test_without_trouble_the_page_states_it_only_after_a_check(found: ClusterExamination, words: str) -> None:
    page = Page(start_page([NodeCounts(NODE, 2)], found, life=PageLife(now="2026-11-28T12:03:10Z")))
    assert words in page.words
    assert ("Nothing is wrong." in page.words) is bool(found.checked)
    assert ("Checked 3 min ago" in page.words) is bool(found.checked)


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_counts_filters_and_sorts_its_objects(kind: str) -> None:
    listed = LISTS[kind](gallery.cluster(), codes_of(gallery.examination().troubles))
    every = _rows(Page(list_page(listed, Shown())))
    assert len(every) == len(listed.rows) == len({*every}) > 0
    states = [row.state for row in listed.rows]
    assert sum(len(_rows(Page(list_page(listed, Shown(state=state))))) for state in {*states}) == len(every)
    for column in (column.key for column in listed.columns):
        ordered = _rows(Page(list_page(listed, Shown(sort=column))))
        assert sorted(ordered) == sorted(every)
        assert _rows(Page(list_page(listed, Shown(sort=f"-{column}")))) == ordered[::-1]
    for row in listed.rows:
        assert row.words in _rows(Page(list_page(listed, Shown(text=row.words))))
        assert route("/" + "/".join(row.segments), "") is not None


def test_a_page_states_the_cause_of_a_pod_once() -> None:
    page = Page(object_page(gallery.cluster(), "pods", "shop", "api-1"))
    assert page.words.count(gallery.FAILURE) == 1
    assert "fact 16 times 2 min ago NetworkNotAttached: the cause above" in page.words
    assert "Objects: ResourceClaim shop/api-1-net NetworkTopology storage-lan" in page.words
    boxes = {entry.words.split()[0]: entry.words.split()[-1] for entry in page.all("g")}
    assert boxes == {"rail0": "waiting", "rail1": "waiting", "bond": "waiting", "data": "failed", "backup": "waiting"}


def test_an_event_with_the_code_of_the_cause_repeats_it() -> None:
    cause = wrong("Pod shop/api-1", 'device "p0v1" is not attached: sandbox 5: no VLAN support (ND9095)')
    event = fact(cause.object, "event NetworkNotAttached (3 times): no VLAN support (ND9095)")
    (entry,) = folded([cause, event], cause)
    assert (entry.statement.text, entry.times) == ("NetworkNotAttached: the cause above", 3)


@pytest.mark.parametrize(
    ("fields", "cells", "states"),
    [
        ({"cidr": "10.0.0.0/29", "gateway": "10.0.0.1"}, 6, {"busy": 1, "none": 1, "good": 4}),
        ({"cidr": "10.0.0.0/24", "exclude": ["10.0.0.8-10.0.0.11"]}, 254, {"busy": 1, "none": 4, "good": 249}),
        ({"cidr": "10.0.0.0/16"}, 1024, {"s1": 1, "s0": 1023}),
        ({"cidr": "10.0.0.0/16", "first": "10.0.0.4", "last": "10.0.0.6"}, 3, {"busy": 1, "good": 2}),
        ({"cidr": "fd00::/64"}, 1024, {"s1": 1, "s0": 1023}),
    ],
)
def test_a_range_is_a_map_of_bounded_size(fields: dict[str, Any], cells: int, states: dict[str, int]) -> None:
    cidr = fields["cidr"]
    network = gallery.network("net", cidr, 1, 100, **{key: value for key, value in fields.items() if key != "cidr"})
    text = "fd00::5/64" if ":" in cidr else f"10.0.0.5/{cidr.partition('/')[2]}"
    own = gallery.address("net", text, "db", "db-0", "net", "lan")
    page = Page(object_page(cluster(networks=(network,), addresses=(own,)), "networks", "", "net"))
    drawn = [
        entry
        for tag in ("a", "span")
        for entry in page.all(tag)
        if entry.attributes.get("title", "").partition(":")[0] and "class" in entry.attributes
    ]
    found = Counter(
        entry.attributes["class"]
        for entry in drawn
        if " state" not in f" {entry.attributes['class']}" and not entry.attributes["class"].startswith("state")
    )
    assert found == states
    assert sum(found.values()) == cells


def test_objects_are_found_by_their_addresses() -> None:
    listed = LISTS["claims"](gallery.cluster(), {})
    hits = [row for row in listed.rows if "10.77.0.13" in row.text]
    assert [(row.words, row.why("10.77.0.13")) for row in hits] == [("shop/db-3-net", "10.77.0.13/24")]
    group = of_addresses(
        [entry for entry in gallery.cluster().addresses if entry.spec.address.startswith("10.77.0.40")]
    )
    page = Page(search_page("10.77.0.40", [group]))
    assert "/networks/storage" in page.links
    assert "Addresses (1)" in page.words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min"), (7200, "2 h"), (200_000, "2 d"), (-5, "0 s")],
)
def test_ages_are_short(seconds: int, words: str) -> None:
    now = time_text(time_of(gallery.NOW) + timedelta(seconds=seconds))
    assert age(gallery.NOW, now) == words
