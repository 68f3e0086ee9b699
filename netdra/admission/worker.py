"""A process that reviews objects whose expressions were never compiled yet, one at a time (`netdra.workers.process`).

Started by `netdra.admission.workers` as `python -m netdra.admission.worker`.
"""

from __future__ import annotations

import time

import msgspec

from netdra import cel
from netdra.admission.messages import AdmissionRequest, Kind, Verdict
from netdra.admission.requests import verdict_on
from netdra.review.world import World
from netdra.rules import shipped
from netdra.workers import process


class Task(msgspec.Struct, frozen=True):
    """A request, and the part of the cluster that its review needs."""

    request: AdmissionRequest
    cluster: World


EXTRA_SECONDS = 0.1
"""How long a worker takes for the effect of a policy on the devices of all nodes, which decides nothing."""
SEARCH_SECONDS = 1.0
"""How long a worker takes for the scheduler's search for a topology or a claim, which decides nothing either."""
_reader = msgspec.json.Decoder(Task)
_TOPOLOGY = b"""{
    "apiVersion": "networking.dra.io/v1alpha1", "kind": "NetworkTopology", "metadata": {"name": "sample"},
    "spec": {"steps": [
        {"name": "a", "type": "sriov", "selector": {"cel": "device.attributes['dra.networking'].mtu > 1500"}},
        {"name": "b", "type": "sriov", "selector": {"cel": "true"}},
        {"name": "c", "type": "bond", "dependOn": ["a", "b"], "config": {
            "mode": "active-backup", "links": [{"name": "{{ a.interfaceName }}"}, {"name": "{{ b.interfaceName }}"}]}}
    ]}}"""
_POLICY = b"""{
    "apiVersion": "networking.dra.io/v1alpha1", "kind": "DeviceExposurePolicy", "metadata": {"name": "sample"},
    "spec": {"selector": {"cel": "device.attributes['dra.networking'].type == 'vf'"},
        "exposure": {"supportedCNIPlugins": [{"name": "sriov", "exclusive": true}]}}}"""


def answer(body: bytes) -> Verdict:
    """The verdict on one object."""
    task = _reader.decode(body)
    end = time.monotonic() + (SEARCH_SECONDS if task.cluster.offers.nodes else EXTRA_SECONDS)
    return verdict_on(task.request, task.cluster, lambda: time.monotonic() < end)


def samples() -> tuple[Task, ...]:
    """Sound objects of two kinds with expressions."""
    texts = (("NetworkTopology", _TOPOLOGY), ("DeviceExposurePolicy", _POLICY))
    kinds = ((Kind("networking.dra.io", "v1alpha1", kind), text) for kind, text in texts)
    return tuple(
        Task(AdmissionRequest(uid="", kind=kind, operation="CREATE", object=msgspec.Raw(text)), World())
        for kind, text in kinds
    )


def load() -> None:
    """Load all modules and schemas that reviews may need."""
    cel.load_all()
    shipped.load_all()


if __name__ == "__main__":
    process.main(answer, samples(), load)
