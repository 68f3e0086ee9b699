"""The engine's extensions are loaded by the first expression that may need them, and by no other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from netdra.cel import compile_selector, device_variables, source
from netdra.cel.engine import needs_extensions

STRINGS = "charAt indexOf lastIndexOf join lowerAscii upperAscii quote replace reverse split substring trim format"
OPTIONALS = "of none ofNonZeroValue or orValue value hasValue optMap optFlatMap"
LOADED = """
import sys
from netdra.cel import compile_selector
compile_selector(sys.argv[1])
print(any(name.startswith("cel_expr_python.ext") for name in sys.modules))
"""


@pytest.mark.parametrize("name", [*STRINGS.split(), *OPTIONALS.split(), "bind", "a_name_that_nobody_knows"])
def test_extension_functions_and_unknown_names_require_the_extensions(name: str) -> None:
    assert needs_extensions({name})


@pytest.mark.parametrize("name", ["compareTo", "intersects", "semver", "find", "size", "has"])
def test_functions_of_netdra_or_cel_itself_require_no_extensions(name: str) -> None:
    assert not needs_extensions({name})


@pytest.mark.parametrize(
    ("expression", "calls"),
    [
        ('device.attributes["a"].b == "lowerAscii()" ? true : false', frozenset()),
        ('size([1, 2]) == 2 && "a".contains("b")', {"size", "contains"}),
        ('device.attributes["a"] . ? b.orValue (1) == 1', {"?", "orValue"}),
        ('[?device.attributes[?"a"]].size() == 0', {"?", "size"}),
    ],
)
def test_calls_are_found_in_the_text(expression: str, calls: set[str]) -> None:
    assert source.usage(expression).calls == calls


@pytest.mark.parametrize(
    ("expression", "loads"),
    [
        ('device.attributes["dra.net"].type == "veth" && device.driver.startsWith("dra")', "False"),
        ('device.attributes["dra.net"].type.lowerAscii() == "veth"', "True"),
    ],
)
def test_a_process_has_them_only_with_such_an_expression(expression: str, loads: str) -> None:
    done = subprocess.run([sys.executable, "-c", LOADED, expression], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == loads


def test_one_device_is_asked_with_and_without_them() -> None:
    device = device_variables("dra.net", {"name": "Abc"})
    for condition in (
        '.name == "Abc"',
        '.name.lowerAscii() == "abc"',
        '.name.indexOf("c") == 2',
        '.?other.orValue("x") == "x"',
    ):
        assert compile_selector(f'device.attributes["dra.net"]{condition}').matches(device)
