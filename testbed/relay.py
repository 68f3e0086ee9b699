"""`python -m testbed.relay PID PORT [HOST:PORT]`: a node's programs reach a server on this machine's loopback.

Started by `testbed.kubelet` and `testbed.site`. It listens in the network namespace of a process, on 127.0.0.1 and the
same port or on another address (that of a Service), and passes each connection on to 127.0.0.1:PORT outside. So one
kubeconfig file serves on every node and needs no network between them.

`python -m testbed.relay PID SOCKET`: the other way round, an HTTP proxy (CONNECT) on a unix socket outside, by which an
API server reaches what listens on a node: its kubelet, and pods.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

_BYTES = 256 * 1024
_BACKLOG = 128
_CONNECT_SECONDS = 10.0
_CLONE_NEWNET = 0x40000000  # <linux/sched.h>


def main() -> None:
    """Relay until killed."""
    pid, what = int(sys.argv[1]), sys.argv[2]
    namespace = Path(f"/proc/{pid}/ns/net")
    if not what.isdecimal():
        _serve_proxy(namespace, what)
    host, _, port = (sys.argv[3] if len(sys.argv) > 3 else f"127.0.0.1:{what}").rpartition(":")
    listener = _listen(namespace, host, int(port))
    while True:
        inner, _ = listener.accept()
        threading.Thread(target=_serve, args=(inner, int(what)), daemon=True).start()


def _listen(namespace: Path, host: str, port: int) -> socket.socket:
    """The listening socket is made in the namespace, all others outside of it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/self/ns/net").open() as own, namespace.open() as there:
        _enter(libc, there.fileno())
        listener = socket.create_server((host, port), backlog=_BACKLOG)
        _enter(libc, own.fileno())
    return listener


def _serve_proxy(namespace: Path, path: str) -> NoReturn:
    """All sockets but the listening one are made in the namespace, by threads that begin there."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(_BACKLOG)
    with namespace.open() as there:
        _enter(ctypes.CDLL(None, use_errno=True), there.fileno())
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_connect, args=(client,), daemon=True).start()


def _connect(client: socket.socket) -> None:
    """One connection: the request states where to (RFC 9110, 9.3.6), and all that follows is passed on."""
    with client, suppress(OSError):
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(_BYTES)
        host, _, port = head.split()[1].decode().rpartition(":")
        try:
            server = socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS)
        except OSError as problem:
            client.sendall(f"HTTP/1.1 502 {problem.strerror or 'timed out'}\r\n\r\n".encode())
            return
        server.settimeout(None)
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with server:
            _both_ways(client, server)


def _enter(libc: ctypes.CDLL, namespace: int) -> None:
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "setns")


def _serve(inner: socket.socket, port: int) -> None:
    with inner, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as outer:
        for end in (inner, outer):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _both_ways(inner, outer)


def _both_ways(one: socket.socket, other: socket.socket) -> None:
    back = threading.Thread(target=_pass_on, args=(other, one), daemon=True)
    back.start()
    _pass_on(one, other)
    back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Pass everything on until one side ends, then end the other one."""
    with suppress(OSError):
        while content := source.recv(_BYTES):
            target.sendall(content)
    for end, how in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with suppress(OSError):
            end.shutdown(how)


if __name__ == "__main__":
    main()
