"""A process that asks the webhook as fast as it is answered, from several addresses, until its input ends.

Started by `test_floods.py` as a program: threads of the test itself would slow down what it measures.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import sys
import threading
from collections import Counter
from pathlib import Path


def ask(where: tuple[str, int], source: str, bodies: list[bytes], answers: Counter[str]) -> None:
    """Ask one question after the other, on one connection while it lasts."""
    at = 0
    while True:
        with contextlib.suppress(OSError), socket.create_connection(where, 10.0, (source, 0)) as raw:
            raw.settimeout(60.0)
            with ssl._create_unverified_context().wrap_socket(raw) as connection:
                reader = connection.makefile("rb")
                while True:
                    body = bodies[at % len(bodies)]
                    at += 1
                    head = f"POST /validate HTTP/1.1\r\nHost: webhook\r\nContent-Length: {len(body)}\r\n\r\n"
                    connection.sendall(head.encode() + body)
                    status = reader.readline().split()
                    if len(status) < 2:
                        answers["broken off"] += 1
                        break
                    length = 0
                    while (line := reader.readline()) not in {b"\r\n", b""}:
                        name, _, value = line.partition(b":")
                        length = int(value) if name.lower() == b"content-length" else length
                    told = reader.read(length)
                    answers["busy" if b"busy" in told else status[1].decode()] += 1


def main() -> None:
    """Read who asks what, begin, and end with the input."""
    asked = json.loads(sys.stdin.readline())
    where, bodies = (asked["host"], asked["port"]), [Path(path).read_bytes() for path in asked["bodies"]]
    answers: Counter[str] = Counter()
    for number in range(asked["connections"]):
        source = asked["addresses"][number % len(asked["addresses"])]
        threading.Thread(target=ask, args=(where, source, bodies, answers), daemon=True).start()
    print(flush=True)
    sys.stdin.read()
    print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
