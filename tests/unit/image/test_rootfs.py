"""What the image is made of is found in whatever base there is, and what a base lacks is said."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from image.rootfs import Root, asked_for, distributions, needed, take_libraries

PYTHON = Path(sys.executable).resolve()


def test_a_program_names_its_interpreter_and_its_libraries() -> None:
    interpreter, libraries = needed(PYTHON)
    assert Path(interpreter).exists()
    loaded = subprocess.run(("ldd", str(PYTHON)), capture_output=True, text=True, check=True).stdout
    assert set(libraries) <= set(re.findall(r"^\s+(?:\S*/)?(\S+) ", loaded, re.MULTILINE))
    assert "libc.so.6" in libraries
    assert needed(Path(__file__)) == ("", [])


def test_a_library_that_the_base_lacks_is_named_with_who_wants_it(tmp_path: Path) -> None:
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
