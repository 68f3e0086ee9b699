"""Measures the wire between two addresses: round trip, path MTU, loss of datagrams, and the rate of a stream.

One side answers (`Listener`), the other one measures (`measure`); both run without privileges, such as in pods. Follows
udp(7), tcp(7), ip(7): datagrams of the search for the path MTU must not be fragmented (IP_PMTUDISC_PROBE), so what a
router or a switch drops without a message is found, too. A reply is never longer than its request.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from netdra.kernel import address
from netdra.kernel.closing import Closing
from netdra.kernel.errors import KernelError, from_os_error, kernel_error
from netdra.kernel.link import get as get_link
from netdra.kernel.netlink import Socket
from netdra.model.errors import InvalidInputError, NetdraError

PORT = 8491
_HEADER = struct.Struct("!4sB8sI")
_MAGIC = b"NDRW"
_HELLO, _DATA, _PROBE, _END = range(4)
_COUNTS = struct.Struct("!II")
_SMALLEST = _HEADER.size + _COUNTS.size
_MOST_RUNS = 64
_CHUNK = 256 * 1024
_TRIES, _TRY_SECONDS = 3, 0.3
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PROBE_ONLY = 10, 23, 3
_OVERHEAD = {socket.AF_INET: 28, socket.AF_INET6: 48}  # of IP and UDP
_LEAST_MTU = {socket.AF_INET: 576, socket.AF_INET6: 1280}
_MOST_MTU = 65_535


class WireReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The measurement of one wire.

    Attributes:
        peer: the address of the other side.
        interface: the interface by which it is reached, "" if unknown.
        round_trip: the shortest time of an answer, in seconds.
        path_mtu: the largest packet that arrives, with IP header, in bytes.
        sent, received: datagrams.
        rate: the rate of the TCP stream in bit/s.
        problem: why it could not be measured, or which limit it does not meet; "" if nothing is wrong.
    """

    peer: str
    interface: str = ""
    round_trip: float = 0.0
    path_mtu: int = 0
    sent: int = 0
    received: int = 0
    rate: float = 0.0
    problem: str = ""

    @property
    def loss(self) -> float:
        """The share of datagrams that did not arrive."""
        return 1.0 - self.received / self.sent if self.sent else 0.0


class Listener(Closing):
    """Answers measurements at a port, in one thread."""

    def __init__(self, host: str = "", port: int = PORT) -> None:
        """Bind the port, for UDP and TCP.

        Args:
            host: an address of this machine; all of them if it is empty.
            port: the port; 0 for any, see `port`.

        Raises:
            InvalidInputError: the host is not an address.
            KernelError: it cannot be bound.
        """
        family = socket.AF_INET if host and ":" not in host else socket.AF_INET6
        self._datagrams = socket.socket(family, socket.SOCK_DGRAM)
        self._streams = socket.socket(family, socket.SOCK_STREAM)
        self._streams.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            for sock in (self._datagrams, self._streams):
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * 1024 * 1024)
            self._datagrams.bind((host, port))
            self.port = int(self._datagrams.getsockname()[1])
            self._streams.bind((host, self.port))
            self._streams.listen(16)
        except OSError as problem:
            self.close()
            raise _error(problem, host, f"cannot listen on port {port}") from None
        self._runs: dict[bytes, int] = {}
        self._buffer = memoryview(bytearray(_CHUNK))

    def close(self) -> None:
        """Stop answering; closing twice is not an error."""
        self._datagrams.close()
        self._streams.close()

    def serve(self, seconds: float) -> None:
        """Answer for so many seconds."""
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._datagrams, selectors.EVENT_READ)
            selector.register(self._streams, selectors.EVENT_READ)
            try:
                while (rest := until - time.monotonic()) > 0:
                    for key, _ in selector.select(min(rest, 1.0)):
                        self._answer(selector, key.fileobj)
            finally:
                for key in list(selector.get_map().values()):
                    if key.fileobj not in (self._datagrams, self._streams):
                        assert isinstance(key.fileobj, socket.socket)
                        key.fileobj.close()

    def _answer(self, selector: selectors.BaseSelector, ready: object) -> None:
        assert isinstance(ready, socket.socket)
        if ready is self._datagrams:
            with suppress(OSError):
                while True:
                    self._take(*self._datagrams.recvfrom(_MOST_MTU))
        elif ready is self._streams:
            with suppress(OSError):
                stream, _ = self._streams.accept()
                stream.setblocking(False)
                if len(selector.get_map()) > _MOST_RUNS:
                    stream.close()
                    return
                selector.register(stream, selectors.EVENT_READ)
        else:
            try:
                is_over = not ready.recv_into(self._buffer)
            except BlockingIOError:
                is_over = False
            except OSError:
                is_over = True
            if is_over:  # the sender waits for the end of this side: then all has arrived
                selector.unregister(ready)
                ready.close()

    def _take(self, data: bytes, peer: tuple[str, int]) -> None:
        if len(data) < _SMALLEST or not data.startswith(_MAGIC):
            return
        _, kind, run, number = _HEADER.unpack_from(data)
        if kind == _DATA:
            if run in self._runs or len(self._runs) < _MOST_RUNS:
                self._runs[run] = self._runs.get(run, 0) + 1
            return
        counted = self._runs.pop(run, 0) if kind == _HELLO else self._runs.get(run, 0)
        reply = _HEADER.pack(_MAGIC, kind, run, number) + _COUNTS.pack(counted, len(data))
        with suppress(OSError):
            self._datagrams.sendto(reply, peer)


@dataclass
class _Sender:
    """The datagrams of one measurement."""

    sock: socket.socket
    run: bytes
    number: int = 0
    round_trips: list[float] = field(default_factory=list)

    def pack(self, kind: int, size: int = _SMALLEST) -> bytes:
        self.number += 1
        return _HEADER.pack(_MAGIC, kind, self.run, self.number).ljust(size, b"\0")

    def ask(self, kind: int, size: int = _SMALLEST, tries: int = _TRIES) -> tuple[int, int] | None:
        """The counts that the other side answers with; None without an answer.

        Raises:
            OSError: the datagram is too long for the interface, or the address cannot be reached.
        """
        for _ in range(tries):
            sent, data = time.monotonic(), self.pack(kind, size)
            with suppress(ConnectionRefusedError):
                self.sock.send(data)
            while (rest := sent + _TRY_SECONDS - time.monotonic()) > 0:
                self.sock.settimeout(rest)
                try:
                    reply = self.sock.recv(_MOST_MTU)
                except TimeoutError:
                    break
                except ConnectionRefusedError:  # the other side does not listen yet
                    time.sleep(max(0.0, sent + _TRY_SECONDS - time.monotonic()))
                    break
                if len(reply) == _SMALLEST and reply[: _HEADER.size] == data[: _HEADER.size]:
                    self.round_trips.append(time.monotonic() - sent)
                    counted, length = _COUNTS.unpack_from(reply, _HEADER.size)
                    return counted, length
        return None


def measure(
    host: str, port: int = PORT, *, seconds: float = 5.0, rate: float = 100e6, patience: float = 30.0
) -> WireReport:
    """Measure the wire to a listener.

    Args:
        host: its address.
        seconds: how long datagrams are sent, and then a stream.
        rate: bit/s of the datagrams.
        patience: seconds to wait until the other side listens.

    Raises:
        InvalidInputError: the host is not an address.
        KernelError: it cannot be reached, or does not answer.
    """
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as sock:
            sock.connect(where)
            return _measure(sock, family, (host, port), (seconds, rate, patience))
    except OSError as problem:
        raise _error(problem, host, f"cannot measure the wire to {host}") from None


def _error(problem: OSError, host: str, doing: str) -> NetdraError:
    if isinstance(problem, socket.gaierror):
        return InvalidInputError(
            f'"{host}" is not an address of a host', hint="use an IP address, e.g. 198.51.100.10", code="ND2247"
        )
    if isinstance(problem, TimeoutError):  # of a socket, it has no number
        return kernel_error(errno.ETIMEDOUT, doing)
    return from_os_error(problem, doing)


def _measure(sock: socket.socket, family: int, where: tuple[str, int], given: tuple[float, float, float]) -> WireReport:
    seconds, rate, patience = given
    sender = _Sender(sock, os.urandom(8))
    until = time.monotonic() + patience
    while sender.ask(_HELLO) is None:
        if time.monotonic() > until:
            raise TimeoutError(errno.ETIMEDOUT, "no answer")
    level, option = (
        (socket.IPPROTO_IP, _IP_MTU_DISCOVER) if family == socket.AF_INET else (socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER)
    )
    sock.setsockopt(level, option, _PROBE_ONLY)
    path_mtu = _path_mtu(sender, family)
    sent = _send(sender, path_mtu - _OVERHEAD[socket.AddressFamily(family)], seconds, rate)
    time.sleep(_TRY_SECONDS)  # the last ones are on their way
    answer = sender.ask(_END, tries=10)
    if answer is None:
        raise TimeoutError(errno.ETIMEDOUT, "no answer")
    return WireReport(
        peer=where[0],
        interface=_interface(sock.getsockname()[0]),
        round_trip=min(sender.round_trips),
        path_mtu=path_mtu,
        sent=sent,
        received=min(answer[0], sent),
        rate=_stream(where, seconds),
    )


def _path_mtu(sender: _Sender, family: int) -> int:
    """The largest packet that arrives, by bisection; each size is tried several times, because packets get lost."""
    overhead = _OVERHEAD[socket.AddressFamily(family)]
    arrives, too_long = _LEAST_MTU[socket.AddressFamily(family)], _MOST_MTU + 1
    while too_long - arrives > 1:
        size = (arrives + too_long) // 2
        try:
            answer = sender.ask(_PROBE, size - overhead)
        except OSError as problem:
            if problem.errno != errno.EMSGSIZE:
                raise
            answer = None
        if answer is not None and answer[1] == size - overhead:
            arrives = size
        else:
            too_long = size
    return arrives


def _send(sender: _Sender, size: int, seconds: float, rate: float) -> int:
    """Send datagrams at a rate, evenly; returns how many."""
    began, sent = time.monotonic(), 0
    per_second = rate / 8 / size
    while (passed := time.monotonic() - began) < seconds:
        if sent > passed * per_second:
            time.sleep(0.001)
            continue
        with suppress(ConnectionRefusedError):
            sender.sock.send(sender.pack(_DATA, size))
        sent += 1
    return sent


def _stream(where: tuple[str, int], seconds: float) -> float:
    """The rate of a TCP stream in bit/s, over the time until all of it has arrived."""
    data = memoryview(bytes(_CHUNK))
    with socket.create_connection(where, timeout=10.0) as stream:
        stream.settimeout(seconds + 10.0)
        began, total = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            total += stream.send(data)
        stream.shutdown(socket.SHUT_WR)
        stream.recv(1)
        return total * 8 / (time.monotonic() - began)


def _interface(local: str) -> str:
    """The interface that has a local address."""
    with suppress(KernelError), Socket() as sock:
        for held in address.dump(sock):
            if held.text.partition("/")[0] == local.partition("%")[0]:
                return get_link(sock, held.index).name
    return ""
