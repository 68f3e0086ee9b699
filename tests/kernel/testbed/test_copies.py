"""A program that is loaded once does the same as one that is started, and remembers nothing of the former command."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing

import pytest

from testbed.copies import Copies
from tests.kernel.conftest import Machine


@pytest.fixture(scope="module")
def ip() -> Iterator[Copies]:
    with closing(Copies("ip")) as found:
        yield found


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("-V",), ""),
        (("-j", "-d", "link", "show"), ""),
        (("link", "show", "dev", "nix"), ""),
        (("no-such-object",), ""),
        (("-j", "-batch", "-"), "link show dev lo\naddress show dev lo\n"),
        (("-force", "-batch", "-"), "link show dev nix\nlink show dev lo\n"),
        (("netns", "exec", "no-such-namespace", "env"), ""),
    ],
)
def test_a_copy_prints_the_same_and_ends_with_the_same_code(ip: Copies, arguments: tuple[str, ...], text: str) -> None:
    started = subprocess.run(("ip", *arguments), input=text, capture_output=True, text=True, check=False)
    copied = ip.run(*arguments, text=text)
    assert (copied.returncode, copied.stdout, copied.stderr) == (started.returncode, started.stdout, started.stderr)


def test_a_copy_sees_links_that_came_after_the_load_and_programs_that_it_starts_are_not_preloaded(
    ip: Copies, machine: Machine
) -> None:
    inside = ("-n", machine.name)
    for kind in ("first", "second"):
        assert ip.run(*inside, "link", "add", "eth9", "type", "veth", "peer", "name", kind).returncode == 0
        assert f"eth9@{kind}" in ip.run(*inside, "-br", "link").stdout
        assert ip.run(*inside, "link", "delete", "eth9").returncode == 0
    environment = ip.run("netns", "exec", machine.name, "env").stdout
    assert "PATH=" in environment
    assert "LD_PRELOAD" not in environment


def test_a_command_that_does_not_end_is_an_error_and_the_program_is_not_used_again() -> None:
    with closing(Copies("sleep")) as found:
        assert found.run("0").returncode == 0
        with pytest.raises(TimeoutError):
            found.run("1", timeout=0.05)
        with pytest.raises(OSError, match="Bad file descriptor"):
            found.run("0")
