"""Floods of costly questions at the webhook's port: another address is answered as before, and memory stays.

The figures are those of docs/security.md: the 99th of a hundred answers to another address within 200 ms on an idle
machine, and 300 MiB for the webhook's process.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from testbed import pace
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, manifest
from tests.cluster.daemons import POLICY, Webhook, running_webhook
from tests.cluster.test_controller import TOPOLOGY

IF_NAME = 'device.attributes["dra.networking"].ifName'
ATTACKERS = [f"127.0.0.{number}" for number in range(71, 75)]
ANOTHER = "127.0.0.80"
ASKED, P99_SECONDS, RESIDENT = 50, 0.2, 300 * 1024 * 1024
CLAIMS = 1000


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Webhook]:
    """The webhook, installed and asked by the API server."""
    with running_webhook(control_plane, api) as running:
        yield running


@pytest.fixture(scope="module")
def claims(api: Api) -> Iterator[None]:
    """Claims of others, which a changed topology has the webhook list."""
    spec = {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "nobodys"}}]}}
    names = [f"listed-{number}" for number in range(CLAIMS)]
    for name in names:
        api.create(manifest(CLAIM, name, "default", spec=spec))
    yield
    for name in names:
        api.delete(CLAIM, name, "default")


def review(new: Object, old: Object | None = None) -> bytes:
    group, _, version = new["apiVersion"].rpartition("/")
    request = {
        "uid": "u",
        "kind": {"group": group, "version": version, "kind": new["kind"]},
        "operation": "CREATE" if old is None else "UPDATE",
        "name": new["metadata"]["name"],
        "object": new,
        "oldObject": old,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def huge_claims() -> list[bytes]:
    """1.85 MB in 8,000 requests and 8,000 configurations."""
    requests = [{"name": f"r{at}", "exactly": {"deviceClassName": "net-a"}} for at in range(8000)]
    opaque = {"driver": "dra.networking", "parameters": {"kind": "ParameterValues", "values": {}}}
    config = [{"requests": ["nobody"], "opaque": opaque}] * 8000
    return [review(manifest(CLAIM, "huge", "default", spec={"devices": {"requests": requests, "config": config}}))]


def changed_topologies() -> list[bytes]:
    """Small topologies that get other steps: the webhook searches the claims of the cluster for their users."""
    old, new = (manifest(TOPOLOGY, "net", spec={"steps": [{"name": name, "type": "sriov"}]}) for name in "ab")
    return [review(new, old)]


def costly_topologies() -> list[bytes]:
    """Topologies whose expressions take long to compile, and that are wrong in the end."""
    made = []
    for number in range(50):
        steps: list[Any] = [
            {
                "name": f"s{at}",
                "type": "sriov",
                "selector": {"cel": " || ".join(f"{IF_NAME} == 'x{number}-{at}-{part}'" for part in range(40))},
            }
            for at in range(63)
        ]
        steps.append({"name": "wrong", "type": "bond", "dependOn": ["nobody"]})
        made.append(review(manifest(TOPOLOGY, f"costly-{number}", spec={"steps": steps})))
    return made


@contextmanager
def flooded(address: tuple[str, int], bodies: list[bytes], connections: int, folder: Path) -> Iterator[dict[str, int]]:
    """Have others ask this meanwhile; what they were answered is known at the end."""
    paths = [folder / f"body-{number}" for number in range(len(bodies))]
    for path, body in zip(paths, bodies, strict=True):
        path.write_bytes(body)
    asked = {
        "host": address[0],
        "port": address[1],
        "addresses": ATTACKERS,
        "bodies": [*map(str, paths)],
        "connections": connections,
    }
    answers: dict[str, int] = {}
    command = (sys.executable, str(Path(__file__).with_name("flood.py")))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(asked)}\n")
        process.stdin.flush()
        process.stdout.readline()
        yield answers
        process.stdin.close()
        answers |= json.loads(process.stdout.readline())


def seconds_of(address: tuple[str, int], count: int) -> list[float]:
    """How long another address waits for each of its answers: policies, and claims without netdra's devices."""
    taken = []
    spec = {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "nobodys"}}]}}
    with ExitStack() as stack:
        raw = stack.enter_context(socket.create_connection(address, 30.0, (ANOTHER, 0)))
        connection = stack.enter_context(ssl._create_unverified_context().wrap_socket(raw))
        reader = stack.enter_context(connection.makefile("rb"))
        for number in range(count):
            new = manifest(POLICY, "asked", spec={"selector": {"cel": f"{IF_NAME} == 'p{number}'"}})
            body = review(new if number % 2 else manifest(CLAIM, "small", "default", spec=spec))
            begun = time.monotonic()
            head = f"POST /validate HTTP/1.1\r\nHost: webhook\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            connection.sendall(head + body)
            lines = [*iter(reader.readline, b"\r\n")]
            told = reader.read(next(int(line.split()[1]) for line in lines if line.lower().startswith(b"content-len")))
            taken.append(time.monotonic() - begun)
            assert b'"allowed":true' in told, told
            time.sleep(0.02)
    return taken


@pytest.mark.parametrize(
    ("bodies", "connections"),
    [(huge_claims, 8), (changed_topologies, 40), (costly_topologies, 40)],
    ids=["huge claims", "changed topologies", "costly topologies"],
)
def test_another_address_is_answered_as_before(
    webhook: Webhook,
    claims: None,
    bodies: Callable[[], list[bytes]],
    connections: int,
    tmp_path: Path,
) -> None:
    url = urlsplit(webhook.configurations[0]["webhooks"][0]["clientConfig"]["url"])
    assert url.hostname is not None
    assert url.port is not None
    address = url.hostname, url.port
    with flooded(address, bodies(), connections, tmp_path) as answers:
        time.sleep(2.0)  # a flood that has its first budgets behind it
        with pace.measured() as measured:
            taken = sorted(seconds_of(address, ASKED))
        most = webhook.process.memory()
    p50, p99 = taken[len(taken) // 2], taken[int(0.99 * len(taken)) - 1]
    figures = f"p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, {most >> 20} MiB, slowness {measured.slowness:.1f}"
    print(figures, answers)
    assert sum(answers.values()) > 0
    assert p99 <= P99_SECONDS * measured.slowness, figures
    assert most <= RESIDENT, figures
