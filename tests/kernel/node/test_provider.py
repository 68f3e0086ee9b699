"""The example's provider: what iperf3 measures between two namespaces is registered, and claims ask for some of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import yaml

from netdra.exposure import expose
from netdra.exposure.registered import Registered
from netdra.model import documents
from netdra.model.inventory import Interface
from netdra.model.registration import Registration
from netdra.slices.pack import pack
from testbed.waiting import until
from tests.builders import inventory, named, shared
from tests.kernel.conftest import Machine
from tests.unit.node.registry.scene import serving

PROVIDER = Path(__file__).parents[3] / "examples" / "providers" / "measure.py"
PACKAGES = PROVIDER.parents[2]
ASKED = 4000


@contextmanager
def server(machine: Machine) -> Iterator[None]:
    command = ("ip", "netns", "exec", machine.name, "iperf3", "--server")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: ":5201" in machine.run("ss", "-ltn"), "iperf3 to listen")
            yield
        finally:
            process.kill()


def provider(machine: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ("ip", "netns", "exec", machine.name, "env", f"PYTHONPATH={PACKAGES}", sys.executable, str(PROVIDER))
    return subprocess.run((*command, *arguments), capture_output=True, text=True, check=False)


def fits(folder: Path, registrations: tuple[Registration, ...], asked: int) -> bool:
    """Whether the scheduler's allocator gives a claim that much of the device."""
    eth = Interface(if_name="eth0", type="veth", mac="02:00:00:00:00:07")
    found = expose(inventory(eth), [shared("all", named("eth0"))], registered=Registered(registrations))
    (folder / "slices.yaml").write_text(documents.to_yaml(pack(found, node="worker-1")))
    request: Any = {"deviceClassName": "net", "capacity": {"requests": {"bctl/bandwidth": asked}}}
    objects = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "net"},
            "spec": {"selectors": [{"cel": {"expression": 'device.driver == "dra.networking"'}}]},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "fast", "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "net", "exactly": request}]}},
        },
    ]
    (folder / "claims.yaml").write_text(yaml.safe_dump_all(objects))
    command = (
        sys.executable,
        "-m",
        "netdra",
        "simulate",
        "--slices",
        f"{folder}/slices.yaml",
        "--claims",
        f"{folder}/claims.yaml",
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 0


def test_a_claim_is_satisfied_up_to_the_measured_bandwidth(machine: Machine, other: Machine) -> None:
    machine.veth("eth0", "far0", peer_in=other.namespace)
    for end, name, address in ((machine, "eth0", "10.9.0.1/24"), (other, "far0", "10.9.0.2/24")):
        end.run("ip", "address", "add", address, "dev", name)
        end.run("ip", "link", "set", name, "up")

    async def story(folder: Path) -> tuple[Registration, ...]:
        async with serving(folder) as scene:
            options = ("eth0", "--server", "10.9.0.2", "--seconds", "1", f"--socket={scene.path}")
            with server(other):
                done = await asyncio.to_thread(provider, machine, *options)
            assert done.returncode == 0, done.stderr
            # With nobody to measure against it says so, and what it said before holds until its lease ends.
            failed = await asyncio.to_thread(provider, machine, *options)
            assert (failed.returncode, "eth0: " in failed.stderr) == (1, True)
            return scene.table.registrations

    with TemporaryDirectory(prefix="provider-") as name:
        folder = Path(name)
        registrations = asyncio.run(story(folder))
        (said,) = registrations
        bandwidth, latency = int(said.capacity["bandwidth"].value), said.attributes["latency"].int_
        print(f"measured {bandwidth} Mbit/s, {latency} µs")
        assert bandwidth > 100
        assert latency is not None
        assert 0 < latency < 1_000_000
        assert fits(folder, registrations, ASKED) is (bandwidth >= ASKED)
        assert fits(folder, registrations, bandwidth)
        assert not fits(folder, registrations, bandwidth + 1)
        assert msgspec.json.decode(msgspec.json.encode(said), type=Registration) == said
