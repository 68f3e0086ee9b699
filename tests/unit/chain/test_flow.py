import msgspec
import pytest

from netdra.chain import flow
from netdra.model.errors import InvalidInputError
from netdra.model.plan import ClaimReference, Plan, PlannedStep
from netdra.model.result import CNIAddress, CNIInterface, CNIRoute, StepDevice, StepResult

POD = "/run/netns/x"


def step(name: str, *after: str, if_name: str = "net1", binary: bool = False) -> PlannedStep:
    return PlannedStep(
        name=name,
        type="t",
        if_name=if_name,
        network=f"n-{name}",
        execution="Binary" if binary else "Builtin",
        depend_on=after,
    )


def plan(*steps: PlannedStep) -> Plan:
    return Plan(topology="t", claim=ClaimReference(namespace="", name="", uid=""), steps=steps)


def nic(name: str = "net1", mtu: int = 1500, **facts: str) -> CNIInterface:
    return CNIInterface(name=name, mac="02:00:00:00:00:01", mtu=mtu, sandbox=POD, **facts)


def result(*interfaces: CNIInterface) -> StepResult:
    return StepResult(interfaces=interfaces)


def test_steps_of_two_plans_have_keys_of_their_own() -> None:
    found = flow.tasks([plan(step("a"), step("b", "a")), plan(step("a"))])
    assert list(found) == ["0/a", "0/b", "1/a"]
    assert found["0/b"].after == ("0/a",)


def test_all_ancestors_can_be_referred_to() -> None:
    found = flow.tasks([plan(step("a"), step("b", "a"), step("c", "b"))])
    assert found["0/c"].ancestors == {"a": "0/a", "b": "0/b"}


def test_steps_on_one_interface_come_one_after_the_other_as_they_are_written() -> None:
    steps = (step("a"), step("b", "a"), step("other", "a", if_name="net2"), step("c", "a"))
    found = flow.tasks([plan(*steps)])
    assert flow.edges(found) == {"0/a": (), "0/b": ("0/a",), "0/other": ("0/a",), "0/c": ("0/a", "0/b")}
    left = {key: found[key] for key in ("0/a", "0/c")}
    assert flow.edges(left) == {"0/a": (), "0/c": ("0/a",)}


@pytest.mark.parametrize(
    "steps",
    [
        (step("a"), step("a")),
        (step("a", "b"), step("b")),
        (step("a", "a"),),
        (step("a", "nowhere"),),
        (step("a", if_name="a/b"),),
        (step("a", if_name="100%"),),
        (step("a", if_name=""),),
    ],
)
def test_a_plan_that_cannot_be_run_in_its_order_is_refused(steps: tuple[PlannedStep, ...]) -> None:
    with pytest.raises(InvalidInputError):
        flow.tasks([plan(*steps)])


def test_one_dependency_gives_its_result_as_it_is() -> None:
    found = flow.tasks([plan(step("a"), step("b", "a"))])
    given = StepResult(interfaces=(nic(),), ips=(CNIAddress(address="10.0.0.1/8", interface=0),))
    assert flow.previous(found["0/b"], found, {"0/a": given}) is given


def test_a_root_step_is_given_nothing() -> None:
    found = flow.tasks([plan(step("a"))])
    assert flow.previous(found["0/a"], found, {}) == StepResult()


def test_previous_takes_the_latest_change_of_an_interface_in_two_results() -> None:
    found = flow.tasks([plan(step("dev"), step("tune", "dev"), step("end", "dev", "tune"))])
    results = {"0/dev": result(nic(mtu=1500)), "0/tune": result(nic(mtu=9000))}
    assert flow.previous(found["0/end"], found, results).interfaces == (nic(mtu=9000),)


def test_a_branch_that_passes_an_old_interface_on_does_not_bring_it_back() -> None:
    steps = (step("dev"), step("tune", "dev"), step("other", "dev", if_name="net2"), step("end", "other", "tune"))
    found = flow.tasks([plan(*steps)])
    results = {
        "0/dev": result(nic(mtu=1500)),
        "0/tune": result(nic(mtu=9000)),
        "0/other": result(nic(mtu=1500), nic("net2")),
    }
    assert flow.previous(found["0/end"], found, results).interfaces == (nic(mtu=9000), nic("net2"))


def test_fields_that_an_older_plugin_cannot_pass_on_are_kept() -> None:
    steps = (
        step("dev"),
        step("old", "dev", binary=True),
        step("side", "dev", if_name="net2"),
        step("end", "old", "side"),
    )
    found = flow.tasks([plan(*steps)])
    results = {
        "0/dev": result(nic(pci_id="0000:03:00.2")),
        "0/old": result(CNIInterface(name="net1", mac="02:00:00:00:00:02", sandbox=POD)),
        "0/side": result(nic("net2")),
    }
    (first, _) = flow.previous(found["0/end"], found, results).interfaces
    assert (first.mac, first.mtu, first.pci_id) == ("02:00:00:00:00:02", 1500, "0000:03:00.2")


def test_the_final_result_of_a_chain_is_its_last() -> None:
    found = flow.tasks([plan(step("a"), step("b", "a"), step("c", "b"))])
    results = {"0/a": result(nic()), "0/b": result(nic(), nic("net2")), "0/c": result(nic(), nic("net2"), nic("net3"))}
    for key in found:
        assert flow.final(key, found, results) == results["0/c"]


def test_the_final_result_of_an_incomplete_chain_is_the_last_available() -> None:
    found = flow.tasks([plan(step("a"), step("b", "a"), step("c", "b"))])
    results = {"0/a": result(nic())}
    assert flow.final("0/a", found, results) == results["0/a"]
    assert flow.final("0/b", found, results) is None


def test_the_final_result_of_a_fork_is_the_merge_of_its_ends() -> None:
    found = flow.tasks([plan(step("a"), step("b", "a", if_name="net2"), step("c", "a", if_name="net3"))])
    results = {"0/a": result(nic()), "0/b": result(nic(), nic("net2")), "0/c": result(nic(), nic("net3"))}
    assert flow.final("0/a", found, results) == result(nic(), nic("net2"), nic("net3"))
    assert flow.final("0/b", found, results) == results["0/b"]


def test_the_final_result_does_not_include_other_plans() -> None:
    found = flow.tasks([plan(step("a")), plan(step("a", if_name="net2"))])
    results = {"0/a": result(nic()), "1/a": result(nic("net2"))}
    assert flow.final("0/a", found, results) == result(nic())


def test_a_step_expects_the_changes_that_later_steps_made() -> None:
    found = flow.tasks([plan(step("dev"), step("tune", "dev"), step("drops", "tune", if_name="net2", binary=True))])
    results = {
        "0/dev": StepResult(interfaces=(nic(mtu=1500),), devices=(StepDevice(rdma_device="mlx5_0"),)),
        "0/tune": StepResult(interfaces=(nic(mtu=9000),), ips=(CNIAddress(address="10.0.0.1/8", interface=0),)),
        "0/drops": result(nic("net2")),
    }
    expected = flow.expected("0/dev", found, results)
    assert expected.interfaces == (nic(mtu=9000), nic("net2", mtu=0))
    assert expected.ips == (CNIAddress(address="10.0.0.1/8", interface=0),)
    assert expected.devices == (StepDevice(rdma_device="mlx5_0"),)


def test_the_mtu_is_not_expected_after_a_binary_changed_the_interface() -> None:
    found = flow.tasks([plan(step("dev"), step("tune", "dev", binary=True))])
    results = {"0/dev": result(nic(mtu=1500)), "0/tune": result(nic(mtu=1500))}
    assert flow.expected("0/dev", found, results).interfaces == (nic(mtu=0),)


@pytest.mark.parametrize(("binary", "mtu"), [(False, None), (True, 1400)])
def test_a_later_tuning_step_determines_the_expected_mtu(binary: bool, mtu: int | None) -> None:
    config = {} if mtu is None else {"mtu": mtu}
    tuned = msgspec.structs.replace(step("tune", "old", binary=binary), type="tuning", config=config)
    found = flow.tasks([plan(step("dev"), step("old", "dev", binary=True), tuned)])
    results = {"0/dev": result(nic(mtu=1500)), "0/old": result(nic(mtu=1500)), "0/tune": result(nic(mtu=1400))}
    assert flow.expected("0/dev", found, results).interfaces == (nic(mtu=1400),)


def told(name: str, *ips: str, mac: str = "02:00:00:00:00:01") -> StepResult:
    interface = CNIInterface(name=name, mac=mac, sandbox=POD)
    return StepResult(interfaces=(interface,), ips=tuple(CNIAddress(address=each, interface=0) for each in ips))


def test_a_step_of_a_chain_is_checked_with_the_chains_final_result() -> None:
    found = flow.tasks([plan(step("a", binary=True), step("b", "a", binary=True))])
    changed = told("net1", "10.0.0.1/8", mac="02:00:00:00:00:02")
    results = {"0/a": told("net1"), "0/b": changed}
    assert flow.to_check("0/a", found, results) == changed
    assert flow.to_check("0/b", found, results) == changed


def test_a_step_is_checked_with_nothing_of_another_branch_nor_of_another_interface() -> None:
    steps = (
        step("left", binary=True),
        step("right", if_name="net2", binary=True),
        step("both", "left", "right", binary=True),
        step("top", "right", if_name="net3", binary=True),
    )
    found = flow.tasks([plan(*steps)])
    left, right = told("net1", "10.1.0.1/8"), told("net2", "10.2.0.1/8")
    both = StepResult(
        interfaces=(nic("net1"), *right.interfaces),
        ips=(*left.ips, CNIAddress(address="10.2.0.1/8", interface=1)),
    )
    results = {"0/left": left, "0/right": right, "0/both": both, "0/top": told("net3", "10.3.0.1/8")}
    assert flow.to_check("0/left", found, results).ips == left.ips
    assert flow.to_check("0/right", found, results).ips == right.ips
    assert flow.to_check("0/both", found, results).ips == both.ips


def test_an_open_vswitch_port_is_checked_with_no_interface_that_a_later_step_made() -> None:
    """As `bandwidth` makes one on the host behind the veth of `ovs`."""
    port = msgspec.structs.replace(step("port", binary=True), type="ovs")
    found = flow.tasks([plan(port, step("limit", "port", binary=True))])
    far = CNIInterface(name="veth1", mac="02:00:00:00:00:03")
    ifb = CNIInterface(name="bwp1")
    ips = (CNIAddress(address="10.0.0.1/8", interface=1),)
    more = (CNIAddress(address="10.0.0.1/8", interface=2), CNIAddress(address="10.9.0.1/8", interface=0))
    results = {
        "0/port": StepResult(interfaces=(far, nic(mtu=0)), ips=ips),
        "0/limit": StepResult(interfaces=(ifb, far, nic(mtu=0)), ips=more),
    }
    assert flow.to_check("0/port", found, results) == results["0/port"]
    assert flow.to_check("0/limit", found, results) == results["0/limit"]


@pytest.mark.parametrize("kind", ["sbr", "vrf"])
def test_a_step_is_checked_with_no_route_that_a_later_one_moved_to_another_table(kind: str) -> None:
    mover = msgspec.structs.replace(step("moves", "port", binary=True), type=kind)
    found = flow.tasks([plan(step("port", binary=True), mover)])
    routed = StepResult(interfaces=(nic(),), routes=(CNIRoute(dst="10.9.0.0/16", gw="10.0.0.9"),))
    results = {"0/port": routed, "0/moves": routed}
    assert flow.to_check("0/port", found, results) == result(nic())
    assert flow.to_check("0/moves", found, results) == routed


def test_an_earlier_step_is_checked_with_an_interface_as_a_later_step_changed_it() -> None:
    steps = (step("a", binary=True), step("b", if_name="net2", binary=True), step("c", "a", "b", binary=True))
    found = flow.tasks([plan(*steps)])
    changed = CNIInterface(name="net1", mac="02:00:00:00:00:99", sandbox=POD)
    results = {"0/a": told("net1"), "0/b": told("net2"), "0/c": StepResult(interfaces=(changed,))}
    assert flow.to_check("0/a", found, results).interfaces == (changed,)
