"""The parts of the image are found in any base, and the missing parts of a base are reported."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from image.rootfs import Root, asked_for, bill, compile_all, debian_licenses, distributions, needed, take_libraries

PYTHON = Path(sys.executable).resolve()


def test_a_program_names_its_interpreter_and_its_libraries() -> None:
    interpreter, libraries = needed(PYTHON)
    assert Path(interpreter).exists()
    loaded = subprocess.run(("ldd", str(PYTHON)), capture_output=True, text=True, check=True).stdout
    assert set(libraries) <= set(re.findall(r"^\s+(?:\S*/)?(\S+) ", loaded, re.MULTILINE))
    assert "libc.so.6" in libraries
    assert needed(Path(__file__)) == ("", [])


def test_a_library_missing_from_the_base_is_named_with_the_binary_that_needs_it(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (target / "usr/bin").mkdir(parents=True)
    shutil.copy(PYTHON, target / "usr/bin/python3")
    base = tmp_path / "base"
    interpreter = base / needed(PYTHON)[0].lstrip("/")
    interpreter.parent.mkdir(parents=True)
    interpreter.touch()
    with pytest.raises(SystemExit, match=r"usr/bin/python3 is linked with lib\S+, which BASE has not: choose"):
        take_libraries(Root(base, target), base, target)


def test_links_on_the_way_to_a_file_are_made_too(tmp_path: Path) -> None:
    base, target = tmp_path / "base", tmp_path / "target"
    (base / "usr/lib/deep").mkdir(parents=True)
    (base / "usr/lib/deep/x.so.1").write_text("x")
    (base / "usr/lib/x.so").symlink_to("deep/../deep/x.so.1")
    (base / "lib").symlink_to("/usr/lib")
    root = Root(base, target)
    assert root.take("lib/x.so") == "usr/lib/deep/x.so.1"
    assert (target / "usr/lib/deep/x.so.1").read_text() == "x"
    assert (target / "lib").readlink() == Path("/usr/lib")
    assert (target / "usr/lib/x.so").readlink() == Path("deep/../deep/x.so.1")
    assert root.taken == {"usr/lib/deep/x.so.1"}


def test_the_daemons_packages_are_taken_and_the_builds_are_not() -> None:
    installed = distributions(Path(pytest.__file__).parents[1])
    wanted = set(asked_for(installed, "netdra", frozenset({"cluster"})))
    assert {"aiohttp", "grpclib", "cryptography", "multidict", "cel-expr-python", "netdra"} <= wanted
    assert not {"hatchling", "pytest", "ruff", "packaging"} & wanted


def test_licences_are_those_of_debians_copyright_files() -> None:
    form = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
    stanzas = "\nFiles: *\nLicense: Zlib\n\nFiles: a\nLicense:  GPL-2+ or MIT\n text\n\nLicense: Zlib\n text\n"
    assert debian_licenses("zlib1g", form + stanzas) == ["GPL-2+ or MIT", "Zlib"]
    assert debian_licenses("libc6", "This is the GNU C library.\n") == ["see /usr/share/doc/libc6/copyright"]
    assert debian_licenses("libc6", "") == []


def test_a_bill_names_the_licence_of_each_package_in_the_form_that_it_has() -> None:
    python = [
        package("netdra", "License-Expression: Apache-2.0"),
        package("named", "License: MIT"),
        package(
            "told", "License: a text\n        of several lines", "Classifier: License :: OSI Approved :: MIT License"
        ),
    ]
    debian = [Parser().parsestr("Package: zlib1g\nVersion: 1:1.2\nArchitecture: arm64\nMaintainer: somebody\n")]
    notices = {"zlib1g": "Format: 1\nLicense: Zlib\n"}
    content = json.loads(bill(python, debian, notices, {"ID": "debian", "VERSION_ID": "12"}, 0))
    licences = {each["name"]: each.get("licenses") for each in content["components"]}
    assert licences["named"] == [{"license": {"name": "MIT"}}]
    assert licences["told"] == [{"license": {"name": "MIT License"}}]
    assert licences["zlib1g"] == [{"license": {"name": "Zlib"}}]
    assert content["metadata"]["component"]["licenses"] == [{"expression": "Apache-2.0"}]
    assert content["metadata"]["component"]["purl"] == "pkg:generic/netdra@1"


def package(name: str, *lines: str) -> Message:
    """A Python package's metadata."""
    return Parser().parsestr("\n".join([f"Name: {name}", "Version: 1", *lines, ""]))


MODULE = '''"""A module."""
from __future__ import annotations

class Kind:
    """A kind."""

def check(number):
    """A function."""
    assert number > 1, number

async def wait():
    """Only a docstring."""
'''


def test_compiled_modules_work_without_their_source_and_keep_the_docstrings_that_are_used(tmp_path: Path) -> None:
    places = {name: tmp_path / "lib" / name for name in ("netdra/node/module.py", "netdra/cli/module.py")}
    for place in places.values():
        place.parent.mkdir(parents=True)
        (place.parent.parent / "__init__.py").touch()
        place.write_text(MODULE)
    compile_all(tmp_path, 1)
    for place in places.values():
        place.write_text("raise SystemExit('the source is not read')")
    shown = """
import asyncio, traceback
from netdra.PART import module
print(module.__doc__, module.Kind.__doc__, module.check.__doc__, asyncio.run(module.wait()), sep="|")
try:
    module.check(0)
except AssertionError as problem:
    print(traceback.extract_tb(problem.__traceback__)[-1].lineno)
"""
    said = [
        subprocess.run(
            (sys.executable, "-c", shown.replace("PART", part)),
            cwd=tmp_path / "lib",
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for part in ("node", "cli")
    ]
    assert said == [
        ["None|A kind.|None|None", "9"],
        ["A module.|A kind.|A function.|None", "9"],
    ]
