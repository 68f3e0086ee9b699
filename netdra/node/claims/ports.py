"""Wait until the VFs of a claim have their ports in Neutron: until netdra's controller has bound their NeutronPorts.

Imported by `prepare` for claims whose topology has `neutron`, and by no other module. The node reads NeutronPorts and
asks no cloud (decision D49). A NeutronPort that is not exactly of the allocated VF is refused. For
pooled VFs, the node writes the VF that it chose into the NeutronPort, and the controller binds the port to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netdra.kube import answers
from netdra.kube.backoff import Backoff
from netdra.kube.client import Client, Selection
from netdra.kube.errors import ApiError, no_answer
from netdra.kube.resources import NEUTRON_PORTS
from netdra.kube.watch import WatchEvent, watch
from netdra.model import texts
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError
from netdra.model.neutron_port import NeutronPort, PortSettings, name_of
from netdra.model.plan import ClaimReference, Plan, PlannedDevice, PlannedPort
from netdra.node.claims.checks import named
from netdra.topology.devices import ShareKey
from netdra.topology.ports import asked_for, device_of

log = logging.getLogger(__name__)

SECONDS = 20.0
"""How long a claim waits, of the 45 seconds that the kubelet gives it."""
_MOST_VLAN, _LEAST_MTU, _MOST_MTU, _MOST = 4094, 68, 65535, 2**32 - 1
_SEE_CONTROLLER = (
    "netdra's controller makes and binds it, if it has been given a cloud: see docs/neutron.md and the controller's log"
)


@dataclass
class _Awaited:
    """A VF that waits for its port: its step and topology, and the reason for the delay."""

    claim: ClaimReference
    device: PlannedDevice
    node: str
    topology: str
    step: str
    lacking: NetdraError

    @property
    def name(self) -> str:
        """The NeutronPort's name."""
        return name_of(self.claim.uid, self.device.pool, self.device.device, self.device.share_id)

    @property
    def called(self) -> str:
        """The NeutronPort as messages call it."""
        return f'NeutronPort "{self.claim.namespace}/{self.name}"'

    def taken(self, port: NeutronPort | None) -> PlannedPort | None:
        """The VF's port as its NeutronPort is now; None if that is not bound (yet), and `lacking` then has the reason.

        Raises:
            NetdraError: the NeutronPort is of another VF, or has settings that no VF can have.
        """
        # A NeutronPort that is being deleted is of an earlier allocation: the next one gets its name.
        if port is None or port.metadata.deletion_timestamp is not None:
            self.lacking = TemporaryError(f"{self.called} is not there", hint=_SEE_CONTROLLER, code="ND2164")
            return None
        self._check_spec(port)
        if earlier := _differing(
            ("request", port.spec.request, self.device.request),
            ("topology", port.spec.topology, self.topology),
            ("step", port.spec.step, self.step),
        ):
            what = f"{self.called} is of an earlier allocation of the VF: {earlier}"
            self.lacking = TemporaryError(what, hint=_SEE_CONTROLLER, code="ND2165")
            return None
        if self.is_other_choice(port):
            self.lacking = TemporaryError(f"{self.called} is not of VF {self.device.pci_address} yet", code="ND2166")
            return None
        bound, status = port.bound, port.status
        if bound is None or status is None:
            self.lacking = TemporaryError(f"{self.called} is not bound yet", hint=_SEE_CONTROLLER, code="ND2167")
            return None
        if bound.status != "True":
            self.lacking = TemporaryError(f"{self.called} is not bound: {bound.reason}: {bound.message}", code="ND2168")
            return None
        if status.settings is None or not status.port_id:
            self.lacking = TemporaryError(
                f"{self.called} is bound and has no settings", hint=_SEE_CONTROLLER, code="ND2169"
            )
            return None
        for problem in problems(status.settings):
            raise InvalidInputError(
                f"{self.called}, status.settings: {problem}", hint="see the port in Neutron", code="ND2170"
            )
        return PlannedPort(
            port_id=status.port_id,
            network_id=status.network_id,
            network_name=status.network_name,
            settings=status.settings,
        )

    def is_other_choice(self, port: NeutronPort) -> bool:
        """Whether the NeutronPort does not yet name the pooled VF of the claim."""
        return self.device.pooled and port.pci_address != self.device.pci_address

    def _check_spec(self, port: NeutronPort) -> None:
        """The NeutronPort is of the VF that the claim was allocated, on this node.

        Raises:
            PermanentError: it is of another claim, VF or node.
        """
        spec, device = port.spec, self.device
        if differing := _differing(
            ("claim.uid", spec.claim.uid, self.claim.uid),
            ("claim.name", spec.claim.name, self.claim.name),
            ("pool", spec.pool, device.pool),
            ("device", spec.device, device.device),
            ("shareID", spec.share_id, device.share_id),
            ("nodeName", spec.node_name, self.node),
            ("pciAddress", spec.pci_address, "" if device.pooled else device.pci_address),
        ):
            raise PermanentError(
                f"{self.called} is not of the VF that was allocated: {differing}",
                hint="only netdra's controller writes NeutronPorts, and replaces it; if it stays, see who made it",
                code="ND2171",
            )


async def wait_bound(client: Client, node: str, plans: Sequence[Plan], seconds: float) -> dict[ShareKey, PlannedPort]:
    """The ports of a claim's VFs, by pool, device and share, once all of them are bound.

    Args:
        client: for NeutronPorts.
        node: this node's name.
        plans: the claim's.
        seconds: for how long to wait.

    Raises:
        TemporaryError: a port is not bound in time; the text names it, and the reason.
        NetdraError: a NeutronPort is of another VF, or a step cannot have a port.
    """
    awaited = []
    for plan, step in asked_for(plans):
        unknown = TemporaryError("nothing is known of it", code="ND2172")
        waiting = _Awaited(plan.claim, device_of(plan, step), node, plan.topology, step.name, unknown)
        waiting.taken(None)
        awaited.append(waiting)
    tasks = [asyncio.create_task(_follow(client, waiting)) for waiting in awaited]
    try:
        done, pending = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for waiting, task in zip(awaited, tasks, strict=True):
        problem = task.exception() if task in done else None
        if isinstance(problem, NetdraError):
            raise type(problem)(f"{_subject(waiting)}: {problem.what}", hint=problem.hint, code=problem.code)
        if problem is not None:
            raise problem
    if pending:
        late = [waiting for waiting, task in zip(awaited, tasks, strict=True) if task in pending]
        what = "; ".join(f"{_subject(waiting)}: {waiting.lacking.what}" for waiting in late)
        hints = dict.fromkeys(waiting.lacking.hint for waiting in late if waiting.lacking.hint)
        raise TemporaryError(f"{what} (waited {seconds:.0f} s)", hint="; ".join(hints), code="ND2173")
    return {
        (waiting.device.pool, waiting.device.device, waiting.device.share_id): task.result()
        for waiting, task in zip(awaited, tasks, strict=True)
    }


def _differing(*fields: tuple[str, str, str]) -> str:
    """Those of a NeutronPort's fields that are not as they should be, in words; "" for none."""
    return ", ".join(f'spec.{field} is "{value}", not "{wanted}"' for field, value, wanted in fields if value != wanted)


def problems(settings: PortSettings) -> Iterator[str]:
    """The settings of a port that no VF can have."""
    if not texts.fits(settings.mac, "mac"):
        yield f'mac "{settings.mac[:80]}" is not that of a single interface'
    if not 0 <= settings.vlan <= _MOST_VLAN:
        yield f"vlan {settings.vlan} is not from 0 to {_MOST_VLAN}"
    if settings.mtu and not _LEAST_MTU <= settings.mtu <= _MOST_MTU:
        yield f"mtu {settings.mtu} is not from {_LEAST_MTU} to {_MOST_MTU}"
    low, high = settings.min_tx_rate, settings.max_tx_rate
    if not (0 <= low <= _MOST and 0 <= high <= _MOST) or 0 < high < low:
        yield f"minTxRate {low} and maxTxRate {high} are not valid limits"
    yield from (
        f'address "{text[:80]}" is invalid or has no prefix length'
        for text in settings.addresses
        if not texts.fits(text, "cidr")
    )
    yield from (
        f'"{text[:80]}" is not an address' for text in (*settings.gateways, *settings.dns) if not texts.fits(text, "ip")
    )
    for route in settings.routes:
        try:
            texts.network(route.destination, route.gateway)
        except ValueError:
            yield f'no route can be made to "{route.destination[:80]}" by "{route.gateway[:80]}"'


def _subject(waiting: _Awaited) -> str:
    return f'{named(waiting.claim)}, request "{waiting.device.request}": device "{waiting.device.device}"'


async def _follow(client: Client, waiting: _Awaited) -> PlannedPort:
    """One VF's port, once it is bound; continues until cancelled.

    Raises:
        NetdraError: the NeutronPort is of another VF, or has settings that no VF can have.
    """
    backoff = Backoff()
    while True:
        try:
            return await _watch(client, waiting)
        except ApiError as problem:
            waiting.lacking = problem
            wait = backoff.next(problem.retry_after)
            log.info("%s is checked again in %.1f s: %s", waiting.called, wait, problem.what)
            await asyncio.sleep(wait)


async def _watch(client: Client, waiting: _Awaited) -> PlannedPort:
    """One VF's port, once it is bound, by a list and a watch of its one NeutronPort.

    Raises:
        ApiError: the API server did not answer, or ended the watch.
        NetdraError: as `_bound`.
    """
    selection = Selection(namespace=waiting.claim.namespace, field_selector=f"metadata.name={waiting.name}")
    page = await client.page(NEUTRON_PORTS, selection)
    for item in page.items or ():
        if (port := await _take(client, waiting, answers.one(NEUTRON_PORTS, item))) is not None:
            return port
    version, limit = page.metadata.resource_version, SECONDS * 2
    seconds = int(limit)
    async with watch(
        client, NEUTRON_PORTS, selection, version, seconds=seconds, idle_seconds=limit, shared=True
    ) as events:
        async for event in events:
            if (port := await _after(client, event, waiting)) is not None:
                return port
    raise no_answer(f"watch {NEUTRON_PORTS.plural}", ConnectionError("the server ended the watch"))


async def _take(client: Client, waiting: _Awaited, port: NeutronPort) -> PlannedPort | None:
    """The VF's port as its NeutronPort is now; a NeutronPort of pooled VFs that names another VF is corrected.

    Raises:
        ApiError: the API server does not take the VF.
        NetdraError: as `_bound`.
    """
    taken = waiting.taken(port)
    if port.metadata.deletion_timestamp is None and waiting.is_other_choice(port):
        identity = {"uid": port.metadata.uid}
        chosen = {"metadata": identity, "chosenVF": {"pciAddress": waiting.device.pci_address}}
        await client.merge(NEUTRON_PORTS, port.name, chosen, port.metadata.namespace)
    return taken


async def _after(client: Client, event: WatchEvent, waiting: _Awaited) -> PlannedPort | None:
    """The port after a change of its NeutronPort, if that is bound then."""
    if event.type == "DELETED":
        return waiting.taken(None)
    if event.type in ("ADDED", "MODIFIED"):
        return await _take(client, waiting, answers.one(NEUTRON_PORTS, event.object))
    return None
