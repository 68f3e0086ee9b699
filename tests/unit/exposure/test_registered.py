"""Providers' facts about devices: the rules, their order, and that nothing of netdra's own is touched."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.exposure import Exposer, expose
from netdra.exposure.registered import Registered, errors, of_custom_device
from netdra.model import documents
from netdra.model.custom_device import CustomDevice
from netdra.model.device import ExposureResult, Features
from netdra.model.inventory import Interface
from netdra.model.registration import Registration
from netdra.model.resource import (
    MAX_ATTRIBUTE_VALUES,
    MAX_ATTRIBUTES_AND_CAPACITIES,
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    DeviceAttribute,
    DeviceCapacity,
)
from netdra.slices.pack import layout
from tests.builders import OURS, exclude, exclusive, inventory, named, policy, shared, sriov

ETH = Interface(if_name="eth7", type="veth", mac="02:00:00:00:00:07", mtu=1500, oper_state="up")
WIRE = Interface(if_name="eth0.100", type="vlan", mac="02:00:00:00:00:08", mtu=1500)
WHOLE = exclusive("whole", named("eth7"))
SHARED = shared("shared", named("eth7"), deviceNameSuffix="-shared")
TRUE = DeviceAttribute(bool_=True)
LIMIT = str(2**63 - 1)


def says(provider: str = "bctl", device: str = "eth7", **said: Any) -> Registration:
    return Registration(provider=provider, device=device, **said)


def amount(value: str | int, **policy: Any) -> DeviceCapacity:
    return DeviceCapacity(value=value, request_policy=CapacityRequestPolicy(**policy) if policy else None)


def result(*said: Registration, policies: Any = (WHOLE,), features: Features | None = None) -> ExposureResult:
    return expose(inventory(ETH), policies, registered=Registered(said), features=features or Features())


class TestRules:
    @pytest.mark.parametrize(
        ("provider", "attributes", "capacity", "message"),
        [
            ("", {}, {}, "is not a domain"),
            ("B", {}, {}, "is not a domain"),
            ("a" * 64, {}, {}, "is not a domain"),
            *(
                (domain, {}, {}, "is reserved; use a domain of your own")
                for domain in (
                    *("dra.networking", "x.dra.networking", "networking.dra.io", "cni.networking.dra.io"),
                    *("kubernetes.io", "k8s.io", "x.k8s.io", "cni.networking.k8s.io"),
                )
            ),
            ("bctl", {"a-b": TRUE}, {}, "must have at most 32 letters"),
            ("bctl", {"a" * 33: TRUE}, {}, "must have at most 32 letters"),
            ("bctl", {"dra.networking/mtu": TRUE}, {}, "must have at most 32 letters"),
            ("bctl", {"a": DeviceAttribute()}, {}, "the attribute has 0 values"),
            ("bctl", {"a": DeviceAttribute(string="x" * 65)}, {}, "longer than 64 bytes"),
            ("bctl", {"a": DeviceAttribute(string="é" * 33)}, {}, "longer than 64 bytes"),
            ("bctl", {"a": DeviceAttribute(version="v1.2.3")}, {}, "not a semantic version"),
            ("bctl", {"a": DeviceAttribute(version=f"1.2.{10**18}")}, {}, "at most 18 digits"),
            ("bctl", {"a": DeviceAttribute(versions=("1.2.3", f"1.2.3-a.{10**18}"))}, {}, "at most 18 digits"),
            ("bctl", {"a/b": DeviceAttribute(string="x")}, {}, "letters, digits and _"),
            ("bctl", {"a": DeviceAttribute(int_=-(2**63) - 1)}, {}, "not a 64-bit integer"),
            ("bctl", {}, {"a": amount("-1")}, "not a quantity from 0"),
            ("bctl", {}, {"a": amount("1" + "0" * 40)}, "not a quantity from 0"),
            ("bctl", {}, {"a": amount("")}, "not a quantity from 0"),
            ("bctl", {}, {"a": amount("4096 Mbit")}, "not a quantity from 0"),
            ("bctl", {}, {"a": amount(5, default="6")}, "of the device"),
            (
                "bctl",
                {},
                {"a": amount(5, valid_values=("1", "2"))},
                "default is required with validValues or validRange [capacity.a.requestPolicy]",
            ),
            (
                "bctl",
                {},
                {"a": amount(5, default="3", valid_values=("1", "2"))},
                "not one of requestPolicy.validValues",
            ),
            (
                "bctl",
                {},
                {"a": amount(5, default="1", valid_range=CapacityRequestPolicyRange(min="2"))},
                "outside requestPolicy.validRange",
            ),
            ("bctl", {f"a{at}": TRUE for at in range(33)}, {}, "33 attributes and capacities"),
            ("bctl", {f"a{at}": TRUE for at in range(20)}, {f"c{at}": amount(1) for at in range(13)}, "33 attributes"),
        ],
    )
    def test_an_invalid_registration_is_rejected_with_the_violated_rule(
        self,
        provider: str,
        attributes: dict[str, DeviceAttribute],
        capacity: dict[str, DeviceCapacity],
        message: str,
    ) -> None:
        first, *_ = errors(provider, attributes, capacity)
        assert message in first.text_at_path
        assert len(first.text_at_path) < 300, "what is refused may be a megabyte long"

    @given(
        st.text(max_size=70),
        st.dictionaries(st.text(max_size=40), st.builds(DeviceAttribute, string=st.text(max_size=70)), max_size=4),
        st.dictionaries(st.text(max_size=40), st.builds(amount, st.text(max_size=12) | st.integers()), max_size=4),
        st.booleans(),
    )
    @settings(deadline=None)
    def test_every_accepted_registration_can_be_published(
        self,
        provider: str,
        attributes: dict[str, DeviceAttribute],
        capacity: dict[str, DeviceCapacity],
        is_shared: bool,
    ) -> None:
        if any(errors(provider, attributes, capacity)):
            return
        found = result(
            says(provider, attributes=attributes, capacity=capacity), policies=(SHARED if is_shared else WHOLE,)
        )
        packed = layout(found, node="n")
        assert packed.problems == ()
        assert sum(len(one.spec.devices) for one in packed.slices) == 1

    @pytest.mark.parametrize("number", [-(2**63), 2**63 - 1])
    def test_an_integer_of_64_bits_is_accepted(self, number: int) -> None:
        assert [*errors("bctl", {"a": DeviceAttribute(int_=number)}, {})] == []

    def test_a_capacity_as_the_seed_writes_it_is_right(self) -> None:
        assert [*errors("bctl", {"rdma": TRUE}, {"bandwidth": amount(4096), "most": amount(LIMIT)})] == []

    def test_a_list_may_fill_the_values_of_a_device_and_have_no_more(self) -> None:
        lists = Features(list_attributes=True)
        (before,) = result(features=lists).devices
        left = MAX_ATTRIBUTE_VALUES - sum(len(v) if isinstance(v, tuple) else 1 for v in before.attributes.values())
        for number, is_added in ((left - 1, True), (left, True), (left + 1, False)):
            values = DeviceAttribute(strings=tuple(f"v{at}" for at in range(number)))
            (device,) = result(says(attributes={"a": values}), features=lists).devices
            assert device.registered == ({"bctl/a": values} if is_added else {})


class TestDevices:
    def test_they_carry_it_under_the_providers_name(self) -> None:
        (device,) = result(says(attributes={"rdma": TRUE}, capacity={"bandwidth": amount(4096)})).devices
        assert device.registered == {"bctl/rdma": TRUE}
        assert device.capacity["bctl/bandwidth"] == amount(4096)
        (published,) = layout(result(says(attributes={"rdma": TRUE})), node="n").slices[0].spec.devices
        assert published.attributes["bctl/rdma"] == TRUE

    @given(
        st.lists(
            st.builds(
                says,
                st.sampled_from(["a", "b.c"]),
                st.sampled_from(["eth7", "eth7-shared", "other"]),
                attributes=st.dictionaries(
                    st.sampled_from(["mtu", "ifName", "mac", *(f"x{at}" for at in range(8))]), st.just(TRUE)
                ),
                capacity=st.dictionaries(st.sampled_from(["ports", "bandwidth", "y"]), st.just(amount(7))),
                custom_device=st.sampled_from(["", "one", "two"]),
            ),
            max_size=6,
            unique_by=lambda each: (each.provider, each.device, each.custom_device),
        )
    )
    @settings(deadline=None)
    def test_registrations_never_change_published_attributes_or_exceed_the_device_limit(
        self, said: list[Registration]
    ) -> None:
        policies = (WHOLE, SHARED)
        without, found = result(policies=policies), result(*said, policies=policies)
        for before, after in zip(without.devices, found.devices, strict=True):
            assert after.attributes == before.attributes
            assert before.capacity.items() <= after.capacity.items()
            assert (after.consumes, after.taints, after.policy) == (before.consumes, before.taints, before.policy)
            used = len(after.attributes) + len(after.registered) + len(after.capacity)
            assert used <= MAX_ATTRIBUTES_AND_CAPACITIES
        assert layout(found, node="n").problems == ()
        objects, told = (
            [each for each in said if bool(each.custom_device) == is_object] for is_object in (True, False)
        )
        shuffled = sorted(objects, key=lambda each: each.custom_device, reverse=True)
        if len({each.custom_device for each in objects}) == len(objects):
            assert result(*told, *shuffled, policies=policies) == found, "only the order of the socket's counts"
        reached = {(each.device, each.provider, each.custom_device) for each in found.outcomes}
        assert all(each.device == "other" or any(r[1] == each.provider for r in reached) for each in said)

    def test_all_of_a_registration_is_added_or_none_and_the_free_places_are_reported(self) -> None:
        (device,) = result().devices
        room = 32 - len(device.attributes) - len(device.capacity)
        for count in (room - 1, room, room + 1, 32):
            said = says(attributes={f"a{at:02}": TRUE for at in range(count - 1)}, capacity={"bandwidth": amount(1)})
            found = result(said, says("other.example.com", attributes={"a": TRUE}))
            (device,), (outcome, other) = found.devices, found.outcomes
            added = {*device.registered, *device.capacity}
            assert sum(name.startswith("bctl/") for name in added) == (count if count <= room else 0)
            assert ("other.example.com/a" in added) == (count != room), "a smaller one is added beside"
            refused = {room: other, room + 1: outcome, 32: outcome}.get(count)
            told = [f"the device has room for {0 if count == room else room} more"] if refused else []
            assert [text in problem.message for text in told for problem in found.problems] == [True] * len(told)
            assert [each for each in (outcome, other) if each.problem] == ([refused] if refused else [])

    @pytest.mark.parametrize("names", [("a.example.com", "b.example.com"), ("b.example.com", "a.example.com")])
    def test_the_first_provider_keeps_its_attributes_regardless_of_its_name(self, names: tuple[str, str]) -> None:
        first, later = (says(each, attributes={f"a{at}": TRUE for at in range(4)}) for each in names)
        (alone,) = result(first).devices
        (device,) = result(first, later).devices
        assert alone.registered.items() <= device.registered.items()
        assert [*device.registered] == [*alone.registered], "there is no room for all of the later ones"

    def test_a_policys_words_in_its_own_domain_are_the_policys(self) -> None:
        """A provider of that domain would otherwise sell a device a hundred thousand times."""
        exposure: dict[str, Any] = {
            "allowMultipleAllocations": True,
            "additionalAttributes": {"bctl/tier": "gold"},
            "capacity": {"bctl/slots": {"value": 4, "requestPolicy": {"default": 1}}},
        }
        policies = (policy("p", named("eth7"), **exposure),)
        said = says(attributes={"tier": TRUE, "rdma": TRUE}, capacity={"slots": amount(100_000)})
        (before,), found = result(policies=policies).devices, result(said, policies=policies)
        (device,), (outcome,) = found.devices, found.outcomes
        assert device.capacity == before.capacity
        assert device.registered == {"bctl/rdma": TRUE}
        assert outcome.problem == "bctl/slots, bctl/tier is omitted: a policy sets it with precedence"

    def test_a_shared_one_is_not_emptied_by_a_claim_that_does_not_ask(self) -> None:
        (device,) = result(says(capacity={"bandwidth": amount(4096)}), policies=(SHARED,)).devices
        assert device.capacity["bctl/bandwidth"] == amount(4096, default="0")
        (device,) = result(says(capacity={"bandwidth": amount(9, default="2")}), policies=(SHARED,)).devices
        assert device.capacity["bctl/bandwidth"] == amount(9, default="2")
        (device,) = result(says(capacity={"bandwidth": amount(9, default="2")})).devices
        assert device.capacity["bctl/bandwidth"] == amount(9), "the API takes a request policy on a shared device alone"

    def test_an_interface_name_addresses_all_its_devices_and_a_device_name_only_that_device(self) -> None:
        both = (WHOLE, SHARED)
        assert [len(each.registered) for each in result(says(attributes={"a": TRUE}), policies=both).devices] == [1, 1]
        one = result(says(device="eth7-shared", attributes={"a": TRUE}), policies=both).devices
        assert {each.name: len(each.registered) for each in one} == {"eth7": 0, "eth7-shared": 1}

    def test_a_registration_can_address_a_vf_by_its_device_name_or_netdev_name(self) -> None:
        interfaces = [
            msgspec.structs.replace(each, if_name="enp1") if each.type == "vf" else each for each in sriov("p0", 1)
        ]
        for name in ("p0v0", "enp1"):
            registered = Registered([says(device=name, attributes={"a": TRUE})])
            found = expose(inventory(*interfaces), [exclusive("vf", f'{OURS}.type == "vf"')], registered=registered)
            assert [[*each.registered] for each in found.devices] == [["bctl/a"]]

    def test_lists_are_published_as_the_server_takes_them(self) -> None:
        said = says(attributes={"nets": DeviceAttribute(strings=("a", "b")), "ids": DeviceAttribute(ints=(1, 2))})
        (device,) = result(said).devices
        assert device.registered == {"bctl/nets": DeviceAttribute(string=",a,b,")}
        (outcome,) = result(said).outcomes
        assert "bctl/ids is omitted: the API server does not support lists" in outcome.problem
        (device,) = result(said, features=Features(list_attributes=True)).devices
        assert [*device.registered] == ["bctl/ids", "bctl/nets"]

    @pytest.mark.parametrize(("length", "is_published"), [(61, True), (62, True), (63, False)])
    def test_a_list_is_published_as_text_if_it_fits_with_its_commas(self, length: int, is_published: bool) -> None:
        (device,) = result(says(attributes={"nets": DeviceAttribute(strings=("x" * length,))})).devices
        assert device.registered == ({"bctl/nets": DeviceAttribute(string=f",{'x' * length},")} if is_published else {})

    def test_a_registration_for_another_pool_does_not_apply(self) -> None:
        assert result(says(pool="worker-1/veth-eth9", attributes={"a": TRUE})).outcomes == ()
        (device,) = result(says(pool="worker-1/veth-eth7", attributes={"a": TRUE})).devices
        assert [*device.registered] == ["bctl/a"]


class TestSources:
    def test_a_custom_device_takes_precedence_over_the_socket_and_the_conflict_is_reported(self) -> None:
        of_object = says(custom_device="c", attributes={"a": TRUE})
        of_socket = says(attributes={"a": DeviceAttribute(bool_=False), "b": TRUE})
        found = result(of_socket, of_object)
        (device,) = found.devices
        assert device.registered == {"bctl/a": TRUE, "bctl/b": TRUE}
        (problem,) = found.problems
        assert 'bctl/a is omitted: CustomDevice "c" sets it with precedence' in problem.message

    def test_two_providers_have_the_same_word_side_by_side(self) -> None:
        (device,) = result(says(attributes={"a": TRUE}), says("other", attributes={"a": TRUE})).devices
        assert [*device.registered] == ["bctl/a", "other/a"]

    def test_an_object_speaks_on_the_nodes_that_it_selects(self) -> None:
        spec = {
            "provider": "bctl",
            "device": "eth7",
            "addIfNotExist": True,
            "selector": {"pool.name": "p", "nodeSelector": {"matchLabels": {"rack": "a7"}}},
        }
        plain = {
            "apiVersion": "networking.dra.io/v1alpha1",
            "kind": "CustomDevice",
            "metadata": {"name": "c"},
            "spec": spec,
        }
        device = documents.convert(plain, CustomDevice, "test")
        assert of_custom_device(device, "n", {}) is None
        assert of_custom_device(device, "n", {"rack": "a7"}) == says(adds=True, pool="p", custom_device="c")

    def test_an_object_that_names_its_node_speaks_there_alone(self) -> None:
        spec = {"provider": "bctl", "device": "eth7", "addIfNotExist": True, "selector": {"nodeName": "n"}}
        plain = {
            "apiVersion": "networking.dra.io/v1alpha1",
            "kind": "CustomDevice",
            "metadata": {"name": "c"},
            "spec": spec,
        }
        device = documents.convert(plain, CustomDevice, "test")
        assert of_custom_device(device, "other", {}) is None
        assert of_custom_device(device, "n", {}) == says(adds=True, custom_device="c")


class TestUnlisted:
    OFFER = policy("offer", f'{OURS}.registeredBy == "bctl"', allowMultipleAllocations=False)

    def test_nothing_is_offered_by_registration_alone(self) -> None:
        found = result(says(adds=True), policies=(exclusive("other", named("eth9")),))
        assert found.devices == ()
        (outcome,) = found.outcomes
        assert "not matched by any policy" in outcome.problem
        assert 'offered by a policy that selects registeredBy == "bctl"' in outcome.problem

    def test_a_policy_can_select_a_device_by_the_provider_that_added_it(self) -> None:
        found = result(says(adds=True, attributes={"a": TRUE}), policies=(self.OFFER,))
        assert [each.name for each in found.devices] == ["eth7"]
        assert found.outcomes[0].problem == ""
        assert result(says(attributes={"a": TRUE}), policies=(self.OFFER,)).devices == ()
        assert result(says("other", adds=True), policies=(self.OFFER,)).devices == ()

    def test_an_exclude_still_hides_it(self) -> None:
        assert result(says(adds=True), policies=(self.OFFER, exclude("no", named("eth7")))).devices == ()

    def test_a_pool_decides_whether_it_is_registered(self) -> None:
        here, there = (says(adds=True, pool=f"worker-1/veth-{name}") for name in ("eth7", "eth9"))
        assert [each.name for each in result(here, policies=(self.OFFER,)).devices] == ["eth7"]
        assert result(there, policies=(self.OFFER,)).devices == ()

    def test_a_name_with_a_dot_is_the_kernels(self) -> None:
        registered = Registered([says(device="eth0.100", adds=True)])
        assert len(expose(inventory(WIRE), [self.OFFER], registered=registered).devices) == 1


def test_pools_without_changed_registrations_are_reused_in_the_next_pass() -> None:
    other = Interface(if_name="eth8", type="veth")
    exposer = Exposer([exclusive("all", "true")])
    here = inventory(ETH, other)
    before = exposer.pools(here, registered=Registered([says(attributes={"a": TRUE})]))
    same = exposer.pools(here, registered=Registered([says(attributes={"a": TRUE})]))
    assert all(same[pool] is part for pool, part in before.items())
    after = exposer.pools(here, registered=Registered([says(attributes={"b": TRUE})]))
    assert [pool for pool, part in before.items() if after[pool] is not part] == ["worker-1/veth-eth7"]
    gone = exposer.pools(here)
    assert all(not device.registered for part in gone.values() for device in part.devices)
