"""The links that are not a plugin's business: those that it takes from the host, and those that it leaves in the pod.

`execute` lists the names of the host's links around each call of a plugin. Where one is gone that is no device of the
pod, the pod is searched: what other plugins or people do to the host's links at the same time is not taken for the
plugin's doing. A link that was taken is returned to the host (decision D55). `attach` writes down which links the pod
has before its first step and after its last one, and `detach` compares when all is undone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial

import msgspec

from netdra.chain.checkpoint import Saved, StepState
from netdra.chain.flow import ChainStep
from netdra.kernel import link, unlocked
from netdra.kernel.link import PAIRED, Link
from netdra.model.plan import PlannedDevice
from netdra.steps import identity, moving
from netdra.steps.allocated import Allocated, Returned
from netdra.steps.contract import Attempts, PodSpace, Site
from netdra.steps.moving import Moved

TAKEN = "taken"
"""The key of a binary's undo with the links of the host that it took besides its device, as `TakenLink`."""
# The kernel makes these in every namespace when it loads their module (net.core.fb_tunnels_only_for_init_net).
_OF_THE_KERNEL = frozenset({
    "lo", "tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0",
})  # fmt: skip


class Names(msgspec.Struct, frozen=True):
    """The names of the host's links, and of the pod's."""

    host: frozenset[str]
    pod: frozenset[str]


class TakenLink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A link of the host that a plugin has moved into the pod.

    Attributes:
        moved: what it is returned as: of its former state on the host, no more than the name is known.
        former: the names of which one was its own there, if the plugin has renamed it.
    """

    moved: Moved
    former: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The link, as messages call it."""
        pod_name = self.moved.pod_name
        if len(self.former) > 1:
            return f'"{pod_name}" (one of {", ".join(self.former)} before)'
        return f'"{self.moved.name}"' + (f' (as "{pod_name}")' if pod_name != self.moved.name else "")


def names(site: Site) -> Names:
    """The names of all links, as they are now. Takes a tenth of a millisecond for a hundred links."""
    return Names(unlocked.names(), names_in(site.pod))


def names_in(pod: PodSpace | None) -> frozenset[str]:
    """The names of the pod's links but for those that the kernel makes by itself."""
    return pod.namespace.visit(unlocked.names) - _OF_THE_KERNEL if pod is not None else frozenset()


def gone(before: Names, steps: Iterable[ChainStep], device: Allocated | None) -> frozenset[str]:
    """The links that are no longer on the host and no devices of the pod; empty after most calls."""
    missing = before.host - unlocked.names()
    return missing - {planned.if_name for planned in _devices(steps)} - {_name(device)} if missing else missing


def taken(
    task: ChainStep,
    steps: Collection[ChainStep],
    before: Names,
    missing: Collection[str],
    device: Allocated | None,
    site: Site,
) -> tuple[TakenLink, ...]:
    """The links that a plugin has moved from the host into the pod, besides its own device.

    Args:
        task: the plugin's step.
        steps: all steps of the pod, which may run at the same time.
        before: the names before the plugin was called.
        missing: the links that are `gone` from the host.
        device: the step's device as it was before, if it has one for itself.
        site: where.

    Raises:
        KernelError: the kernel refused.
    """
    if site.pod is None:
        return ()
    expected = {step.step.if_name for step in steps if step.key != task.key}
    if not _name(device) or not unlocked.index_of(site.host, _name(device)):
        expected.add(task.step.if_name)
    functions = {planned.pci_address for planned in _devices(steps)} - {""}
    found = [
        netdev
        for name in sorted(names_in(site.pod) - before.pod - expected)
        if (netdev := link.find(site.pod.sock, name)) is not None
        and netdev.parent not in functions
        and _was_on_host(netdev, missing, before, site)
    ]
    former = sorted(set(missing) - {netdev.name for netdev in found})
    return tuple(
        TakenLink(moved=_moved(netdev, netdev.name))
        if netdev.name in missing or not former
        else TakenLink(moved=_moved(netdev, former[0] if len(former) == 1 else netdev.name), former=tuple(former))
        for netdev in found
    )


def bring_home(links: Collection[TakenLink], plugin: str, site: Site) -> Returned:
    """Return links to the host that a plugin has taken, as far as they are still in the pod.

    Raises:
        NetdraError: a link is still in the pod; all others are on the host.
    """
    attempts = Attempts()
    restored: list[str] = []
    for taken_link in links:
        moved = taken_link.moved
        if site.pod is not None and moving.inside(moved, site.pod) is not None:
            attempts.run(partial(moving.give_back, moved, site))
            restored.append(f'link {taken_link} of the node, which plugin "{plugin}" had moved into the pod')
            attempts.notes.append(f"link {taken_link} of the node may lack addresses, routes and settings that it had")
        elif not unlocked.index_of(site.host, moved.name):
            attempts.notes.append(f'link {taken_link} of the node, which plugin "{plugin}" took, is not on the host')
    return Returned(tuple(restored), attempts.result())


def _devices(steps: Iterable[ChainStep]) -> Iterator[PlannedDevice]:
    return (step.step.device for step in steps if step.step.device is not None)


def _name(device: Allocated | None) -> str:
    """The name that a device had on the host, "" for none."""
    return device.netdev.name if device is not None and device.netdev is not None else ""


def _was_on_host(netdev: Link, missing: Collection[str], before: Names, site: Site) -> bool:
    """Whether a link of the pod was on the host before: by its name, as hardware, or by its peer, which was there."""
    if netdev.name in missing or identity.identity_of(netdev).is_physical:
        return True
    if netdev.kind not in PAIRED or netdev.lower_netns < 0:
        return False
    peer = link.find(site.host, netdev.lower)
    return peer is not None and peer.name in before.host and peer.lower == netdev.index


def _moved(netdev: Link, name: str) -> Moved:
    """A link of the pod, as it is to be on the host: up, since it may be the node's only way to a network."""
    return Moved(
        device=identity.identity_of(netdev),
        name=name,
        pod_name=netdev.name,
        mac=netdev.address,
        mtu=netdev.mtu,
        up=True,
        lower=netdev.lower,
    )


def left(graph: Mapping[str, ChainStep], saved: Saved, site: Site) -> Mapping[str, tuple[str, ...]]:
    """The links that plugins have left in the pod though their steps are undone, by step, in words.

    A pod that was attached may have made links by itself since: only those count that it had when it was attached.

    Raises:
        KernelError: the kernel refused.
    """
    if site.pod is None or saved.header.links is None:
        return {}
    made = names_in(site.pod) - set(saved.header.links)
    if saved.complete:
        made &= set(saved.links)
    binaries = [key for key in saved.steps if graph[key].is_binary]
    texts_of: dict[str, list[str]] = {}
    for name in sorted(made):
        owner = next((key for key in saved.steps if name in _interfaces(graph[key], saved.steps[key])), "")
        candidates = [owner] if owner else binaries
        undone = [key for key in candidates if key in binaries and saved.steps[key].undone]
        netdev = link.find(site.pod.sock, name) if undone else None
        if netdev is None:
            continue
        peer = link.find(site.host, netdev.lower) if netdev.kind in PAIRED and netdev.lower_netns >= 0 else None
        on_host = f', and its peer "{peer.name}" on the host' if peer is not None and peer.lower == netdev.index else ""
        plugins = " or ".join(f'"{kind}"' for kind in dict.fromkeys(graph[key].step.type for key in candidates))
        text = f'plugin {plugins} left interface "{name}" in the pod{on_host}'
        texts_of.setdefault(undone[-1], []).append(text)
    return {key: tuple(texts) for key, texts in texts_of.items()}


def _interfaces(task: ChainStep, state: StepState) -> set[str]:
    """The names of the pod's interfaces that a step made or changed."""
    reported = state.result.interfaces if state.result is not None else ()
    return {task.step.if_name, *(interface.name for interface in reported if interface.sandbox)}
