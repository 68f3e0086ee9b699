"""A model of a cluster around the controller's real code: addresses, claims, pods, nodes' reports, two controllers.

The environment is modelled: the scheduler, the kubelets, netdra's nodes, administrators, the clock. The controllers are
not: `PodAddresses` and everything below it runs on a client that hands each request to the checker. A controller in the
middle of its work is what it saw when it began, and the answers that it has had since; it is run again from there for
its next request. So acts of others come between any two of its requests.

A controller sees of other owners' addresses only that they are taken, since its decisions on a claim depend on nothing
else of them (a test compares). Not modelled: the order of claims that wait, PodAddresses that are deleted by
hand, watches that are behind by more than one look, and the copies in memory by which a claim is not even read
(`netdra.controller.addresses.prospects`); the stories of `test_address_stories` have these.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import nullcontext
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import msgspec

from netdra.controller.addresses import assignments
from netdra.controller.addresses.pod_addresses import PodAddresses
from netdra.controller.addresses.releases import AddressReleases
from netdra.controller.writing import FINALIZER
from netdra.kube.errors import AlreadyExistsError, ConflictError, NotFoundError, Status
from netdra.kube.resources import POD_ADDRESSES, RESOURCE_CLAIMS
from netdra.kube.store import Change, Store
from netdra.model.claim import ResourceClaim
from netdra.model.core import NodeReadiness
from netdra.model.names import POD_CLAIM_NAME
from netdra.model.node_network import NodeNetworkReport
from netdra.model.pod_address import PodAddress, WatchedPodAddress, object_name
from netdra.model.watched_claim import WatchedClaim
from netdra.networks.ledger import NetworkLedger
from tests.builders import topology
from tests.cluster.identities import allocated
from tests.state_checker import Search, Step, Verdict
from tests.unit.networks.builders import network

NONE = -1
CLAIMS, NODES, ADDRESSES = 3, 2, 3
NAMES = "abc"
LAN = topology(
    "- {name: lan, type: macvlan, network: storage, selector: {cel: 'true'}, config: {ipam: {type: network}}}",
    name="lan",
)
_RANGE = {"cidr": "10.7.0.0/29", "last": f"10.7.0.{ADDRESSES}"}
_BARE = network(_RANGE, keepSeconds=0, quarantineSeconds=5)
NET = msgspec.structs.replace(_BARE, metadata=msgspec.structs.replace(_BARE.metadata, finalizers=(FINALIZER,)))
LONG_AGO, NOW = "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
"""Before and in the quarantine, by the clocks of this century."""
OK, CUT, GONE = range(3)
"""A node that reports; one that runs pods without a connection; one that an administrator has declared gone."""


class Entry(NamedTuple):
    """A PodAddress. Entries are in the order of their last writes, which is that of their resourceVersions.

    Attributes:
        number: the address.
        owner: the claim whose name its owner has.
        uid: that of the claim; NONE if it is released.
        node: its node; NONE if no pod has it.
        fresh: whether it was released, and is in quarantine.
        covered: whether the node's report considers its release.
        former: the uid of the claim that it was released from.
    """

    number: int
    owner: int
    uid: int = NONE
    node: int = NONE
    fresh: bool = False
    covered: bool = False
    former: int = NONE


class Claim(NamedTuple):
    """A claim: with a name of its own, or of a replica's template; then it ends with its pod.

    Attributes:
        uid: how often it was created before.
        node: where it is allocated; NONE if it is not.
        told: the address that its status reports in a pod; NONE if none.
    """

    exists: bool
    uid: int = 0
    node: int = NONE
    told: int = NONE


class Pod(NamedTuple):
    """A pod that a node has prepared, and has in a sandbox unless that was stopped, to be made again or ended."""

    owner: int
    uid: int
    node: int
    number: int
    runs: bool = True


class View(NamedTuple):
    """The copies that a controller has when it begins to check a claim, or a released address.

    Attributes:
        owner: the claim.
        of_pods: whether claims are made for replicas of a StatefulSet, of a template.
        expires: whether it checks a released address, the only one that it sees.
        own: the owner's addresses.
        taken: bits of the addresses of other owners.
        listed: by node, bits of the addresses that it reports as its pods'.
        allocated: whether the claim exists and is allocated.
    """

    owner: int
    expires: bool
    of_pods: bool
    own: tuple[Entry, ...]
    taken: int
    listed: tuple[int, ...]
    exists: bool
    allocated: bool


class Job(NamedTuple):
    """Work that a controller is in the midst of: what it saw, the answers it had, and the versions that are current."""

    view: View
    answers: tuple[Any, ...] = ()
    current: frozenset[tuple[str, int]] = frozenset()


class Worker(NamedTuple):
    """A controller, and its work."""

    job: Job | None = None


class World(NamedTuple):
    """A state. `left` is how many disturbances may still come; `of_pods` as of `View`."""

    entries: tuple[Entry, ...] = ()
    claims: tuple[Claim, ...] = (Claim(True),) * CLAIMS
    pods: tuple[Pod, ...] = ()
    listed: tuple[int, ...] = (0,) * NODES
    nodes: tuple[int, ...] = (OK,) * NODES
    workers: tuple[Worker, ...] = (Worker(), Worker())
    left: int = 0
    of_pods: bool = False


# ------------------------------------------------------------------ the controller's code, one request after the other


class _Request:
    """A request of a controller, for the checker to answer."""

    def __init__(self, *asked: Any) -> None:
        self.asked = asked

    def __await__(self) -> Generator[_Request, Any, Any]:
        return (yield self)


class _Client:
    """Hands every request to the checker; answers are values or errors."""

    async def _ask(self, *asked: Any) -> Any:
        answer = await _Request(*asked)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        if resource is RESOURCE_CLAIMS:
            return await self._ask("claim", NAMES.index(name))
        return await (self._ask("entry", _number(name)) if resource is POD_ADDRESSES else self._ask("node", int(name)))

    async def create(self, _: Any, new: PodAddress) -> Any:
        return await self._ask("create", _entry_of(new), "")

    async def replace(self, _: Any, new: PodAddress) -> Any:
        return await self._ask("replace", _entry_of(new), new.metadata.resource_version)

    async def delete(self, _: Any, seen: PodAddress) -> Any:
        return await self._ask("delete", _entry_of(seen), seen.metadata.resource_version)


class _Sink:
    """Takes the place of queues and of the recorder: the checker itself chooses the next act."""

    def add(self, *_: Any) -> None: ...

    def add_last(self, *_: Any) -> None: ...

    def emit(self, _: Any) -> None: ...


async def _is_never_unchanged(*_: Any) -> bool:
    return False


def _number(name: str) -> int:
    return int(name.rpartition(".")[2]) - 1


def _owner(owner: int, of_pods: bool) -> dict[str, str]:
    names = {"pod": f"{NAMES[owner]}-0", "claim": "net"} if of_pods else {"claim": NAMES[owner]}
    return {"namespace": "db", "topology": "lan", "step": "lan", **names}


def _entry_of(address: PodAddress) -> Entry:
    spec = address.spec
    uid = int(spec.claim.uid.rpartition("-")[2]) if spec.claim is not None else NONE
    node = int(spec.node_name) if spec.node_name else NONE
    return Entry(_number(address.name), NAMES.index((spec.owner.pod or spec.owner.claim)[0]), uid, node)


@lru_cache(None)
def _address(entry: Entry, version: str, of_pods: bool = False) -> WatchedPodAddress:
    spec: dict[str, Any] = {
        "network": "storage",
        "address": f"10.7.0.{entry.number + 1}/29",
        "families": ["IPv4"],
        "owner": _owner(entry.owner, of_pods),
        "nodeName": "" if entry.node == NONE else str(entry.node),
        "onDuplicate": "Report",
    }
    if entry.uid == NONE:
        spec["keptSince"] = NOW if entry.fresh else LONG_AGO
    else:
        spec["claim"] = {"name": NAMES[entry.owner], "uid": f"{NAMES[entry.owner]}-{entry.uid}"}
    metadata = {"name": object_name("storage", f"10.7.0.{entry.number + 1}"), "resourceVersion": version}
    value = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "PodAddress", "metadata": metadata, "spec": spec}
    return msgspec.convert(value, WatchedPodAddress)


def _claim_value(owner: int, claim: Claim, of_pods: bool = False) -> dict[str, Any]:
    name = NAMES[owner]
    status: dict[str, Any] = {}
    if claim.node != NONE:
        status = allocated(name, "lan", ["lan"], str(claim.node))
    if claim.told != NONE:
        device = {"driver": "dra.networking", "pool": "pool", "device": f"{name}-lan"}
        status["devices"] = [{**device, "networkData": {"ips": [f"10.7.0.{claim.told + 1}/29"]}}]
    metadata: dict[str, Any] = {"name": name, "namespace": "db", "uid": f"{name}-{claim.uid}"}
    if of_pods:
        owner_reference = {"apiVersion": "v1", "kind": "Pod", "name": f"{name}-0", "uid": f"{claim.uid}"}
        metadata["ownerReferences"] = [{**owner_reference, "controller": True}]
        metadata["annotations"] = {POD_CLAIM_NAME: "net"}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {}}
    return {**head, "metadata": metadata, "status": status}


@lru_cache(None)
def _claim(owner: int, claim: Claim, of_pods: bool) -> ResourceClaim:
    return msgspec.convert(_claim_value(owner, claim, of_pods), ResourceClaim)


@lru_cache(None)
def _watched(owner: int, claim: Claim) -> WatchedClaim:
    return msgspec.json.decode(msgspec.json.encode(_claim_value(owner, claim)), type=WatchedClaim)


@lru_cache(None)
def _report(node: int, listed: int, version: int) -> NodeNetworkReport:
    entries = [
        {"network": "storage", "address": f"10.7.0.{number + 1}", "claim": "db/gone"}
        for number in range(ADDRESSES)
        if listed >> number & 1
    ]
    status = {"unassignedAddresses": entries, "releasedVersion": version}
    return msgspec.convert({"metadata": {"name": str(node)}, "status": status}, NodeNetworkReport)


def _error(kind: type[Exception]) -> Exception:
    return kind("modelled", Status(code=409))


def _subject(view: View) -> PodAddresses:
    """A controller whose copies of the cluster are as it sees it."""
    state = SimpleNamespace(claims=Store(), topologies=Store(), nodes=Store())
    state.topologies.put("lan", LAN)
    key = f"db/{NAMES[view.owner]}"
    if view.exists:
        state.claims.put(key, _watched(view.owner, Claim(True, 0, 0 if view.allocated else NONE)))
    sink: Any = _Sink()
    client: Any = _Client()
    subject = PodAddresses(client, sink, state, nullcontext)  # type: ignore[arg-type]
    subject.claims = subject.statuses = subject.withheld = subject._releases.kept = sink  # no queues here
    subject.shares.work = sink
    subject._is_unchanged = _is_never_unchanged  # type: ignore[method-assign, assignment]
    subject._networks.put("storage", NET)
    for rank, entry in enumerate(view.own):
        subject._addresses.put(_address(entry, "").name, _address(entry, str(100 + rank), view.of_pods))
    others = [number for number in range(ADDRESSES) if view.taken >> number & 1]
    for number in others:
        taken = other_entry(number, (view.owner + 1) % CLAIMS)
        subject._addresses.put(_address(taken, "").name, _address(taken, "99", view.of_pods))
    for node, listed in enumerate(view.listed):
        versions = [100 + rank for rank, entry in enumerate(view.own) if entry.covered and entry.node == node]
        state.nodes.put(str(node), _report(node, listed, max(versions, default=0)))
    for name, address in subject._addresses.objects.items():
        subject._on_address_change(Change(name, None, address))
    return subject


def other_entry(number: int, owner: int) -> Entry:
    """An address of another owner, as a controller sees it: anything that is taken."""
    return Entry(number, owner, 0, 0)


def _work(view: View) -> Coroutine[Any, Any, Any]:
    subject = _subject(view)
    if view.expires:
        return subject._releases._expire("storage")
    return subject._claim(f"db/{NAMES[view.owner]}")


def _value(answer: Any, number: int, of_pods: bool) -> Any:
    """An answer of the world as the client's."""
    kind, value = answer
    if kind == "claim":
        return _claim(*value, of_pods) if value[1].exists else _error(NotFoundError)
    if kind == "entry":
        return _address(value, str(300 + number), of_pods) if value is not None else _error(NotFoundError)
    if kind == "node":
        conditions = [{"type": "Ready", "status": "True"}]
        return (
            _error(NotFoundError)
            if value == GONE
            else msgspec.convert({"metadata": {"name": "n"}, "status": {"conditions": conditions}}, NodeReadiness)
        )
    return {
        "exists": _error(AlreadyExistsError),
        "conflict": _error(ConflictError),
        "missing": _error(NotFoundError),
    }.get(value)


@lru_cache(None)
def next_request(view: View, answers: tuple[Any, ...], variant: str = "") -> tuple[Any, ...] | None:
    """Run the controller's code up to the request that follows these answers; None at the end of its work."""
    with VARIANTS[variant]():
        work = _work(view)
        try:
            request = work.send(None)
            for number, answer in enumerate(answers):
                request = work.send(_value(answer, number, view.of_pods))
        except StopIteration:
            return None
        work.close()
        asked: tuple[Any, ...] = request.asked
        return asked


NO_REPORT, NO_QUARANTINE, KEPT_IS_FREE = "no report", "no quarantine", "kept addresses are free"
NO_CONFLICT, BY_STATUS = "no conflict", "addresses move by the claims' status"


async def _true(*_: Any) -> bool:
    return True


def _put_assigned(ledger: NetworkLedger, old: PodAddress | None, new: PodAddress | None) -> None:
    _put(ledger, old, new if new is not None and new.spec.claim is not None else None)


async def _has_left_by_status(releases: AddressReleases, address: PodAddress) -> bool:
    owner = NAMES.index((address.spec.owner.pod or address.spec.owner.claim)[0])
    try:
        claim = await releases._client.get(RESOURCE_CLAIMS, NAMES[owner], "db")
    except NotFoundError:
        return True
    return not assignments.is_attached(claim, address)


_put = NetworkLedger.put
VARIANTS: dict[str, Callable[[], Any]] = {
    "": nullcontext,
    NO_REPORT: lambda: mock.patch.object(AddressReleases, "has_left", _true),
    NO_QUARANTINE: lambda: mock.patch.object(AddressReleases, "_left", return_value=0.0),
    KEPT_IS_FREE: lambda: mock.patch.object(NetworkLedger, "put", _put_assigned),
    NO_CONFLICT: nullcontext,
    BY_STATUS: lambda: mock.patch.object(AddressReleases, "has_left", _has_left_by_status),
}
"""By name, patches of the controller's code: the real one, and broken ones that the checker must find."""


# ------------------------------------------------------------------ the world around it


def replaced(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    """A tuple with another value at a place."""
    return (*values[:at], value, *values[at + 1 :])


def entry_at(world: World, number: int) -> Entry | None:
    """The PodAddress of an address."""
    return next((entry for entry in world.entries if entry.number == number), None)


def write(world: World, number: int, entry: Entry | None) -> World:
    """Write a PodAddress: it is the youngest, and copies of the former version are out of date."""
    entries = tuple(other for other in world.entries if other.number != number)
    workers = tuple(
        worker._replace(job=worker.job._replace(current=frozenset(c for c in worker.job.current if c[1] != number)))
        if worker.job is not None
        else worker
        for worker in world.workers
    )
    return world._replace(entries=(*entries, entry) if entry is not None else entries, workers=workers)


def change_claim(world: World, owner: int, new: Claim) -> World:
    """Change a claim."""
    return world._replace(claims=replaced(world.claims, owner, new))


class Model:
    """The acts in a state, with a variant of the controller's code, and with the disturbances that may come."""

    def __init__(self, variant: str = "", disturbances: tuple[str, ...] = ()) -> None:
        self.variant, self.disturbances = variant, disturbances
        self._writes: dict[Any, bool] = {}

    def steps(self, world: World) -> Iterator[Step[World]]:
        """Every act in a state; the states after them have canonical names."""
        return (step._replace(state=canonical(step.state)) for step in self.plain_steps(world))

    def plain_steps(self, world: World) -> Iterator[Step[World]]:
        """Every act in a state."""
        for label, after, *problem in self._acts(world):
            yield Step(label, after, *problem)
        if world.left:
            for kind in self.disturbances:
                for label, after in getattr(self, f"_{kind}")(world._replace(left=world.left - 1)):
                    yield Step(label, after, "", helps=False)

    def check(self, first: World) -> Verdict[World]:
        """Visit every state that follows from one."""
        return Search(first, self.steps).check(wrong, is_goal)

    def story(self, verdict: Verdict[World]) -> str:
        """A counterexample, one act a line; each node and controller has one name in all of it."""
        world, lines = verdict.way[0], list[str]()
        for after in verdict.way[1:]:
            step = next(step for step in self.plain_steps(world) if canonical(step.state) == after)
            world, lines = step.state, [*lines, step.label]
        lines += [verdict.last] if verdict.last else []
        numbered = (f"{number:3}. {line}" for number, line in enumerate(lines, 1))
        return "\n".join((f"{verdict.problem or 'nothing is wrong'} ({verdict.states} states)", *numbered))

    def _acts(self, world: World) -> Iterator[tuple[Any, ...]]:
        yield from self._of_claims(world)
        yield from self._of_nodes(world)
        for at, worker in enumerate(world.workers):
            if worker.job is None:
                yield from self._begin(world, at)
            else:
                yield self._continue(world, at, worker.job)
        for at, entry in enumerate(world.entries):
            if entry.fresh:
                after = world._replace(entries=replaced(world.entries, at, entry._replace(fresh=False)))
                yield f"the quarantine of address {entry.number} ends", after

    # the scheduler and the kubelets

    def _of_claims(self, world: World) -> Iterator[tuple[Any, ...]]:
        for owner, claim in enumerate(world.claims):
            name = NAMES[owner]
            if not claim.exists:
                yield f"claim {name} is created", change_claim(world, owner, Claim(True, claim.uid + 1))
            elif claim.node != NONE and world.nodes[claim.node] == GONE:
                yield f"the pod of {name} is evicted", change_claim(world, owner, claim._replace(node=NONE, told=NONE))
            elif claim.node == NONE:
                for node in range(NODES):
                    if world.nodes[node] == OK:
                        after = change_claim(world, owner, claim._replace(node=node))
                        yield f"claim {name} is allocated on node {node}", after
            elif world.nodes[claim.node] == OK:
                yield from self._start(world, owner, claim)

    def _start(self, world: World, owner: int, claim: Claim) -> Iterator[tuple[Any, ...]]:
        """A node starts the pod of a claim with the address that it sees: its own copy may be behind."""
        for pod in world.pods:
            if (pod.owner, pod.uid, pod.node) == (owner, claim.uid, claim.node):
                if not pod.runs:
                    pods = tuple(sorted((*(other for other in world.pods if other != pod), pod._replace(runs=True))))
                    yield f"the pod of {NAMES[owner]} has a new sandbox", world._replace(pods=pods)
                return  # a second pod of a prepared claim is rejected
        own = [entry for entry in world.entries if (entry.owner, entry.node) == (owner, claim.node)]
        for entry in own:
            is_seen = entry.uid == claim.uid or (entry.uid == NONE and not entry.covered and entry.former == claim.uid)
            if is_seen:
                pod = Pod(owner, claim.uid, claim.node, entry.number)
                after = world._replace(pods=tuple(sorted((*world.pods, pod))))
                yield f"node {claim.node} starts the pod of {NAMES[owner]} with address {entry.number}", after
                return

    # netdra's nodes

    def _of_nodes(self, world: World) -> Iterator[tuple[Any, ...]]:
        for node in range(NODES):
            if world.nodes[node] == OK:
                yield from self._reports(world, node)
            elif world.nodes[node] == CUT:
                after = world._replace(
                    nodes=replaced(world.nodes, node, GONE), pods=tuple(pod for pod in world.pods if pod.node != node)
                )
                yield f"an administrator declares node {node} gone, as its machine is off", after
        for pod in world.pods:
            claim = world.claims[pod.owner]
            is_wanted = (claim.exists, claim.uid, claim.node) == (True, pod.uid, pod.node)
            if not is_wanted and world.nodes[pod.node] == OK:
                after = world._replace(pods=tuple(other for other in world.pods if other != pod))
                yield f"node {pod.node} ends the pod of {NAMES[pod.owner]} that was deleted by force", after

    def _reports(self, world: World, node: int) -> Iterator[tuple[Any, ...]]:
        """A node reports on its addresses, and writes the status of its claims."""
        assigned = {(entry.owner, entry.uid, entry.number) for entry in world.entries if entry.node == node}
        pods = tuple(
            pod
            for pod in world.pods
            if pod.node != node or pod.runs or (pod.owner, pod.uid, pod.number) in assigned  # unused plans are dropped
        )
        listed = 0
        for pod in pods:
            if pod.node == node and (pod.owner, pod.uid, pod.number) not in assigned:
                listed |= 1 << pod.number
        entries = tuple(
            entry._replace(covered=True) if (entry.node, entry.uid) == (node, NONE) else entry
            for entry in world.entries
        )
        after = world._replace(pods=pods, listed=replaced(world.listed, node, listed), entries=entries)
        if after != world:
            yield f"node {node} reports on its addresses", after
        for owner, claim in enumerate(world.claims):
            if not claim.exists or claim.node != node:
                continue
            running = [pod for pod in world.pods if (*pod[:3], pod.runs) == (owner, claim.uid, node, True)]
            told = running[0].number if running else NONE
            if told != claim.told:
                what = "has its address" if running else "has no network any more"
                after = change_claim(world, owner, claim._replace(told=told))
                yield f"node {node} writes in the status of {NAMES[owner]} that its pod {what}", after

    # the controllers

    def _begin(self, world: World, at: int) -> Iterator[tuple[Any, ...]]:
        """A controller begins to check a claim, or a released address, if it has anything to do with it."""
        for owner in range(len(world.claims)):
            view = view_of(world, owner)
            if self._would_write(world, at, view, view.own):
                yield self._take(world, at, view, view.own, f"controller {at} looks at claim {NAMES[owner]}")
        for entry in world.entries:
            if entry.uid == NONE:
                view = view_of(world, entry.owner, entry)
                if self._would_write(world, at, view, (entry,)):
                    yield self._take(world, at, view, (entry,), f"controller {at} looks at address {entry.number}")

    def _take(self, world: World, at: int, view: View, seen: tuple[Entry, ...], label: str) -> tuple[Any, ...]:
        current = frozenset((str(100 + rank), entry.number) for rank, entry in enumerate(seen))
        job = Job(view, (), current)
        return label, world._replace(workers=replaced(world.workers, at, world.workers[at]._replace(job=job)))

    def _would_write(self, world: World, at: int, view: View, seen: tuple[Entry, ...]) -> bool:
        """Whether the work would write anything, were it done at once: work without effect is not a state."""
        # Its requests are about the claim, its node, and its own addresses, which the view has as they are.
        key = view, world.claims[view.owner], world.nodes
        if key not in self._writes:
            self._writes[key] = self._writes_at_once(world, at, view, seen)
        return self._writes[key]

    def _writes_at_once(self, world: World, at: int, view: View, seen: tuple[Entry, ...]) -> bool:
        _, world, *_ = self._take(world, at, view, seen, "")
        while (job := world.workers[at].job) is not None:
            asked = next_request(job.view, job.answers, self.variant)
            if asked is not None and asked[0] in ("create", "replace", "delete"):
                return True
            _, world, *_ = self._continue(world, at, job)
        return False

    def _continue(self, world: World, at: int, job: Job) -> tuple[Any, ...]:
        """A controller's next request is answered; its work ends without one."""
        request = next_request(job.view, job.answers, self.variant)
        worker = world.workers[at]
        if request is None:
            return f"controller {at} is done", world._replace(workers=replaced(world.workers, at, Worker()))
        kind, argument = request[:2]
        problem, current = "", job.current
        if kind == "claim":
            answer: Any = argument, world.claims[argument]
            label = f"controller {at} reads claim {NAMES[argument]}"
        elif kind == "node":
            answer = GONE if world.nodes[argument] == GONE else OK
            label = f"controller {at} reads node {argument}"
        elif kind == "entry":
            stored = entry_at(world, argument)
            answer = stored and stored._replace(covered=False, former=NONE)
            current |= {(str(300 + len(job.answers)), argument)}
            label = f"controller {at} reads address {argument}"
        else:
            if kind == "create" and self._overwrites(entry_at(world, argument.number)):
                world = write(world, argument.number, None)
            answer, problem, world = _written(world, kind, argument, request[2], current)
            label = f"controller {at}: {kind} {shown(argument)}: {answer}"
            written = world.workers[at].job
            current = written.current if written is not None else current
        after = Job(job.view, (*job.answers, (kind, answer)), current)
        world = world._replace(workers=replaced(world.workers, at, worker._replace(job=after)))
        return label, world, problem

    def _overwrites(self, stored: Entry | None) -> bool:
        """Whether the API server of a broken variant takes a second object of a name."""
        return self.variant == NO_CONFLICT or (
            self.variant == KEPT_IS_FREE and stored is not None and stored.uid == NONE
        )

    # disturbances

    def _force(self, world: World) -> Iterator[tuple[str, World]]:
        """A pod is deleted by force: its claim is deallocated, and it runs on."""
        for owner, claim in enumerate(world.claims):
            if claim.exists and claim.node != NONE:
                over = claim._replace(exists=not world.of_pods, node=NONE, told=NONE)
                after = change_claim(world, owner, over)
                yield f"the pod of {NAMES[owner]} is deleted by force", after

    def _delete(self, world: World) -> Iterator[tuple[str, World]]:
        """A claim is deleted, with its pod by force."""
        for owner, claim in enumerate(world.claims):
            if claim.exists:
                yield f"claim {NAMES[owner]} is deleted by force", change_claim(world, owner, Claim(False, claim.uid))

    def _finish(self, world: World) -> Iterator[tuple[str, World]]:
        """A pod ends in good order: its network goes, its status, its preparation, and then the allocation."""
        for pod in world.pods:
            claim = world.claims[pod.owner]
            if (claim.uid, claim.node, world.nodes[pod.node]) == (pod.uid, pod.node, OK) and pod.runs:
                after = world._replace(pods=tuple(other for other in world.pods if other != pod))
                after = change_claim(after, pod.owner, claim._replace(told=NONE))
                over = claim._replace(exists=not world.of_pods, node=NONE, told=NONE)
                yield f"the pod of {NAMES[pod.owner]} ends", change_claim(after, pod.owner, over)

    def _cut(self, world: World) -> Iterator[tuple[str, World]]:
        """A node loses its connection, and its pods run on."""
        for node, state in enumerate(world.nodes):
            if state == OK and OK in replaced(world.nodes, node, CUT):
                yield f"node {node} loses its connection", world._replace(nodes=replaced(world.nodes, node, CUT))

    def _crash(self, world: World) -> Iterator[tuple[str, World]]:
        """A controller dies between two requests, and another one begins in its place."""
        for at, worker in enumerate(world.workers):
            if worker != Worker():
                yield f"controller {at} dies", world._replace(workers=replaced(world.workers, at, Worker()))

    def _sandbox(self, world: World) -> Iterator[tuple[str, World]]:
        """A pod's sandbox is stopped; the kubelet makes a new one, or ends the pod."""
        for pod in world.pods:
            if pod.runs and world.nodes[pod.node] == OK:
                pods = tuple(sorted((*(other for other in world.pods if other != pod), pod._replace(runs=False))))
                yield f"the sandbox of the pod of {NAMES[pod.owner]} stops", world._replace(pods=pods)


def shown(entry: Entry) -> str:
    """An address in a trace."""
    whose = f"of {NAMES[entry.owner]}" + ("" if entry.uid == NONE else f", uid {entry.uid}")
    return f"address {entry.number} {whose}" + ("" if entry.node == NONE else f", node {entry.node}")


def view_of(world: World, owner: int, only: Entry | None = None) -> View:
    """The copies that a controller has now, as far as its work on a claim depends on them."""
    own = (only,) if only is not None else tuple(entry for entry in world.entries if entry.owner == owner)
    taken = 0
    for entry in () if only is not None else world.entries:
        taken |= (entry.owner != owner) << entry.number
    free = 0 if only is not None else ~taken & ~sum(1 << entry.number for entry in own)
    # A report counts for an address that no PodAddress has, and for those of its own node.
    bits = (free | sum(1 << entry.number for entry in own if entry.node == node) for node in range(NODES))
    listed = tuple(known & mask for known, mask in zip(world.listed, bits, strict=True))
    own = tuple(entry._replace(former=NONE, fresh=entry.fresh and only is not None) for entry in own)
    claim = world.claims[owner]
    return View(owner, only is not None, world.of_pods, own, taken, listed, claim.exists, claim.node != NONE)


def _written(
    world: World, kind: str, entry: Entry, version: str, current: frozenset[tuple[str, int]]
) -> tuple[str, str, World]:
    """A write as the API server takes it: its answer, what is wrong with it, and the world after it."""
    stored = entry_at(world, entry.number)
    if kind == "create":
        return ("exists", "", world) if stored is not None else ("ok", "", write(world, entry.number, entry))
    if stored is None:
        return "missing", "", world
    if (version, entry.number) not in current:
        return "conflict", "", world
    problem = ""
    if kind == "delete":
        if stored.fresh:
            problem = f"address {entry.number} is free for others before its quarantine has ended"
        return "ok", problem, write(world, entry.number, None)
    if entry.uid == NONE:
        former = stored.uid if stored.uid != NONE else stored.former
        entry = entry._replace(fresh=True, former=former)
    return "ok", problem, write(world, entry.number, entry)


def wrong(world: World) -> str:
    """The rule that a state breaks, "" for none."""
    holders: dict[int, Pod] = {}
    for pod in world.pods:
        if not pod.runs:
            continue
        if pod.number in holders:
            return f"address {pod.number} is on two pods: {holders[pod.number]} and {pod}"
        holders[pod.number] = pod
        if world.nodes[pod.node] == OK and not _is_kept(world, pod):
            return f"address {pod.number} is lost: {pod} has it, and no PodAddress or report keeps it"
    return ""


def _is_kept(world: World, pod: Pod) -> bool:
    entry = entry_at(world, pod.number)
    return entry is not None and (entry.owner, entry.node) == (pod.owner, pod.node)


def is_goal(world: World) -> bool:
    """Whether each claim has a pod with an address on its node, and no controller is at work."""
    if any(worker.job is not None for worker in world.workers):
        return False
    running = {(pod.owner, pod.uid, pod.node) for pod in world.pods if pod.runs}
    wanted = {(owner, claim.uid, claim.node) for owner, claim in enumerate(world.claims)}
    return running == wanted and all(claim.exists for claim in world.claims)


def canonical(world: World) -> World:
    """The same state for all names that claims, nodes and controllers may have."""
    node_marks = [
        (
            world.nodes[node],
            world.listed[node],
            tuple(claim for claim in world.claims if claim.node == node),
            tuple(entry for entry in world.entries if entry.node == node),
        )
        for node in range(NODES)
    ]
    order = sorted(range(NODES), key=node_marks.__getitem__)
    if order != [*range(NODES)]:
        world = _with_nodes(world, order)
    return world._replace(workers=tuple(sorted(world.workers, key=_mark)))


def _mark(worker: Worker) -> tuple[Any, ...]:
    job = worker.job
    return (job.view, len(job.answers)) if job is not None else ()


def _with_nodes(world: World, order: list[int]) -> World:
    """The nodes in another order."""
    place = {node: at for at, node in enumerate(order)} | {NONE: NONE}
    return World(
        entries=tuple(entry._replace(node=place[entry.node]) for entry in world.entries),
        claims=tuple(claim._replace(node=place[claim.node]) for claim in world.claims),
        pods=tuple(sorted(pod._replace(node=place[pod.node]) for pod in world.pods)),
        listed=tuple(world.listed[node] for node in order),
        nodes=tuple(world.nodes[node] for node in order),
        workers=tuple(_worker_with(worker, place, order) for worker in world.workers),
        left=world.left,
        of_pods=world.of_pods,
    )


def _worker_with(worker: Worker, place: dict[int, int], order: list[int]) -> Worker:
    if worker.job is None:
        return worker
    view, answers, current = worker.job
    view = view._replace(
        own=tuple(entry._replace(node=place[entry.node]) for entry in view.own),
        listed=tuple(view.listed[node] for node in order),
    )
    renamed = tuple((kind, _answer_with(kind, answer, place)) for kind, answer in answers)
    return Worker(Job(view, renamed, current))


def _answer_with(kind: str, answer: Any, place: dict[int, int]) -> Any:
    if kind == "claim":
        return answer[0], answer[1]._replace(node=place[answer[1].node])
    return answer._replace(node=place[answer.node]) if kind == "entry" and answer is not None else answer


def allocated_at_once() -> World:
    """Every claim was just allocated, two of them on one node."""
    return canonical(World(claims=tuple(Claim(True, 0, owner % NODES) for owner in range(CLAIMS))))


def start(left: int, *, of_pods: bool = False, controllers: int = 2, number: int = CLAIMS) -> World:
    """So many claims have an address and a pod each, two of three on one node, and so many disturbances may come."""
    claims = tuple(Claim(True, 0, owner % NODES, owner) for owner in range(number))
    return canonical(
        World(
            entries=tuple(Entry(owner, owner, 0, claim.node) for owner, claim in enumerate(claims)),
            claims=claims,
            pods=tuple(Pod(owner, 0, claim.node, owner) for owner, claim in enumerate(claims)),
            workers=(Worker(),) * controllers,
            left=left,
            of_pods=of_pods,
        )
    )
