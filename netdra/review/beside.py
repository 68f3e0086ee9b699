"""The errors and warnings of objects beside others of their kind: names and addresses that two of them have. Pure.

Of two objects that clash, the later one has the finding: the one that is written, or the later one of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from netdra.exposure.check import check
from netdra.exposure.unwise import hidden
from netdra.model.findings import Finding, about_object
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.topology import NetworkTopology
from netdra.rules import networks, pod_networks
from netdra.rules.topologies import check_together

Beside = Iterator[tuple[object, Finding]]
"""Objects, each with a finding of it."""


def errors(values: Iterable[object]) -> Beside:
    """The errors of objects beside those before them."""
    topologies = {value.name: value for value in values if isinstance(value, NetworkTopology)}
    yield from ((topologies[name], finding) for name, finding in check_together(topologies))


def warnings(values: Iterable[object]) -> Beside:
    """The warnings for authors of objects without errors, beside those before them."""
    given = tuple(values)
    by_name = {value.name: value for value in given if isinstance(value, PodNetwork)}
    yield from ((by_name[name], finding) for name, finding in pod_networks.overlaps(by_name.values()))
    topologies = {value.name: value for value in given if isinstance(value, NetworkTopology)}
    yield from ((topologies[name], finding) for name, finding in networks.overlaps(topologies.values()))


def hiding(values: Iterable[object]) -> Beside:
    """The warnings for policies that take devices from others in no certain way."""
    usable = [value for value in values if isinstance(value, DeviceExposurePolicy) and not check(value)]
    for policy, finding in hidden(usable):
        yield policy, about_object("DeviceExposurePolicy", policy.name, finding)
