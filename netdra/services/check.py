"""Checks the Services that name a PodNetwork: why netdra writes no EndpointSlices for one.

Used by `netdra.controller.services.endpoints`, which reports it as an event, and by `netdra validate`.
"""

from __future__ import annotations

from collections.abc import Iterator

from netdra.model.findings import Finding
from netdra.model.names import is_label_value
from netdra.model.pod_network import PodNetwork
from netdra.model.service import NETWORK_LABEL, SELECTOR_ANNOTATION, Service
from netdra.services import selector
from netdra.services.endpoints import is_link_local, of_link_local

LABEL_PATH = ("metadata", "labels", NETWORK_LABEL)
_ANNOTATION = ("metadata", "annotations", SELECTOR_ANNOTATION)


def fault(service: Service) -> Finding | None:
    """Why a Service with the label gets no slices of netdra's, the event's reason as the rule; None if it gets them."""
    called = f'Service "{service.metadata.name}"'
    if service.spec.selector:
        what = f"{called} has spec.selector, so Kubernetes publishes the addresses of the cluster's own network"
        hint = f"create it again without the selector, and select pods with the annotation {SELECTOR_ANNOTATION}"
        return Finding(what, hint, ("spec", "selector"), "ServiceHasSelector", code="ND3015")
    if service.spec.type == "ExternalName":
        what = f"{called} is of type ExternalName, which has no endpoints"
        return Finding(what, path=("spec", "type"), rule="ServiceHasNoEndpoints", code="ND3016")
    if not service.selector:
        what = f"{called} has the label {NETWORK_LABEL} without the annotation {SELECTOR_ANNOTATION}"
        hint = "add it, with a label selector for the pods, e.g. app=web"
        return Finding(what, hint, LABEL_PATH, "WrongPodSelector", code="ND3017")
    wrong = selector.fault(service.selector)
    if wrong is not None:
        what = f'{called}, annotation {SELECTOR_ANNOTATION}: "{wrong}" is not a valid requirement on a label'
        hint = "use the form of kubectl -l, e.g. app=web"
        return Finding(what, hint, _ANNOTATION, "WrongPodSelector", code="ND3018")
    return None


def errors(service: Service) -> Iterator[Finding]:
    """The errors of a Service that has the label, as it is written."""
    called = f'Service "{service.metadata.name}", label {NETWORK_LABEL}'
    if not service.network or not is_label_value(service.network):
        what = f'{called}: "{service.network}" is not the name of a PodNetwork'
        yield Finding(what, "write the name of the PodNetwork, e.g. storage", LABEL_PATH, code="ND3019")
    found = fault(service)
    if found is not None:
        yield found


def warnings(service: Service, network: PodNetwork) -> Iterator[Finding]:
    """The ranges of a Service's PodNetwork whose addresses are not published."""
    for entry in network.spec.ranges:
        if is_link_local(entry.cidr):
            what, hint = of_link_local(f'range {entry.cidr} of PodNetwork "{network.name}"')
            yield Finding(f'Service "{service.metadata.name}": {what}', hint, LABEL_PATH, code="ND3020")
