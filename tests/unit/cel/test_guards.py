"""A guarded selector has an answer for every device, and is true where the selector is."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st

from netdra.cel import (
    CelCompileError,
    CelEvaluationError,
    DeviceVariables,
    compile_selector,
    device_variables,
    guarded,
    joined,
)
from netdra.model.errors import InvalidInputError

D = 'device.attributes["dra.networking"]'


def device(**attributes: bool | int | str) -> DeviceVariables:
    return device_variables("dra.networking", attributes)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("D.a == 1", '"a" in D && D.a == 1'),
        ("D.c", '"c" in D && D.c'),
        ('D["a"] == 1', '"a" in D && D["a"] == 1'),
        ("D.a > 0 && D.a < 9", '"a" in D && D.a > 0 && D.a < 9'),
        ("D.a == 1 || D.b == 2", '"a" in D && D.a == 1 || "b" in D && D.b == 2'),
        ("(D.a == 1 || D.c) && D.a < 9", '("a" in D && D.a == 1 || "c" in D && D.c) && "a" in D && D.a < 9'),
        ("!(D.a == 1)", '"a" in D && !(D.a == 1)'),
        ("!(D.a == 1 && D.c)", '"a" in D && !(D.a == 1) || "c" in D && !D.c'),
        (
            "D.c ? D.a == 1 : D.b == 2",
            '"c" in D && D.c && "a" in D && D.a == 1 || "c" in D && !D.c && "b" in D && D.b == 2',
        ),
        ("(D.a == 1) == D.c", '"a" in D && "c" in D && (D.a == 1) == D.c'),
        # What asks already is not asked again.
        ("has(D.a) && D.a == 1", "has(D.a) && D.a == 1"),
        ('"a" in D && D.a == 1', '"a" in D && D.a == 1'),
        ("!has(D.a) || D.a == 1", '!has(D.a) || "a" in D && D.a == 1'),
        ("D.?a.orValue(1) == 1", "D.?a.orValue(1) == 1"),
        ("D.?a.orValue(D.b) == 1", '(D.?a.hasValue() || "b" in D) && D.?a.orValue(D.b) == 1'),
        # Inside of macros.
        ("[1, 2].exists(n, n == D.a || D.c)", '[1, 2].exists(n, "a" in D && n == D.a || "c" in D && D.c)'),
        ("![1].all(n, n == D.a)", '[1].exists(n, "a" in D && !(n == D.a))'),
        ('["a"].filter(k, D[k] == 1).size() > 0', '["a"].all(k, k in D) && ["a"].filter(k, D[k] == 1).size() > 0'),
        ("cel.bind(d, D, d.a == d.b)", 'cel.bind(d, D, "a" in d && "b" in d && d.a == d.b)'),
        # A domain that nobody has is an empty map.
        ('device.attributes["x.org"].y == 1', '"y" in device.attributes["x.org"] && device.attributes["x.org"].y == 1'),
        (
            "device.attributes[device.driver].c",
            '"c" in device.attributes[device.driver] && device.attributes[device.driver].c',
        ),
        (
            'device.capacity["x.org"].y.isInteger()',
            '"y" in device.capacity["x.org"] && device.capacity["x.org"].y.isInteger()',
        ),
        # Nothing to ask for.
        ('device.driver == "x" // why', 'device.driver == "x" // why'),
        ('device.driver == "device.attributes.a.b"', 'device.driver == "device.attributes.a.b"'),
    ],
)
def test_each_key_is_asked_for_where_it_is_read(selector: str, expected: str) -> None:
    assert guarded(selector.replace("D", D)) == expected.replace("D", D)
    compile_selector(guarded(selector.replace("D", D)))


def test_guarding_keeps_literals_as_written_and_drops_comments() -> None:
    written = f'{D}.name == r"""a"b""" // why\n  && {D}.c // and so on'
    assert guarded(written) == f'"name" in {D} && {D}.name == r"""a"b""" && "c" in {D} && {D}.c'


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("D.a == 1 && D.b == 2", 'D.a == 1 && "b" in D && D.b == 2'),
        ("D.b == 2 || D.a == 1", '"b" in D && D.b == 2 || D.a == 1'),
        ('device.attributes["x.org"].a == 1', '"a" in device.attributes["x.org"] && device.attributes["x.org"].a == 1'),
        ("device.capacity[device.driver].a.isInteger()", '"a" in device.capacity[device.driver] && *'),
        ("cel.bind(d, D, d.a == 1)", 'cel.bind(d, D, "a" in d && d.a == 1)'),
        ("!(D.a == 1) // why", "!(D.a == 1) // why"),
    ],
)
def test_attributes_known_for_all_devices_are_read_without_a_guard(selector: str, expected: str) -> None:
    written = selector.replace("D", D)
    wanted = expected.replace("*", written).replace("D", D) if "*" in expected else expected.replace("D", D)
    assert guarded(written, known={"dra.networking/a"}) == wanted


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        (("true", "false"), "true && false"),
        (("true && false", "true"), "true && false"),
        (("true || false", "true"), "(true || false) && true"),
        (("true ? false : true", "true"), "(true ? false : true) && true"),
        (("!true // why", "(true || false) // not"), "!true && (true || false)"),
        (("true // a\n && 1 == // b\n 1", "true"), "true && 1 == // b\n 1"),
    ],
)
def test_selectors_are_joined_into_one(expressions: tuple[str, ...], expected: str) -> None:
    assert joined(*expressions) == expected


TRUTHS = ("true", "false", "D.c", "D.a == 1", "D.a == 1 || D.c", "D.c ? true : D.a == 2", "!(D.c && true)")


@given(texts=st.lists(st.sampled_from(TRUTHS), min_size=1, max_size=4), has_c=st.booleans(), has_a=st.booleans())
def test_joined_selectors_match_exactly_where_all_of_them_match(texts: list[str], has_c: bool, has_a: bool) -> None:
    one = device(**({"c": True} if has_c else {}), **({"a": 1} if has_a else {}))
    expressions = [guarded(text.replace("D", D)) for text in texts]
    every = all(compile_selector(expression).matches(one) for expression in expressions)
    assert compile_selector(joined(*expressions)).matches(one) == every


def test_selectors_that_are_too_long_together_cannot_be_joined() -> None:
    with pytest.raises(CelCompileError):
        joined(f'device.driver == "{"a" * 6000}"', f'device.driver == "{"b" * 6000}"')


@pytest.mark.parametrize("attribute", ["`a`", "`c-d`"])
def test_names_in_backticks_are_names(attribute: str) -> None:
    assert guarded(f"{D}.{attribute} == 1").startswith(f'"{attribute.strip("`")}" in {D} && ')


def test_a_selector_too_complex_to_guard_is_rejected_with_the_reason() -> None:
    selector = f"{D}.c"
    for _ in range(25):
        selector = f"({selector} ? {D}.c : {D}.d)"
    with pytest.raises(InvalidInputError, match="too complex to guard its map keys: longer than 10240 bytes"):
        guarded(selector)


SURE = ["true", "false", f"has({D}.a)", f'"b" in {D}', f"{D}.?c.orValue(false)"]
BOOLEANS = [f"{D}.c", f"{D}.e", *SURE]
NUMBERS = [f"{D}.a", f'{D}["b"]', "0", "1", f"{D}.?a.orValue({D}.b)", f'{D}["a"]']


def _numbers(conditions: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    plain = st.sampled_from(NUMBERS)
    return plain | st.builds("({} ? {} : {})".format, conditions, plain, plain)


def _conditions(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    numbers = _numbers(parts)
    return st.one_of(
        st.builds("({} && {})".format, parts, parts),
        st.builds("({} || {})".format, parts, parts),
        st.builds("!{}".format, parts.map(lambda text: f"({text})")),
        st.builds("({} ? {} : {})".format, parts, parts, parts),
        st.builds("{} == {}".format, numbers, numbers),
        st.builds("{} != {} || {} < 1".format, numbers, numbers, numbers),
        st.builds("({}) == ({})".format, parts, parts),
        st.builds("[0, 1].exists(n, n == {} && {})".format, numbers, parts),
        st.builds("[0, 1].all(n, n == {} || {})".format, numbers, parts),
        st.builds("[0, 1].exists_one(n, n == {} && {})".format, numbers, parts),
        st.builds("[0, 1].filter(n, n < {} || {}).size() > 0".format, numbers, parts),
        st.builds("[0, 1].map(n, {}, n + {}).size() > 0".format, parts, numbers),
        st.builds('["a", "b"].exists(k, {}[k] == {})'.format, st.just(D), numbers),
        st.builds("cel.bind(d, {}, d.a == {} || {})".format, st.just(D), numbers, parts),
        st.builds("cel.bind(v, {}, v || {})".format, st.sampled_from(SURE), parts),
        st.builds("{}.?a.optMap(v, v == {}).orValue({})".format, st.just(D), numbers, parts),
    )


SELECTORS = st.recursive(st.sampled_from(BOOLEANS), _conditions, max_leaves=4)
DEVICES = st.fixed_dictionaries(
    {}, optional={"a": st.integers(0, 2), "b": st.integers(0, 2), "c": st.booleans(), "e": st.booleans()}
)


@given(SELECTORS, DEVICES)
@example(f"({D}.a == 1) == ({D}.b == 1) || {D}.c", {"c": True})
def test_a_guarded_selector_is_true_where_the_selector_is_and_false_everywhere_else(
    selector: str, attributes: dict[str, bool | int]
) -> None:
    asked, answer = device(**attributes), False
    try:
        made = guarded(selector)
    except InvalidInputError:
        reject()
    with suppress(CelEvaluationError):
        answer = compile_selector(selector).matches(asked)
    assert compile_selector(made).matches(asked) is answer
