"""The picture of a graph shows its steps and exactly its dependencies."""

from collections.abc import Callable, Iterator
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.drawing import document
from netdra.drawing.terminal import draw
from netdra.model.meta import ObjectMeta
from netdra.model.policy import PolicySelector
from netdra.model.topology import NetworkTopology, NetworkTopologySpec, Step
from netdra.topology.graph import Graph, compile_topology
from netdra.topology.interfaces import assign

Topology = Callable[..., NetworkTopology]

BONDED = """\
┏━━━━━━━━━━━━━━┓                          ╭──────────────╮   ╭────────────────╮
┃ vf0          ┠─╮                    ╭──▶│ vlan100      ├──▶│ tune-vlan100   │
┃ sriov · net1 ┃ │   ╭──────────────╮ │   │ vlan · data0 │   │ tuning · data0 │
┗━━━━━━━━━━━━━━┛ ├──▶│ bond0        ├─┤   ╰──────────────╯   ╰────────────────╯
                 │   │ bond · bond0 │ │
┏━━━━━━━━━━━━━━┓ │   ╰──────────────╯ │   ╭──────────────╮   ╭────────────────╮
┃ vf1          ┠─╯                    ╰──▶│ vlan200      ├──▶│ tune-vlan200   │
┃ sriov · net2 ┃                          │ vlan · mgmt0 │   │ tuning · mgmt0 │
┗━━━━━━━━━━━━━━┛                          ╰──────────────╯   ╰────────────────╯"""

ASCII = """\
+============================+   +---------------+
| localnet-port              |-->| tune-localnet |
| ovn-k8s-cni-overlay . net1 |   | tuning . net1 |
+============================+   +---------------+"""

LIST = """\
 1. localnet-port  ovn-k8s-cni-overlay · net1
 2. tune-localnet  tuning · net1  ← localnet-port"""


def drawn(topology: NetworkTopology, *, width: int = 120, ascii_only: bool = False) -> str:
    graph = compile_topology(topology)
    return draw(graph, assign([graph])[0], width=width, ascii_only=ascii_only)


def test_a_graph_is_drawn_from_its_devices_to_their_dependent_steps(recorded: Topology) -> None:
    assert drawn(recorded("bonded-vlan-topology")) == BONDED


def test_a_terminal_without_utf_8_gets_ascii(recorded: Topology) -> None:
    text = drawn(recorded("ovnk-localnet-tuned"), ascii_only=True)
    assert text == ASCII
    assert drawn(recorded("bonded-vlan-topology"), ascii_only=True).isascii()


def test_a_step_without_an_interface_of_its_own_shows_none(topology: Topology) -> None:
    """The names of these steps only identify their results; the user writes and sees none of them."""
    made = topology(
        "- {name: nic, type: host-device}\n- {name: raw, type: vfio-pci}\n- {name: card, type: rdma}\n"
        "- {name: verbs, type: rdma, dependOn: [nic]}\n- {name: old, type: rdma, execution: Binary, dependOn: [nic]}"
    )
    lines = [line[4:].split("  ←")[0].split() for line in drawn(made, width=10).splitlines()]

    assert {name: " ".join(label) for name, *label in lines} == {
        "nic": "host-device · net1",
        "raw": "vfio-pci · no interface",
        "card": "rdma · net3",
        "verbs": "rdma · no interface",
        "old": "rdma · net1",
    }
    compiled = compile_topology(made)
    assert document.mermaid(compiled, assign([compiled])[0]).count("no interface") == 2


def test_a_narrow_terminal_gets_a_list(recorded: Topology) -> None:
    assert drawn(recorded("ovnk-localnet-tuned"), width=49) == LIST


def test_mermaid_shows_steps_and_dependencies(topology: Topology) -> None:
    graph = compile_topology(topology("- {name: end, type: sriov}\n- {name: t, type: tuning, dependOn: [end]}"))
    assert document.mermaid(graph, {"end": 'a"#<', "t": "x"}).splitlines() == [
        "flowchart LR",
        '  s0["<b>end</b><br/>sriov · a#quot;#35;&lt;"]:::device',
        '  s1["<b>t</b><br/>tuning · x"]',
        "  s0 --> s1",
        "  classDef device stroke-width:3px",
    ]


def test_svg_is_well_formed_and_shows_all_texts(recorded: Topology) -> None:
    graph = compile_topology(recorded("bonded-vlan-topology"))
    root = ET.fromstring(document.svg(graph, {step.name: "<&>" for step in graph.steps}))
    space = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in root.iter(f"{space}text")]
    assert sorted(texts[::2]) == sorted(step.name for step in graph.steps)  # type: ignore[type-var]
    assert "bond · <&>" in texts
    assert len(root.findall(f"{space}rect[@class='device']")) == 2
    assert len(root.findall(f"{space}path[@class='arrow']")) == 5


# --- every line can be followed

_WAYS = {
    "│": "ud", "─": "lr", "╭": "dr", "╮": "dl", "╰": "ur", "╯": "ul", "├": "udr", "┤": "udl", "┬": "dlr", "┴": "ulr",
    "┼": "udlr",
}  # fmt: skip
_MOVES = {"u": (0, -1), "d": (0, 1), "r": (1, 0)}
_BACK = {"u": "d", "d": "u", "r": "l"}


def edges(text: str, names: set[str]) -> set[tuple[str, str]]:
    """The dependencies that a reader finds by following each line with a finger, from left to right."""
    cells = {(x, y): sign for y, row in enumerate(text.splitlines()) for x, sign in enumerate(row)}
    places = {(x, y): name for y, row in enumerate(text.splitlines()) for x, name in _names(row, names)}
    found = set()
    for (x, y), name in places.items():
        right = next(at for at in range(x, x + 1000) if cells.get((at, y)) in {"├", "┠", "│", "┃"})
        if cells[right, y] in {"├", "┠"}:
            found |= {(name, _box_at(target, cells, places)) for target in _targets(cells, right, y)}
    return found


def _names(row: str, names: set[str]) -> Iterator[tuple[int, str]]:
    for at, sign in enumerate(row):
        if sign in {"│", "┃"} and row[at + 1 : at + 2] == " ":
            word = row[at + 2 :].split(" ", 1)[0]
            if word in names:
                yield at + 2, word


def _targets(cells: dict[tuple[int, int], str], x: int, y: int) -> Iterator[tuple[int, int]]:
    ways, seen = [(x, y, "r")], set()
    while ways:
        x, y, way = ways.pop()
        x, y = x + _MOVES[way][0], y + _MOVES[way][1]
        if (x, y, way) in seen:
            continue
        seen.add((x, y, way))
        sign = cells[x, y]
        if sign == "▶":
            yield x + 1, y
        elif sign == "│" and way == "r":
            ways.append((x, y, "r"))
        else:
            assert _BACK[way] in _WAYS[sign], f"the line breaks off at {x}, {y}"
            ways += [(x, y, next_way) for next_way in _WAYS[sign] if next_way != _BACK[way] and next_way != "l"]


def _box_at(place: tuple[int, int], cells: dict[tuple[int, int], str], places: dict[tuple[int, int], str]) -> str:
    x, y = place
    while (x + 2, y) not in places:
        y -= 1
        assert cells[x, y] in {"│", "┃"}
    return places[x + 2, y]


def graph_of(dependencies: list[list[int]]) -> Graph:
    steps = []
    for at, each in enumerate(dependencies):
        depend_on = tuple(dict.fromkeys(f"s{other % at}" for other in each)) if at else ()
        steps.append(
            Step(
                name=f"s{at}", type="t", depend_on=depend_on, selector=None if depend_on else PolicySelector(cel="true")
            )
        )
    return compile_topology(
        NetworkTopology(
            metadata=ObjectMeta(name="net"),
            spec=NetworkTopologySpec(steps=tuple(steps)),
            api_version="networking.dra.io/v1alpha1",
            kind="NetworkTopology",
        )
    )


def check(graph: Graph) -> None:
    names = {step.name for step in graph.steps}
    text = draw(graph, dict.fromkeys(names, "x"), width=10_000)
    assert edges(text, names) == {(source, step.name) for step in graph.steps for source in step.depend_on}


@given(st.lists(st.lists(st.integers(0, 99), max_size=3), min_size=1, max_size=12))
def test_every_line_of_any_graph_leads_from_a_step_to_one_that_depends_on_it(dependencies: list[list[int]]) -> None:
    check(graph_of(dependencies))


@pytest.mark.parametrize("count", [24, 64])
def test_the_largest_graphs_can_be_followed_too(count: int) -> None:
    check(graph_of([[at * 7 % 5, at * at % 11, at * 3 % 17][: at % 4] for at in range(count)]))
    check(graph_of([list(range(at - 3, at)) if at > 3 else [] for at in range(count)]))
