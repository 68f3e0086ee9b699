"""`netdra discover` inside a namespace, once and live."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from netdra.kernel import link
from testbed.waiting import PATIENCE
from tests.kernel.conftest import Machine


@contextmanager
def watching(machine: Machine, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`netdra discover --watch` in the namespace; ended by SIGINT, as Ctrl-C does."""
    command = ("ip", "netns", "exec", machine.name, sys.executable, "-m", "netdra", "discover", "--watch", *arguments)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")


def test_json_of_a_namespace(machine: Machine) -> None:
    machine.veth("a", "b", mac="02:00:00:00:00:01", up=True)
    found = json.loads(machine.run(sys.executable, "-m", "netdra", "discover", "-o", "json"))
    assert [each["ifName"] for each in found] == ["a", "b", "lo"]
    assert (found[0]["mac"], found[0]["type"], found[0]["linkSpeed"]) == ("02:00:00:00:00:01", "veth", 10000)


def test_watch_prints_each_change_as_one_json_object_per_line(machine: Machine) -> None:
    with watching(machine, "-o", "json") as process:
        assert process.stdout is not None

        def told() -> tuple[str, str, Any]:
            assert process.stdout is not None
            line = json.loads(process.stdout.readline())
            return line["change"], line["interface"]["ifName"], line["interface"]["mtu"]

        assert told() == ("added", "lo", 65536)
        machine.veth("a", "b")
        assert {told(), told()} == {("added", "a", 1500), ("added", "b", 1500)}
        link.change(machine.sock, "a", mtu=1400)
        assert told() == ("changed", "a", 1400)
        link.delete(machine.sock, "a")
        assert {told()[:2], told()[:2]} == {("removed", "a"), ("removed", "b")}


def test_watch_prints_each_change_as_a_line_of_text(machine: Machine) -> None:
    with watching(machine) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("INTERFACE")
        assert process.stdout.readline().startswith("lo")
        machine.veth("a", "b")
        assert {process.stdout.readline()[:8], process.stdout.readline()[:8]} == {"+ a (vet", "+ b (vet"}
        link.change(machine.sock, "a", mtu=1400)
        assert process.stdout.readline() == "~ a: mtu 1500 -> 1400\n"
        link.change(machine.sock, "a", name="c")
        assert process.stdout.readline() == "~ a: deviceName a -> c, ifName a -> c\n"
        link.change(machine.sock, "c", alias="uplink of x")
        link.change(machine.sock, "c", mtu=1300)
        assert "alias none -> uplink of x" in process.stdout.readline()
