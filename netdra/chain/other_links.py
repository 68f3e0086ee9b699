"""The links that are not a plugin's business: those that it takes from the host, and those that it leaves in the pod.

`execute` has the names of the host's links listed before a plugin is called. Where the pod has an unexpected link
afterwards, and one of the host is gone that is not a device of the pod, netlink is asked whether it is the same: what
others do to the host's links at the same time is not taken for the plugin's doing. A link that was taken is returned to
the host (decision D55). `attach` writes down which links the pod has before its first step and after its last one, and
`detach` compares when all is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial

import msgspec

from netdra.chain.checkpoint import Saved, StepState
from netdra.chain.flow import ChainStep
from netdra.kernel import link, unlocked
from netdra.kernel.link import PAIRED, Link
from netdra.model.plan import PlannedDevice
from netdra.steps import identity, moving, netdevs
from netdra.steps.allocated import Allocated, Returned
from netdra.steps.contract import Attempts, PodSpace, Site
from netdra.steps.netdevs import Moved

Sockets = AbstractContextManager[Site]
"""The site with netlink sockets of the thread's own, until the context ends."""
TAKEN = "taken"
"""The key of a binary's undo with the links of the host that it took besides its device, as `TakenLink`."""
# The kernel makes these in every namespace when it loads their module (net.core.fb_tunnels_only_for_init_net).
_OF_THE_KERNEL = frozenset({
    "lo", "tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0",
})  # fmt: skip


class TakenLink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A link of the host that a plugin has moved into the pod.

    Attributes:
        moved: what it is returned as: of its former state on the host, no more than the name is known.
        plugins: the plugin, or the plugins that ran at that time.
        former: the names of which one was its own there, if the plugin has renamed it.
    """

    moved: Moved
    plugins: tuple[str, ...]
    former: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The link, as messages call it."""
        pod_name = self.moved.pod_name
        if len(self.former) > 1:
            return f'"{pod_name}" (formerly one of {", ".join(self.former)})'
        return f'"{self.moved.name}"' + (f' (as "{pod_name}")' if pod_name != self.moved.name else "")


class HostLinks:
    """The names of the host's links, from one call of a plugin of a sandbox to the next."""

    def __init__(self, graph: Mapping[str, ChainStep]) -> None:
        """Begin; `graph` has all steps of the pod, which may run at the same time."""
        self._graph = graph
        self._names: frozenset[str] = frozenset()
        self._calls: dict[str, Mapping[str, int]] = {}  # the steps whose plugins run, with the pod's links before

    def begin(self, task: ChainStep, pod: PodSpace | None) -> None:
        """A plugin is about to be called. The host's links are listed once for all calls, unless a link is taken."""
        if pod is not None:
            self._calls[task.key] = {name: unlocked.index_of(pod.sock, name) for name in names_in(pod)}
            self._names = self._names or unlocked.names()

    def end(
        self, task: ChainStep, device: Allocated | None, pod: PodSpace | None, sockets: Callable[[], Sockets]
    ) -> tuple[TakenLink, ...]:
        """A plugin was called; return the links that it has moved from the host into the pod, besides its own device.

        Args:
            task: the plugin's step.
            device: its device as it was before, if it has one for itself.
            pod: the pod's namespace, None if it is gone.
            sockets: opens netlink sockets; called only where the pod has an unexpected link, and the host lacks one.

        Raises:
            KernelError: the kernel refused.
        """
        calls = tuple(sorted({self._graph[key].step.type for key in list(self._calls)}))
        earlier = self._calls.pop(task.key, None)
        if pod is None or earlier is None:
            return ()
        devices = [step.step.device for step in self._graph.values() if step.step.device is not None]
        # Plugins of other steps, at the same time, move the pod's devices, and rename them before and after that.
        others = {step.step.if_name for step in self._graph.values() if step.key != task.key}
        arrived = names_in(pod) - earlier.keys() - others - {planned.if_name for planned in devices}
        own = device.netdev.name if device is not None and device.netdev is not None else ""
        if not own or not unlocked.is_listed(own):
            arrived -= {task.step.if_name}
        if not arrived:
            return ()
        before, self._names = self._names, unlocked.names()
        missing = before - self._names - {planned.if_name for planned in devices} - {own}
        if not missing:
            return ()
        with sockets() as site:
            netdevs = [netdev for name in sorted(arrived) if (netdev := link.find(site.inside.sock, name)) is not None]
            found = [
                netdev
                for netdev in netdevs
                if not any(_is_planned(netdev, planned, site) for planned in devices)
                and netdev.index not in earlier.values()
                and _was_on_host(netdev, missing, before, site)
            ]
        former = tuple(sorted(missing - {netdev.name for netdev in found}))
        return tuple(
            TakenLink(moved=_moved(netdev, netdev.name, site), plugins=calls)
            if netdev.name in missing or not former
            else TakenLink(
                moved=_moved(netdev, former[0] if len(former) == 1 else netdev.name, site), plugins=calls, former=former
            )
            for netdev in found
        )


def names_in(pod: PodSpace) -> frozenset[str]:
    """The names of the pod's links but for those that the kernel makes by itself."""
    return pod.namespace.visit(unlocked.names) - _OF_THE_KERNEL


def plugins_of(links: Iterable[TakenLink]) -> str:
    """The plugins that may have taken links, as messages call them."""
    return "plugin " + " or ".join(f'"{kind}"' for kind in sorted({kind for taken in links for kind in taken.plugins}))


def bring_home(links: Collection[TakenLink], site: Site) -> Returned:
    """Return links to the host that a plugin has taken, as far as they are still in the pod.

    Raises:
        NetdraError: a link is still in the pod; all others are on the host.
    """
    attempts = Attempts()
    restored: list[str] = []
    for taken_link in links:
        moved, plugins = taken_link.moved, plugins_of([taken_link])
        if site.pod is not None and netdevs.inside(moved, site.pod, site) is not None:
            attempts.run(partial(moving.give_back, moved, site))
            restored.append(f"link {taken_link} of the node, which {plugins} had moved into the pod")
            attempts.notes.append(
                f"link {taken_link} of the node may lack addresses, routes and settings that it had before"
            )
        elif not unlocked.index_of(site.host, moved.name):
            attempts.notes.append(f"link {taken_link} of the node, which {plugins} moved, is not on the host")
    return Returned(tuple(restored), attempts.result())


def _is_planned(netdev: Link, device: PlannedDevice, site: Site) -> bool:
    """Whether a link of the pod is a device that the pod was allocated."""
    at = identity.identity_of(netdev, site.sysfs).pci_address
    if not at or at != device.pci_address:
        return False
    return device.identity is None or identity.is_port(netdev, device.identity, site.sysfs) is not False


def _was_on_host(netdev: Link, missing: Collection[str], before: Collection[str], site: Site) -> bool:
    """Whether a link of the pod was on the host before: by its name, as hardware, or by its peer, which was there."""
    if netdev.name in missing or identity.identity_of(netdev, site.sysfs).is_physical:
        return True
    if netdev.kind not in PAIRED or netdev.lower_netns < 0:
        return False
    peer = link.find(site.host, netdev.lower)
    return peer is not None and peer.name in before and peer.lower == netdev.index


def _moved(netdev: Link, name: str, site: Site) -> Moved:
    """A link of the pod, as it is to be on the host: up, since it may be the node's only way to a network."""
    return Moved(
        device=identity.identity_of(netdev, site.sysfs),
        name=name,
        pod_name=netdev.name,
        mac=netdev.address,
        mtu=netdev.mtu,
        up=True,
        lower=netdev.lower,
    )


def made(saved: Saved, pod: PodSpace | None) -> frozenset[str]:
    """The links of the pod that its steps have made, and that are still there.

    A pod that was attached may have made links by itself since: only those count that it had when it was attached.
    """
    if pod is None or saved.header.links is None:
        return frozenset()
    names = names_in(pod) - set(saved.header.links)
    return names & set(saved.links) if saved.complete else names


def left(
    names: Iterable[str], graph: Mapping[str, ChainStep], saved: Saved, site: Site
) -> Mapping[str, tuple[str, ...]]:
    """The links of the pod that plugins have left though their steps are undone, by step, in words.

    Raises:
        KernelError: the kernel refused.
    """
    binaries = [key for key in saved.steps if graph[key].is_binary]
    texts_of: dict[str, list[str]] = {}
    for name in sorted(names):
        owner = next((key for key in saved.steps if name in _interfaces(graph[key], saved.steps[key])), "")
        candidates = [owner] if owner else binaries
        undone = [key for key in candidates if key in binaries and saved.steps[key].undone]
        netdev = link.find(site.inside.sock, name) if undone else None
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
