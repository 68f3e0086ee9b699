"""What is looked at in a cluster, and what it means: one finding a check, with what to do. Pure.

The facts are filled by `cluster_look`; `verdicts` is called by `netdra doctor`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from netdra.doctor.diagnosis import Diagnosis, Level
from netdra.doctor.rights import to_keep_a_certificate
from netdra.model.device import Features
from netdra.model.suggestions import listed

PART_LABEL, VERSION_LABEL = "app.kubernetes.io/component", "app.kubernetes.io/version"
NETDRA_PODS = "app.kubernetes.io/part-of=netdra"
"""What says of pods that they are netdra's, which process they run, and of which version they are."""

API_SINCE, COUNTERS_SINCE = (1, 34), (1, 36, 2)
SOON = timedelta(days=14)
NAMED = 5
NRI_OF_CRIO = "[crio.nri] enable_nri = true"
AS_ADMINISTRATOR = "ask with a kubeconfig that may read it: netdra doctor --kubeconfig"


class Unseen(msgspec.Struct, frozen=True):
    """What could not be looked at, and why."""

    why: str


class Definition(msgspec.Struct, frozen=True):
    """A CustomResourceDefinition: whether it is there, served, and what of netdra's schema it lacks."""

    name: str
    there: bool = False
    established: bool = False
    differs: tuple[str, ...] = ()


class WebhookFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The webhook as the API server sees it.

    Attributes:
        configurations: name -> when the newest authority that it trusts ends; None if it trusts none.
        missing: configurations that are not there.
        answer: what became of an object that the webhook refuses: asked, unasked, or the error of asking.
    """

    configurations: Mapping[str, datetime | None] = {}
    missing: tuple[str, ...] = ()
    answer: str = "asked"


class KubernetesNode(msgspec.Struct, frozen=True):
    """A node's kubelet and container runtime."""

    name: str
    kubelet: str
    runtime: str


class Component(msgspec.Struct, frozen=True):
    """A pod of netdra's: its name, its part and its version, "" where labels do not say."""

    pod: str
    part: str
    version: str


class Reported(msgspec.Struct, frozen=True):
    """A node's NodeNetwork: how many problems it tells of, and the policies that it follows in an older form."""

    node: str
    problems: int = 0
    behind: tuple[str, ...] = ()


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster. Each part is what was seen, or why it was not.

    Attributes:
        server: the API server's version, `v1.37.1`.
        namespace, name: where netdra is, and what its objects are called.
        dra: the versions of resource.k8s.io that it serves, the preferred one first.
        features: what it keeps of a slice.
        definitions: netdra's kinds.
        webhook: see there.
        lacking: process -> the rights that it does not have.
        nodes: all nodes.
        components: netdra's pods.
        reports: what nodes say of themselves.
    """

    server: str
    namespace: str = "netdra"
    name: str = "netdra"
    dra: tuple[str, ...] | Unseen = ()
    features: Features | Unseen = Unseen("not asked")
    definitions: tuple[Definition, ...] | Unseen = ()
    webhook: WebhookFacts | Unseen = Unseen("not asked")
    lacking: Mapping[str, tuple[str, ...]] | Unseen = {}
    nodes: tuple[KubernetesNode, ...] | Unseen = ()
    components: tuple[Component, ...] | Unseen = ()
    reports: tuple[Reported, ...] | Unseen = ()


class Shortcoming(msgspec.Struct, frozen=True):
    """What a container runtime's versions, from one on and before another, cannot do, or only if they are told to."""

    runtime: str
    since: tuple[int, ...]
    before: tuple[int, ...]
    level: Level
    seen: str
    fix: str

    def is_of(self, node: KubernetesNode) -> bool:
        """Whether a node's runtime is of these versions."""
        runtime, _, version = node.runtime.partition("://")
        return runtime == self.runtime and self.since <= number(version) < self.before


SHORTCOMINGS = (
    Shortcoming("containerd", (), (1, 7), "error", "have no NRI", "upgrade containerd to 2.2 or later"),
    Shortcoming("cri-o", (), (1, 26), "error", "have no NRI", "upgrade CRI-O to 1.30 or later"),
    Shortcoming(
        "containerd",
        (1, 7),
        (2, 0),
        "warning",
        "have NRI and CDI only where they are switched on",
        "[plugins.'io.containerd.nri.v1.nri'] disable = false; [plugins.'io.containerd.grpc.v1.cri'] enable_cdi = true",
    ),
    # The sandbox of a pod that a plugin refuses keeps its name reserved (`RunPodSandbox` in internal/cri/server).
    Shortcoming(
        "containerd",
        (2, 0),
        (2, 2),
        "warning",
        "may not start again after a pod was refused: its sandbox is left over",
        "upgrade containerd to 2.2 or later",
    ),
    Shortcoming("cri-o", (1, 26), (1, 30), "warning", "have NRI only where it is switched on", NRI_OF_CRIO),
)
"""Which versions of which runtime netdra does not work with as they are; docs/nri.md has those that it is tested on."""


def verdicts(facts: ClusterFacts, own_version: str, now: datetime) -> list[Diagnosis]:
    """All findings about a cluster, in the order of `netdra doctor`.

    Args:
        facts: the cluster's.
        own_version: of the netdra that asks.
        now: the time, with its zone.
    """
    return [
        _server(facts),
        _dra(facts),
        *_gates(facts),
        *_definitions(facts),
        *_webhook(facts, now),
        *_rights(facts),
        *_nodes(facts),
        *_components(facts, own_version),
        *_reports(facts),
    ]


def unreachable(why: str) -> list[Diagnosis]:
    """The finding about a cluster that does not answer."""
    return [_finding("API server", "error", why, "is it up, and is this its kubeconfig? name one with --kubeconfig")]


def not_looked_at(why: str, fix: str = "name a kubeconfig with --kubeconfig") -> list[Diagnosis]:
    """The finding where there is no cluster to look at, or nothing to look with."""
    return [_finding("API server", "warning", f"not looked at: {why}", fix)]


def _finding(check: str, level: Level, seen: str, fix: str = "") -> Diagnosis:
    return Diagnosis("cluster", check, level, seen, fix)


def _unseen(check: str, what: Unseen) -> Diagnosis:
    return _finding(check, "warning", f"could not be seen: {what.why}", AS_ADMINISTRATOR)


def _server(facts: ClusterFacts) -> Diagnosis:
    version = number(facts.server)
    if version < API_SINCE:
        return _finding("API server", "error", facts.server, "netdra needs Kubernetes 1.34 or later")
    if version < COUNTERS_SINCE:
        seen = f"{facts.server}: personas of one NIC exclude each other from 1.36.2 on"
        return _finding("API server", "warning", seen, "upgrade; until then a NIC has one persona")
    return _finding("API server", "ok", facts.server)


def _dra(facts: ClusterFacts) -> Diagnosis:
    if isinstance(facts.dra, Unseen):
        return _unseen("resource.k8s.io", facts.dra)
    if "v1" in facts.dra:
        return _finding("resource.k8s.io", "ok", ", ".join(facts.dra))
    seen = f"serves {', '.join(facts.dra) or 'nothing of it'}, not v1"
    return _finding("resource.k8s.io", "error", seen, "kube-apiserver --runtime-config=resource.k8s.io/v1=true")


def _gates(facts: ClusterFacts) -> Iterator[Diagnosis]:
    if isinstance(facts.features, Unseen):
        yield _unseen("feature gates", facts.features)
        return
    for gate, on, lost in _features(facts.features):
        if on:
            yield _finding(gate, "ok", "on")
        else:
            fix = f"--feature-gates={gate}=true on kube-apiserver and kube-scheduler"
            yield _finding(gate, "warning", f"off: {lost}", fix)
    listed = "on" if facts.features.list_attributes else "off, as it is by default: supportedCNIs is published as text"
    yield _finding("DRAListTypeAttributes", "ok", listed)


def _features(features: Features) -> tuple[tuple[str, bool, str], ...]:
    return (
        ("DRAPartitionableDevices", features.partitionable_devices, "a NIC has one persona"),
        ("DRAConsumableCapacity", features.consumable_capacity, "no device can be shared by several claims"),
        ("DRADeviceTaints", features.device_taints, "nothing keeps claims off a device without a link or in trouble"),
    )


def _definitions(facts: ClusterFacts) -> Iterator[Diagnosis]:
    if isinstance(facts.definitions, Unseen):
        yield _unseen("CustomResourceDefinitions", facts.definitions)
        return
    sound = [
        definition.name
        for definition in facts.definitions
        if definition.there and definition.established and not definition.differs
    ]
    if sound:
        yield _finding("CustomResourceDefinitions", "ok", ", ".join(sound))
    for definition in facts.definitions:
        if definition.name not in sound:
            yield _definition(definition)


def _definition(definition: Definition) -> Diagnosis:
    fix = "netdra crds | kubectl apply --server-side -f -"
    if not definition.there:
        return _finding(f"CRD {definition.name}", "error", "is not there", fix)
    if not definition.established:
        return _finding(f"CRD {definition.name}", "error", "is not served", f"kubectl describe crd {definition.name}")
    places = listed(definition.differs, NAMED)
    return _finding(f"CRD {definition.name}", "error", f"is of another version of netdra: {places}", fix)


def _webhook(facts: ClusterFacts, now: datetime) -> Iterator[Diagnosis]:
    webhook = facts.webhook
    if isinstance(webhook, Unseen):
        yield _unseen("webhook", webhook)
        return
    for name in webhook.missing:
        seen = "is not there: nothing is checked when it is written"
        yield _finding(f"webhook configuration {name}", "error", seen, "helm upgrade installs it")
    for name, end in webhook.configurations.items():
        yield _authority(
            name, end, now, f"does netdra webhook run? kubectl -n {facts.namespace} logs deploy/{facts.name}-webhook"
        )
    if webhook.configurations:
        yield _answer(webhook, facts.namespace)


def _authority(name: str, end: datetime | None, now: datetime, fix: str) -> Diagnosis:
    check = f"webhook configuration {name}"
    if end is None:
        return _finding(check, "error", "trusts nobody: the API server cannot call the webhook", fix)
    seen = f"trusts an authority until {end:%Y-%m-%d}"
    if end <= now:
        return _finding(check, "error", f"{seen}, which is over", fix)
    if end - now < SOON:
        return _finding(check, "warning", f"{seen}, and should have been renewed", fix)
    return _finding(check, "ok", seen)


def _answer(webhook: WebhookFacts, namespace: str) -> Diagnosis:
    if webhook.answer == "asked":
        return _finding("webhook", "ok", "refuses what is wrong")
    fix = f"kubectl -n {namespace} get pods,endpointslices; is port 8443 open from the API server?"
    if webhook.answer == "unasked":
        return _finding("webhook", "error", "the API server takes a wrong policy without asking it", fix)
    return _finding("webhook", "error", webhook.answer, fix)


def _rights(facts: ClusterFacts) -> Iterator[Diagnosis]:
    if isinstance(facts.lacking, Unseen):
        yield _unseen("rights", facts.lacking)
        return
    for process, lacking in facts.lacking.items():
        if process == "webhook" and set(lacking) == to_keep_a_certificate(facts.name):
            yield _finding(
                "rights of netdra webhook", "ok", "has all that it needs with --certificates, and not without"
            )
        elif lacking:
            fix = "helm upgrade installs the roles; kubectl auth can-i VERB KIND --as=system:serviceaccount:"
            account = f"{facts.namespace}:{facts.name}-{process}"
            yield _finding(f"rights of netdra {process}", "error", f"may not: {listed(lacking, NAMED)}", fix + account)
        else:
            yield _finding(f"rights of netdra {process}", "ok", "has all that it needs")


def _nodes(facts: ClusterFacts) -> Iterator[Diagnosis]:
    if isinstance(facts.nodes, Unseen):
        yield _unseen("nodes", facts.nodes)
        return
    old = [f"{node.name} {node.kubelet}" for node in facts.nodes if number(node.kubelet) < API_SINCE]
    if old:
        seen = f"of {len(old)} nodes older than 1.34: {listed(old, NAMED)}"
        yield _finding("kubelets", "error", seen, "upgrade them: they do not prepare claims of resource.k8s.io/v1")
    else:
        yield _finding("kubelets", "ok", _versions(node.kubelet for node in facts.nodes) or "no nodes")
    yield from _runtimes(facts.nodes)


def _runtimes(nodes: Sequence[KubernetesNode]) -> Iterator[Diagnosis]:
    """What is known of the nodes' runtimes; of one that is not known, nothing is said."""
    for shortcoming in SHORTCOMINGS:
        bad = [f"{node.name} {node.runtime}" for node in nodes if shortcoming.is_of(node)]
        if bad:
            yield _finding(
                "container runtimes",
                shortcoming.level,
                f"of {len(bad)} nodes {shortcoming.seen}: {listed(bad, NAMED)}",
                shortcoming.fix,
            )
    well = [node.runtime for node in nodes if not any(shortcoming.is_of(node) for shortcoming in SHORTCOMINGS)]
    if well:
        yield _finding("container runtimes", "ok", _versions(well))


def _components(facts: ClusterFacts, own: str) -> Iterator[Diagnosis]:
    if isinstance(facts.components, Unseen):
        yield _unseen("versions of netdra", facts.components)
        return
    versions = {component.version for component in facts.components if component.version}
    if not facts.components:
        seen = f"no pod with the label {NETDRA_PODS} in namespace {facts.namespace}"
        yield _finding(
            "versions of netdra", "warning", seen, "is it installed in another one? name it with --namespace"
        )
    elif versions - {own}:
        told = [
            f"{component.part or component.pod} {component.version}"
            for component in facts.components
            if component.version
        ]
        seen = f"{listed(dict.fromkeys(told), NAMED)}; this is {own}"
        fix = f"roll all out in one version; kubectl -n {facts.namespace} get pods -L {VERSION_LABEL}"
        yield _finding("versions of netdra", "warning", seen, fix)
    elif silent := [component.pod for component in facts.components if not component.version]:
        seen = f"not told by the labels of {listed(silent, NAMED)}"
        yield _finding("versions of netdra", "warning", seen, f"label the pods with {VERSION_LABEL}")
    else:
        parts = sorted({component.part for component in facts.components if component.part})
        yield _finding("versions of netdra", "ok", f"{own}: {', '.join(parts) or f'{len(facts.components)} pods'}")


def _reports(facts: ClusterFacts) -> Iterator[Diagnosis]:
    """Whether nodes say what they offer, of the policies as they are now, and without problems."""
    check, reports = "reports of nodes", facts.reports
    if isinstance(reports, Unseen):
        yield _unseen(check, reports)
        return
    behind = [report.node for report in reports if report.behind]
    troubled = [report.node for report in reports if report.problems]
    if facts.nodes and not reports:
        fix = f"kubectl -n {facts.namespace} get pods: does netdra node run, and may it write NodeNetworks?"
        yield _finding(check, "warning", "no node has a NodeNetwork", fix)
    if behind:
        seen = f"{len(behind)} nodes follow older forms of policies: {listed(behind, NAMED)}"
        yield _finding(check, "warning", seen, "look at netdra's pod there, unless a policy was changed just now")
    if troubled:
        seen = f"{len(troubled)} nodes tell of problems: {listed(troubled, NAMED)}"
        yield _finding(
            check, "warning", seen, f"kubectl get nodenetwork {troubled[0]} -o jsonpath='{{.status.problems}}'"
        )
    if not behind and not troubled and (reports or not facts.nodes):
        yield _finding(check, "ok", f"{len(reports)} nodes, no problems" if reports else "no nodes")


def number(version: str) -> tuple[int, ...]:
    """`v1.37.1-rc.0+x` as (1, 37, 1)."""
    parts = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(map(int, parts[1].split("."))) if parts else (0,)


def _versions(versions: Iterable[str]) -> str:
    return ", ".join(sorted(set(versions)))
