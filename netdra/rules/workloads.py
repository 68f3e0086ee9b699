"""Workloads against the claims, topologies and classes that they use: pods that will not start, or not as meant. Pure.

Called by `netdra validate`, and by the webhook, to which all are warnings: it refuses no pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from netdra.model import names, suggestions
from netdra.model.claim import DeviceClaim, DeviceClass, ResourceClaim, ResourceClaimTemplate, device_claim
from netdra.model.core import PodClaim
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path
from netdra.model.metadata_rules import quoted_ascii
from netdra.model.pod_network import PodNetwork
from netdra.model.topology import MOVING_TYPES, NetworkTopology
from netdra.model.workload import Workload
from netdra.networks import shares
from netdra.rules import forecasts
from netdra.rules.classes import check_class
from netdra.rules.values import written_addresses
from netdra.topology import parameters as parameters_of
from netdra.topology.bind import unbound
from netdra.topology.classes import known_classes, parameters
from netdra.topology.facts import POD
from netdra.topology.selectors import choices, is_about_driver, is_for

_USERSPACE = frozenset({"vfio-pci"})
"""Types of steps that give a device to a driver in userspace."""
_HUGEPAGES = "hugepages-"
_CLAIM, _TEMPLATE = ResourceClaim.__name__, ResourceClaimTemplate.__name__
IN_FILES = " in these files"
"""What objects are that are read from files, as messages name it."""

Claim = ResourceClaim | ResourceClaimTemplate


class Wrong(msgspec.Struct, frozen=True):
    """A finding about a workload.

    Attributes:
        certain: whether the API server, Kubernetes or netdra refuses it; else it is hardly meant so.
        quotes: whether its text has values of a claim, which not every user may read.
    """

    finding: Finding
    certain: bool = True
    quotes: bool = False


class Objects(msgspec.Struct, frozen=True):
    """The objects that workloads can use.

    Attributes:
        claims: claims and templates by kind, namespace and name; the namespace is "" where none is written.
        topologies, classes: by name.
        where: what these objects are, as messages name them; "" if they are all that the cluster has.
        has_claims: whether claims were read at all; if not, none is reported as missing.
    """

    claims: Mapping[tuple[str, str, str], Claim]
    topologies: Mapping[str, NetworkTopology]
    classes: Mapping[str, DeviceClass]
    where: str = IN_FILES
    has_claims: bool = True

    def find(self, kind: str, namespace: str, name: str) -> Claim | None:
        """The object that a pod means: one of its namespace; one without a namespace is created where the pod is."""
        places = dict.fromkeys((namespace, "")) if namespace else dict.fromkeys(place for _, place, _ in self.claims)
        keys = ((kind, place, name) for place in places)
        return next((self.claims[key] for key in keys if key in self.claims), None)

    def asked(self, claim: Claim) -> list[NetworkTopology]:
        """The topologies whose devices a claim asks for."""
        found: dict[str, NetworkTopology] = {}
        for request in device_claim(claim)[0].requests:
            for choice in choices(request):
                device_class = self.classes.get(choice.device_class_name)
                for config in device_class.spec.config if device_class is not None else ():
                    meant = parameters(config.opaque, f'DeviceClass "{choice.device_class_name}"')
                    name = meant.network_topology_ref.name if meant is not None else ""
                    if name in self.topologies:
                        found[name] = self.topologies[name]
        return [*found.values()]

    def is_ours(self, wanted: DeviceClaim) -> bool:
        """Whether a claim asks for devices of netdra."""
        return is_for(wanted, {name for name, entry in self.classes.items() if _is_ours(entry)})


class UsedClaim:
    """A claim, or the template of one, that a workload uses.

    Attributes:
        name: the claim's name in the pod.
        place: of the pod's entry.
        field: of the pod's entry that names the claim.
        topologies: those whose devices it asks for.
        is_ours: whether it asks for devices of netdra.
    """

    def __init__(self, name: str, place: Path, claim: Claim, objects: Objects) -> None:
        self.name, self.claim = name, claim
        self.place, self.field = place, (*place, _field_of(claim))
        self.wanted = device_claim(claim)[0]
        self.topologies = objects.asked(claim)
        self.is_ours = objects.is_ours(self.wanted)


def known_objects(objects: Iterable[object]) -> Objects:
    """The objects of files that workloads can use; classes that cannot be used are left out."""
    every = [*objects]
    topologies = {each.name: each for each in every if isinstance(each, NetworkTopology)}
    networks = (each for each in every if isinstance(each, PodNetwork))
    written = (each for each in every if isinstance(each, DeviceClass) and not check_class(each))
    classes = [*shares.device_classes(networks), *written]
    claims = (each for each in every if isinstance(each, ResourceClaim | ResourceClaimTemplate))
    return Objects(
        claims={(each.kind, each.metadata.namespace, each.metadata.name): each for each in claims},
        topologies=topologies,
        classes=known_classes(topologies.values(), classes),
    )


def check(workload: Workload, objects: Objects) -> Iterator[Wrong]:
    """The errors in one workload."""
    entries = workload.spec.resource_claims or ()
    yield from _entries(workload, entries)
    yield from _listed(workload, entries)
    used: dict[str, UsedClaim] = {}
    for at, entry in enumerate(entries):
        place = (*workload.place, "resourceClaims", at)
        claim, wrong = _claim(workload, entry, place, objects)
        yield from wrong
        if claim is not None:
            used[entry.name] = UsedClaim(entry.name, place, claim, objects)
            yield from _pods(workload, used[entry.name])
    yield from _requested(workload, used)
    yield from _unlisted(workload, entries, used)
    ours = {name: claim for name, claim in used.items() if claim.is_ours}
    yield from _userspace(workload, ours)
    yield from _resources(workload, ours, objects)


def check_together(workloads: Sequence[Workload], objects: Objects) -> Iterator[tuple[Workload, Wrong]]:
    """The errors in several workloads: a claim whose device goes into one pod, and that several name."""
    users: dict[tuple[str, str], Workload] = {}
    for workload in workloads:
        for at, entry in enumerate(workload.spec.resource_claims or ()):
            name = entry.resource_claim_name or ""
            claim = objects.find(_CLAIM, workload.metadata.namespace, name)
            first = users.setdefault((workload.metadata.namespace, name), workload) if name else workload
            if claim is None or first is workload or not (moved := _moved(objects.asked(claim))):
                continue
            what = (
                f'{workload.called}, claim "{entry.name}": {first.called} also uses ResourceClaim '
                f'"{name}", but {moved} moves the device into one pod'
            )
            place = (*workload.place, "resourceClaims", at)
            yield workload, Wrong(Finding(what, _OWN_CLAIM, (*place, "resourceClaimName"), code="ND1215"))


_OWN_CLAIM = "create one claim per pod: resourceClaimTemplateName"


def _entries(workload: Workload, entries: Sequence[PodClaim]) -> Iterator[Wrong]:
    seen: set[str] = set()
    for at, entry in enumerate(entries):
        place = (*workload.place, "resourceClaims", at)
        named = [entry.resource_claim_name, entry.resource_claim_template_name]
        if sum(map(bool, named)) != 1:
            what = (
                f'{workload.called}, claim "{entry.name}" refers to '
                f"{('both' if all(named) else 'neither')} a ResourceClaim "
            )
            what += "and a template" if all(named) else "nor a template"
            hint = f"{'remove' if all(named) else 'set'} resourceClaimName or resourceClaimTemplateName"
            yield Wrong(Finding(what, hint, place, code="ND1216"))
        if entry.name in seen:
            what = f'{workload.called} has two claims with the name "{entry.name}"'
            yield Wrong(Finding(what, "use unique names", (*place, "name"), code="ND1217"))
        elif not names.is_label(entry.name):
            rule = "a name is up to 63 of a-z, 0-9 and -, letters or digits at both ends"
            yield Wrong(
                Finding(
                    f"{workload.called}: claim name {quoted_ascii(entry.name)} is not valid",
                    rule,
                    (*place, "name"),
                    code="ND1218",
                )
            )
        seen.add(entry.name)
        for field, name in (
            ("resourceClaimName", entry.resource_claim_name),
            ("resourceClaimTemplateName", entry.resource_claim_template_name),
        ):
            if name and not names.is_subdomain(name):
                what = f'{workload.called}, claim "{entry.name}": {field} {quoted_ascii(name)} is not valid'
                rule = "a name is up to 253 of a-z, 0-9, - and ., letters or digits at both ends"
                yield Wrong(Finding(what, rule, (*place, field), code="ND1219"))


def _listed(workload: Workload, entries: Sequence[PodClaim]) -> Iterator[Wrong]:
    """Claims that containers list and the pod does not have: the API server refuses such a pod."""
    known = [entry.name for entry in entries]
    for container, place in workload.containers():
        counted = Counter((listed.name, listed.request) for listed in container.listed)
        whole = {name for name, request in counted if not request}
        for at, listed in enumerate(container.listed):
            if listed.request and not names.is_label(listed.request):
                what = (
                    f'{workload.called}, container "{container.name}": request {quoted_ascii(listed.request)} of claim '
                    f'"{listed.name}" is not valid'
                )
                rule = "a request's name is up to 63 of a-z, 0-9 and -, letters or digits at both ends"
                yield Wrong(Finding(what, rule, (*place, "resources", "claims", at, "request"), code="ND1220"))
            elif listed.name not in known:
                what = (
                    f'{workload.called}, container "{container.name}" lists claim "{listed.name}", '
                    "which is not a claim of the pod"
                )
                hint = suggestions.hint(listed.name, known, "the pod's claims are") or "add it to resourceClaims"
                yield Wrong(Finding(what, hint, (*place, "resources", "claims", at, "name"), code="ND1221"))
            elif counted.pop((listed.name, listed.request), 1) > 1 or (listed.request and listed.name in whole):
                what = f'{workload.called}, container "{container.name}" lists claim "{listed.name}" twice'
                yield Wrong(
                    Finding(what, "remove one of them", (*place, "resources", "claims", at, "name"), code="ND1222")
                )


def _requested(workload: Workload, used: Mapping[str, UsedClaim]) -> Iterator[Wrong]:
    """Requests that containers name and the claim lacks: the container gets no device."""
    for container, place in workload.containers():
        for at, listed in enumerate(container.listed):
            claim = used.get(listed.name)
            known = [request.name for request in claim.wanted.requests] if claim is not None else []
            if known and names.is_label(listed.request) and listed.request not in known:
                what = (
                    f'{workload.called}, container "{container.name}": claim "{listed.name}" does not '
                    f"have a request {quoted_ascii(listed.request)}; the container does not get a device of "
                    "it"
                )
                hint = suggestions.hint(listed.request, known, "its requests are")
                yield Wrong(
                    Finding(what, hint, (*place, "resources", "claims", at, "request"), code="ND1223"), certain=False
                )


def _claim(workload: Workload, entry: PodClaim, place: Path, objects: Objects) -> tuple[Claim | None, Sequence[Wrong]]:
    """The object of an entry, or why none exists."""
    if bool(entry.resource_claim_name) == bool(entry.resource_claim_template_name):
        return None, ()
    if not names.is_subdomain(entry.resource_claim_name or entry.resource_claim_template_name or ""):
        return None, ()  # `_entries` reports it
    kind, field = (
        (_CLAIM, "resourceClaimName") if entry.resource_claim_name else (_TEMPLATE, "resourceClaimTemplateName")
    )
    name = entry.resource_claim_name or entry.resource_claim_template_name or ""
    namespace = workload.metadata.namespace
    found = objects.find(kind, namespace, name)
    if found is not None or not objects.has_claims:
        return found, ()
    swapped = objects.find(_TEMPLATE if kind == _CLAIM else _CLAIM, namespace, name)
    where = f' in namespace "{namespace}"' if namespace else ""
    what = f'{workload.called}, claim "{entry.name}": {kind} "{name}" not found{where}{objects.where}'
    finding = Finding(what, _missing_hint(kind, namespace, name, swapped, objects), (*place, field), code="ND1224")
    return None, [Wrong(finding, certain=swapped is not None)]


def _missing_hint(kind: str, namespace: str, name: str, swapped: Claim | None, objects: Objects) -> str:
    """The next step for a claim that does not exist; `swapped` is the object of the name and the other kind."""
    elsewhere = sorted(place for other, place, named in objects.claims if (other, named) == (kind, name))
    if elsewhere:
        hint = f'it exists in namespace "{elsewhere[0]}", but a pod can only use claims of its own namespace'
    elif swapped is not None:
        hint = f'"{name}" is a {swapped.kind}: set {_field_of(swapped)}'
    else:
        places = (namespace, "") if namespace else {place for _, place, _ in objects.claims}
        others = [named for other, place, named in objects.claims if other == kind and place in places]
        near = suggestions.closest(name, others)
        add = "add its file, unless it already exists in the cluster" if objects.where else "create it"
        hint = f'did you mean "{near}"?' if near else add
    return hint


def _field_of(claim: Claim) -> str:
    return "resourceClaimName" if isinstance(claim, ResourceClaim) else "resourceClaimTemplateName"


def _pods(workload: Workload, used: UsedClaim) -> Iterator[Wrong]:
    """The errors of several pods: one claim for all of them, too few values, an address that each of them gets."""
    called = f'{workload.called}, claim "{used.name}"'
    is_several = workload.pods is None or workload.pods > 1
    yield from _by_name(workload, used)
    if isinstance(used.claim, ResourceClaim):
        if is_several and (moved := _moved(used.topologies)):
            count = "pods on each node" if workload.pods is None else f"{workload.pods} pods"
            what = f'{called}: {count} share ResourceClaim "{used.claim.metadata.name}", but {moved} moves the device '
            yield Wrong(Finding(f"{what}into one of them", _OWN_CLAIM, used.field, code="ND1225"))
        return
    last = _last_ordinal(workload)
    try:
        given = [
            values
            for config in used.wanted.config
            if (values := parameters_of.values_of(config.opaque, called)) is not None
        ]
    except InvalidInputError:
        return  # it is a problem of the claim's
    for topology in used.topologies:
        try:
            addresses = [
                _addresses(topology, parameters_of.together(given, ordinal))
                for ordinal in ([last] if last is None or not is_several else [workload.first, last])
            ]
        except InvalidInputError as problem:
            if any(values.per_pod for values in given):
                finding = Finding(f"{called}: {problem.what}", problem.hint, used.field, code=problem.code)
                yield Wrong(finding, quotes=True)
            return
        if is_several and (common := set.intersection(*addresses)):
            what = f'{called}: each of its pods gets address {min(common)} from NetworkTopology "{topology.name}"'
            hint = "set it in a claim (perPod, in a StatefulSet), or use an IPAM plugin with a range"
            yield Wrong(Finding(what, hint, used.field, code="ND1226"), certain=False, quotes=True)


def _by_name(workload: Workload, used: UsedClaim) -> Iterator[Wrong]:
    """Topologies in which the names or ordinals of pods stand (decision D63), of pods without, or of several pods."""
    called, last = f'{workload.called}, claim "{used.name}"', _last_ordinal(workload)
    is_several = workload.pods is None or workload.pods > 1
    for topology in used.topologies:
        named = [
            str(reference)
            for step in topology.spec.steps
            for reference in forecasts.facts_of(step)
            if reference.step == POD and reference.field != "namespace"
        ]
        if named and is_several and isinstance(used.claim, ResourceClaim):
            what = (
                f'{called}: several pods share ResourceClaim "{used.claim.metadata.name}", but {named[0]} '
                f'of NetworkTopology "{topology.name}" is specific to one pod'
            )
            yield Wrong(Finding(what, _OWN_CLAIM, used.field, code="ND1227"))
            continue
        for ordinal in dict.fromkeys((workload.first, last) if last is not None and is_several else (last,)):
            foreseen = next(forecasts.of_ordinal(topology, ordinal), None)
            if foreseen is not None:
                finding, fails = foreseen
                pod = f", pod {ordinal}" if ordinal is not None else ""
                shown = Finding(f"{called}{pod}: {finding.what}", finding.hint, used.field, code=finding.code)
                yield Wrong(shown, certain=fails)
                break


def _last_ordinal(workload: Workload) -> int | None:
    """The ordinal of the last pod; None of pods without."""
    if workload.kind == "StatefulSet":
        return workload.first + max(0, (workload.pods or 1) - 1)
    return parameters_of.ordinal_in(workload.metadata.name) if workload.kind == "Pod" else None


def _addresses(topology: NetworkTopology, given: Mapping[str, object]) -> set[str]:
    """The addresses that are written for a pod, with a claim's values; those that are unknown are left out.

    Raises:
        InvalidInputError: the topology or a value is wrong.
    """
    values = parameters_of.complete(topology.name, topology.spec.parameters, given)
    return {text for step in unbound(topology, values).steps for _, text in written_addresses(step) if "{{" not in text}


def _moved(topologies: Iterable[NetworkTopology]) -> str:
    """The first step that moves a device into a pod, as messages name it; "" if none does."""
    moving = (
        f'step "{step.name}" of NetworkTopology "{topology.name}"'
        for topology in topologies
        for step in topology.spec.steps
        if step.is_root and step.type in MOVING_TYPES
    )
    return next(moving, "")


def _unlisted(workload: Workload, entries: Sequence[PodClaim], used: Mapping[str, UsedClaim]) -> Iterator[Wrong]:
    """Claims that no container lists: none of them is held back until the network is complete."""
    containers = workload.containers()
    listed = {each.name for container, _ in containers for each in container.listed}
    for at, entry in enumerate(entries if containers else ()):  # a virtual machine lists claims in its own way
        claim = used.get(entry.name)
        if entry.name not in listed and (claim is None or claim.is_ours):
            what = f'{workload.called}: no container lists claim "{entry.name}", so no container gets its devices'
            if claim is not None:
                what += ", and a container may start before the network is complete"
            hint = f"add {{name: {entry.name}}} to resources.claims of the containers that use it"
            yield Wrong(Finding(what, hint, (*workload.place, "resourceClaims", at), code="ND1228"), certain=False)


def _userspace(workload: Workload, ours: Mapping[str, UsedClaim]) -> Iterator[Wrong]:
    """Containers that get a device for a driver in userspace, and no hugepages."""
    for container, place in workload.containers():
        if any(name.startswith(_HUGEPAGES) for name in container.amounts):
            continue
        for at, listed in enumerate(container.listed):
            claim = ours.get(listed.name)
            steps = [step for topology in claim.topologies for step in topology.spec.steps] if claim else []
            if step := next((step for step in steps if step.type in _USERSPACE), None):
                what = (
                    f'{workload.called}, container "{container.name}" does not have hugepages, but '
                    f'step "{step.name}" ({step.type}) of claim "{listed.name}" is for a userspace '
                    "driver such as DPDK"
                )
                hint = "add limits, e.g. hugepages-1Gi: 2Gi, and a volume with emptyDir.medium: HugePages"
                yield Wrong(Finding(what, hint, (*place, "resources", "claims", at), code="ND1229"), certain=False)


def _resources(workload: Workload, ours: Mapping[str, UsedClaim], objects: Objects) -> Iterator[Wrong]:
    """Extended resources that no class provides, and pods on the host's network that ask for devices."""
    names_of_resources = {
        entry.spec.extended_resource_name: name
        for name, entry in objects.classes.items()
        if entry.spec.extended_resource_name
    }
    asked = ""
    for container, place in workload.containers():
        for resource in container.amounts:
            name = names_of_resources.get(resource, resource.removeprefix(names.IMPLICIT_RESOURCE))
            if name in objects.classes:
                asked = asked or (resource if _is_ours(objects.classes[name]) else "")
            elif resource.startswith(names.IMPLICIT_RESOURCE) and objects.classes:
                asks = f'{workload.called}, container "{container.name}" requests {resource}'
                what = f'{asks}, but DeviceClass "{name}" was not found{objects.where}'
                hint = suggestions.hint(name, objects.classes, "the classes are")
                yield Wrong(Finding(what, hint, (*place, "resources", "limits"), code="ND1230"), certain=False)
    if workload.spec.host_network and (ours or asked):
        wanted = f'claim "{next(iter(ours))}"' if ours else asked
        what = f"{workload.called} uses the host's network (hostNetwork), but requests network devices: {wanted}"
        hint = "remove hostNetwork: netdra does not start such a pod"
        yield Wrong(Finding(what, hint, (*workload.place, "hostNetwork"), code="ND1231"))


def _is_ours(device_class: DeviceClass) -> bool:
    spec = device_class.spec
    configured = any(config.opaque is not None and config.opaque.driver == names.DRIVER for config in spec.config)
    return configured or is_about_driver(spec.selectors)
