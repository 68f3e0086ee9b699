"""References find their values, keep their types, and never break on any text."""

import time
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from netdra.model.result import CNIAddress, CNIInterface, StepDevice, StepResult
from netdra.topology import facts, references
from netdra.topology.references import BadReferenceError, Reference
from netdra.topology.values import MAX_CHARACTERS, MAX_DEPTH, MAX_VALUES, ConfigError

VLAN = StepResult(
    interfaces=(
        CNIInterface(name="net1", mac="52:54:00:aa:bb:01", sandbox="/run/netns/p", pci_id="0000:03:00.2"),
        CNIInterface(name="data0", mac="52:54:00:aa:bb:02", sandbox="/run/netns/p"),
    ),
    ips=(CNIAddress(address="10.0.0.5/24", interface=1), CNIAddress(address="fd00::5/64", interface=1)),
)
DPDK = StepResult(
    devices=(StepDevice(pci_address="0000:03:00.2", iommu_group="42", device_nodes=("/dev/vfio/42", "/dev/vfio/vfio")),)
)
RDMA = StepResult(devices=(StepDevice(rdma_device="mlx5_0", device_nodes=("/dev/infiniband/uverbs0",)),))
RESULTS = {"vlan": VLAN, "dpdk-vf": DPDK, "ib": RDMA, "empty": StepResult()}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("{{ vlan.interfaceName }}", "data0"),
        ("{{vlan.mac}}", "52:54:00:aa:bb:02"),
        ("{{\tvlan.sandbox }}", "/run/netns/p"),
        ("{{ vlan.ips[0].address }}", "10.0.0.5/24"),
        ("{{ vlan.ips[1].address }}", "fd00::5/64"),
        ("{{ vlan.pciAddress }}", "0000:03:00.2"),
        ("{{ dpdk-vf.pciAddress }}", "0000:03:00.2"),
        ("{{ dpdk-vf.iommuGroup }}", "42"),
        ("{{ dpdk-vf.deviceNodes }}", ["/dev/vfio/42", "/dev/vfio/vfio"]),
        ("{{ ib.rdmaDevice }}", "mlx5_0"),
        ("dev {{ vlan.interfaceName }}!", "dev data0!"),
        ("{{ vlan.interfaceName }}{{ vlan.interfaceName }}", "data0data0"),
        (" {{ dpdk-vf.deviceNodes }}", ' ["/dev/vfio/42","/dev/vfio/vfio"]'),
        ('{"a":{"b":1}}', '{"a":{"b":1}}'),
        ("", ""),
    ],
)
def test_a_reference_alone_keeps_its_type_and_is_text_when_embedded(written: str, value: Any) -> None:
    assert references.resolve({"x": written}, RESULTS) == {"x": value}


def test_the_interfaces_are_the_whole_list_as_cni_writes_it() -> None:
    assert references.resolve({"x": "{{ vlan.interfaces }}"}, RESULTS)["x"] == [
        {"name": "net1", "mac": "52:54:00:aa:bb:01", "sandbox": "/run/netns/p", "pciID": "0000:03:00.2"},
        {"name": "data0", "mac": "52:54:00:aa:bb:02", "sandbox": "/run/netns/p"},
    ]


def test_the_pci_address_of_an_allocated_device_is_used_if_its_plugin_reports_none() -> None:
    told = StepResult(interfaces=(CNIInterface(name="net1", pci_id="0000:03:00.7"),))
    untold = StepResult(interfaces=(CNIInterface(name="net2"),))
    addresses = {"a": "0000:03:00.1", "b": "0000:03:00.2"}
    results = {"a": told, "b": untold, "c": untold}
    for step, found in (("a", "0000:03:00.7"), ("b", "0000:03:00.2")):
        assert references.resolve({"x": f"{{{{ {step}.pciAddress }}}}"}, results, addresses) == {"x": found}
    for field in ("pciAddress", "rdmaDevice"):
        with pytest.raises(BadReferenceError, match='step "c" has no such value'):
            references.resolve({"x": f"{{{{ c.{field} }}}}"}, results, addresses)


def test_references_are_resolved_anywhere_and_all_else_is_copied() -> None:
    config = {
        "links": [{"name": "{{ vlan.interfaceName }}", "n": [1, 2.5, True, None]}],
        "deep": {"a": ["{{ib.rdmaDevice}}"]},
    }
    assert references.resolve(config, RESULTS) == {
        "links": [{"name": "data0", "n": [1, 2.5, True, None]}],
        "deep": {"a": ["mlx5_0"]},
    }
    assert config["links"] == [{"name": "{{ vlan.interfaceName }}", "n": [1, 2.5, True, None]}]


def test_a_resolved_value_is_not_resolved_again() -> None:
    sly = StepResult(interfaces=(CNIInterface(name="{{ vlan.mac }}"),))
    assert references.resolve({"x": "{{ a.interfaceName }}"}, {"a": sly, **RESULTS}) == {"x": "{{ vlan.mac }}"}


def test_find_gives_each_reference_with_the_path_of_its_value() -> None:
    config = {"links": [{"name": "{{ vf0.mac }}"}, {"name": "a{{ vf1.ips[3].address }}b{{ vf0.mac }}"}]}
    assert references.find(config) == [
        (("links", 0, "name"), Reference("vf0", "mac")),
        (("links", 1, "name"), Reference("vf1", "ips", 3)),
        (("links", 1, "name"), Reference("vf0", "mac")),
    ]


@pytest.mark.parametrize("name", ["interfaceName", "mac", "sandbox", "interfaces", "ips[0].address", "pciAddress"])
def test_a_result_without_the_value_is_an_error_that_names_path_and_step(name: str) -> None:
    with pytest.raises(BadReferenceError, match=r'config\.a\[0\]: .*step "empty" has no such value'):
        references.resolve({"a": [f"{{{{ empty.{name} }}}}"]}, RESULTS)


def test_a_step_without_a_result_is_an_error() -> None:
    with pytest.raises(BadReferenceError, match='step "other", which has no result'):
        references.resolve({"a": "{{ other.mac }}"}, RESULTS)


@pytest.mark.parametrize(
    "text",
    [
        "{{ vlan.mac }",
        "{{ vlan.mac",
        "{{",
        "{{}}",
        "{{ }}",
        "{{ vlan }}",
        "{{ .mac }}",
        "{{ vlan.mtu }}",
        "{{ vlan.ips }}",
        "{{ vlan.ips[0] }}",
        "{{ vlan.ips[-1].address }}",
        "{{ vlan.ips[1000].address }}",
        "{{ vlan.ips[٣].address }}",
        "{{ vlan.ips[0].gateway }}",
        "{{ vlan.mac[0].address }}",
        "{{ vlan.mac | upper }}",
        "{{ vlan.mac.x }}",
        "{{ Vlan.mac }}",
        "{{ vlan .mac }}",
        "{{{ vlan.mac }}}",
        "{{ vlan\u00a0.mac }}",
        "{{ vlan\u2024mac }}",
        "{{ vl\u0430n.mac }}",
        "{{ vlan.mac\n}}",
        "\uff5b\uff5b vlan.mac \uff5d\uff5d",
        "{\uff5b vlan.mac }}",
        "{{ vlan.mac }} {{ \x00 }}",
        "{{" + " " * 400 + "vlan.mac }}",
    ],
)
def test_an_invalid_reference_is_rejected_and_never_passed_on_as_text(text: str) -> None:
    with pytest.raises(ConfigError):
        references.resolve({"x": text}, RESULTS)


@pytest.mark.parametrize("root", facts.ROOTS)
@given(
    field=st.from_regex(r"[A-Za-z]{1,9}", fullmatch=True) | st.sampled_from(["name", "ifName", "ordinal", "mac"]),
    key=st.sampled_from(["", ".rail", '["rail"]', "['']"]),
)
def test_a_word_after_the_root_of_a_fact_is_a_fact_or_a_field_or_rejected_with_the_facts_of_the_root(
    root: str, field: str, key: str
) -> None:
    assume(not facts.is_keyed(root, field))
    text = f"{{{{ {root}.{field}{key} }}}}"
    if not key and (facts.of(root, field) is not None or field in references.FIELDS):
        # A step may be named after the root: whether it exists is checked later.
        assert references.parse(text) == (Reference(root, field),)
        return
    with pytest.raises(BadReferenceError, match=f"a {root} has no such fact") as caught:
        references.parse(text)
    assert caught.value.hint == facts.near(root, field)


def test_a_reference_in_a_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="values only"):
        references.resolve({"a": {"net.{{ vlan.interfaceName }}": "1"}}, RESULTS)


@pytest.mark.parametrize("text", ["\x00", "a\x1b[31m", "\x7f", "\x85", "\ud800"])
def test_control_characters_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"U\+"):
        references.find({"x": [text]})
    with pytest.raises(ConfigError, match=r"U\+"):
        references.find({"x": {text: 1}})


def _nested(levels: int, *, lists: bool) -> dict[str, Any]:
    value: Any = "x"
    for _ in range(levels):
        value = [value] if lists else {"a": value}
    return {"a": value}


def _shared(levels: int) -> dict[str, Any]:
    value: Any = ["x"] * 10
    for _ in range(levels):
        value = [value] * 10
    return {"a": value}


@pytest.mark.parametrize(
    "config",
    [
        _nested(100_000, lists=True),
        _nested(100_000, lists=False),
        _nested(MAX_DEPTH, lists=True),
        _shared(20),
        {"a": "x" * (MAX_CHARACTERS + 1)},
        {"a": "{{ vlan.mac }} " * 70_000},
        {"a": "{{ vlan.interfaces }}" * 2000},
        {"a": "{" * 200_000},
        {"a": "{{" + " " * 200_000},
        {"a": [0] * (MAX_VALUES + 1)},
        {"a": {"k" * 1_000_000: 1}},
        {"a": {str(number): 1 for number in range(MAX_VALUES + 1)}},
        {"a": 2**64},
        {"a": 10**5000},
        {"a": float("nan")},
        {"a": b"bytes"},
        {"a": {1: 2}},
        {"a": {10**5000: 2}},
        {"a": {"x", "y"}},
    ],
    ids=range(19),
)
def test_a_hostile_config_is_an_error_in_bounded_time(config: dict[str, Any]) -> None:
    started = time.process_time()
    with pytest.raises(ConfigError) as caught:
        references.resolve(config, RESULTS)
    with pytest.raises(ConfigError):
        references.find(config)
    assert time.process_time() - started < 1
    assert len(str(caught.value)) < 2000


def test_the_resolved_values_are_bounded_however_often_they_are_named() -> None:
    large = StepResult(interfaces=tuple(CNIInterface(name=f"i{number}") for number in range(1000)))
    with pytest.raises(BadReferenceError, match="resolve to more than"):
        references.resolve({"a": ["{{ big.interfaces }}"] * 500}, {"big": large})


def test_parsing_is_linear() -> None:
    def cost(count: int) -> float:
        text = "{{ vlan.mac }}}} { " * count
        started = time.process_time()
        references.parse(text)
        return time.process_time() - started

    cost(1000)
    # Twenty times as much; were it quadratic, it would be four hundred times.
    assert min(cost(40_000) for _ in range(3)) < 60 * min(cost(2_000) for _ in range(3))


_PIECES = st.sampled_from(
    ["{{", "}}", " ", ".", "vlan", "mac", "ips[0]", "[", "address", "{", "}", "\x00", "é", "\uff5b", "interfaces"]
)


@given(st.lists(_PIECES, max_size=24).map("".join) | st.text(max_size=60))
def test_any_text_is_parsed_whole_or_refused(text: str) -> None:
    try:
        parts = references.parse(text)
    except BadReferenceError:
        return
    assert not any("{{" in part for part in parts if isinstance(part, str))
    rejoined = "".join(str(part) for part in parts)
    assert references.parse(rejoined) == parts


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | _PIECES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), _JSON, max_size=4))
def test_any_config_is_copied_equal_or_refused(config: dict[str, Any]) -> None:
    try:
        copied = references.resolve(config, RESULTS)
    except ConfigError:
        return
    assert references.find(config) or copied == config
