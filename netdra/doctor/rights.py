"""The rights that each of netdra's processes needs: the chart's roles, one verb at a time.

Asked about by `netdra.doctor.cluster_look`; a test holds it against the chart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from netdra.model import names

READ = ("get", "list", "watch")
_DRA, _OURS, _CNI = "resource.k8s.io", "networking.dra.io", "cni.networking.k8s.io"
_EVENTS = ("events.k8s.io", "events", ("create", "patch"))
PROCESSES = ("node", "controller", "webhook")
_NAME = "{name}"


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """One verb on one kind, or on one object of it.

    Attributes:
        namespaced: in netdra's own namespace; else in the whole cluster.
    """

    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""
    namespaced: bool = False

    def __str__(self) -> str:
        """As `kubectl auth can-i` takes it."""
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f"/{self.name}" if self.name else ""
        return f"{self.verb} {kind}{named}{f' --subresource={self.subresource}' if self.subresource else ''}"


_Row = tuple[str, str, tuple[str, ...]] | tuple[str, str, tuple[str, ...], tuple[str, ...]]

_WIDE: Mapping[str, tuple[_Row, ...]] = {
    "node": (
        ("", "nodes", READ),
        ("", "pods", READ),
        (_DRA, "resourceslices", (*READ, "create", "update", "patch", "delete")),
        (_DRA, "resourceclaims", ("get",)),
        (_DRA, "resourceclaims/status", ("get", "patch", "update")),
        (_DRA, "resourceclaims/driver", ("associated-node:patch", "associated-node:update"), ("dra.networking",)),
        (_OURS, "deviceexposurepolicies", READ),
        (_OURS, "networktopologies", READ),
        (_OURS, "customdevices", READ),
        (_OURS, "podaddresses", ("list", "watch")),
        (_OURS, "podnetworks", ("get",)),
        (_OURS, "nodenetworks", (*READ, "create")),
        (_OURS, "nodenetworks/status", ("update",)),
        (_CNI, "cnipluginschemas", READ),
        _EVENTS,
    ),
    "controller": (
        ("", "nodes", ("get",)),
        (_DRA, "resourceclaims", READ),
        (_OURS, "podnetworks", (*READ, "patch")),
        (_OURS, "podnetworks/status", ("patch",)),
        (_OURS, "podaddresses", (*READ, "create", "update", "delete")),
        (_DRA, "resourceslices", ("list", "watch", "create", "update", "delete")),
        (_DRA, "deviceclasses", (*READ, "create", "update", "delete")),
        (_DRA, "devicetaintrules", ("list", "watch", "create", "update", "delete")),
        (_OURS, "networktopologies", (*READ, "patch")),
        (_OURS, "deviceexposurepolicies", READ),
        (_OURS, "customdevices", READ),
        (_OURS, "nodenetworks", READ),
        (_OURS, "networktopologyusages", (*READ, "create", "patch")),
        (_OURS, "deviceexposurepolicyrollouts", (*READ, "create", "patch")),
        (_OURS, "customdevicerollouts", (*READ, "create", "patch")),
        (_OURS, "cniplugins", (*READ, "patch")),
        (_OURS, "cniplugins/status", ("patch",)),
        (_OURS, "cniplugins/finalizers", ("update",)),
        (_OURS, "networktopologies/status", ("patch",)),
        (_OURS, "deviceexposurepolicies/status", ("patch",)),
        (_OURS, "networktopologies/finalizers", ("update",)),
        (_CNI, "cnipluginschemas", (*READ, "delete")),
        (_CNI, "cnipluginschemas/status", ("patch",)),
        _EVENTS,
    ),
    "webhook": (
        ("", "nodes", READ),
        (_OURS, "networktopologies", READ),
        (_OURS, "deviceexposurepolicies", READ),
        (_OURS, "customdevices", READ),
        (_OURS, "nodenetworks", READ),
        (_OURS, "podnetworks", READ),
        ("networking.k8s.io", "servicecidrs", READ),
        (_CNI, "cnipluginschemas", READ),
        (_DRA, "deviceclasses", READ),
        (_DRA, "resourceclaims", ("list",)),
        (
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            (*READ, "patch"),
            (_NAME, f"{_NAME}-claims"),
        ),
    ),
}
_OF_OPTIONS: Mapping[str, Mapping[str, tuple[_Row, ...]]] = {
    "node": {
        "Neutron": ((_OURS, "neutronports", (*READ, "patch")),),
        "the device registry": (("authentication.k8s.io", "tokenreviews", ("create",)),),
    },
    "controller": {
        "Neutron": (
            ("", "nodes", ("list",)),
            ("", "namespaces", ("get",), ("kube-system",)),
            (_OURS, "neutronports", (*READ, "create", "patch", "delete")),
            (_OURS, "neutronports/status", ("patch",)),
            (_OURS, "neutronports/finalizers", ("update",)),
        ),
        "CNIPlugins": ((_CNI, "cnipluginschemas", ("create", "update")),),
    },
    "webhook": {
        "Neutron": ((_OURS, "neutronports", ("list",)),),
        "checks of pods": (
            (_DRA, "resourceclaims", ("get",)),
            (_DRA, "resourceclaimtemplates", ("get",)),
        ),
    },
}
"""By process, and by what an installation may be without, the rights that are for that alone."""
_IN_NAMESPACE: Mapping[str, tuple[_Row, ...]] = {
    "node": (),
    "controller": (
        ("coordination.k8s.io", "leases", ("create",)),
        ("coordination.k8s.io", "leases", ("get", "update"), (names.CONTROLLER_LEASE, "netdra-neutron")),
    ),
    "webhook": (
        ("", "secrets", ("create",)),
        ("", "secrets", (*READ, "update"), (f"{_NAME}-webhook",)),
    ),
}
_TO_INSTALL: tuple[_Row, ...] = (
    ("apps", "daemonsets", (*READ, "create", "patch")),
    ("", "pods", READ),
)


def to_keep_a_certificate(installation: str = "netdra") -> frozenset[str]:
    """The webhook's rights where it keeps its own certificate; with a mounted one it does not have them."""
    own = (
        right
        for right in needed("webhook", installation)
        if right.resource in {"secrets", "validatingwebhookconfigurations"}
    )
    return frozenset(map(str, own))


def needed(process: str, installation: str = "netdra") -> tuple[Right, ...]:
    """Every right of a process: one of `PROCESSES`, of an installation whose objects have this name.

    With all that an installation may have.
    """
    return (
        *_rights(_WIDE[process], installation, namespaced=False),
        *_rights(_IN_NAMESPACE[process], installation, namespaced=True),
        *(right for rights in of_options(process).values() for right in rights),
    )


def of_options(process: str) -> Mapping[str, tuple[Right, ...]]:
    """By optional feature of an installation, the rights of a process for that feature alone."""
    wide = {option: (*_rights(rows, "", namespaced=False),) for option, rows in _OF_OPTIONS[process].items()}
    if process != "controller":
        return wide
    return {**wide, "CNIPlugins": (*wide["CNIPlugins"], *_rights(_TO_INSTALL, "", namespaced=True))}


def _rights(rows: tuple[_Row, ...], installation: str, *, namespaced: bool) -> Iterator[Right]:
    for group, kind, verbs, *named in rows:
        resource, _, subresource = kind.partition("/")
        for verb in verbs:
            for name in named[0] if named else ("",):
                yield Right(
                    verb=verb,
                    group=group,
                    resource=resource,
                    subresource=subresource,
                    name=name.replace(_NAME, installation),
                    namespaced=namespaced,
                )
