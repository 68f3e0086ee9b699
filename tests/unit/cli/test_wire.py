"""`netdra wire` on loopback: the results of all addresses, limits that are not met, and wrong input."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from netdra.cli.main import cli
from netdra.kernel.wire import Listener
from netdra.model.errors import InvalidInputError

QUICK = ("--seconds", "0.2", "--rate", "1", "--wait", "1")


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a listener on 127.0.0.1."""
    with Listener("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=listener.serve, args=(15.0,), daemon=True)
        thread.start()
        yield listener.port


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["wire", *arguments])


def test_an_address_that_does_not_answer_keeps_no_other_result_away(port: int) -> None:
    done = call("send", "127.0.0.2", "127.0.0.1", f"--port={port}", *QUICK, "--output", "json")
    silent, measured = json.loads(done.stdout)
    assert done.exit_code == 1
    assert "cannot measure the wire to 127.0.0.2: Connection timed out" in silent["problem"]
    assert "netdra wire listen" in silent["problem"]
    assert (measured["interface"], measured.get("problem", "")) == ("lo", "")
    assert measured["received"] == measured["sent"] > 0


def test_a_limit_that_is_not_met_is_named(port: int) -> None:
    done = call("send", "127.0.0.1", f"--port={port}", *QUICK, "--min-mtu", "70000")
    assert done.exit_code == 1
    assert "path MTU below 70000" in done.stdout


@pytest.mark.parametrize("arguments", [("send", "no host"), ("listen", "--address", "no host")])
def test_a_text_that_is_not_an_address_is_invalid_input(arguments: tuple[str, ...]) -> None:
    done = call(*arguments)
    assert isinstance(done.exception, InvalidInputError)
    assert done.exception.what == '"no host" is not an address of a host'
