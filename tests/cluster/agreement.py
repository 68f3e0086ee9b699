"""Plays drawn cases on the real kube-scheduler and compares what it does, step by step.

Many cases run at once, each on its own node, in lockstep: one step of each, then the scheduler's decisions. Nothing is
left to chance in between: the scheduler sees claims in the order in which they change, so once it knows a step's claims
it knows every release before them; a sentinel that needs the last slice shows that it knows all slices; and a pod that
did not fit goes with its claims before anything is released, so that it is not tried again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from netdra.model import quantity
from netdra.model.claim import AllocationResult, DeviceRequestAllocationResult, ResourceClaim
from netdra.slices.allocator import Allocation, Refusal
from testbed import objects
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, CLASS, NAMESPACE, POD, SLICE
from tests.drawn.cases import Case, Step, broken_exclusion, given
from tests.drawn.claims import NAMESPACE as HOME
from tests.drawn.claims import classes

SENTINEL = "sentinel.example"
# Not a decision: it tries again.
_OUT_OF_TIME = "timed out trying to allocate devices"

BATCH_LABEL = "agreement/batch"
ROUND_LABEL = "agreement/round"
THREADS = 4
TIMEOUT = 120.0
# What the scheduler says of a pod when its claims do not fit now, and when it gives them up with an error.
_REFUSED = ("cannot allocate all claims", "invalid resource pools were encountered")
# The same from 1.38 on if all devices are requested; before, the claim is given up with these words.
_BROKEN_POOL = ("is currently being updated", "is currently invalid")

T = TypeVar("T")


class DifferenceError(AssertionError):
    """The allocator and the scheduler disagree about one step of a case."""


class Driver:
    """A control plane with the nodes and classes of the cases; batches are run on it one after the other."""

    def __init__(self, plane: ControlPlane, nodes: int) -> None:
        self.nodes = [f"node-{number}" for number in range(nodes)]
        self._plane = plane
        self._local = threading.local()
        self._clients: list[Api] = []
        self._pool = ThreadPoolExecutor(THREADS)
        self._batch = 0
        self._given: dict[str, list[DeviceRequestAllocationResult]] = {}

    @contextmanager
    def running(self) -> Iterator[Driver]:
        """Make what all batches share, and close all connections at the end."""
        try:
            labels = {"resource.kubernetes.io/admin-access": "true"}
            namespace = objects.manifest(NAMESPACE, HOME)
            namespace["metadata"]["labels"] = labels
            self._api.create(namespace)
            for each in (*classes(), objects.manifest(CLASS, SENTINEL, spec={})):
                self._api.create(each)
            self._each(lambda name: objects.add_node(self._api, name), (*self.nodes, SENTINEL))
            yield self
        finally:
            self._pool.shutdown()
            for client in self._clients:
                client.close()

    def run(self, cases: Sequence[Case]) -> list[DifferenceError]:
        """Play cases, one per node at most, and return where the scheduler did something else."""
        self._batch += 1
        self._given.clear()
        self._each(self._api_create, [each for case in cases for each in case.slices])
        self._await_slices()
        differences: list[DifferenceError] = []
        agreed = list(cases)
        for index in range(max(len(case.steps) for case in cases)):
            playing = [case for case in agreed if index < len(case.steps)]
            found = self._step(playing, index)
            differences += found.values()
            agreed = [case for case in agreed if case.node not in found]
        self._clean()
        return differences

    @property
    def _api(self) -> Api:
        """This thread's client."""
        client: Api | None = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = self._plane.client()
            self._clients.append(client)
        return client

    def _each(self, act: Callable[[T], Any], items: Iterable[T]) -> None:
        """Do something with each item, several at a time; it is done when this returns."""
        list(self._pool.map(act, items))

    def _api_create(self, manifest: Object) -> None:
        labels = {BATCH_LABEL: str(self._batch)} | manifest["metadata"].get("labels", {})
        self._api.create(manifest | {"metadata": manifest["metadata"] | {"labels": labels}})

    def _await_slices(self) -> None:
        """Wait until the scheduler knows all slices: it knows one that is made after them."""
        name = f"sentinel-{self._batch}"
        attributes = {"batch": {"int": self._batch}}
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": SENTINEL, "nodeName": SENTINEL, "pool": pool}
        self._api_create(
            objects.manifest(SLICE, name, spec=spec | {"devices": [{"name": "d", "attributes": attributes}]})
        )
        expression = f'device.driver == "{SENTINEL}" && device.attributes["{SENTINEL}"].batch == {self._batch}'
        wanted = {"deviceClassName": SENTINEL, "selectors": [{"cel": {"expression": expression}}]}
        devices = {"requests": [{"name": "r", "exactly": wanted}]}
        self._api_create(objects.manifest(CLAIM, name, HOME, spec={"devices": devices}))
        self._api_create(_pod(name, SENTINEL, [name], "sentinel"))
        self._api.wait_for(POD, name, lambda pod: objects.scheduling(pod)[0] != "", namespace=HOME, timeout=TIMEOUT)

    def _step(self, cases: Sequence[Case], index: int) -> dict[str, DifferenceError]:
        """Play one step of each case, and return the differences by node."""
        leaving = [(case, case.steps[index].leaves) for case in cases if case.steps[index].leaves]
        self._each(self._leave, leaving)
        coming = {case.steps[index].pod: (case, case.steps[index]) for case in cases if case.steps[index].pod}
        if not coming:
            return {}
        round_label = f"{self._batch}-{index}"
        labels = {ROUND_LABEL: round_label}
        claims = [claim for _, step in coming.values() for claim in step.claims]
        self._each(lambda claim: self._api_create(_labelled(claim, labels)), claims)
        pods = [_pod(name, case.node, _names(step), round_label) for name, (case, step) in coming.items()]
        self._each(self._api_create, pods)
        selected = f"{ROUND_LABEL}={round_label}"
        decided = self._api.wait_for_all(
            POD, lambda found: all(map(_decision, found)), namespace=HOME, labels=selected, timeout=TIMEOUT
        )
        stored = {each["metadata"]["name"]: each for each in self._api.list(CLAIM, HOME, labels=selected)}
        differences: dict[str, DifferenceError] = {}
        for pod in decided:
            case, step = coming[pod["metadata"]["name"]]
            theirs = [msgspec.convert(stored[name], ResourceClaim) for name in _names(step)]
            problem = _compare(case, index, pod, theirs) or self._exclusion(case, step, theirs)
            if problem is not None:
                differences[case.node] = problem
        self._each(self._withdraw, [step for _, step in coming.values() if isinstance(step.outcome, Refusal)])
        return differences

    def _exclusion(self, case: Case, step: Step, claims: Sequence[ResourceClaim]) -> DifferenceError | None:
        """Decision D2, checked on the scheduler's allocations, independent of the allocator."""
        self._given[step.pod] = given(claims)
        present = [pod for each in case.steps if (pod := each.pod) in self._given]
        broken = broken_exclusion(case, [result for pod in present for result in self._given[pod]])
        text = f"seed {case.seed}, {case.name}, {step.pod}: in use together: {broken}"
        return DifferenceError(text) if broken else None

    def _withdraw(self, step: Step) -> None:
        """Remove what did not fit, the claims first: without them the scheduler does nothing more for the pod."""
        for name in _names(step):
            self._api.delete(CLAIM, name, HOME)
        self._api.delete(POD, step.pod, HOME)

    def _leave(self, leaving: tuple[Case, str]) -> None:
        """Give a pod's devices back, as the claim controller does when the pod has ended."""
        case, name = leaving
        del self._given[name]
        for claim in next(_names(step) for step in case.steps if step.pod == name):
            self._deallocate(claim)

    def _deallocate(self, claim: str) -> None:
        nothing = {"status": {"allocation": None, "reservedFor": None}}
        self._api.patch(CLAIM, claim, nothing, namespace=HOME, subresource="status")

    def _clean(self) -> None:
        """Remove the batch's pods and slices; its claims, which no controller finalizes, stay without devices."""
        selected = f"{BATCH_LABEL}={self._batch}"
        self._api.delete_all(POD, HOME, labels=selected)
        claims = self._api.list(CLAIM, HOME, labels=selected)
        self._each(self._deallocate, [each["metadata"]["name"] for each in claims if objects.allocated(each)])
        self._api.delete_all(SLICE, labels=selected)


@contextmanager
def driver(plane: ControlPlane, nodes: int) -> Iterator[Driver]:
    """A driver on a control plane of its own."""
    with Driver(plane, nodes).running() as running:
        yield running


def canonical(claim: ResourceClaim) -> Any:
    """The parts of a claim's allocation that must be the same on both sides."""
    return canonical_allocation(claim.status.allocation)


def canonical_allocation(allocation: AllocationResult | None) -> Any:
    """The parts of an allocation that must be the same on both sides; share ids must only exist."""
    if allocation is None:
        return None
    return {
        "results": [
            {
                "request": result.request,
                "device": (result.driver, result.pool, result.device),
                "admin": bool(result.admin_access),
                "shared": result.share_id is not None,
                "consumed": {name: quantity.parse(text) for name, text in result.consumed_capacity.items()},
                "tolerations": result.tolerations,
            }
            for result in allocation.devices.results
        ],
        "config": allocation.devices.config,
        "nodes": allocation.node_selector,
    }


def _compare(case: Case, index: int, pod: Object, claims: Sequence[ResourceClaim]) -> DifferenceError | None:
    step = case.steps[index]
    decision = _decision(pod)
    outcome = step.outcome
    if isinstance(outcome, Allocation):
        ours: Any = [canonical(claim) for claim in outcome.claims]
        theirs: Any = decision
        if decision == "fits":
            theirs = [canonical(claim) for claim in claims]
    else:
        ours = "given up" if outcome is not None and outcome.permanent else "does not fit"
        theirs = decision
    if ours == theirs:
        return None
    reason = outcome.reason if isinstance(outcome, Refusal) else ""
    return DifferenceError(
        f"seed {case.seed}, {case.name}, step {index} ({step.pod}):\n  allocator: {ours} {reason}\n"
        f"  scheduler: {theirs} {objects.scheduling(pod)[1]}"
    )


def _decision(pod: Object) -> str:
    """The scheduler's decision: `fits`, `does not fit`, `given up`, or "" if none yet."""
    if pod["spec"].get("nodeName"):
        return "fits"
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            refusals = (*_REFUSED, *(_BROKEN_POOL if condition["reason"] == "Unschedulable" else ()))
            if any(text in condition["message"] for text in refusals):
                return "does not fit"
            if condition["reason"] == "SchedulerError" and _OUT_OF_TIME not in condition["message"]:
                return "given up"
    return ""


def _names(step: Step) -> list[str]:
    return [claim["metadata"]["name"] for claim in step.claims]


def _labelled(manifest: Object, labels: Object) -> Object:
    return manifest | {"metadata": manifest["metadata"] | {"labels": labels}}


def _pod(name: str, node: str, claims: Sequence[str], round_label: str) -> Object:
    """A pod for one node, chosen by the field that the scheduler looks nodes up by, so that it asks no other node."""
    pod = objects.pod(HOME, name, {claim: claim for claim in claims})
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    pod["spec"] |= {"affinity": {"nodeAffinity": required}, "tolerations": [{"operator": "Exists"}]}
    return _labelled(pod, {ROUND_LABEL: round_label})
