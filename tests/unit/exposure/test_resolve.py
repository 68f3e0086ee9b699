"""Which policies win on an interface, and that nothing is exposed by accident."""

from __future__ import annotations

import msgspec
import pytest

from netdra.exposure import expose
from netdra.model.device import Decision, ExposureResult
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import Interface, Inventory, InventoryNode
from tests.builders import OURS, exclude, exclusive, inventory, named, pf, policy, shared

NIC = Interface(if_name="eth1", type="nic", mac="02:00:00:00:00:01", mtu=1500)
OTHER = Interface(if_name="eth2", type="nic", mac="02:00:00:00:00:02", mtu=9000)
BAD_CEL = f"{OURS}.nope == 1"


def outcomes(result: ExposureResult, device: str = "eth1") -> dict[str, str]:
    return {verdict.policy: verdict.outcome for verdict in decision(result, device).verdicts}


def decision(result: ExposureResult, device: str = "eth1") -> Decision:
    return next(each for each in result.decisions if each.device_name == device)


def names(result: ExposureResult) -> list[str]:
    return [device.name for device in result.devices]


def test_an_interface_that_no_policy_matches_is_hidden() -> None:
    result = expose(inventory(NIC), [exclusive("p", named("eth9"))])
    assert names(result) == []
    assert outcomes(result) == {"p": "no-match"}
    assert decision(result).reason == "hidden: not matched by any policy"


def test_an_interface_is_hidden_by_a_policy_that_cannot_be_evaluated_or_by_none_that_matches() -> None:
    failing = exclusive("p", 'device.attributes["example.org"].rack == "1"')
    assert decision(expose(inventory(NIC), [exclusive("p", named("eth9"))])).hidden == "no-match"
    assert decision(expose(inventory(NIC), [failing])).hidden == "no-answer"


def test_exclude_wins_over_a_higher_priority() -> None:
    result = expose(inventory(NIC), [exclusive("p", "true", spec={"priority": 1000}), exclude("x", "true", priority=0)])
    assert names(result) == []
    assert outcomes(result) == {"p": "overruled", "x": "excludes"}
    assert decision(result).reason == 'hidden: exclude policy "x" matches it'


def test_the_highest_priority_of_a_suffix_wins_and_ties_go_to_the_first_name() -> None:
    policies = [
        exclusive("low", "true", spec={"priority": 1}),
        exclusive("b", "true", spec={"priority": 7}),
        exclusive("a", "true", spec={"priority": 7}),
        exclusive("z", "true", spec={"priority": 0}, deviceNameSuffix="-z"),
    ]
    result = expose(inventory(NIC), policies)
    assert [(device.name, device.policy) for device in result.devices] == [("eth1", "a"), ("eth1-z", "z")]
    assert outcomes(result) == {"low": "outranked", "a": "wins", "b": "outranked", "z": "wins"}
    assert [verdict.policy for verdict in decision(result).verdicts] == ["a", "b", "low", "z"]


def test_policies_of_other_nodes_do_nothing() -> None:
    here = exclusive("here", "true", spec={"nodeSelector": {"matchLabels": {"zone": "a"}}})
    there = exclude("there", "true", nodeSelector={"matchLabels": {"zone": "b"}})
    result = expose(inventory(NIC, labels={"zone": "a"}), [here, there])
    assert names(result) == ["eth1"]
    assert outcomes(result) == {"here": "wins", "there": "other-node"}


def test_an_expose_policy_that_fails_on_a_device_does_not_match_it_and_only_it() -> None:
    only_jumbo = policy("p", f'{OURS}.mtu > 2000 || {OURS}["nope"] == 1')
    result = expose(inventory(NIC, OTHER), [only_jumbo])
    assert names(result) == ["eth2"]
    assert outcomes(result) == {"p": "failed"}
    assert outcomes(result, "eth2") == {"p": "wins"}
    (problem,) = result.problems
    assert (problem.policy, problem.interface) == ("p", "eth1")
    assert problem.message.startswith("eth1 is not matched: CEL expression fails on this device at line 1, column 87: ")
    assert 'Key not found in map : "nope"' in problem.message


@pytest.mark.parametrize(
    ("selector", "offered"),
    [
        pytest.param(f'{OURS}.ifNmae == "eth1"', ["eth2"], id="a typo hides what the likely name means"),
        pytest.param(f'{OURS}.ifNmae != "eth1"', ["eth1"], id="a typo under a negation, too"),
        pytest.param(f'{OURS}.name == "eth2"', ["eth1"], id="several names are likely, one of them means it"),
        pytest.param(f"{OURS}.mtuu > 2000", ["eth1"], id="a number"),
        pytest.param('device.attributes["dra.network"].ifName == "eth1"', ["eth2"], id="a wrong domain"),
        pytest.param(f'{OURS}.nope == "eth1"', ["eth1", "eth2"], id="a name that is like none hides nothing"),
        pytest.param(f"{OURS}.ifNmae.mtuu == 1", ["eth1", "eth2"], id="two mistakes hide nothing"),
        pytest.param(f"{OURS}.ifNmae == 1", ["eth1", "eth2"], id="the likely name with a wrong type hides nothing"),
        pytest.param(f'{OURS}.mtu > "2000"', ["eth1", "eth2"], id="a wrong type hides nothing"),
        pytest.param(f'{OURS}.ifName.split("-")[1] == "x"', ["eth1", "eth2"], id="so does a failing function"),
    ],
)
def test_a_failing_exclude_policy_hides_only_interfaces_that_its_corrected_selector_matches(
    selector: str, offered: list[str]
) -> None:
    result = expose(inventory(NIC, OTHER), [exclusive("p", "true"), exclude("guard", selector)])
    assert names(result) == offered
    assert {each.policy for each in result.problems} == {"guard"}
    assert len(result.problems) == 2, "it failed on both"
    assert len({each.cause for each in result.problems}) == 1, "of one cause"


def test_the_decision_explains_how_a_failing_exclude_policy_hides_an_interface() -> None:
    result = expose(inventory(NIC), [exclusive("p", "true"), exclude("guard", f'{OURS}.ifNmae == "eth1"')])
    reason = (
        'the expression of exclude policy "guard" fails on it; to be safe it is excluded: with '
        'ifName instead of "ifNmae" it matches'
    )
    assert decision(result).reason == f"hidden: {reason}"
    assert outcomes(result) == {"p": "overruled", "guard": "failed"}
    assert result.problems[0].message.startswith("eth1 is hidden: CEL expression fails on this device")


def test_a_failing_exclude_policy_hides_an_interface_whose_selected_fact_is_unreadable() -> None:
    unread = msgspec.structs.replace(NIC, unreadable=("if_name",))
    result = expose(inventory(unread, OTHER), [exclusive("p", "true"), exclude("guard", f'{OURS}.ifNmae == "eth9"')])
    assert names(result) == ["eth2"]


def test_an_unreadable_fact_is_not_false_for_an_exclude_policy_and_is_not_published() -> None:
    unread = msgspec.structs.replace(NIC, unreadable=("link_speed",))
    slow = exclude("slow", f"{OURS}.linkSpeed > 0 && {OURS}.linkSpeed < 1000")
    result = expose(inventory(unread, OTHER), [exclusive("p", "true"), slow])
    assert names(result) == ["eth2"]
    assert "dra.networking/linkSpeed" not in expose(inventory(unread), [exclusive("p", "true")]).devices[0].attributes


def test_an_expose_policy_that_cannot_be_used_is_used_for_nothing() -> None:
    broken = policy("broken", "true", allowMultipleAllocations=True)
    result = expose(inventory(NIC), [broken, exclusive("p", "true", spec={"priority": 1})])
    assert [(device.name, device.policy) for device in result.devices] == [("eth1", "p")]
    assert outcomes(result) == {"broken": "invalid", "p": "wins"}
    (problem,) = result.problems
    assert problem.policy == "broken"
    assert problem.interface == ""


def test_an_exclude_policy_with_an_invalid_expression_is_reported_and_hides_nothing() -> None:
    broken = exclude("x", "device.typo == 1", nodeSelector={"matchLabels": {"zone": "a"}})
    here = expose(inventory(NIC, labels={"zone": "a"}), [exclusive("p", "true"), broken])
    there = expose(inventory(NIC, labels={"zone": "b"}), [exclusive("p", "true"), broken])
    assert names(here) == names(there) == ["eth1"]
    assert outcomes(here) == {"p": "wins", "x": "invalid"}
    assert "undefined field 'typo'" in here.problems[0].message
    assert there.problems == ()


def test_an_exclude_policy_with_a_broken_node_selector_holds_everywhere() -> None:
    selector = {"matchExpressions": [{"key": "zone", "operator": "In"}]}
    result = expose(inventory(NIC, OTHER), [exclusive("p", "true"), exclude("x", named("eth1"), nodeSelector=selector)])
    assert names(result) == ["eth2"]
    assert [each.policy for each in result.problems] == ["x"]


def test_an_exclude_policy_with_an_unneeded_exposure_is_reported_and_excludes_its_matches() -> None:
    odd = policy("x", named("eth1"), spec={"action": "exclude"}, deviceNameSuffix="***")
    result = expose(inventory(NIC, OTHER), [exclusive("p", "true"), odd])
    assert names(result) == ["eth2"]
    assert [problem.policy for problem in result.problems] == ["x"]


def test_a_host_uplink_is_hidden_unless_the_matching_policy_allows_it() -> None:
    uplink = msgspec.structs.replace(NIC, host_uplink=True)
    plain = exclusive("plain", "true", spec={"priority": 900})
    allowed = exclusive("allowed", "true", allowHostUplink=True)
    hidden = expose(inventory(uplink), [plain])
    assert names(hidden) == []
    assert outcomes(hidden) == {"plain": "overruled"}
    lifted = expose(inventory(uplink), [plain, allowed])
    assert [(device.name, device.policy) for device in lifted.devices] == [("eth1", "allowed")]
    assert outcomes(lifted) == {"plain": "overruled", "allowed": "wins"}
    assert names(expose(inventory(uplink), [allowed, exclude("x", "true")])) == []


def test_an_interface_whose_routes_could_not_be_read_is_protected_as_an_uplink() -> None:
    unknown = msgspec.structs.replace(NIC, unreadable=("host_uplink",))
    assert names(expose(inventory(unknown), [exclusive("p", "true")])) == []


@pytest.mark.parametrize(
    "expression",
    [
        '"a".replace("a", "aa")' + '.replace("a", "aaaaaaaa")' * 20 + " == device.driver",
        'timestamp("2026-01-01T00:00:00Z").getHours("/dev/watchdog") == 1',
        '!"a".matches(r"(\\pL{10}){20}")',
    ],
    ids=["memory", "a file", "time"],
)
def test_a_policy_that_may_take_too_much_is_left_out_and_no_other(expression: str) -> None:
    result = expose(inventory(NIC, OTHER), [policy("attack", expression), exclusive("p", named("eth1"))])
    assert names(result) == ["eth1"]
    assert outcomes(result) == {"attack": "invalid", "p": "wins"}
    (problem,) = result.problems
    assert (problem.policy, problem.left_out) == ("attack", "policy-invalid")


def test_two_policies_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInputError, match='"p" occurs twice'):
        expose(inventory(NIC), [exclusive("p", "true"), exclude("p", "true")])


def test_the_order_of_policies_changes_nothing() -> None:
    policies = [exclusive("a", "true"), shared("b", "true", deviceNameSuffix="-b"), exclude("c", named("eth2"))]
    node = inventory(NIC, OTHER, pf("enp1"))
    assert expose(node, policies) == expose(node, policies[::-1])


def test_a_node_without_interfaces_offers_nothing() -> None:
    assert expose(Inventory(node=InventoryNode(name="n"), interfaces=()), [exclusive("p", "true")]) == ExposureResult()
