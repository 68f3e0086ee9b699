"""Selectors have the same meaning as in the Kubernetes scheduler, and errors never become `false`."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.cel import (
    CelCompileError,
    CelEvaluationError,
    DeviceVariables,
    SelectorIndex,
    Version,
    compile_selector,
    device_variables,
)

OURS = 'device.attributes["dra.networking"]'


@pytest.fixture(scope="module")
def device() -> DeviceVariables:
    return device_variables(
        "dra.networking",
        {
            "dra.networking/type": "vf",
            "mtu": 1500,
            "rdma": True,
            "alias": "café \udc80",
            "supportedCNIs": ("sriov", "host-device"),
            "firmware": Version("1.10.0-rc.2"),
            "resource.kubernetes.io/pcieRoot": "pci0000:00",
        },
        {"bandwidth": "10Gi", "dra.networking/macvlans": 64, "half": "500m"},
        shared=True,
    )


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        'device.driver == "dra.networking"',
        f'{OURS}.type == "vf" && {OURS}["mtu"] >= 1500',
        f'{OURS}.mtu < 1500.5 && {OURS}.type.matches("^v[f]$")',
        'device.attributes["resource.kubernetes.io"].pcieRoot.startsWith("pci")',
        "device.allowMultipleAllocations",
        f'has({OURS}.type) && !has({OURS}.nope) && "mtu" in {OURS}',
        f'{OURS}.?nope.orValue("none") == "none" && {OURS}[?"type"].orValue("") == "vf"',
        # An unknown domain is an empty map, also when asked in another way.
        'has(device.attributes["other.org"].x) == false && !("x" in device.attributes["other.org"])',
        'device.capacity["other.org"].?x.hasValue() == false',
        'device.attributes[?"other.org"].hasValue()',
        '!("other.org" in device.attributes) && "dra.networking" in device.attributes',
        '("other.org" in device.attributes && device.attributes["other.org"].x == 1) == false',
        # Quantities.
        'device.capacity["dra.networking"].bandwidth.compareTo(quantity("10Gi")) >= 0',
        'device.capacity["dra.networking"].bandwidth.isGreaterThan(quantity("9.5Gi"))',
        'device.capacity["dra.networking"].half.isLessThan(quantity("1"))',
        'device.capacity["dra.networking"].macvlans == quantity("64") && quantity("1k") == quantity("1000")',
        'quantity("1").add(quantity("500m")).sub(1).compareTo(quantity("0.5")) == 0',
        'quantity("-2").sign() == -1 && quantity("0").sign() == 0 && quantity("100").asInteger() == 100',
        '!quantity("500m").isInteger() && quantity("500m").asApproximateFloat() == 0.5',
        'isQuantity("1Gi") && !isQuantity("1GiB")',
        # Versions.
        f'{OURS}.firmware.isLessThan(semver("1.10.0")) && {OURS}.firmware.isGreaterThan(semver("1.9.9"))',
        'semver("1.0.0-alpha.1").compareTo(semver("1.0.0-alpha.beta")) == -1',
        'semver("1.2.3").major() == 1 && semver("1.2.3").minor() == 2 && semver("1.2.3").patch() == 3',
        'semver("v1.02", true) == semver("1.2.0") && isSemver("1.2.3") && !isSemver("01.2.3")',
        # Lists, sets, strings, regular expressions, bindings.
        f'{OURS}.supportedCNIs.includes("sriov") && {OURS}.type.includes("vf") && !{OURS}.type.includes("pf")',
        f"{OURS}.mtu.includes(1500) && {OURS}.rdma.includes(true) && ![1].includes(true)",
        f'{OURS}.supportedCNIs.exists(one, one == "sriov") && size({OURS}.supportedCNIs) == 2',
        "[1, 2, 3].sum() == 6 && [2, 1].min() == 1 && [2.5, 1.0].max() == 2.5 && ![2, 1].isSorted()",
        '["a", "b", "a"].indexOf("a") == 0 && ["a", "b", "a"].lastIndexOf("a") == 2 && ["a"].indexOf("z") == -1',
        "sets.contains([1, 2], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1], [1])",
        f'{OURS}.alias.startsWith("café") && "A,b".lowerAscii().split(",") == ["a", "b"]',
        '"enp3s0f1".find("[0-9]+") == "3" && "a1b22".findAll("[0-9]+") == ["1", "22"]',
        '"a1b22".findAll("[0-9]+", 1) == ["1"] && "x".find("y") == ""',
        # As RE2 and Go have it: no empty match right behind another, classes of POSIX and of Unicode, any branching.
        '"baaac".findAll("a*") == ["", "aaa", ""] && "é1".find("[[:digit:]]") == "1" && "aé".find(r"\\pL+$") == "aé"',
        '"aaaab".find("(a+)+b|a*c?") == "aaaab"',
        '["a+", "b+"].exists(one, "xxb".find(one) == "b")',
        f'cel.bind(kind, {OURS}.type, kind == "vf" || kind == "pf")',
        # An error beside a deciding operand is absorbed.
        f'{OURS}.nope == 1 || {OURS}.type == "vf"',
        '"the text \\"device.nope\\" in a string" != "" // device.nope in a comment',
    ],
)
def test_holds(expression: str, device: DeviceVariables) -> None:
    assert compile_selector(expression).matches(device) is True


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (f"{OURS}.nope == 1", 'Key not found in map : "nope"'),
        ('device.attributes["other.org"].x == 1', 'Key not found in map : "x"'),
        (f"{OURS}.type", "must be a bool, but its type is STRING"),
        (f"{OURS}.?nope.orValue(null)", "must be a bool, but its type is NULL"),
        ("1 / 0 == 1", "divide by zero"),
        (f"{OURS}.type.isGreaterThan(quantity('1'))", "No matching overloads"),
        ("semver('1.2.3').compareTo(quantity('1')) == 0", "not a semantic version"),
        ("quantity('x') == quantity('1')", "is not a quantity"),
        ("quantity('0.5').asInteger() == 1", "not a 64-bit integer"),
    ],
)
def test_no_answer_is_an_error(expression: str, message: str, device: DeviceVariables) -> None:
    with pytest.raises(CelEvaluationError, match="fails on this device") as caught:
        compile_selector(expression).matches(device)
    assert message in caught.value.message
    assert caught.value.expression == expression


@pytest.mark.parametrize(
    ("expression", "line", "column", "message"),
    [
        ("1 +", 1, 4, "Syntax error"),
        ("true\n&& (", 2, 5, "Syntax error"),
        ("true &&\n  foo == 1", 2, 3, "undeclared reference to 'foo'"),
        ('1 + "a" == 2', 1, 3, "no matching overload"),
        ("true || device.mtu == 1", 1, 16, "undefined field 'mtu'"),
        ('"é" == device.x', 1, 15, "undefined field 'x'"),
        ("1", 0, 0, "must be a bool"),
        ("null", 0, 0, "must be a bool"),
        ("(" * 40 + "true" + ")" * 40, 0, 0, "too deep"),
        (f"{'x' * 10240}", 0, 0, "undeclared"),
        (f'"{"x" * 10240}" == ""', 0, 0, "longer than 10240 bytes"),
        ("".join(f"cel.bind(a{i}, 1, " for i in range(9)) + "true" + ")" * 9, 0, 0, "binds 9 variables"),
        ("'\udc80' == ''", 0, 0, "not valid Unicode text"),
        ("'aaaa'.find('(?=a)') == ''", 0, 0, "invalid perl operator"),
        ("'aaaa'.find('(') == ''", 0, 0, "missing )"),
    ],
)
def test_an_invalid_selector_is_rejected_with_line_and_column(
    expression: str, line: int, column: int, message: str
) -> None:
    with pytest.raises(CelCompileError) as caught:
        compile_selector(expression)
    error = caught.value
    assert message in error.message
    assert error.expression == expression
    assert not line or (error.line, error.column) == (line, column)


LOOP = "[0, 1].exists(n, n == 0)"


@pytest.mark.parametrize(
    "expression",
    [
        f"{LOOP} && cel.bind(v, 5, v == 5)",
        f"{LOOP} == cel.bind(v, true, v)",
        f"[{LOOP}, cel.bind(v, true, v)] == [true, true]",
        "[1, 0].all(n, n == 0) || cel.bind(v, 5, v == 5)",
        f"cel.bind(v, 3, {LOOP} && cel.bind(w, 5, w == 5))",
        f"[1].exists(k, {LOOP} && cel.bind(w, 5, w == 5))",
        f"[1, 2].exists(k, cel.bind(w, 5, w == 5) && {LOOP} && k == 2)",
        f"{LOOP} && optional.of(5).optMap(x, x == 5).orValue(false)",
    ],
)
def test_a_binding_after_a_loop_that_the_engine_would_misread_is_rejected(expression: str) -> None:
    with pytest.raises(CelCompileError, match=r"binds a variable .* after all"):
        compile_selector(expression)


@pytest.mark.parametrize(
    "expression",
    [
        f"cel.bind(v, 5, v == 5) && {LOOP}",
        f"cel.bind(v, {LOOP}, v && cel.bind(w, {LOOP}, w && v))",
        f"[1, 2].exists(k, {LOOP} && k == 2) && {LOOP}",
        "[0, 1].filter(n, n == 0).size() + cel.bind(v, 5, v) == 6",
        "[0, 1].exists(n, cel.bind(v, n, v == 1))",
    ],
)
def test_bindings_and_loops_in_a_supported_order_evaluate_correctly(expression: str, device: DeviceVariables) -> None:
    assert compile_selector(expression).matches(device)


def test_the_message_points_at_the_column() -> None:
    with pytest.raises(CelCompileError) as caught:
        compile_selector("true &&\n  foo == 1")
    assert str(caught.value).splitlines()[1:] == ["    foo == 1", "    ^"]


def test_a_missing_key_is_located_only_when_it_occurs_once(device: DeviceVariables) -> None:
    with pytest.raises(CelEvaluationError) as caught:
        compile_selector(f"true &&\n  {OURS}.nope == 1").matches(device)
    assert (caught.value.line, caught.value.column) == (2, 39)
    assert str(caught.value).splitlines()[-1] == " " * 40 + "^"
    with pytest.raises(CelEvaluationError) as caught:
        compile_selector(f"{OURS}.nope == 1 && {OURS}.nope == 2").matches(device)
    assert (caught.value.line, caught.value.column) == (0, 0)


def test_a_selector_is_compiled_once() -> None:
    assert compile_selector("device.driver == 'once'") is compile_selector("device.driver == 'once'")


def test_null_results_cost_no_reference_to_none(device: DeviceVariables) -> None:
    """The engine gives away a reference that it does not have with each null; thousands of them end CPython 3.11."""
    selector = compile_selector(f"{OURS}.?nope.orValue(null)")
    before = sys.getrefcount(None)
    for _ in range(2_000):
        with pytest.raises(CelEvaluationError):
            selector.matches(device)
    assert sys.getrefcount(None) > before - 1_000


_PARTS = st.sampled_from(
    [
        f'{OURS}.type == "vf"',
        f'"pf" == {OURS}["type"]',
        f'{OURS}.type in ["pf", "nic"]',
        f"{OURS}.type == 1",
        f"{OURS}.mtu == 1500",
        f"{OURS}.mtu in [1400, 9000]",
        f"{OURS}.mtu == 1400.0",
        f'{OURS}.mtu == "1500"',
        f"{OURS}.rdma",
        f"{OURS}.rdma == 1",
        f'{OURS}.nope == "x"',
        f'{OURS}.?nope.orValue("x") == "y"',
        f"has({OURS}.type)",
        f'{OURS}.alias == "café"',
        f'{OURS}.alias == "a"',
        f'{OURS}.firmware == "1.10.0"',
        f'"sriov" in {OURS}.supportedCNIs',
        f'{OURS}.supportedCNIs == "sriov"',
        f'!({OURS}.type == "vf")',
        'device.attributes["other.org"].x == "1"',
        "device.allowMultipleAllocations",
    ]
)
_FACTS: dict[str, bool | int | str | tuple[str, ...]] = {
    "dra.networking/type": "vf",
    "dra.networking/mtu": 1500,
    "dra.networking/rdma": True,
    "dra.networking/alias": "café \udc80",
    "dra.networking/supportedCNIs": ("sriov", "host-device"),
    "dra.networking/firmware": Version("1.10.0-rc.2"),
}


_EXPRESSIONS = st.recursive(
    _PARTS,
    lambda inner: st.builds(lambda a, op, b: f"({a}) {op} ({b})", inner, st.sampled_from(["&&", "||"]), inner),
    max_leaves=5,
)


@given(st.lists(_EXPRESSIONS, max_size=8))
def test_selectors_outside_the_candidates_are_false(expressions: list[str]) -> None:
    selectors = {compile_selector(expression) for expression in expressions}
    device = device_variables("dra.networking", _FACTS)
    left_out = selectors - SelectorIndex(selectors).candidates(_FACTS)
    assert all(selector.matches(device) is False for selector in left_out)


@pytest.mark.parametrize(
    ("expression", "is_candidate"),
    [
        (f'{OURS}.type == "pf" && {OURS}.nope', False),
        (f'{OURS}.nope && {OURS}.type == "pf"', False),
        (f'{OURS}.type == "pf" || {OURS}.mtu in [1400, 9000]', False),
        (f'{OURS}.type == "pf" || {OURS}.rdma', True),
        (f'!({OURS}.type == "vf")', True),
        (f'{OURS}.type == "vf"', True),
    ],
)
def test_the_index_decides_on_candidates_by_one_attribute(expression: str, is_candidate: bool) -> None:
    assert bool(SelectorIndex([compile_selector(expression)]).candidates(_FACTS)) is is_candidate
