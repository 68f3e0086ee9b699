"""`python -m testbed.relay PID PORT`: a node's programs reach a server on this machine's loopback by the same address.

Started by `testbed.kubelet`. It listens on 127.0.0.1:PORT in the network namespace of a process and passes each
connection on to that port outside, so one kubeconfig file serves on every node and needs no network between them.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

_BYTES = 256 * 1024
_BACKLOG = 128
_CLONE_NEWNET = 0x40000000  # <linux/sched.h>


def main() -> None:
    """Relay until killed; the listening socket is made in the namespace, all others outside of it."""
    pid, port = int(sys.argv[1]), int(sys.argv[2])
    listener = _listen(Path(f"/proc/{pid}/ns/net"), port)
    while True:
        inner, _ = listener.accept()
        threading.Thread(target=_serve, args=(inner, port), daemon=True).start()


def _listen(namespace: Path, port: int) -> socket.socket:
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/self/ns/net").open() as own, namespace.open() as there:
        _enter(libc, there.fileno())
        listener = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
        _enter(libc, own.fileno())
    return listener


def _enter(libc: ctypes.CDLL, namespace: int) -> None:
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "setns")


def _serve(inner: socket.socket, port: int) -> None:
    with inner, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as outer:
        for end in (inner, outer):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=_pass_on, args=(outer, inner), daemon=True)
        back.start()
        _pass_on(inner, outer)
        back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Everything, until one side ends: then the other one is told."""
    with suppress(OSError):
        while content := source.recv(_BYTES):
            target.sendall(content)
    for end, how in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with suppress(OSError):
            end.shutdown(how)


if __name__ == "__main__":
    main()
