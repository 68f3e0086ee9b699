"""Attacks of a local user with connections to the device registry on the daemon's memory, kind by kind."""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings

from netdra.node.registry.connections import CALLS
from netdra.node.registry.service import SERVICE
from netdra.node.wire import registry_pb2 as wire

CONNECTIONS = 48
ATTACK_SECONDS = 4.0
_PATIENCE_SECONDS = 0.002


class Speech:
    """The messages that a program sends on each of its connections."""

    def __init__(self, window: int) -> None:
        self.http2 = H2Connection()
        # A setting that is changed later is not in the first frame.
        self.http2.local_settings = Settings(initial_values={SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.http2.initiate_connection()

    def call(self, method: str, request: bytes, *, part: int = 16_384, ends: bool = True, extra: str = "") -> None:
        """Begin a call whose request comes in parts of so many bytes; unless it ends, its last byte does not come."""
        stream = self.http2.get_next_available_stream_id()
        headers = [(":method", "POST"), (":scheme", "http"), (":path", f"{SERVICE}/{method}"), (":authority", "n")]
        headers += [("te", "trailers"), ("content-type", "application/grpc"), *([("x", extra)] if extra else [])]
        self.http2.send_headers(stream, headers)
        text = (struct.pack(">?I", False, len(request)) + request)[: None if ends else -1]
        for at in range(0, len(text), part):
            self.http2.send_data(stream, text[at : at + part])
        if ends:
            self.http2.end_stream(stream)


class Connection:
    """A connection that is never read."""

    def __init__(self, path: Path, text: bytes) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.socket.setblocking(False)
        self._text = memoryview(text)

    def send(self) -> bool:
        """Send as much as is taken; False when the registry has closed the connection."""
        with suppress(BlockingIOError):
            try:
                self._text = self._text[self.socket.send(self._text) :] if self._text else self._text
            except (BrokenPipeError, ConnectionResetError):
                return False
        return True


def _lists(speech: Speech) -> None:
    """Answers that are never read."""
    for _ in range(CALLS):
        speech.call("ListRegistrations", wire.ListRegistrationsRequest().SerializeToString())


def _watches(speech: Speech) -> None:
    for _ in range(CALLS):
        speech.call("WatchDevices", b"")


def _crumbs(speech: Speech) -> None:
    """Requests in parts of one byte, which never end."""
    for _ in range(CALLS):
        # What a connection may have on its way is a window of 64 KiB without further word from the registry.
        speech.call("RegisterAttributes", b"\x00" * 1_500, part=1, ends=False)


def _headers(speech: Speech) -> None:
    for number in range(CALLS):
        speech.call("RegisterAttributes", b"", ends=False, extra=str(number) + "x" * 20_000)


def _large(speech: Speech) -> None:
    speech.call("RegisterAttributes", b"\x00" * 60_000, ends=False)


ATTACKS: Mapping[str, tuple[Callable[[Speech], None], int]] = {
    "lists": (_lists, 0),
    "watches": (_watches, 0),
    "crumbs": (_crumbs, 65_535),
    "headers": (_headers, 65_535),
    "large": (_large, 65_535),
}
"""By their names, what a connection sends, and the window that it gives the registry for answers."""


@contextmanager
def attack(kind: str, path: Path) -> Iterator[None]:
    """Hold as many connections as one user gets, for as long as the body runs."""
    say, window = ATTACKS[kind]
    speech = Speech(window)
    say(speech)
    text = speech.http2.data_to_send()
    with ExitStack() as opened:
        connections = []
        for _ in range(CONNECTIONS):
            with suppress(OSError):
                connection = Connection(path, text)
                opened.callback(connection.socket.close)
                connections.append(connection)
        ends = time.monotonic() + ATTACK_SECONDS
        while time.monotonic() < ends:
            connections = [connection for connection in connections if connection.send()]
            time.sleep(_PATIENCE_SECONDS)
        yield


def most_memory(pid: int) -> float:
    """The most memory that a process ever had, in MiB (proc(5), VmHWM)."""
    match = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]) / 1024
