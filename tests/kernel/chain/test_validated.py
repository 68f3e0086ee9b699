"""Topologies that pass the checks are attached in real namespaces, or fail only with the kernel's own errors.

Topologies are drawn of steps that every kernel has, with values right, almost right and wrong. An error before the
first step of one that passed is a mistake that the checks should have reported to its author.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.model.documents import convert
from netdra.model.plan import Plan
from netdra.model.topology import NetworkTopology
from netdra.rules.topologies import check_topology, check_unwise
from netdra.topology.bind import unbound
from tests import draws
from tests.kernel.chain.conftest import Bed, device, differences
from tests.plans import attach

DEVICES = 3
KERNEL_SAID = re.compile(r"\(E[A-Z]+\)")
ADDRESSES = st.sampled_from([
    "10.0.0.1", "10.0.0.1/24", "10.0.0.2/24", "10.0.1.1/33", "fd00::1/64", "fe80::7/64", "{{ d0.mac }}", "0.0.0.0/0",
    "224.0.0.1/4", "10.0.0.255/24",
])  # fmt: skip
ROUTES = st.fixed_dictionaries(
    {"destination": st.sampled_from(["10.9.0.0/16", "default", "0.0.0.0/0", "fd01::/64", "everywhere", "10.9.0.1"])},
    optional={
        "gateway": st.sampled_from(["10.0.0.9", "10.0.0.9/24", "fd00::9", "nope", "192.0.2.1"]),
        "metric": st.sampled_from([0, 7, 2**32]),
        "scope": st.sampled_from(["link", "global", "nowhere", 253]),
        "onlink": st.booleans(),
    },
)
TUNED = st.fixed_dictionaries(
    {},
    optional={
        "mtu": st.sampled_from([67, 68, 1280, 1400, 1500, 65535, "1400"]),
        "mac": st.sampled_from(["02:00:00:00:00:77", "zz", "01:00:00:00:00:01", "{{ d0.interfaceName }}"]),
        "promisc": st.sampled_from([True, False, "on"]),
        "txqlen": st.sampled_from([0, 100, -1]),
        "addresses": st.lists(ADDRESSES, max_size=2),
        "routes": st.lists(ROUTES, max_size=2),
        "sysctl": st.dictionaries(
            st.sampled_from(["net.ipv4.conf.IFNAME.rp_filter", "net.ipv4.nothing", "kernel.shmmax", "net"]),
            st.sampled_from(["0", "1", "many"]),
            max_size=1,
        ),
        "dev": st.sampled_from(["net1", "net7", "{{ d0.interfaceName }}"]),
        "dve": st.just("net1"),
    },
)


@st.composite
def topologies(draw: st.DrawFn) -> NetworkTopology:
    roots = draw(st.integers(1, DEVICES))
    steps: list[dict[str, Any]] = [
        {"name": f"d{place}", "type": "host-device", "selector": {"cel": "true"}} for place in range(roots)
    ]
    for place in range(draw(st.integers(0, 3))):
        after = draw(st.sampled_from([each["name"] for each in steps]))
        steps.append({"name": f"t{place}", "type": "tuning", "dependOn": [after], "config": draw(TUNED)})
    return topology(steps)


def topology(steps: list[dict[str, Any]]) -> NetworkTopology:
    value = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "NetworkTopology",
        "metadata": {"name": "t"},
        "spec": {"steps": steps},
    }
    return convert(value, NetworkTopology, "drawn")


def planned(drawn: NetworkTopology) -> Plan:
    """The plan of a topology whose root steps were given the bed's devices."""
    plan = unbound(drawn)
    steps = tuple(
        step if step.depend_on else msgspec.structs.replace(step, device=device(f"eth{step.name[1:]}"))
        for step in plan.steps
    )
    return msgspec.structs.replace(plan, steps=steps)


def refusals(bed: Bed, plan: Plan) -> list[str]:
    """Why a plan could not be attached, of which nothing is left then; nothing if it is attached."""
    try:
        attach([plan], bed.container, bed.pod.path, bed.settings)
    except AttachError as problem:
        return [
            *(each.message for each in problem.report.failures),
            *([] if problem.report.is_clean else ["not undone"]),
        ]
    return []


RIGHT = topology(
    [
        {"name": "d0", "type": "host-device", "selector": {"cel": "true"}},
        {
            "name": "t0",
            "type": "tuning",
            "dependOn": ["d0"],
            "config": {"addresses": ["10.0.0.1/24"], "routes": [{"destination": "default", "gateway": "10.0.0.9"}]},
        },
    ]
)


def test_a_topology_that_passes_validation_attaches_or_fails_only_with_kernel_errors(bed: Bed) -> None:
    for place in range(DEVICES):
        bed.veth(f"eth{place}", f"peer{place}", up=True)
    before = bed.state()
    attached = 0

    @example(RIGHT)
    @settings(max_examples=draws.count(40, 400))
    @given(topologies())
    def holds(drawn: NetworkTopology) -> None:
        nonlocal attached
        if check_topology(drawn) or any(check_unwise(drawn)):
            return
        said = refusals(bed, planned(drawn))
        assert all(KERNEL_SAID.search(each) or "is not one of this network namespace" in each for each in said)
        if not said:
            attached += 1
            assert detach(bed.container.sandbox, bed.settings).is_clean
        assert differences(before, bed.state()) == []

    holds()
    assert attached
