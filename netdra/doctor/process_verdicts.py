"""The checks of netdra's own processes: who must run, where, and who does. Pure.

The facts are filled by `process_look`; `verdicts` is called by `netdra doctor`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import partial

import msgspec

from netdra.doctor.cluster_verdicts import NAMED, NETDRA_PODS, PART_LABEL, Component, judged
from netdra.doctor.diagnosis import Diagnosis, Unseen, diagnose
from netdra.model.meta import time_text
from netdra.model.suggestions import listed

CONTROLLER, WEBHOOK, NODE = "netdra controller", "netdra webhook", "netdra node"
"""The checks, named as the processes are."""
_finding = partial(diagnose, "cluster")


class Leader(msgspec.Struct, frozen=True):
    """The holder of the controllers' lease, "" for none, when it renewed the lease last, and whether it still does."""

    holder: str = ""
    renewed: datetime | None = None
    works: bool = False


class DriverFacts(msgspec.Struct, frozen=True):
    """The nodes that need the driver. All of them exist.

    Attributes:
        selected: those that a policy applies to.
        used: those whose devices of netdra are allocated to claims.
        not_ready: those whose kubelet does not answer.
    """

    selected: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()
    not_ready: frozenset[str] = frozenset()


class ProcessFacts(msgspec.Struct, frozen=True, kw_only=True):
    """netdra's processes. Each part is the seen state, or the reason why it is unknown.

    Attributes:
        namespace: netdra's.
        components: its pods.
        leader: the controller that leads.
        drivers: the nodes that need the driver.
    """

    namespace: str = "netdra"
    components: tuple[Component, ...] | Unseen = ()
    leader: Leader | Unseen = Leader()
    drivers: DriverFacts | Unseen = DriverFacts()


def verdicts(facts: ProcessFacts) -> list[Diagnosis]:
    """The findings on the controller, the webhook and the drivers."""
    pods = facts.components
    if isinstance(pods, Unseen):  # the check of versions reports that
        return []
    return [
        *judged(CONTROLLER, facts.leader, lambda leader: _controller(leader, pods, facts.namespace)),
        *_webhook(pods, facts.namespace),
        *judged(NODE, facts.drivers, lambda drivers: _drivers(drivers, pods, facts.namespace)),
    ]


def _controller(leader: Leader, components: Sequence[Component], namespace: str) -> Iterator[Diagnosis]:
    """Whether a controller leads: it renews its lease every few seconds."""
    if leader.works:
        ready = sum(component.is_ready for component in components if component.part == "controller")
        yield _finding(CONTROLLER, "ok", f"{leader.holder} leads" + (f"; {ready} pods are ready" if ready else ""))
        return
    since = f" since {time_text(leader.renewed)}" if leader.renewed is not None else ""
    stopped = f"no controller works{since}: pods wait for addresses and ports, and statuses stay as they are"
    found = f"{stopped}{_reasons('controller', components)}"
    yield _finding(CONTROLLER, "error", found, _find("controller", namespace), code="ND3156")


def _webhook(components: Sequence[Component], namespace: str) -> Iterator[Diagnosis]:
    """Whether a webhook is ready, if it has pods; the check of the webhook has one answer."""
    pods = [component for component in components if component.part == "webhook"]
    ready = sum(component.is_ready for component in pods)
    if pods and not ready:
        seen = f"no webhook is ready{_reasons('webhook', pods)}"
        yield _finding(WEBHOOK, "error", seen, _find("webhook", namespace), code="ND3157")
    elif pods:
        yield _finding(WEBHOOK, "ok", f"{ready} of {len(pods)} pods are ready")


def _drivers(drivers: DriverFacts, components: Sequence[Component], namespace: str) -> Iterator[Diagnosis]:
    """Whether the driver is ready on each node whose devices are offered or used."""
    wanted = drivers.selected | drivers.used
    off, lacking = absent(drivers, components)
    if off:
        yield _finding(
            NODE, "warning", f"{_nodes(off)} are not Ready", f"kubectl describe node {min(off)}", code="ND3158"
        )
    if lacking:
        yield _missing(lacking, drivers.used, components, namespace)
    elif not off:
        yield _finding(NODE, "ok", f"ready on {_nodes(wanted)}" if wanted else "no policy selects a node")


def absent(drivers: DriverFacts, components: Sequence[Component]) -> tuple[list[str], list[str]]:
    """The nodes that need the driver and do not run it: those that are not Ready, and those without a driver."""
    ready = {component.node for component in components if component.part == "node" and component.is_ready}
    wanted = drivers.selected | drivers.used
    off = wanted & drivers.not_ready
    return sorted(off), sorted(wanted - off - ready)


def _missing(
    lacking: Sequence[str], used: Collection[str], components: Sequence[Component], namespace: str
) -> Diagnosis:
    """The error about nodes without a driver that is ready; the first of them is explained."""
    pod = next((each for each in components if (each.part, each.node) == ("node", lacking[0])), None)
    reason = _stopped(pod) if pod is not None else f"{lacking[0]} has no pod of it"
    users = [node for node in lacking if node in used]
    holding = f"; pods on {listed(users, NAMED)} use devices of netdra" if users else ""
    fix = (
        _find("node", namespace)
        if pod is not None
        else f"check the DaemonSet's nodeSelector and tolerations: kubectl -n {namespace} describe daemonsets; if the "
        "driver should not run there, set a nodeSelector in the DeviceExposurePolicies"
    )
    return _finding(NODE, "error", f"not ready on {_nodes(lacking)}: {reason}{holding}", fix, code="ND3159")


def _nodes(nodes: Collection[str]) -> str:
    return f"{len(nodes)} nodes whose devices are offered or used ({listed(sorted(nodes), NAMED)})"


def _reasons(part: str, components: Sequence[Component]) -> str:
    waiting = [_stopped(component) for component in components if component.part == part and not component.is_ready]
    return f"; {listed(waiting, NAMED)}" if waiting else ""


def _find(part: str, namespace: str) -> str:
    return f"kubectl -n {namespace} describe pods -l {NETDRA_PODS},{PART_LABEL}={part}"


def _stopped(component: Component) -> str:
    return f"pod {component.pod} is not ready" + (f" ({component.state})" if component.state else "")
