"""Random graphs and random failures: in all cases, undoing restores the former state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netdra.chain.check import check
from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.model.plan import Plan, PlannedStep
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, plan, step

MAKE = 'ip -n "$(basename "$CNI_NETNS")" link add "$CNI_IFNAME" type bridge || exit 1'
UNMAKE = 'ip -n "$(basename "$CNI_NETNS")" link del "$CNI_IFNAME" 2>/dev/null; true'
# A plugin that fails before its work, in the midst of it, after it, or by telling nonsense of it.
FAULTS = {"early": "exit 1", "late": f"{MAKE}; exit 1", "dies": f"{MAKE}; kill -KILL $$", "lies": f"{MAKE}; echo ["}


class Drawn(msgspec.Struct, frozen=True):
    """One step of a random graph: what it is, what it depends on, and how it fails."""

    kind: str
    after: tuple[int, ...]
    config: dict[str, Any]
    fault: str = ""


@st.composite
def graphs(draw: st.DrawFn) -> list[Drawn]:
    drawn: list[Drawn] = []
    for place in range(draw(st.integers(1, 5))):
        after = tuple(draw(st.lists(st.integers(0, place - 1), unique=True, max_size=2))) if place else ()
        kind = draw(st.sampled_from(["host-device", "maker", "tuning"] if after else ["host-device", "maker"]))
        config: dict[str, Any] = {}
        if kind == "tuning":
            config["mtu"] = draw(st.integers(1300, 1500))
            config["promisc"] = draw(st.booleans())
            config["addresses"] = [f"10.{place}.0.{draw(st.integers(1, 3))}/24"]
        drawn.append(Drawn(kind, after, config))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(drawn) - 1))
        fault = draw(st.sampled_from(sorted(FAULTS)))
        drawn[at] = msgspec.structs.replace(drawn[at], kind="faulty", config={}, fault=fault)
    return drawn


def planned(drawn: Sequence[Drawn]) -> Plan:
    steps: list[PlannedStep] = []
    for place, each in enumerate(drawn):
        after = [f"s{number}" for number in each.after]
        # A tuning step changes the interface of what it depends on; all others make their own.
        if_name = steps[each.after[-1]].if_name if each.kind == "tuning" else f"net{place}"
        given = device(f"eth{place}") if each.kind == "host-device" else None
        steps.append(step(f"s{place}", each.kind, if_name, each.config, after=after, device=given))
    return plan(*steps)


@pytest.mark.parametrize("parallel", [True, False])
def test_random_graphs_and_failures_restore_the_former_state(bed: Bed, parallel: bool) -> None:
    maker, faulty = recorder(bed, "maker"), recorder(bed, "faulty")
    maker.does(
        "ADD", f'{MAKE}; echo \'{{"interfaces": [{{"name": "\'"$CNI_IFNAME"\'", "sandbox": "\'"$CNI_NETNS"\'"}}]}}\''
    )
    for plugin in (maker, faulty):
        plugin.does("DEL", UNMAKE)
    for number in range(5):
        bed.veth(f"eth{number}", f"peer{number}", mtu=1500 + number, up=number % 2 == 0)
    before = bed.state()

    @example([
        Drawn("host-device", (), {}),
        Drawn("tuning", (0,), {"mtu": 1300, "promisc": False}),
        Drawn("tuning", (0,), {"mtu": 1301, "promisc": True}),
    ])  # fmt: skip  # what a step beside another one changes is no drift of that one
    @example([
        Drawn("host-device", (), {}),
        Drawn("tuning", (0,), {"promisc": True}),
        Drawn("tuning", (0,), {"promisc": False}),
        Drawn("maker", (2, 0), {}),
    ])  # fmt: skip  # while that of the last is undone, the first must wait for the second
    @example([
        Drawn("host-device", (), {}),
        Drawn("maker", (0,), {}),
        Drawn("tuning", (1, 0), {"mtu": 1300}),
        Drawn("tuning", (0,), {"mtu": 1301}),
    ])  # fmt: skip  # the last is ready before the third, which comes first all the same
    @settings(max_examples=12)
    @given(graphs())
    def holds(drawn: list[Drawn]) -> None:
        (fault,) = {each.fault for each in drawn if each.fault} or {""}
        faulty.does("ADD", FAULTS.get(fault, ""))
        plans = (planned(drawn),) if not parallel else (planned(drawn), plan(step("x", "maker", "other"), topology="u"))
        if fault:
            with pytest.raises(AttachError) as caught:
                attach(plans, bed.container, bed.pod.path, bed.settings)
            assert caught.value.report.is_clean, str(caught.value)
        else:
            attach(plans, bed.container, bed.pod.path, bed.settings)
            assert check(bed.container.sandbox, bed.settings).is_clean
            assert detach(bed.container.sandbox, bed.settings).is_clean
        for plugin in (maker, faulty):
            plugin.forget()
        assert differences(before, bed.state()) == []

    holds()
