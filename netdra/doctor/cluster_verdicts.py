"""The checks of a cluster: one finding each, with the next step. Pure.

The facts are filled by `cluster_look`; `verdicts` is called by `netdra doctor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import msgspec

from netdra.doctor.diagnosis import Diagnosis, Level, Unseen, diagnose, number
from netdra.doctor.rights import of_options, to_keep_a_certificate
from netdra.model.core import ClusterNode
from netdra.model.device import Features
from netdra.model.findings import Finding
from netdra.model.suggestions import listed

PART_LABEL, VERSION_LABEL = "app.kubernetes.io/component", "app.kubernetes.io/version"
NETDRA_PODS = "app.kubernetes.io/part-of=netdra"
"""What says of pods that they are netdra's, which process they run, and of which version they are."""

API_SINCE, COUNTERS_SINCE = (1, 34), (1, 36, 2)
SOON = timedelta(days=14)
NAMED = 5
VERSIONS = "versions of netdra"
"""The check of the versions of netdra's pods."""
STORED, FRAMES = "stored objects", "frames of VFs"
_VALIDATE = "netdra validate --cluster"
NRI_OF_CRIO = "[crio.nri] enable_nri = true"
AS_ADMINISTRATOR = "use a kubeconfig that is allowed to read it: netdra doctor --kubeconfig"


T = TypeVar("T")
_finding = partial(diagnose, "cluster")


class Definition(msgspec.Struct, frozen=True):
    """A CustomResourceDefinition: whether it exists, is served, and which parts of netdra's schema it lacks."""

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


class Component(msgspec.Struct, frozen=True):
    """A pod of netdra's.

    Attributes:
        pod: its name.
        part, version: from its labels, or "".
        has_cloud: whether it knows a cloud.
        allow_plugins: its list of plugins that topologies may run.
        node: the node that it runs on, "" before it is scheduled.
        is_ready: whether it is Ready.
        state: why it does not run, as the kubelet states it ("CrashLoopBackOff"), or "".
    """

    pod: str
    part: str
    version: str
    has_cloud: bool = False
    allow_plugins: tuple[str, ...] = ()
    node: str = ""
    is_ready: bool = True
    state: str = ""


class ReportFacts(msgspec.Struct, frozen=True):
    """A node's NodeNetwork: how many problems it reports, and the policies that it follows in an older form."""

    node: str
    problems: int = 0
    behind: tuple[str, ...] = ()


class SummaryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The usages and rollouts of a cluster.

    Attributes:
        policies: how many policies have a rollout.
        degraded: the policies that fail on a node, or whose devices' claims fail.
        failing: topology -> how many claims fail, of those that are degraded.
        unapplied: the CustomDevices that not every device has which they select.
        users: topology -> how many claims use it, of those that are used.
    """

    policies: int = 0
    degraded: tuple[str, ...] = ()
    failing: Mapping[str, int] = {}
    unapplied: tuple[str, ...] = ()
    users: Mapping[str, int] = {}


class ReviewFacts(msgspec.Struct, frozen=True):
    """The reviews of stored objects.

    Attributes:
        errors: those that the webhook would reject, had it been asked.
        warnings: topology -> the warnings about frames that its pods may lose.
    """

    errors: tuple[Finding, ...] = ()
    warnings: Mapping[str, tuple[Finding, ...]] = {}


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster. Each part is the seen state, or the reason why it is unknown.

    Attributes:
        server: the API server's version, `v1.37.1`.
        namespace, name: netdra's namespace, and the name of its objects.
        dra: the versions of resource.k8s.io that it serves, the preferred one first.
        features: what it keeps of a slice.
        definitions: netdra's kinds.
        webhook: see there.
        lacking: process -> the rights that it does not have.
        nodes: all nodes.
        components: netdra's pods.
        reports: what nodes state of themselves.
        summaries: usages and rollouts.
        not_allowed: topology -> why nodes do not run plugins of it.
        reviews: the reviews of stored objects.
    """

    server: str
    namespace: str = "netdra"
    name: str = "netdra"
    dra: tuple[str, ...] | Unseen = ()
    features: Features | Unseen = Unseen("not checked")
    definitions: tuple[Definition, ...] | Unseen = ()
    webhook: WebhookFacts | Unseen = Unseen("not checked")
    lacking: Mapping[str, tuple[str, ...]] | Unseen = {}
    nodes: tuple[ClusterNode, ...] | Unseen = ()
    components: tuple[Component, ...] | Unseen = ()
    reports: tuple[ReportFacts, ...] | Unseen = ()
    summaries: SummaryFacts | Unseen = SummaryFacts()
    not_allowed: Mapping[str, tuple[Finding, ...]] | Unseen = {}
    reviews: ReviewFacts | Unseen = ReviewFacts()


class Shortcoming(msgspec.Struct, frozen=True):
    """A missing or disabled feature of a container runtime, from one version on and before another."""

    runtime: str
    since: tuple[int, ...]
    before: tuple[int, ...]
    level: Level
    seen: str
    fix: str
    code: str

    def is_of(self, runtime_version: str) -> bool:
        """Whether a node's runtime, `containerd://2.2.1`, is of these versions."""
        runtime, _, version = runtime_version.partition("://")
        return runtime == self.runtime and self.since <= number(version) < self.before


SHORTCOMINGS = (
    Shortcoming(
        "containerd", (), (1, 7), "error", "do not support NRI", "upgrade containerd to 2.2 or later", code="ND3120"
    ),
    Shortcoming("cri-o", (), (1, 26), "error", "do not support NRI", "upgrade CRI-O to 1.30 or later", code="ND3121"),
    Shortcoming(
        "containerd",
        (1, 7),
        (2, 0),
        "warning",
        "support NRI and CDI only if they are enabled",
        "[plugins.'io.containerd.nri.v1.nri'] disable = false; [plugins.'io.containerd.grpc.v1.cri'] enable_cdi = true",
        code="ND3122",
    ),
    # The sandbox of a pod that a plugin refuses keeps its name reserved (`RunPodSandbox` in internal/cri/server).
    Shortcoming(
        "containerd",
        (2, 0),
        (2, 2),
        "warning",
        "may not restart after a pod was rejected: its sandbox remains",
        "upgrade containerd to 2.2 or later",
        code="ND3123",
    ),
    Shortcoming("cri-o", (1, 26), (1, 30), "warning", "support NRI only if it is enabled", NRI_OF_CRIO, code="ND3124"),
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
        *judged("resource.k8s.io", facts.dra, _dra),
        *judged("feature gates", facts.features, lambda features: _gates(features, number(facts.server))),
        *judged("CustomResourceDefinitions", facts.definitions, _definitions),
        *judged("webhook", facts.webhook, lambda webhook: _webhook(webhook, facts, now)),
        *judged("rights", facts.lacking, lambda lacking: _rights(lacking, facts)),
        *judged("nodes", facts.nodes, _nodes),
        *judged(VERSIONS, facts.components, lambda pods: _components(pods, facts.namespace, own_version)),
        *judged("reports of nodes", facts.reports, lambda reports: _reports(reports, facts)),
        *judged("usages and rollouts", facts.summaries, _summaries),
        *judged("plugins of topologies", facts.not_allowed, _plugins),
        *judged(STORED, facts.reviews, _reviews),
    ]


def unreachable(why: str) -> list[Diagnosis]:
    """The finding about a cluster that does not answer."""
    return [
        _finding(
            "API server",
            "error",
            why,
            "check that it is running and that this is its kubeconfig (--kubeconfig)",
            code="ND3125",
        )
    ]


def not_looked_at(why: str, fix: str = "specify a kubeconfig with --kubeconfig") -> list[Diagnosis]:
    """The finding without a cluster, or without access to it."""
    return [_finding("API server", "warning", f"not checked: {why}", fix, code="ND3126")]


def judged(check: str, part: T | Unseen, judge: Callable[[T], Iterable[Diagnosis]]) -> Iterable[Diagnosis]:
    """The findings about a part, or that it could not be seen."""
    if isinstance(part, Unseen):
        return [_finding(check, "warning", f"could not be read: {part.why}", AS_ADMINISTRATOR, code="ND3127")]
    return judge(part)


def _server(facts: ClusterFacts) -> Diagnosis:
    version = number(facts.server)
    if version < API_SINCE:
        return _finding("API server", "error", facts.server, "netdra requires Kubernetes 1.34 or later", code="ND3128")
    if version < COUNTERS_SINCE:
        seen = f"{facts.server}: personas of one NIC exclude each other only since 1.36.2"
        return _finding("API server", "warning", seen, "upgrade; until then, use one persona per NIC", code="ND3129")
    return _finding("API server", "ok", facts.server)


def _dra(versions: tuple[str, ...]) -> Iterator[Diagnosis]:
    if "v1" in versions:
        yield _finding("resource.k8s.io", "ok", ", ".join(versions))
        return
    seen = f"serves {', '.join(versions) or 'nothing of it'}, not v1"
    yield _finding(
        "resource.k8s.io", "error", seen, "kube-apiserver --runtime-config=resource.k8s.io/v1=true", code="ND3130"
    )


def _gates(features: Features, version: tuple[int, ...]) -> Iterator[Diagnosis]:
    for gate, stable_since, on, lost in (
        ("DRAPartitionableDevices", (1, 38), features.partitionable_devices, "only one persona per NIC is possible"),
        (
            "DRAConsumableCapacity",
            (1, 38),
            features.consumable_capacity,
            "devices cannot be shared, VFs cannot be pooled, and claims cannot request addresses of PodNetworks",
        ),
        (
            "DRADeviceTaints",
            (1, 37),
            features.device_taints,
            "claims get devices without a link or with a problem, and cannot request addresses of PodNetworks",
        ),
    ):
        # The gate of a stable feature is on unless an administrator has set it, and a later version removes it.
        is_stable = version >= stable_since
        if on:
            yield _finding(gate, "ok", "on (stable)" if is_stable else "on")
        else:
            set_on = f"--feature-gates={gate}=true on kube-apiserver and kube-scheduler"
            set_off = f"remove {gate}=false from --feature-gates of kube-apiserver and kube-scheduler"
            fix = set_off if is_stable else set_on
            yield _finding(gate, "warning", f"disabled: {lost}", fix, code="ND3131")
    listed = "on" if features.list_attributes else "disabled (the default): supportedCNIs is published as text"
    yield _finding("DRAListTypeAttributes", "ok", listed)


def _definitions(definitions: Sequence[Definition]) -> Iterator[Diagnosis]:
    sound = [
        definition.name
        for definition in definitions
        if definition.there and definition.established and not definition.differs
    ]
    if sound:
        yield _finding("CustomResourceDefinitions", "ok", ", ".join(sound))
    for definition in definitions:
        if definition.name not in sound:
            yield _definition(definition)


def _definition(definition: Definition) -> Diagnosis:
    fix = "netdra crds | kubectl apply --server-side -f -"
    if not definition.there:
        return _finding(f"CRD {definition.name}", "error", "not found", fix, code="ND3132")
    if not definition.established:
        return _finding(
            f"CRD {definition.name}", "error", "is not served", f"kubectl describe crd {definition.name}", code="ND3133"
        )
    places = listed(definition.differs, NAMED)
    return _finding(
        f"CRD {definition.name}", "error", f"belongs to another version of netdra: {places}", fix, code="ND3134"
    )


def _webhook(webhook: WebhookFacts, facts: ClusterFacts, now: datetime) -> Iterator[Diagnosis]:
    for name in webhook.missing:
        seen = "not found: objects are not validated when they are written"
        yield _finding(f"webhook configuration {name}", "error", seen, "helm upgrade installs it", code="ND3135")
    for name, end in webhook.configurations.items():
        yield _authority(
            name,
            end,
            now,
            f"check that netdra webhook is running: kubectl -n {facts.namespace} logs deploy/{facts.name}-webhook",
        )
    if webhook.configurations:
        yield _answer(webhook, facts.namespace)


def _authority(name: str, end: datetime | None, now: datetime, fix: str) -> Diagnosis:
    check = f"webhook configuration {name}"
    if end is None:
        return _finding(
            check, "error", "does not have a CA: the API server cannot call the webhook", fix, code="ND3136"
        )
    seen = f"trusts a CA until {end:%Y-%m-%d}"
    if end <= now:
        return _finding(check, "error", f"{seen}, which has expired", fix, code="ND3137")
    if end - now < SOON:
        return _finding(check, "warning", f"{seen}, and should have been renewed", fix, code="ND3138")
    return _finding(check, "ok", seen)


def _answer(webhook: WebhookFacts, namespace: str) -> Diagnosis:
    if webhook.answer == "asked":
        return _finding("webhook", "ok", "rejects invalid objects")
    reach = f"kubectl -n {namespace} get pods,endpointslices; check that the API server can reach port 8443"
    if webhook.answer == "unasked":
        return _finding(
            "webhook", "error", "the API server accepts an invalid policy without calling it", reach, code="ND3139"
        )
    renewal = (
        "the CA bundle of the webhook configurations and the webhook's certificate do not match: after a renewal "
        f"wait two minutes; then kubectl -n {namespace} get secrets,certificates"
    )
    return _finding("webhook", "error", webhook.answer, renewal if "x509:" in webhook.answer else reach, code="ND3140")


def _rights(rights: Mapping[str, tuple[str, ...]], facts: ClusterFacts) -> Iterator[Diagnosis]:
    for process, denied in rights.items():
        options = {option: set(map(str, of)) for option, of in of_options(process).items()}
        # An option that is off in the installation has none of its rights.
        without = [option for option, of in options.items() if of <= set(denied)]
        lacking = tuple(right for right in denied if not any(right in options[option] for option in without))
        if process == "webhook" and set(lacking) == to_keep_a_certificate(facts.name):
            yield _finding("rights of netdra webhook", "ok", "complete with --certificates, incomplete without it")
        elif lacking:
            account = f"system:serviceaccount:{facts.namespace}:{facts.name}-{process}"
            fix = f"helm upgrade installs the roles; to check one: kubectl auth can-i {lacking[0]} --as={account}"
            yield _finding(
                f"rights of netdra {process}",
                "error",
                f"not allowed: {listed(lacking, NAMED)}",
                fix,
                code="ND3141",
            )
        else:
            seen = "complete" + (f" without {listed(without, NAMED)}" if without else "")
            yield _finding(f"rights of netdra {process}", "ok", seen)


def _nodes(nodes: Sequence[ClusterNode]) -> Iterator[Diagnosis]:
    kubelets = [(node.metadata.name, node.status.node_info.kubelet_version) for node in nodes]
    old = [f"{name} {version}" for name, version in kubelets if number(version) < API_SINCE]
    if old:
        seen = f"of {len(old)} nodes older than 1.34: {listed(old, NAMED)}"
        yield _finding(
            "kubelets", "error", seen, "upgrade them: they do not prepare claims of resource.k8s.io/v1", code="ND3142"
        )
    else:
        yield _finding("kubelets", "ok", _versions(version for _, version in kubelets) or "no nodes found")
    yield from _runtimes([(node.metadata.name, node.status.node_info.container_runtime_version) for node in nodes])


def _runtimes(runtimes: Sequence[tuple[str, str]]) -> Iterator[Diagnosis]:
    """The facts of the runtimes, by node; unknown runtimes are left out."""
    for shortcoming in SHORTCOMINGS:
        bad = [f"{name} {runtime}" for name, runtime in runtimes if shortcoming.is_of(runtime)]
        if bad:
            yield _finding(
                "container runtimes",
                shortcoming.level,
                f"of {len(bad)} nodes {shortcoming.seen}: {listed(bad, NAMED)}",
                shortcoming.fix,
                code=shortcoming.code,
            )
    well = [runtime for _, runtime in runtimes if not any(shortcoming.is_of(runtime) for shortcoming in SHORTCOMINGS)]
    if well:
        yield _finding("container runtimes", "ok", _versions(well))


def _is_same_build(label: str, own: str) -> bool:
    """Whether a label's version is that of this build.

    A label has an underscore for the plus of a version. A chart that is installed from the sources does not know the
    build: `0.2.0.dev0` stands for every build before the release 0.2.0.
    """
    sources = f"{own.partition('.dev')[0]}.dev0"
    return label.replace("_", "+") == own or (".dev" in own and label == sources)


def _components(components: Sequence[Component], namespace: str, own: str) -> Iterator[Diagnosis]:
    check = VERSIONS
    versions = {component.version for component in components if component.version}
    if not components:
        seen = f"no pod with the label {NETDRA_PODS} in namespace {namespace}"
        yield _finding(
            check,
            "warning",
            seen,
            "if netdra is installed in another namespace, specify it with --namespace",
            code="ND3143",
        )
    elif not all(_is_same_build(version, own) for version in versions):
        told = [
            f"{component.part or component.pod} {component.version}" for component in components if component.version
        ]
        seen = f"{listed(dict.fromkeys(told), NAMED)}; this is {own}"
        fix = f"run the same version everywhere; kubectl -n {namespace} get pods -L {VERSION_LABEL}"
        yield _finding(check, "warning", seen, fix, code="ND3144")
    elif silent := [component.pod for component in components if not component.version]:
        seen = f"unknown, because {listed(silent, NAMED)} lack the label"
        yield _finding(check, "warning", seen, f"label the pods with {VERSION_LABEL}", code="ND3145")
    else:
        parts = sorted({component.part for component in components if component.part})
        yield _finding(check, "ok", f"{own}: {', '.join(parts) or f'{len(components)} pods'}")


def _reports(reports: Sequence[ReportFacts], facts: ClusterFacts) -> Iterator[Diagnosis]:
    """Whether nodes state what they offer, of the policies as they are now, and without problems."""
    check = "reports of nodes"
    behind = [report.node for report in reports if report.behind]
    troubled = [report.node for report in reports if report.problems]
    if facts.nodes and not reports:
        fix = (
            f"kubectl -n {facts.namespace} get pods: check that netdra node is running and allowed to "
            "write NodeNetworks"
        )
        yield _finding(check, "warning", "no NodeNetwork found", fix, code="ND3146")
    if behind:
        seen = f"{len(behind)} nodes use older generations of policies: {listed(behind, NAMED)}"
        yield _finding(
            check,
            "warning",
            seen,
            "check netdra's pod on these nodes, unless a policy was changed a moment ago",
            code="ND3147",
        )
    if troubled:
        seen = f"{len(troubled)} nodes report problems: {listed(troubled, NAMED)}"
        yield _finding(
            check,
            "warning",
            seen,
            f"kubectl get nodenetwork {troubled[0]} -o jsonpath='{{.status.problems}}'",
            code="ND3148",
        )
    if not behind and not troubled and (reports or not facts.nodes):
        yield _finding(check, "ok", f"{len(reports)} nodes, no problems" if reports else "no nodes found")


def _summaries(summaries: SummaryFacts) -> Iterator[Diagnosis]:
    """Whether policies and CustomDevices have their result on nodes, and how many claims use topologies and fail."""
    check = "usages and rollouts"
    degraded, unapplied = summaries.degraded, summaries.unapplied
    failing = [f"{name} ({claims})" for name, claims in sorted(summaries.failing.items())]
    if failing:
        seen = f"topologies with failing claims: {listed(failing, NAMED)}"
        yield _finding(
            check, "warning", seen, f"kubectl describe networktopologyusage {min(summaries.failing)}", code="ND3149"
        )
    if degraded:
        seen = f"{len(degraded)} policies are degraded: {listed(degraded, NAMED)}"
        yield _finding(
            check, "warning", seen, f"kubectl describe deviceexposurepolicyrollout {degraded[0]}", code="ND3150"
        )
    if unapplied:
        seen = f"{len(unapplied)} CustomDevices are not applied everywhere: {listed(unapplied, NAMED)}"
        yield _finding(check, "warning", seen, f"kubectl describe customdevicerollout {unapplied[0]}", code="ND3151")
    if not failing and not degraded and not unapplied:
        used = [f"{name} ({users})" for name, users in sorted(summaries.users.items())]
        topologies = f"claims use {listed(used, NAMED)}" if used else "no topology is used"
        yield _finding(check, "ok", f"{summaries.policies} policies, none of them degraded; {topologies}")


def _plugins(not_allowed: Mapping[str, tuple[Finding, ...]]) -> Iterator[Diagnosis]:
    """Whether nodes run the plugins of all topologies."""
    check = "plugins of topologies"
    for topology, (first, *others) in sorted(not_allowed.items())[:NAMED]:
        more = f" ({len(others)} more of its plugins are not allowed)" if others else ""
        seen = f'nodes reject new claims of NetworkTopology "{topology}": {first.what}{more}'
        yield _finding(check, "warning", seen, first.hint, code="ND3152")
    if len(not_allowed) > NAMED:
        seen = f"{len(not_allowed) - NAMED} more topologies use plugins that are not allowed"
        yield _finding(check, "warning", seen, "kubectl get networktopologies", code="ND3153")
    if not not_allowed:
        yield _finding(check, "ok", "nodes allow all plugins of the topologies")


def _reviews(reviews: ReviewFacts) -> Iterator[Diagnosis]:
    """The errors of stored objects, and the frames that pods may lose; nothing if all are in order."""
    for finding in reviews.errors[:NAMED]:
        yield _finding(STORED, "warning", finding.coded, finding.hint or _VALIDATE)
    if len(reviews.errors) > NAMED:
        yield _finding(STORED, "warning", f"{len(reviews.errors) - NAMED} more errors", _VALIDATE, code="ND3154")
    for findings in [*reviews.warnings.values()][:NAMED]:
        yield _finding(FRAMES, "warning", findings[0].coded, findings[0].hint)
    if len(reviews.warnings) > NAMED:
        yield _finding(FRAMES, "warning", f"{len(reviews.warnings) - NAMED} more topologies", _VALIDATE, code="ND3155")


def _versions(versions: Iterable[str]) -> str:
    return ", ".join(sorted(set(versions)))
