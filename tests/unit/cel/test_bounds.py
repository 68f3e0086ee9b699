"""No expression takes more time or memory than its bound, even by intention (decision D30).

These expressions ran for minutes, took gigabytes or opened files before the bounds existed, so each attack is made in a
process of its own, whose time and memory the kernel limits.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netdra.cel import CelCompileError, CelEvaluationError, compile_selector, device_variables
from netdra.cel.bounds import PLAIN
from testbed.pace import within
from tests import draws

OURS = 'device.attributes["dra.net"]'
LETTERS = '"' + "a" * 1000 + '"'
FEWER = LETTERS[:800] + LETTERS[-1]
DIGITS = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
LONG_SECONDS = 0.05
"""Five times what `MAX_WORK` stands for."""

BACKTRACKING = f'"{"a" * 9000}".find("a*a*a*a*b") == ""'
"""Within bounds, for RE2 does not go back: Python's engine would not have ended in the life of a node."""
DOUBLING = LETTERS + '.replace("a", "aa")' * 24 + ".size() > 1"
FOLDED = LETTERS + "".join(f'.replace("{a}", "{b * 500}")' for a, b in ("ab", "bc", "cd", "de")) + ".size() > 1"
ADDED = (
    f"{'cel.bind(a, '}{LETTERS}, "
    + "".join(f"cel.bind({new}, {' + '.join([old] * 25)}, " for old, new in ("ab", "bc", "cd", "de", "ef"))
    + "f.size() > 1"
    + ")" * 6
)
NESTED = "".join(f"{DIGITS}.map(a{depth}, " for depth in range(5)) + "true" + ")" * 5 + ".size() > 1"
GROWING = f"[{LETTERS}]" + "".join(f".map(x, {' + '.join(['x'] * 20)})" for _ in range(6)) + ".size() > 1"
UNICODE = f'{DIGITS}.all(x, !"aaaaaaaaa".matches(r"(\\pL{{10}}){{20}}"))'
MANY = f'{DIGITS}.all(x, {DIGITS}.all(y, {DIGITS}.all(z, !"aaaaaaaaa".matches("(a{{10}}){{90}}"))))'
HUNDREDS = "[" + ", ".join(f'"n{number}"' for number in range(500)) + "]"
SETS = f"sets.equivalent({HUNDREDS}, {HUNDREDS})"
MAPPED = 'optional.of("a")' + ".optMap(x, x)" * 14 + ".hasValue()"
JOINED = f'{LETTERS}.split("").join({LETTERS}).split("").join({LETTERS}).size() > 1'
PRECISE = '"' + "%.999f" * 900 + '".format([' + ", ".join(["1.0"] * 900) + "]).size() > 1"
QUOTED = f"strings.quote({'strings.quote(' * 20}{LETTERS}{')' * 20}).size() > 1"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        pytest.param(DOUBLING, "a value of", id="replace that doubles, 24 times"),
        pytest.param(FOLDED, "a value of", id="replace that makes a letter five hundred, four times"),
        pytest.param(ADDED, "a value of", id="variables that are sums of each other"),
        pytest.param(GROWING, "a value of", id="elements that are sums of themselves"),
        pytest.param(JOINED, "a value of", id="a thousand letters joined by a thousand"),
        pytest.param(QUOTED, "a value of", id="quotes of quotes"),
        pytest.param(NESTED, "a value of", id="loops in loops"),
        pytest.param(MANY, "the time limit", id="a regular expression a thousand times"),
        pytest.param(SETS, "the time limit", id="a set of hundreds compared with another"),
        pytest.param(UNICODE, "pattern too large", id="a regular expression of half a million instructions"),
        pytest.param(
            '"a".matches("a{1" + device.driver + "}")', "not a string literal", id="a regular expression put together"
        ),
        pytest.param(f'"a".find({OURS}.name) == ""', "not a string literal", id="a regular expression of a device"),
        pytest.param(MAPPED, "maps 14 optional values", id="optional values mapped again and again"),
        pytest.param('device.driver.format([1.0]) == ""', "calls format()", id="a format of a device"),
        pytest.param(PRECISE, "a value of", id="nine hundred numbers of a thousand digits"),
        pytest.param(
            'timestamp("2026-01-01T00:00:00Z").getHours("/dev/watchdog") == 1',
            "time zone",
            id="a time zone that is a device",
        ),
        pytest.param(
            'timestamp("2026-01-01T00:00:00Z").getHours("../../../run/some.fifo") == 1',
            "time zone",
            id="one that is a pipe",
        ),
        pytest.param(
            'timestamp("2026-01-01T00:00:00Z").getHours(device.driver) == 1', "time zone", id="one of the device"
        ),
    ],
)
def test_expressions_beyond_their_bounds_are_rejected_before_evaluation(expression: str, message: str) -> None:
    text = limited(expression)
    assert text.startswith("CEL expression does not compile: ")
    assert message in text


def test_a_pattern_that_makes_others_go_back_is_answered_in_time() -> None:
    assert limited(BACKTRACKING) == "True"


@pytest.mark.parametrize(
    "expression",
    [
        f'{OURS}.names.exists(a, {OURS}.names.exists(b, a == b && a != "x"))',
        f'{OURS}.names.exists(one, one.matches("^mlx5_[0-9]+$") || one.find("[a-z]+") == "ens")',
        f'["^mlx5_[0-9]+$", "^ens[0-9]+f[0-9]+$"].exists(p, {OURS}.names.exists(one, one.matches(p)))',
        'device.attributes.exists(domain, device.attributes[domain].exists(name, name == "mtu"))',
        f'{OURS}.name.lowerAscii().replace("_", "-").split("-").exists(part, part.startsWith("p"))',
        f'cel.bind(name, {OURS}.name, name == "a" || name.endsWith("b") || name in ["c", "d"])',
        f'{OURS}.?name.optMap(name, name.startsWith("p")).orValue(false)',
        'semver("1.2.3").isLessThan(semver("1.10.0")) && quantity("10Gi").isGreaterThan(quantity("9G"))',
        'timestamp("2026-01-01T00:00:00Z").getHours("Europe/Berlin") >= 0',
        'timestamp("2026-01-01T00:00:00Z").getHours("+01:00") == 1',
        '"%s-%d-%.2f".format([device.driver, 3, 1.5]) != ""',
        f'sets.contains({OURS}.names, ["a", "b"]) || sets.intersects({OURS}.names, {OURS}.names)',
        " && ".join(f'{OURS}.name != "n{number}"' for number in range(200)),
    ],
)
def test_common_selectors_are_within_bounds(expression: str) -> None:
    device = device_variables("dra.net", {"name": "ens1f0np0", "names": ("mlx5_0", "ens1f0")})
    assert compile_selector(expression).matches(device) in {True, False}


NEAR = {
    "comparisons": " && ".join(['device.driver != "x"'] * 400),
    "loops": f"{DIGITS}.all(a, {DIGITS}.all(b, {DIGITS}.all(c, a + b + c < 100)))",
    "lists": f"{DIGITS}.map(a, {DIGITS}.map(b, {DIGITS}.map(c, c))).size() == 10",
    "texts": "(" + LETTERS + '.replace("a", "' + "b" * 500 + '")).size() > 1',
    "pieces": f'{FEWER}.split("").map(x, x + "b").join("c").size() > 1',
    "patterns": '!"' + "a" * 1300 + '".matches("(a{10}){90}b")',
    "compiled patterns": f'{DIGITS}.all(x, "a".matches("(a{{10}}){{60}}|a"))',
    "found": f'{LETTERS}.findAll("a").size() == 1000',
    "sets": f'sets.contains({FEWER}.split("").map(x, x), ["a", "a", "a"])',
    "places": ("(" + LETTERS + " + " + LETTERS + ")" + '.indexOf("ab") == -1'),
    "containing": f'!("{"a" * 5000}".contains("{"a" * 4000}b"))',
    "formatted": '"' + "%.999f" * 100 + '".format([' + ", ".join(["1.0"] * 100) + "]).size() > 1",
    "quantities": f'{DIGITS}.all(a, {DIGITS}.all(b, quantity("1").add(a).isLessThan(quantity("1Gi"))))',
    "versions": f'{DIGITS}.all(a, {DIGITS}.all(b, semver("1.2.3-{"a" * 200}").major() == 1))',
}


@pytest.mark.parametrize("expression", NEAR.values(), ids=NEAR)
def test_the_costliest_allowed_expressions_finish_within_the_time_limit(expression: str) -> None:
    selector = compile_selector(expression)
    device = device_variables("dra.net", {"name": "a"})
    with within(LONG_SECONDS, "an evaluation"):
        assert selector.matches(device)


WORDS = st.sampled_from(
    ["device.driver", f"{OURS}.name", f"{OURS}.long", '"a,b,c"', LETTERS, '""', "x", "y", '"%s-%s"']
)
PATTERNS = st.sampled_from(['"a*b"', 'r"\\pL"', '"(a{10}){50}"', '"^[a-z]+$"', '"."'])
NUMBERS = st.sampled_from(["1", "-1", "3", "100", "x.size()"])


def larger_words(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    lists = larger_lists(inner)
    return st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("{}.replace({}, {})".format, inner, inner, inner),
        st.builds("{}.{}()".format, inner, st.sampled_from(["lowerAscii", "upperAscii", "trim"])),
        st.builds("strings.quote({})".format, inner),
        st.builds("{}.join({})".format, lists, inner),
        st.builds("{}.format([{}, {}])".format, inner, inner, inner),
        st.builds("{}.find({})".format, inner, PATTERNS),
        st.builds("cel.bind(y, {}, {})".format, inner, inner),
        st.builds("{}[0]".format, lists),
        st.builds("string({}.size())".format, lists),
    )


def larger_lists(words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    plain = st.one_of(
        st.just(f"{OURS}.names"),
        st.builds("[{}, {}, {}]".format, words, words, words),
        st.builds("{}.split({})".format, words, words),
        st.builds("{}.findAll({})".format, words, PATTERNS),
    )
    looped = st.one_of(
        st.builds("{}.map(x, {})".format, plain, words),
        st.builds("{}.filter(x, x != {})".format, plain, words),
        st.builds("({} + {})".format, plain, plain),
    )
    return plain | looped


TEXTS = st.recursive(WORDS, larger_words, max_leaves=12)
LISTS = larger_lists(TEXTS)
EXPRESSIONS = st.one_of(
    st.builds('cel.bind(x, "x", cel.bind(y, "y", {}.size() > 3))'.format, TEXTS),
    st.builds('cel.bind(x, "x", cel.bind(y, "y", {} == {}))'.format, TEXTS, TEXTS),
    st.builds(
        'cel.bind(x, "x", cel.bind(y, "y", {}.all(x, {}.exists(y, x.contains({})))))'.format, LISTS, LISTS, TEXTS
    ),
    st.builds('cel.bind(x, "x", cel.bind(y, "y", sets.contains({}, {})))'.format, LISTS, LISTS),
    st.builds('cel.bind(x, "x", cel.bind(y, "y", {}.exists(x, {}.matches({}))))'.format, LISTS, TEXTS, PATTERNS),
    st.builds('cel.bind(x, "x", cel.bind(y, "y", {} in {}))'.format, TEXTS, LISTS),
    st.builds('cel.bind(x, "x", cel.bind(y, "y", {}.indexOf({}) == {}))'.format, TEXTS, TEXTS, NUMBERS),
)
DRAWN = device_variables(
    "dra.net",
    {"name": "ens1f0np0", "long": "a" * PLAIN.text, "names": tuple(f"nam-{number:060}" for number in range(48))},
)


@settings(max_examples=draws.count(300, 20_000), deadline=None)
@given(EXPRESSIONS)
@example(BACKTRACKING)
def test_any_expression_is_compiled_or_rejected_and_evaluated_within_its_time_bound(expression: str) -> None:
    begun = time.thread_time()
    try:
        selector = compile_selector(expression)
    except CelCompileError:
        assert time.thread_time() - begun < 1.0
        return
    begun = time.thread_time()
    with suppress(CelEvaluationError):
        selector.matches(DRAWN)
    assert time.thread_time() - begun < LONG_SECONDS


def test_an_attribute_longer_than_others_is_bounded_as_it_is() -> None:
    device = device_variables("dra.net", {"name": "10.0.0.1/24," * 8000})
    assert compile_selector(f'{OURS}.name.startsWith("10.")').matches(device)
    folded = compile_selector(f'{OURS}.name.replace("1", {OURS}.name).size() > 1')
    assert folded.matches(device_variables("dra.net", {"name": "1" * 64}))
    with pytest.raises(CelEvaluationError, match="with attributes of up to 131072 characters"):
        folded.matches(device)


def limited(expression: str) -> str:
    """The result of an expression in a process of 10 s and 1 GiB: its answer, or the first line of its refusal."""
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        input=expression,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=_limit,
    )
    assert done.returncode == 0, f"ended by {-done.returncode}: {done.stderr}"
    return done.stdout.strip().splitlines()[0]


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))


ASKED = """
import sys
from netdra.cel import CelCompileError, compile_selector, device_variables
device = device_variables("dra.net", {"name": "a"})
try:
    print(compile_selector(sys.stdin.read()).matches(device))
except CelCompileError as problem:
    print(problem.what)
"""
