"""The verdicts on a cluster's facts, one table: the fact, its check, the level, and a word of the next step."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from netdra.admission import certificates
from netdra.admission.keeper import ClientConfig, WebhookConfiguration, WebhookEntry
from netdra.doctor.cluster_look import differing, trusted_until
from netdra.doctor.cluster_verdicts import (
    NAMED,
    ClusterFacts,
    Component,
    Definition,
    ReportFacts,
    ReviewFacts,
    SummaryFacts,
    WebhookFacts,
    not_looked_at,
    unreachable,
    verdicts,
)
from netdra.doctor.diagnosis import Unseen, number, worst
from netdra.doctor.process_look import ComponentPod
from netdra.doctor.rights import PROCESSES, of_options, to_keep_a_certificate
from netdra.model import crd, kinds
from netdra.model.core import ClusterNode, ClusterNodeStatus, NodeInfo
from netdra.model.device import Features
from netdra.model.findings import Finding
from netdra.model.meta import ObjectMeta
from netdra.model.suggestions import listed

NOW = datetime(2026, 11, 21, tzinfo=UTC)
LATER = NOW + timedelta(days=60)


def node(name: str, kubelet: str, runtime: str) -> ClusterNode:
    info = NodeInfo(kubelet_version=kubelet, container_runtime_version=runtime)
    return ClusterNode(metadata=ObjectMeta(name=name), status=ClusterNodeStatus(node_info=info))


WELL = ClusterFacts(
    server="v1.37.1",
    dra=("v1", "v1beta1"),
    features=Features(),
    definitions=tuple(Definition(kind.name, True, True) for kind in kinds.KINDS),
    webhook=WebhookFacts(configurations={"netdra": LATER, "netdra-claims": LATER}),
    lacking={"node": (), "controller": (), "webhook": ()},
    nodes=(node("n1", "v1.37.1", "containerd://2.4.2"),),
    components=(Component("netdra-node-x", "node", "0.1.0"), Component("netdra-webhook-x", "webhook", "0.1.0")),
    reports=(ReportFacts("n1"),),
)


def test_a_cluster_that_has_everything_has_no_trouble_and_nothing_to_do() -> None:
    found = verdicts(WELL, "0.1.0", NOW)
    assert [each for each in found if each.level != "ok" or each.fix] == []
    assert {each.where for each in found} == {"cluster"}


@pytest.mark.parametrize(
    ("label", "own", "is_same"),
    [
        ("0.2.0", "0.2.0", True),
        ("0.1.0", "0.2.0", False),
        ("0.2.0.dev5_g1a2b3c4", "0.2.0.dev5+g1a2b3c4", True),
        ("0.2.0.dev5_g1a2b3c4", "0.2.0.dev6+g2b3c4d5", False),
        ("0.2.0.dev0", "0.2.0.dev5+g1a2b3c4", True),
        ("0.2.0.dev0", "0.2.0", False),
        ("0.3.0.dev0", "0.2.0.dev5+g1a2b3c4", False),
    ],
)
def test_pods_are_of_this_build_if_their_label_names_it_or_the_sources(label: str, own: str, is_same: bool) -> None:
    facts = msgspec.structs.replace(WELL, components=(Component("netdra-node-x", "node", label),))
    (found,) = [each for each in verdicts(facts, own, NOW) if each.check == "versions of netdra"]
    assert (found.level == "ok") == is_same


def trusts(end: datetime | None) -> WebhookFacts:
    return WebhookFacts(configurations={"netdra": end, "netdra-claims": LATER})


@pytest.mark.parametrize(
    ("changed", "check", "level", "seen", "fix"),
    [
        ({"server": "v1.33.4"}, "API server", "error", "v1.33.4", "1.34 or later"),
        ({"server": "v1.35.0"}, "API server", "warning", "1.36.2", "upgrade"),
        ({"dra": ("v1beta2",)}, "resource.k8s.io", "error", "v1beta2, not v1", "--runtime-config"),
        ({"dra": ()}, "resource.k8s.io", "error", "nothing of it", "--runtime-config"),
        (
            {"summaries": SummaryFacts(policies=2, degraded=("p",))},
            "usages and rollouts",
            "warning",
            "1 policies are degraded: p",
            "describe deviceexposurepolicyrollout p",
        ),
        (
            {"summaries": SummaryFacts(failing={"net": 3, "data": 1})},
            "usages and rollouts",
            "warning",
            "topologies with failing claims: data (1), net (3)",
            "describe networktopologyusage data",
        ),
        (
            {"summaries": SummaryFacts(unapplied=("c", "d"))},
            "usages and rollouts",
            "warning",
            "2 CustomDevices are not applied everywhere: c, d",
            "describe customdevicerollout c",
        ),
        ({"reports": ()}, "reports of nodes", "warning", "no NodeNetwork found", "get pods"),
        (
            {"reports": (ReportFacts("n1", 0, ("p",)),)},
            "reports of nodes",
            "warning",
            "older generations of policies: n1",
            "pod",
        ),
        ({"reports": (ReportFacts("n1", 2),)}, "reports of nodes", "warning", "report problems: n1", "nodenetwork n1"),
        (
            {"features": Features(partitionable_devices=False)},
            "DRAPartitionableDevices",
            "warning",
            "one persona",
            "--feature-gates=DRAPartitionableDevices=true",
        ),
        (
            {"features": Features(consumable_capacity=False)},
            "DRAConsumableCapacity",
            "warning",
            "shared",
            "DRAConsumableCapacity=true",
        ),
        (
            {"features": Features(device_taints=False)},
            "DRADeviceTaints",
            "warning",
            "without a link",
            "remove DRADeviceTaints=false from --feature-gates",
        ),
        (
            {"server": "v1.36.3", "features": Features(device_taints=False)},
            "DRADeviceTaints",
            "warning",
            "without a link",
            "--feature-gates=DRADeviceTaints=true",
        ),
        (
            {"server": "v1.38.0-beta.0", "features": Features(consumable_capacity=False)},
            "DRAConsumableCapacity",
            "warning",
            "shared",
            "remove DRAConsumableCapacity=false from --feature-gates",
        ),
        ({"features": Unseen("403")}, "feature gates", "warning", "could not be read: 403", "--kubeconfig"),
        ({"definitions": (Definition("x"),)}, "CRD x", "error", "not found", "netdra crds"),
        ({"definitions": (Definition("x", True),)}, "CRD x", "error", "is not served", "describe crd x"),
        ({"definitions": (Definition("x", True, True, ("spec.a",)),)}, "CRD x", "error", "spec.a", "netdra crds"),
        (
            {"webhook": WebhookFacts(missing=("netdra",), answer="unasked")},
            "webhook configuration netdra",
            "error",
            "not validated",
            "helm",
        ),
        ({"webhook": trusts(None)}, "webhook configuration netdra", "error", "does not have a CA", "logs"),
        ({"webhook": trusts(NOW)}, "webhook configuration netdra", "error", "has expired", "logs"),
        ({"webhook": trusts(NOW + timedelta(days=3))}, "webhook configuration netdra", "warning", "renewed", "logs"),
        (
            {"webhook": WebhookFacts(configurations={"netdra": LATER}, answer="unasked")},
            "webhook",
            "error",
            "without calling",
            "endpointslices",
        ),
        (
            {"webhook": WebhookFacts(configurations={"netdra": LATER}, answer="connection refused")},
            "webhook",
            "error",
            "connection refused",
            "8443",
        ),
        (
            {"lacking": {"node": ("list pods",)}},
            "rights of netdra node",
            "error",
            "not allowed: list pods",
            "system:serviceaccount:netdra:netdra-node",
        ),
        ({"nodes": (node("n1", "v1.33.0", ""),)}, "kubelets", "error", "n1 v1.33.0", "upgrade"),
        (
            {"nodes": (node("n1", "v1.37.1", "containerd://1.6.9"),)},
            "container runtimes",
            "error",
            "n1 containerd://1.6.9",
            "containerd to 2",
        ),
        ({"components": ()}, "versions of netdra", "warning", "part-of=netdra in namespace netdra", "--namespace"),
        ({"components": (Component("p", "node", "0.0.9"),)}, "versions of netdra", "warning", "node 0.0.9", "get pods"),
        (
            {"not_allowed": {"net": (Finding('plugin "firewall" is not allowed: x', "set y"), Finding("z"))}},
            "plugins of topologies",
            "warning",
            'claims of NetworkTopology "net": plugin "firewall" is not allowed: x (1 more of its plugins',
            "set y",
        ),
        (
            {"reviews": ReviewFacts(warnings={"net": (Finding("the bond sends", "set x"),)})},
            "frames of VFs",
            "warning",
            "the bond",
            "set x",
        ),
        (
            {"reviews": ReviewFacts(errors=(Finding("it is wrong"),))},
            "stored objects",
            "warning",
            "it is wrong",
            "netdra validate --cluster",
        ),
        (
            {"components": (Component("p", "node", ""),)},
            "versions of netdra",
            "warning",
            "because p lack the label",
            "io/version",
        ),
    ],
)
def test_each_cluster_problem_is_reported_with_a_level_and_a_fix(
    changed: dict[str, Any], check: str, level: str, seen: str, fix: str
) -> None:
    found = [
        each
        for each in verdicts(msgspec.structs.replace(WELL, **changed), "0.1.0", NOW)
        if each.check == check and each.level != "ok"
    ]
    assert [each.level for each in found] == [level]
    assert seen in found[0].seen
    assert fix in found[0].fix


def test_of_many_topologies_with_plugins_that_are_not_allowed_the_first_are_named_and_the_others_counted() -> None:
    facts = msgspec.structs.replace(WELL, not_allowed={f"n{at}": (Finding("w", "h"),) for at in range(7)})
    found = [each for each in verdicts(facts, "0.1.0", NOW) if each.check == "plugins of topologies"]
    assert [each.level for each in found] == ["warning"] * 6
    assert found[-1].seen == "2 more topologies use plugins that are not allowed"


def test_the_users_of_topologies_are_named_where_every_policy_is_well() -> None:
    facts = msgspec.structs.replace(WELL, summaries=SummaryFacts(policies=2, users={"net": 3, "data": 1}))
    (found,) = [each for each in verdicts(facts, "0.1.0", NOW) if each.check == "usages and rollouts"]
    assert (found.level, found.seen) == ("ok", "2 policies, none of them degraded; claims use data (1), net (3)")


@pytest.mark.parametrize(
    ("runtime", "level", "word"),
    [
        ("containerd://1.6.36", "error", "NRI"),
        ("containerd://1.7.0", "warning", "NRI and CDI only if they are enabled"),
        ("containerd://1.7.35", "warning", "CDI"),
        ("containerd://2.0.0-rc.1", "warning", "may not restart"),
        ("containerd://2.1.9", "warning", "may not restart"),
        ("containerd://2.2.0", "ok", ""),
        ("containerd://2.4.2", "ok", ""),
        ("containerd://v2.5.0-beta.0+unknown", "ok", ""),
        ("cri-o://1.25.4", "error", "NRI"),
        ("cri-o://1.26.0", "warning", "NRI only if it is enabled"),
        ("cri-o://1.29.13", "warning", "NRI only if it is enabled"),
        ("cri-o://1.30.0", "ok", ""),
        ("cri-o://1.36.3", "ok", ""),
        ("docker://28.0.1", "ok", ""),
        ("", "ok", ""),
    ],
)
def test_each_container_runtime_version_is_reported_with_its_missing_features(
    runtime: str, level: str, word: str
) -> None:
    facts = msgspec.structs.replace(WELL, nodes=(node("n1", "v1.37.1", runtime),))
    (found,) = [each for each in verdicts(facts, "0.1.0", NOW) if each.check == "container runtimes"]
    assert found.level == level
    assert word in found.seen
    assert runtime in found.seen
    assert bool(found.fix) is (level != "ok")


def test_container_runtime_findings_group_nodes_by_problem() -> None:
    runtimes = ("containerd://2.4.2", "cri-o://1.28.1", "containerd://2.1.9", "cri-o://1.28.1", "containerd://2.2.9")
    nodes = tuple(node(f"n{at}", "v1.37.1", runtime) for at, runtime in enumerate(runtimes))
    found = [
        each
        for each in verdicts(msgspec.structs.replace(WELL, nodes=nodes), "0.1.0", NOW)
        if each.check == "container runtimes"
    ]
    assert [(each.level, each.seen.partition(":")[0]) for each in found[:-1]] == [
        ("warning", "of 1 nodes may not restart after a pod was rejected"),
        ("warning", "of 2 nodes support NRI only if it is enabled"),
    ]
    assert (found[-1].level, found[-1].seen) == ("ok", "containerd://2.2.9, containerd://2.4.2")


@pytest.mark.parametrize("part", ["dra", "features", "definitions", "webhook", "lacking", "nodes", "components"])
def test_an_unreadable_part_of_the_cluster_is_a_warning_and_not_an_error(part: str) -> None:
    found = verdicts(msgspec.structs.replace(WELL, **{part: Unseen("forbidden")}), "0.1.0", NOW)
    assert [each.seen for each in found if each.level != "ok"] == ["could not be read: forbidden"]
    assert worst(found) == "warning"


def test_a_cluster_that_is_away_is_an_error_and_none_at_all_a_warning() -> None:
    assert worst(unreachable("refused")) == "error"
    assert worst(not_looked_at("no kubeconfig")) == "warning"


def test_a_long_list_is_cut() -> None:
    lacking = tuple(f"right {index}" for index in range(9))
    found = verdicts(msgspec.structs.replace(WELL, lacking={"node": lacking}), "0.1.0", NOW)
    (told,) = (each.seen for each in found if each.level == "error")
    assert told.endswith("right 4 and 4 more")


@pytest.mark.parametrize(("text", "expected"), [("v1.37.1-rc.0+k3s1", (1, 37, 1)), ("2.0", (2, 0)), ("main", (0,))])
def test_a_version_is_numbers(text: str, expected: tuple[int, ...]) -> None:
    assert number(text) == expected


def test_a_definition_differs_where_it_lacks_something_and_not_where_the_server_adds() -> None:
    wanted = crd.manifest(kinds.POLICY)["spec"]
    assert list(differing(wanted, {**wanted, "conversion": {"strategy": "None"}})) == []
    (version,) = wanted["versions"]
    older = {**wanted, "versions": [{**version, "additionalPrinterColumns": [], "storage": False}]}
    assert set(differing(wanted, older)) == {"spec.versions[0].additionalPrinterColumns", "spec.versions[0].storage"}


def test_a_webhook_configuration_is_trusted_until_expiry_unless_one_webhook_lacks_a_valid_ca() -> None:
    made = certificates.make(["localhost"], NOW)
    bundle = ClientConfig(base64.b64encode(made.authorities.encode()).decode())

    def configuration(*clients: ClientConfig) -> WebhookConfiguration:
        webhooks = tuple(WebhookEntry(name="w", client_config=each) for each in clients)
        return WebhookConfiguration(metadata=ObjectMeta(name="netdra"), webhooks=webhooks)

    assert trusted_until(configuration(bundle)) == NOW + certificates.LIFETIME
    for without in (ClientConfig(), ClientConfig("bm8gY2VydGlmaWNhdGU=")):
        assert trusted_until(configuration(bundle, without)) is None


def test_lacking_all_rights_of_an_option_is_ok_and_lacking_only_some_is_an_error() -> None:
    def found(process: str, *lacking: str) -> tuple[str, str]:
        facts = msgspec.structs.replace(WELL, lacking={process: lacking})
        (told,) = (each for each in verdicts(facts, "0.1.0", NOW) if each.check == f"rights of netdra {process}")
        return told.level, told.seen

    for process in PROCESSES:
        options = {option: tuple(map(str, rights)) for option, rights in of_options(process).items()}
        for option, rights in options.items():
            assert found(process, *rights) == ("ok", f"complete without {option}")
            part = rights[1:] or ("get pods",)
            assert found(process, *part) == ("error", f"not allowed: {listed(part, NAMED)}")
        every = tuple(right for rights in options.values() for right in rights)
        told = f" without {listed(tuple(options), NAMED)}" if options else ""
        assert found(process, *every) == ("ok", f"complete{told}")
        assert found(process, *every, "list policies")[1] == "not allowed: list policies"


def test_a_webhook_whose_certificate_is_mounted_needs_no_right_to_write() -> None:
    facts = msgspec.structs.replace(WELL, lacking={"webhook": tuple(sorted(to_keep_a_certificate()))})
    (found,) = (each for each in verdicts(facts, "0.1.0", NOW) if each.check == "rights of netdra webhook")
    assert (found.level, found.seen) == ("ok", "complete with --certificates, incomplete without it")


@pytest.mark.parametrize(
    ("container", "has_cloud"),
    [
        ({"args": ["controller", "--neutron-clouds=/etc/clouds.yaml"]}, True),
        ({"command": ["netdra", "controller", "--neutron-clouds", "/etc/clouds.yaml"], "args": None}, True),
        ({"args": ["controller", "--neutron-cloud=one"]}, False),
        ({}, False),
    ],
)
def test_a_pod_of_the_controller_has_a_cloud_by_its_arguments(container: dict[str, Any], has_cloud: bool) -> None:
    plain = {"metadata": {"name": "netdra-controller-x"}, "spec": {"containers": [{"name": "c"}, container]}}
    assert msgspec.convert(plain, ComponentPod).has_cloud is has_cloud
