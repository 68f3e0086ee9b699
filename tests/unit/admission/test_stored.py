"""Objects that were stored before a rule came: they can be corrected and changed elsewhere, and get no new error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from netdra.admission.messages import AdmissionRequest
from netdra.admission.requests import verdict_on
from netdra.model.topology import NetworkTopology
from netdra.review.world import World
from tests.builders import policy

Request = Callable[..., AdmissionRequest]
Topology = Callable[..., NetworkTopology]
OLD = "- {name: vf0, type: sriov, config: {vlan: 5000}}\n- {name: vf1, type: sriov}"
SELECTED = OLD.replace("{name: vf1, type: sriov}", "{name: vf1, type: sriov, selector: {cel: 'true'}}")
WORSE = OLD.replace("{name: vf1, type: sriov}", "{name: vf1, type: sriov, config: {vlan: 6000}}")
RIGHT = OLD.replace("5000", "50")
USED = World(users=("app/net",))


def test_an_error_that_was_there_before_is_a_warning(request_of: Request, topology: Topology) -> None:
    refused = verdict_on(request_of(topology("t", OLD)), World())
    assert "vlan" in refused.errors[0]
    verdict = verdict_on(request_of(topology("t", SELECTED), topology("t", OLD)), World())
    assert verdict.errors == ()
    assert verdict.warnings == (f"admitted, because the stored object has the same error: {refused.errors[0]}",)


def test_only_the_new_error_of_an_update_is_reported(request_of: Request, topology: Topology) -> None:
    (error,) = verdict_on(request_of(topology("t", WORSE), topology("t", OLD)), World()).errors
    assert "6000" in error


def test_an_object_rejected_by_a_newer_rule_can_be_corrected_while_pods_use_it(
    request_of: Request, topology: Topology
) -> None:
    assert verdict_on(request_of(topology("t", RIGHT), topology("t", OLD)), USED).allowed
    (frozen,) = verdict_on(request_of(topology("t", OLD), topology("t", RIGHT)), USED).errors
    assert "is used by 1 ResourceClaim of attached pods" in frozen


def test_an_object_that_is_right_gets_no_error(request_of: Request, topology: Topology) -> None:
    assert not verdict_on(request_of(topology("t", OLD), topology("t", RIGHT)), World()).allowed
    wrong: Any = policy("p", "device.driver ==")
    assert not verdict_on(request_of(wrong, policy("p", "true")), World()).allowed
    assert verdict_on(request_of(policy("p", "true"), wrong), World()).allowed
    assert not verdict_on(request_of(policy("p", "device.driver !="), wrong), World()).allowed


DEFAULT = "- name: br\n  type: bridge\n  config: {isDefaultGateway: true}\n"


def test_a_stored_default_route_stays_and_can_be_requested_while_pods_have_it(
    request_of: Request, topology: Topology
) -> None:
    (error,) = verdict_on(request_of(topology("t", DEFAULT)), World()).errors
    assert "a second default route replaces that of eth0" in error
    chosen = topology("t", DEFAULT + "  selector: {cel: 'true'}\n")
    verdict = verdict_on(request_of(chosen, topology("t", DEFAULT)), USED)
    assert verdict.allowed
    assert error in verdict.warnings[0]
    requested = topology("t", DEFAULT + "  defaultRoute: true\n")
    assert verdict_on(request_of(requested, topology("t", DEFAULT)), USED) == verdict_on(request_of(requested), World())
