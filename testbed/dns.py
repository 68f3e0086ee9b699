"""The cluster's DNS: a CoreDNS beside a control plane, and questions to it.

Used by the tests of Services. Questions are RFC 1035 over UDP on loopback; an answer is its addresses alone.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Literal

from testbed.build import program
from testbed.control_plane import ControlPlane
from testbed.process import Ports, answers

ZONE = "cluster.local"
RECORDS = {"A": 1, "AAAA": 28}
SECONDS = 5.0
_HEADER = struct.Struct("!6H")
_QUESTION = struct.Struct("!2H")
_RECORD = struct.Struct("!2HLH")
_RECURSION_DESIRED = 0x0100
_INTERNET = 1
_POINTER = 0xC0
_COREFILE = """{zone}:{port} {{
    bind 127.0.0.1
    ready 127.0.0.1:{ready}
    errors
    kubernetes {zone} {{
        kubeconfig {kubeconfig}
        ttl 0
    }}
}}
"""


@dataclass(frozen=True)
class DNS:
    """A DNS server on loopback."""

    port: int

    def resolve(self, name: str, kind: Literal["A", "AAAA"] = "A") -> set[str]:
        """The addresses of a name of the cluster (`web-0.storage.db.svc`); none if the server has none.

        Raises:
            OSError: it does not answer.
        """
        number = secrets.randbelow(1 << 16)
        labels = f"{name}.{ZONE}".split(".")
        text = b"".join(bytes([len(label)]) + label.encode() for label in labels) + b"\0"
        question = text + _QUESTION.pack(RECORDS[kind], _INTERNET)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
            connection.settimeout(SECONDS)
            connection.connect(("127.0.0.1", self.port))
            connection.send(_HEADER.pack(number, _RECURSION_DESIRED, 1, 0, 0, 0) + question)
            return set(_addresses(connection.recv(1 << 16), RECORDS[kind]))


def _addresses(answer: bytes, kind: int) -> Iterator[str]:
    _, _, questions, count, _, _ = _HEADER.unpack_from(answer)
    place = _HEADER.size
    for _ in range(questions):
        place = _after_name(answer, place) + _QUESTION.size
    for _ in range(count):
        place = _after_name(answer, place)
        found, _, _, size = _RECORD.unpack_from(answer, place)
        place += _RECORD.size
        if found == kind:
            yield str(ipaddress.ip_address(answer[place : place + size]))
        place += size


def _after_name(answer: bytes, place: int) -> int:
    while (length := answer[place]) != 0:
        if length & _POINTER == _POINTER:
            return place + 2
        place += length + 1
    return place + 1


@contextmanager
def running_dns(plane: ControlPlane) -> Iterator[DNS]:
    """The cluster's DNS server, with the rights of an administrator."""
    with closing(Ports("127.0.0.1")) as ports:
        port, ready = ports.take(), ports.take()
        corefile = plane.folder / "Corefile"
        corefile.write_text(_COREFILE.format(zone=ZONE, port=port, ready=ready, kubeconfig=plane.kubeconfig()))
        command = [str(program("coredns")), "-conf", str(corefile)]
        process = plane.run("coredns", command, answers(f"http://127.0.0.1:{ready}/ready"))
        try:
            yield DNS(port)
        finally:
            process.stop()
