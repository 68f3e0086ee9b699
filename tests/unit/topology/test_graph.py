"""A topology becomes a graph, or an error that states everything that is wrong with it and where."""

import time
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model.errors import InvalidInputError
from netdra.model.meta import ObjectMeta
from netdra.model.names import is_extended_resource
from netdra.model.policy import PolicySelector
from netdra.model.topology import MAX_ROOTS, MAX_STEPS, NetworkTopology, NetworkTopologySpec, Step
from netdra.topology.graph import compile_topology, examine

Topology = Callable[..., NetworkTopology]


def test_steps_run_after_their_dependencies_and_otherwise_as_declared(topology: Topology) -> None:
    graph = compile_topology(
        topology("""
        - {name: tune, type: tuning, dependOn: [bond]}
        - {name: b, type: sriov}
        - {name: bond, type: bond, dependOn: [a, b]}
        - {name: a, type: sriov}
        - {name: last, type: tuning, dependOn: [b]}
        """)
    )
    assert [step.name for step in graph.steps] == ["b", "a", "bond", "tune", "last"]
    assert graph.levels == (("b", "a"), ("bond", "last"), ("tune",))
    assert [step.name for step in graph.roots] == ["b", "a"]
    assert graph.ancestors == {
        "a": frozenset(),
        "b": frozenset(),
        "bond": {"a", "b"},
        "tune": {"a", "b", "bond"},
        "last": {"b"},
    }


def test_references_are_found_with_their_places(topology: Topology) -> None:
    graph = compile_topology(
        topology("""
        - {name: a, type: sriov}
        - {name: b, type: bond, dependOn: [a], config: {links: [{name: "{{ a.interfaceName }}"}]}}
        """)
    )
    ((path, reference),) = graph.references["b"]
    assert (path, str(reference)) == (("links", 0, "name"), "{{ a.interfaceName }}")


ROOT = "{name: a, type: sriov}"
CASES = {
    f"- {ROOT}\n- {{name: b, type: bond, dependOn: [c]}}": (
        'step "b": dependOn names "c", which is not a step of this topology; its steps are a, b',
        ("spec", "steps", 1, "dependOn", 0),
    ),
    "- {name: a, type: bond, dependOn: [a]}": ("dependOn names the step itself", ("spec", "steps", 0, "dependOn", 0)),
    f"- {ROOT}\n- {{name: b, type: bond, dependOn: [a, a]}}": (
        'dependOn names "a" twice',
        ("spec", "steps", 1, "dependOn", 1),
    ),
    f"- {ROOT}\n- {ROOT}": ('step "a": the name appears twice', ("spec", "steps", 1, "name")),
    f"- {ROOT}\n- {{name: b, type: x, dependOn: [c]}}\n- {{name: c, type: x, dependOn: [d]}}\n"
    "- {name: d, type: x, dependOn: [b, a]}": (
        "dependOn goes in a circle: b -> c -> d -> b",
        ("spec", "steps", 1, "dependOn"),
    ),
    "- {name: A, type: sriov}": ('step "A": the name is not a DNS label', ("spec", "steps", 0, "name")),
    "- {name: '', type: sriov}": ("the name is not a DNS label", ("spec", "steps", 0, "name")),
    "- {name: a, type: ../bin/sh}": ('type "../bin/sh" is not a valid CNI plugin name', ("spec", "steps", 0, "type")),
    "- {name: a, type: /bin/sh}": ('type "/bin/sh" is not a valid CNI plugin name', ("spec", "steps", 0, "type")),
    "- {name: a, type: a..b}": ('type "a..b" is not a valid CNI plugin name', ("spec", "steps", 0, "type")),
    "- {name: a, type: '..'}": ('type ".." is not a valid CNI plugin name', ("spec", "steps", 0, "type")),
    "- {name: a, type: 'x\\ny'}": ("is not a valid CNI plugin name", ("spec", "steps", 0, "type")),
    "- {name: a, type: ''}": ('type "" is not a valid CNI plugin name', ("spec", "steps", 0, "type")),
    "- {name: a, type: sriov, selector: null}": ("needs a selector", ("spec", "steps", 0)),
    f"- {ROOT}\n- {{name: b, type: x, dependOn: [a], selector: {{cel: 'true'}}}}": (
        "its selector would select nothing",
        ("spec", "steps", 1, "selector"),
    ),
    "- {name: a, type: sriov, extendedResourceName: x.org/vf}\n- {name: b, type: sriov}": (
        'extendedResourceName: a pod that requests it gets no device for root step "b"',
        ("spec", "steps", 0, "extendedResourceName"),
    ),
    f"- {ROOT}\n- {{name: b, type: x, dependOn: [a], extendedResourceName: x.org/vf}}": (
        "only a step without dependOn",
        ("spec", "steps", 1, "extendedResourceName"),
    ),
    "- {name: a, type: sriov, extendedResourceName: vf}": (
        'extendedResourceName "vf" is not a valid name',
        ("spec", "steps", 0, "extendedResourceName"),
    ),
    "- {name: a, type: sriov, config: {prevResult: {}}}": (
        "config.prevResult is written by netdra",
        ("spec", "steps", 0, "config", "prevResult"),
    ),
    "- {name: a, type: sriov, config: {mac: '{{ b.mac }}'}}": (
        'step "a": config.mac: {{ b.mac }} names no step of this topology',
        ("spec", "steps", 0, "config", "mac"),
    ),
    "- {name: a, type: sriov, config: {mac: '{{ a.mac }}'}}": (
        "names the step itself",
        ("spec", "steps", 0, "config", "mac"),
    ),
    f"- {ROOT}\n- {{name: b, type: sriov, config: {{deep: [{{mac: 'x {{{{ a.mac }}}}'}}]}}}}": (
        'config.deep[0].mac: {{ a.mac }} names a step that "b" does not depend on; add "a" to dependOn',
        ("spec", "steps", 1, "config", "deep", 0, "mac"),
    ),
    "- {name: a, type: sriov, config: {mac: '{{ b.mac }}'}}\n- {name: b, type: x, dependOn: [a]}": (
        "does not depend on; only the results of steps that ran before",
        ("spec", "steps", 0, "config", "mac"),
    ),
    "- {name: a, type: sriov, config: {mac: '{{ a.mtu }}'}}": (
        'step "a": config.mac: "{{ a.mtu }}": a result has no such field',
        ("spec", "steps", 0, "config"),
    ),
}


@pytest.mark.parametrize("steps", CASES, ids=range(len(CASES)))
def test_an_unsound_topology_is_refused_with_the_reason_and_the_place(topology: Topology, steps: str) -> None:
    graph, findings = examine(topology(steps))
    message, path = CASES[steps]
    assert graph is None
    assert [(message in finding.text, finding.path) for finding in findings] == [(True, path)]
    assert findings[0].what.startswith('NetworkTopology "net", step "')


def test_more_root_steps_than_a_claim_has_requests_are_refused(topology: Topology) -> None:
    graph, findings = examine(topology("\n".join(f"- {{name: r{at}, type: sriov}}" for at in range(33))))
    assert graph is None
    assert findings[0].what == 'NetworkTopology "net": 33 root steps; a claim has up to 32 requests'


def test_a_topology_may_have_a_root_step_for_each_request_of_a_claim(topology: Topology) -> None:
    steps = "\n".join(f"- {{name: r{at}, type: sriov}}" for at in range(MAX_ROOTS))
    assert len(compile_topology(topology(steps)).roots) == MAX_ROOTS


def test_all_errors_of_a_topology_are_reported_at_once(topology: Topology) -> None:
    with pytest.raises(InvalidInputError) as caught:
        compile_topology(topology("- {name: A, type: /x, dependOn: [q]}\n- {name: A, type: sriov}", name="Bad_Name"))
    for part in ("Bad_Name", "not a DNS label", '"/x"', '"q"', "appears twice", "not a DNS subdomain"):
        assert part in str(caught.value)


@pytest.mark.parametrize("count", [0, MAX_STEPS + 1])
def test_the_number_of_steps_is_limited(count: int) -> None:
    steps = tuple(Step(name=f"a{at}", type="sriov", selector=PolicySelector(cel="true")) for at in range(count))
    with pytest.raises(InvalidInputError, match=f"{count} steps, of which there may be 1 to {MAX_STEPS}"):
        compile_topology(_of(steps))


def test_a_hostile_topology_is_refused_in_bounded_time_with_a_bounded_error() -> None:
    step = Step(name="n" * 1_000_000, type="t\x00" * 100_000, depend_on=("a",) * 100_000)
    topology = msgspec.structs.replace(_of((step,)), metadata=ObjectMeta(name="x\x00" * 500_000))
    started = time.process_time()
    _, findings = examine(topology)
    assert time.process_time() - started < 5
    assert max(len(finding.text) for finding in findings) < 1000
    assert all(finding.text.isprintable() for finding in findings)


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("example.org/vf-physnet2", True),
        ("vf", False),
        ("kubernetes.io/vf", False),
        ("x.kubernetes.io/vf", False),
        ("requests.example.org/vf", False),
        ("example.org/a/b", False),
        ("example..org/a", False),
        ("Example.org/a", False),
        ("example.org/", False),
        ("example.org/" + "a" * 64, False),
    ],
)
def test_extended_resources_are_named_as_kubernetes_asks(name: str, valid: bool) -> None:
    assert is_extended_resource(name) is valid


def _of(steps: tuple[Step, ...]) -> NetworkTopology:
    return NetworkTopology(
        metadata=ObjectMeta(name="net"),
        spec=NetworkTopologySpec(steps=steps),
        api_version="networking.dra.io/v1alpha1",
        kind="NetworkTopology",
    )


@st.composite
def step_lists(draw: st.DrawFn) -> tuple[Step, ...]:
    count = draw(st.integers(1, 8))
    steps = []
    for at in range(count):
        others = [f"s{other}" for other in range(count) if other != at] or ["s0"]
        depend_on = tuple(draw(st.lists(st.sampled_from(others), unique=True, max_size=3)))
        selector = None if depend_on else PolicySelector(cel="true")
        steps.append(Step(name=f"s{at}", type="t", depend_on=depend_on, selector=selector))
    return tuple(steps)


@given(step_lists())
def test_any_graph_is_ordered_or_refused_for_its_circle(steps: tuple[Step, ...]) -> None:
    graph, findings = examine(_of(steps))
    if graph is None:
        assert len(findings) == 1
        assert "circle" in findings[0].what or "itself" in findings[0].what
        return
    place = {step.name: at for at, step in enumerate(graph.steps)}
    level = {name: at for at, group in enumerate(graph.levels) for name in group}
    assert sorted(place) == sorted(level) == sorted(step.name for step in steps)
    for step in steps:
        assert all(place[name] < place[step.name] and level[name] < level[step.name] for name in step.depend_on)
        assert graph.ancestors[step.name] >= set(step.depend_on)
