"""Which programs a topology's steps run beside those that a device's `supportedCNIs` describes (decision D45).

A device lists the plugins that can attach it, so a class asks for its root step's type. Later steps and IPAM plugins
run on the node, for any device: nodes report which of them they lack, and classes skip those nodes' devices.
Pure; called by `classes` for a topology, and by the node for all of the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from netdra.model.findings import Path
from netdra.model.pod_network import IPAM_TYPE
from netdra.model.topology import BUILTIN_TYPES, NetworkTopology, Step, is_autoconfigured
from netdra.topology.step_check import is_plugin_name

STATIC = "static"
"""The IPAM plugin that steps with addresses of a PodNetwork are run with."""
_IPAM_TYPE: Path = ("config", "ipam", "type")


def run_by(step: Step) -> Iterator[tuple[str, Path]]:
    """The programs that a step runs, each with the place in the step that names it.

    Names that are not plugins', or are known only with a claim's parameters, are left out.
    """
    if not step.is_builtin and is_plugin_name(step.type):
        yield step.type, ("type",)
    section = step.config.get("ipam")
    kind = section.get("type") if isinstance(section, Mapping) else None
    if isinstance(kind, str) and is_plugin_name(kind) and not is_autoconfigured(step.config):
        # Addresses of a PodNetwork are assigned by the controller, and handed to the program "static".
        yield STATIC if kind == IPAM_TYPE else kind, _IPAM_TYPE


def programs(steps: Iterable[Step]) -> frozenset[str]:
    """The programs that devices do not list: all but a root step's own, unless its type is built in, too."""
    return frozenset(
        name
        for step in steps
        for name, place in run_by(step)
        if place == _IPAM_TYPE or not step.is_root or step.type in BUILTIN_TYPES
    )


class NeededPrograms:
    """The programs that the topologies of a cluster need, kept while topologies come, change and go."""

    def __init__(self) -> None:
        """Begin without topologies."""
        self._of: dict[str, frozenset[str]] = {}
        self._counts: Counter[str] = Counter()

    @property
    def names(self) -> frozenset[str]:
        """The programs that at least one stored topology needs."""
        return frozenset(self._counts)

    def put(self, name: str, topology: NetworkTopology | None) -> bool:
        """A topology came or changed, or went (None); return whether other programs are needed now."""
        before = self._of.pop(name, frozenset())
        now = programs(topology.spec.steps) if topology is not None else frozenset()
        if now:
            self._of[name] = now
        known = len(self._counts)
        self._counts.update(now)
        come = len(self._counts) > known
        self._counts.subtract(before)
        gone = [program for program in before if not self._counts[program]]
        for program in gone:
            del self._counts[program]
        return come or bool(gone)
