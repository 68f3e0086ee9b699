"""The objects that helm renders of the chart: names that fit together in every release, and the effect of switches."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from netdra.cli import doctor, node, support_bundle
from netdra.doctor.cluster_verdicts import NETDRA_PODS
from netdra.doctor.rights import PROCESSES, needed, of_options
from netdra.exposure import physnets
from netdra.model import kinds
from testbed import helm, yaml
from testbed.api import Object
from testbed.build import BuildError
from tests.cluster.install.rendering import CASES, CHART, HOOKS, PEOPLE, Case, name, of_kind
from tests.unit.doctor.test_rights import given

GOLDEN = Path(__file__).with_name("golden.yaml")
CHANGING = re.compile(
    r"\b(lookup|rand\w+|shuffle|uuidv4|now|ago|gen\w*(?:CA|Cert|Key)\w*|htpasswd|bcrypt|encryptAES|getHostByName|env|expandenv)\b"
    r"|\.Release\.(Revision|IsInstall|IsUpgrade)"
)
"""Functions and values of templates whose result depends on the time, chance or the cluster."""
CLUSTER_WIDE = (
    *("CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Namespace"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"),
    *("FlowSchema", "PriorityLevelConfiguration"),
)
# Controllers of Kubernetes that may delete what only netdra's writes.
OF_KUBERNETES = {
    ("kube-system", name)
    for name in ("generic-garbage-collector", "namespace-controller", "storage-version-migrator-controller")
}
RIGHTS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
WORKLOADS = ("DaemonSet", "Deployment", "Job", "Pod")

cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def pod_of(found: Object) -> Any:
    return found if found["kind"] == "Pod" else found["spec"]["template"]


def test_the_default_manifests_match_the_golden_file() -> None:
    """After a change of the chart: NETDRA_WRITE=1, and inspect the difference."""
    rendered = [each for each in CASES["hooks"].objects() if each["kind"] != "CustomResourceDefinition"]
    if os.environ.get("NETDRA_WRITE"):
        GOLDEN.write_text(yaml.safe_dump_all(rendered, sort_keys=False, width=120))
    assert list(yaml.safe_load_all(GOLDEN.read_text())) == rendered


@pytest.mark.parametrize("name", ["defaults", "everything"])
def test_two_renderings_are_equal(name: str) -> None:
    """For Argo CD and Flux, which render again and again: another text would be a difference for ever."""
    case = CASES[name]
    assert helm.template(CHART, case.release, case.namespace, case.values) == case.manifests


def test_templates_use_nothing_that_changes_from_one_rendering_to_the_next_but_for_hooks() -> None:
    found = {
        f"{path.name}: {match[0]}"
        for chart in helm.CHARTS.iterdir()
        for path in (chart / "templates").rglob("*.*")
        for action in re.findall(r"{{-?(?!\s*/\*)(.*?)}}", path.read_text(), re.DOTALL)
        if (match := CHANGING.search(re.sub(r'"[^"]*"', '""', action))) is not None
    }
    assert found == {"NOTES.txt: lookup", "_names.tpl: lookup"}


@cases
def test_every_object_is_in_one_namespace_and_named_after_the_release(case: Case) -> None:
    found = case.objects()
    namespaced = [each for each in found if each["kind"] not in CLUSTER_WIDE]
    assert {each["metadata"].get("namespace") for each in namespaced} == {case.objects_namespace}
    ours = [
        each
        for each in found
        if each["kind"] not in ("CustomResourceDefinition", "Namespace")
        and name(each) not in case.accounts.union(PEOPLE)
    ]
    (prefix,) = {name(each) for each in of_kind(ours, "ValidatingWebhookConfiguration") if "claims" not in name(each)}
    assert all(name(each).startswith(prefix) for each in ours)
    assert max(len(name(each)) for each in ours) <= 63
    assert len({(each["kind"], name(each)) for each in found}) == len(found)
    assert all(each["metadata"]["labels"]["app.kubernetes.io/instance"] == case.release for each in found)


@cases
def test_every_reference_between_rendered_objects_names_an_existing_object(case: Case) -> None:
    found = case.objects()
    present = {(each["kind"], name(each)) for each in found}
    accounts = {name(each) for each in of_kind(found, "ServiceAccount")}
    for binding in of_kind(found, "ClusterRoleBinding", "RoleBinding"):
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in present
        assert {each["namespace"] for each in binding["subjects"]} == {case.objects_namespace}
        assert {each["name"] for each in binding["subjects"]} <= accounts
    for binding in of_kind(found, "ValidatingAdmissionPolicyBinding"):
        assert ("ValidatingAdmissionPolicy", binding["spec"]["policyName"]) in present
    owners = case.values.get("node", {}).get("deviceRegistry", {}).get("providers", {}).values()
    others = {*OF_KUBERNETES, *(tuple(owner.split(":")[2:]) for owner in owners)}
    told = [
        account
        for account in re.findall(r"system:serviceaccount:([^:]+):([a-z0-9-]+)", case.manifests)
        if account not in others
    ]
    assert {namespace for namespace, _ in told} == {case.objects_namespace}
    assert {account for _, account in told} <= accounts
    services = {name(each): each["spec"]["selector"] for each in of_kind(found, "Service")}
    for configuration in of_kind(found, "ValidatingWebhookConfiguration"):
        for webhook in configuration["webhooks"]:
            service = webhook["clientConfig"]["service"]
            assert service["namespace"] == case.objects_namespace
            assert service["name"] in services
    for workload in of_kind(found, *WORKLOADS):
        pod = pod_of(workload)
        assert pod["spec"]["serviceAccountName"] in accounts
        if "selector" in workload["spec"]:
            assert workload["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    chosen = [
        *(selector for service, selector in services.items() if not service.endswith("-metrics")),
        *(each["spec"]["selector"]["matchLabels"] for each in of_kind(found, "PodDisruptionBudget")),
        *(each["spec"]["podSelector"]["matchLabels"] for each in of_kind(found, "NetworkPolicy")),
    ]
    pods = [pod_of(each)["metadata"]["labels"].items() for each in of_kind(found, *WORKLOADS)]
    assert all(sum(selector.items() <= labels for labels in pods) == 1 for selector in chosen)


@pytest.mark.parametrize("name", sorted(CASES))
def test_helm_template_without_a_cluster_renders_no_hooks_jobs_or_pods(name: str) -> None:
    case = Case(CASES[name].release, CASES[name].namespace, {**CASES[name].values, "hooks": {}, "presets": {}})
    found = case.objects()
    assert "helm.sh/hook" not in case.manifests
    assert not of_kind(found, "Job", "Pod")
    assert not [
        rule for each in of_kind(found, "Role", "ClusterRole") for rule in each["rules"] if "*" in rule["verbs"]
    ]
    never = Case(values={"hooks": {"render": "never"}})
    assert "helm.sh/hook" not in never.manifests
    assert never.manifests == Case().manifests


FLUX = "--api-versions=helm.toolkit.fluxcd.io/v2"


@pytest.mark.parametrize(
    ("output", "options", "printed"),
    [
        ("auto", (), True),
        ("auto", (FLUX,), False),
        ("always", (FLUX,), True),
        ("never", (), False),
    ],
)
def test_helm_prints_the_output_of_jobs_unless_the_cluster_has_flux(
    output: str, options: tuple[str, ...], printed: bool
) -> None:
    """Flux' controller crashes at the annotation: such a release could not be removed."""
    values = {"hooks": {"render": "always", "output": output}, "presets": {"shared": True}}
    jobs = of_kind(helm.objects(helm.template(CHART, "netdra", "netdra", values, options)), "Job")
    assert len(jobs) == 3
    annotated = ["helm.sh/hook-output-log-policy" in job["metadata"]["annotations"] for job in jobs]
    assert annotated == [printed] * 3


def test_a_preset_without_hooks_is_an_error_that_names_the_command() -> None:
    with pytest.raises(helm.HelmError) as refused:
        Case(values={"presets": {"shared": True}}).objects()
    assert "netdra preset shared | kubectl apply" in refused.value.stderr


def test_only_the_hook_after_an_uninstall_may_delete() -> None:
    found = CASES["hooks"].objects()
    rights = {name(each): each for each in of_kind(found, "ClusterRole", "Role") if "-uninstall-" in name(each)}
    assert set(rights) == {"netdra-uninstall-check", "netdra-uninstall-clean"}
    for each in of_kind(found, "ServiceAccount", *RIGHTS):
        if name(each).startswith("netdra-uninstall-"):
            step = name(each).rpartition("-")[2]
            annotations = each["metadata"]["annotations"]
            assert annotations["helm.sh/hook"] == {"check": "pre-delete", "clean": "post-delete"}[step]
            assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    assert {verb for rule in rights["netdra-uninstall-check"]["rules"] for verb in rule["verbs"]} == {"list"}


@cases
def test_pods_are_hardened_and_probed_and_carry_the_label_for_doctor(case: Case) -> None:
    part, _, whose = NETDRA_PODS.partition("=")
    for workload in of_kind(case.objects(), *WORKLOADS):
        pod = pod_of(workload)
        assert pod["metadata"]["labels"][part] == whose
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert {"requests", "limits"} <= container["resources"].keys()
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}
        if workload["kind"] in ("DaemonSet", "Deployment"):
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
            is_console = pod["metadata"]["labels"]["app.kubernetes.io/component"] == "console"  # pods live without it
            assert pod["spec"].get("priorityClassName", "").startswith("system-") != is_console
        if name(workload).endswith("-node"):
            continue
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_driver_sees_the_nodes_root_and_processes_only_to_run_plugins() -> None:
    def driver(**node: object) -> tuple[Any, Any]:
        (found,) = of_kind(Case(values={"node": node}).objects(), "DaemonSet")
        pod = found["spec"]["template"]["spec"]
        return pod, pod["containers"][0]

    with_plugins, runs = driver()
    assert with_plugins["hostPID"]
    assert "--cni-root=/host" in runs["args"]
    options = {"allowPlugins": ["*"], "allowHostPaths": ["/etc/cni"], "deviceRegistry": {"enabled": True}}
    without, runs_none = driver(runPlugins=False, **options)
    assert "hostPID" not in without
    assert "--no-plugins" in runs_none["args"]
    assert not [each for each in runs_none["args"] if "cni" in each or "allow-plugin" in each or "host-path" in each]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in without["volumes"] if "hostPath" in volume}
    assert "/" not in paths.values()
    assert {mount["name"] for mount in runs_none["volumeMounts"]} == {volume["name"] for volume in without["volumes"]}
    assert runs_none["securityContext"]["capabilities"] == {
        "drop": ["ALL"],
        "add": ["NET_ADMIN", "NET_BROADCAST", "SYS_ADMIN"],
    }
    assert set(runs["securityContext"]["capabilities"]["add"]) > {"NET_ADMIN", "NET_BROADCAST", "SYS_ADMIN"}


WITHS: dict[str, dict[str, Any]] = {
    "Neutron": {"controller": {"neutron": {"cloudsSecret": "clouds"}}},
    "the device registry": {"node": {"deviceRegistry": {"enabled": True}}},
    "CNIPlugins": {"cniPlugins": {"enabled": True}},
    "checks of pods": {"webhook": {"checkPods": True}},
}


@pytest.mark.parametrize("present", [(), *((option,) for option in WITHS), tuple(WITHS)], ids="+".join)
def test_service_accounts_get_exactly_the_rights_for_the_enabled_options(present: tuple[str, ...]) -> None:
    values: dict[str, Any] = {"cniPlugins": {"enabled": False}, "webhook": {"checkPods": False}}
    for option in present:
        values |= WITHS[option]
    found = of_kind(Case(values=values).objects(), "Role", "ClusterRole")
    for process in PROCESSES:
        roles = [each for each in found if name(each) in (f"netdra-{process}", f"netdra-{process}-certificate")]
        options = of_options(process)
        without = {right for option in options.keys() - set(present) for right in options[option]}
        assert {right for role in roles for right in given(role)} == set(needed(process)) - without


def test_the_definitions_are_upgraded_with_the_release_and_outlive_it() -> None:
    found = of_kind(Case().objects(), "CustomResourceDefinition")
    assert {name(each) for each in found} == {kind.name for kind in kinds.KINDS}
    assert {each["metadata"]["annotations"]["helm.sh/resource-policy"] for each in found} == {"keep"}
    assert not of_kind(CASES["little"].objects(), "CustomResourceDefinition")


def test_with_cert_manager_the_webhook_may_write_nothing() -> None:
    found = CASES["cert-manager"].objects()
    assert not [each for each in found if "certificate" in name(each) and each["kind"].endswith(("Role", "Binding"))]
    for configuration in of_kind(found, "ValidatingWebhookConfiguration"):
        assert configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == "netdra/netdra-webhook"
    certificates = {name(each): each["spec"] for each in of_kind(found, "Certificate")}
    issuers = {name(each): each["spec"] for each in of_kind(found, "Issuer")}
    assert "netdra-webhook.netdra.svc" in certificates["netdra-webhook"]["dnsNames"]
    # A renewed certificate has the same authority: while replicas have different certificates, all are trusted.
    (authority,) = (each for each in certificates.values() if each.get("isCA"))
    assert issuers[certificates["netdra-webhook"]["issuerRef"]["name"]] == {
        "ca": {"secretName": authority["secretName"]}
    }
    assert issuers[authority["issuerRef"]["name"]] == {"selfSigned": {}}
    assert not of_kind(CASES["issuer"].objects(), "Issuer")
    (named,) = of_kind(CASES["issuer"].objects(), "Certificate")
    assert named["spec"]["issuerRef"]["name"] == "corporate"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"node": {"tolerationz": []}}, "at '/node': additional properties 'tolerationz' not allowed"),
        ({"webhook": {"replicas": "two"}}, "at '/webhook/replicas': got string, want integer"),
        ({"image": {"digest": "sha256:short"}}, "at '/image/digest'"),
        ({"node": {"kubeletRoot": "var/lib/kubelet"}}, "at '/node/kubeletRoot'"),
        ({"node": {"physnets": {"physnet2": "enp1s0f0"}}}, "at '/node/physnets/physnet2': got string, want array"),
        ({"node": {"physnets": {"physnet2": ["enp1s0f0,enp1s0f1"]}}}, "at '/node/physnets/physnet2/0'"),
        ({"node": {"deviceRegistry": {"mode": "rw"}}}, "at '/node/deviceRegistry/mode'"),
        ({"node": {"podNetworkKind": "Net dra"}}, "at '/node/podNetworkKind'"),
        ({"node": {"deviceRegistry": {"providers": {"bctl": "me"}}}}, "at '/node/deviceRegistry/providers/bctl'"),
        ({"node": {"extraEnv": [{"nam": "A"}]}}, "at '/node/extraEnv/0'"),
        ({"controller": {"neutron": {"physnets": {"physnet2": "blue"}}}}, "at '/controller/neutron/physnets/physnet2'"),
        ({"controller": {"neutron": {"physnets": {"physnet2": {"subnet": "x"}}}}}, "missing property 'network'"),
        ({"controller": {"neutron": {"allowedNetworks": ["blue"]}}}, "at '/controller/neutron/allowedNetworks/0'"),
        ({"controller": {"neutron": {"secret": "x"}}}, "additional properties 'secret' not allowed"),
        ({"networkPolicy": {"apiServers": ["10.0.0.0/33"]}}, "at '/networkPolicy/apiServers/0'"),
        ({"networkPolicy": {"apiServers": ["fd00::/129"]}}, "at '/networkPolicy/apiServers/0'"),
        ({"networkPolicy": {"neutronServers": ["300.0.0.0/8"]}}, "at '/networkPolicy/neutronServers/0'"),
        ({"fullnameOverride": "No_Name"}, "at '/fullnameOverride'"),
        ({"namespaceOverride": "a.b"}, "at '/namespaceOverride'"),
        ({"node": {"serviceAccountName": 'a"b'}}, "at '/node/serviceAccountName'"),
        (
            {"node": {"serviceAccountName": "netdra-webhook"}},
            "accounts netdra-webhook, netdra-controller, netdra-webhook",
        ),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(values: dict[str, Any], told: str) -> None:
    with pytest.raises(helm.HelmError) as refused:
        Case(values=values).objects()
    assert told in refused.value.stderr


def test_the_hardened_installation_of_the_security_page_omits_the_privileges_it_lists() -> None:
    page = (CHART.parents[1] / "docs" / "security.md").read_text()
    block = page.partition("### Hardened installation")[2].split("```")[1]
    found = Case(values=yaml.safe_load(block)).objects()
    (driver,) = (pod_of(each)["spec"] for each in of_kind(found, "DaemonSet"))
    (container,) = driver["containers"]
    assert container["securityContext"]["capabilities"]["add"] == ["NET_ADMIN", "NET_BROADCAST", "SYS_ADMIN"]
    assert "hostPID" not in driver
    assert "host" not in {volume["name"] for volume in driver["volumes"]}
    rights = {(verb, kind) for role in of_kind(found, "Role", "ClusterRole") for verb, kind in _writes(role)}
    assert not {kind for _, kind in rights} & {"daemonsets", "secrets", "validatingwebhookconfigurations"}
    assert {verb for verb, kind in rights if kind == "cnipluginschemas"} == {"delete"}
    assert "aggregate-to" not in str(found)
    (webhook,) = (each for each in of_kind(found, "NetworkPolicy") if name(each) == "netdra-webhook")
    reviews, metrics = webhook["spec"]["ingress"]
    assert reviews["from"] == [{"ipBlock": {"cidr": "10.1.0.10/32"}}]
    assert metrics["from"][0].keys() == {"namespaceSelector", "podSelector"}
    assert webhook["spec"]["egress"][1]["to"] == [{"ipBlock": {"cidr": "10.1.0.10/32"}}]


def _writes(role: Object) -> set[tuple[str, str]]:
    """The write rights of a process from its role; roles of people are separate."""
    return {
        (verb, kind)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for kind in rule["resources"]
        if verb not in ("get", "list", "watch") and name(role) not in PEOPLE
    }


def test_monitors_rules_and_dashboard_match_the_workloads_that_serve_metrics() -> None:
    found = CASES["watched"].objects()
    (rules,) = of_kind(found, "PrometheusRule")
    (group,) = rules["spec"]["groups"]
    (written,) = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [rule["alert"] for rule in written["rules"]]
    down = group["rules"][0]["expr"]
    assert f'namespace="{CASES["watched"].namespace}", pod=~"prod-netdra-(node|controller|webhook)-.*"' in down
    (dashboard,) = of_kind(found, "ConfigMap")
    assert yaml.safe_load(dashboard["data"]["netdra.json"])["panels"]
    (watching,) = of_kind(found, "ServiceMonitor")
    (service,) = (each for each in of_kind(found, "Service") if name(each).endswith("-metrics"))
    assert watching["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    serving = [
        name(each)
        for each in of_kind(found, "Deployment")
        if any(port["name"] == "metrics" for port in pod_of(each)["spec"]["containers"][0]["ports"])
        and service["spec"]["selector"].items() <= pod_of(each)["metadata"]["labels"].items()
    ]
    assert serving == ["prod-netdra-controller", "prod-netdra-webhook"]
    (drivers,) = of_kind(found, "PodMonitor")
    (driver,) = of_kind(found, "DaemonSet")
    assert drivers["spec"]["selector"]["matchLabels"].items() <= pod_of(driver)["metadata"]["labels"].items()
    assert "--health-address=:8490" in pod_of(driver)["spec"]["containers"][0]["args"]
    (untouched,) = of_kind(Case().objects(), "DaemonSet")
    assert "--health-address=127.0.0.1:8490" in pod_of(untouched)["spec"]["containers"][0]["args"]
    assert {each["metadata"]["labels"]["release"] for each in (rules, dashboard, watching, drivers)} == {"prometheus"}


def test_directories_of_the_values_are_at_the_same_path_in_the_drivers_pod_and_known_to_its_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the node's root as `--host-root`, a command of the pod looks where the driver does."""
    places = {"kubeletRoot": "/data/kubelet", "stateDir": "/data/netdra", "nriDir": "/data/nri"}
    found = Case(values={"node": {**places, "cniPath": ["/data/cni", "/opt/cni"]}}).objects()
    (pod,) = (pod_of(each)["spec"] for each in of_kind(found, "DaemonSet"))
    (container,) = pod["containers"]
    folders = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"] if each["name"] in folders}
    assert mounts.pop("host") == "/host"
    assert mounts == {name: folders[name] for name in mounts}
    for each in container["env"]:
        monkeypatch.setenv(each["name"], each.get("value", ""))
    for command in (doctor.command, support_bundle.command, node.command):
        known = command.make_context("command", ["bundle"] if command is support_bundle.command else []).params
        assert known["kubelet_root"] == Path("/data/kubelet")
        assert known["state_dir"] == Path("/data/netdra")
        assert known["nri_socket"] == Path("/data/nri/nri.sock")
        assert known["cni_path"] == (Path("/data/cni"), Path("/opt/cni"))


def test_the_physnets_of_the_values_reach_the_driver_arguments() -> None:
    case = CASES["everything"]
    (driver,) = of_kind(case.objects(), "DaemonSet")
    arguments = pod_of(driver)["spec"]["containers"][0]["args"]
    given = [each.partition("=")[2] for each in arguments if each.startswith("--physnet=")]
    told = case.values["node"]["physnets"]
    assert physnets.read(given) == {physnet: tuple(nics) for physnet, nics in told.items()}


def test_the_driver_reports_networks_of_sig_networks_draft_where_it_is_wanted() -> None:
    (usual,) = of_kind(Case().objects(), "DaemonSet")
    assert "--pod-network-kind" not in str(usual)
    (driver,) = of_kind(CASES["everything"].objects(), "DaemonSet")
    assert "--pod-network-kind=netdra" in pod_of(driver)["spec"]["containers"][0]["args"]


def test_the_driver_holds_devices_with_unknown_differences_where_it_is_wanted() -> None:
    (usual,) = of_kind(Case().objects(), "DaemonSet")
    assert "--unknown-differences" not in str(usual)
    (driver,) = of_kind(CASES["everything"].objects(), "DaemonSet")
    assert "--unknown-differences=Hold" in pod_of(driver)["spec"]["containers"][0]["args"]


def test_the_device_registry_is_served_where_it_is_wanted() -> None:
    (usual,) = of_kind(Case().objects(), "DaemonSet")
    assert "registry.sock" not in str(usual)
    (driver,) = of_kind(CASES["everything"].objects(), "DaemonSet")
    pod = pod_of(driver)["spec"]
    (container,) = pod["containers"]
    assert [each for each in container["args"] if each.startswith("--registry")] == [
        "--registry-socket=/run/netdra-registry/registry.sock",
        "--registry-mode=0660",
        "--registry-group=4242",
        "--registry-tokens-only",
        "--registry-provider=bctl=system:serviceaccount:bctl:probe",
        "--registry-provider=rack=uid:1000",
    ]
    assert pod["securityContext"] == {"supplementalGroups": [4242]}
    (volume,) = (each for each in pod["volumes"] if each["name"] == "device-registry")
    assert volume["hostPath"] == {"path": "/run/netdra", "type": "DirectoryOrCreate"}


def test_common_labels_and_annotations_are_added_and_change_no_selector() -> None:
    case = CASES["everything"]
    found = case.objects()
    for each in found:
        labels = each["metadata"]["labels"]
        assert (labels["team"], labels["app.kubernetes.io/name"]) == ("network", "netdra")
    for each in of_kind(found, "DaemonSet", "Deployment"):
        assert "team" not in each["spec"]["selector"]["matchLabels"]
        assert pod_of(each)["metadata"]["labels"]["team"] == "network"
        assert pod_of(each)["metadata"]["annotations"]["example.com/owner"] == "network"
    services = [each for each in of_kind(found, "Service", "ServiceAccount") if "helm.sh/hook" not in str(each)]
    for each in (*of_kind(found, "DaemonSet", "Deployment"), *services):
        assert each["metadata"]["annotations"] == {"example.com/owner": "network"}


def test_the_webhook_on_the_hosts_network_has_ports_of_the_node_and_goes_before_it_comes() -> None:
    found = CASES["host-network"].objects()
    (webhook,) = (each for each in of_kind(found, "Deployment") if name(each) == "netdra-webhook")
    pod = pod_of(webhook)["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    (container,) = pod["containers"]
    assert {"--port=9443", "--health-address=:9444"} <= set(container["args"])
    assert [port["containerPort"] for port in container["ports"]] == [9443, 9444]
    assert webhook["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    (policy,) = (each for each in of_kind(found, "NetworkPolicy") if name(each) == "netdra-webhook")
    assert [rule["ports"][0]["port"] for rule in policy["spec"]["ingress"]] == [9443, 9444]


def test_drivers_can_be_replaced_by_hand() -> None:
    (driver,) = of_kind(CASES["host-network"].objects(), "DaemonSet")
    assert driver["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_a_mirror_is_in_front_of_every_image() -> None:
    for workload in of_kind(Case(values={**CASES["host-network"].values, **HOOKS}).objects(), *WORKLOADS):
        (container,) = pod_of(workload)["spec"]["containers"]
        assert container["image"].startswith("mirror.example.com:5000/net/netdra:")


def test_without_cni_plugins_the_controller_has_no_rights_on_workloads() -> None:
    def rights(case: Case) -> set[str]:
        rules = [
            rule
            for role in of_kind(case.objects(), "Role", "ClusterRole")
            if name(role) == "netdra-controller"
            for rule in role["rules"]
        ]
        return {resource for rule in rules for resource in rule["resources"]}

    assert rights(Case()) - rights(CASES["host-network"]) == {"daemonsets", "pods"}
    (controller,) = (
        each for each in of_kind(CASES["host-network"].objects(), "Deployment") if name(each) == "netdra-controller"
    )
    assert "--image" not in str(pod_of(controller)["spec"]["containers"][0]["args"])


def test_without_cni_plugins_the_controller_creates_no_schema_by_which_nodes_run_a_program() -> None:
    found = CASES["host-network"].objects()
    verbs = {
        verb
        for role in of_kind(found, "ClusterRole")
        if name(role) == "netdra-controller"
        for rule in role["rules"]
        if "cnipluginschemas" in rule["resources"]
        for verb in rule["verbs"]
    }
    assert verbs == {"get", "list", "watch", "delete"}
    (policy,) = (each for each in of_kind(found, "ValidatingAdmissionPolicy") if name(each) == "netdra-own-schemas")
    (rule,) = policy["spec"]["validations"]
    assert "cni-plugin" not in rule["expression"]


def test_the_pods_of_cni_plugins_get_the_pull_secrets_of_netdras_image() -> None:
    case = Case(values={"image": {"pullSecrets": [{"name": "mirror"}, {"name": "other"}]}})
    (controller,) = (each for each in of_kind(case.objects(), "Deployment") if name(each) == "netdra-controller")
    arguments = pod_of(controller)["spec"]["containers"][0]["args"]
    assert [each for each in arguments if "secret" in each] == [
        "--image-pull-secret=mirror",
        "--image-pull-secret=other",
    ]


def test_volumes_and_security_contexts_are_added_to_every_pod() -> None:
    for workload in of_kind(CASES["extended"].objects(), *WORKLOADS):
        pod = pod_of(workload)["spec"]
        (container,) = pod["containers"]
        assert {"name": "ca", "configMap": {"name": "ca"}} in pod["volumes"]
        assert {"name": "ca", "mountPath": "/etc/ssl/ca", "readOnly": True} in container["volumeMounts"]
        assert pod["securityContext"]["fsGroup"] == 4242


def test_controller_and_webhook_can_run_where_the_control_plane_does() -> None:
    key = "node-role.kubernetes.io/control-plane"
    for workload in of_kind(CASES["hooks"].objects(), *WORKLOADS):
        assert any(each.get("key", key) == key for each in pod_of(workload)["spec"]["tolerations"])


def test_roles_for_people_are_part_of_kubernetes_own_unless_that_is_switched_off() -> None:
    roles = {name(each): each for each in of_kind(Case().objects(), "ClusterRole") if name(each) in PEOPLE}
    for role in ("view", "edit", "admin"):
        labels = roles[f"netdra-{role}"]["metadata"]["labels"]
        assert [label for label in labels if "aggregate" in label] == [f"rbac.authorization.k8s.io/aggregate-to-{role}"]
    # In view, it would let a user of view read nodes.
    assert "aggregate" not in str(roles["netdra-reader"])
    assert "aggregate" not in str(roles["netdra-ipam"])
    apart = [each for each in of_kind(CASES["host-network"].objects(), "ClusterRole") if name(each) in PEOPLE]
    assert len(apart) == len(PEOPLE)
    assert "aggregate" not in str(apart)


def test_only_the_controller_is_given_the_clouds_credentials() -> None:
    case = CASES["neutron"]
    found = case.objects()
    given = [name(each) for each in of_kind(found, *WORKLOADS) if "netdra-neutron" in str(pod_of(each)["spec"])]
    assert given == ["netdra-controller"]
    (controller,) = (each for each in of_kind(found, "Deployment") if name(each) == "netdra-controller")
    pod = pod_of(controller)
    (container,) = pod["spec"]["containers"]
    assert [each for each in container["args"] if each.startswith("--neutron")] == [
        "--neutron-clouds=/etc/netdra/neutron/clouds.yaml",
        "--neutron-cloud=prod",
        "--neutron-cluster-name=prod-1",
        "--neutron-physnets=/etc/netdra/neutron-physnets/physnets.yaml",
        "--neutron-allow-project=59429e61098747c8bce16017b5ac0ebe",
        "--neutron-allow-network=1a2a95af-01e5-469c-b7c8-9ebcc26b06cb",
        "--neutron-shared-names",
    ]
    sources = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    mounted = {mount["mountPath"]: sources[mount["name"]] for mount in container["volumeMounts"]}
    assert mounted["/etc/netdra/neutron"]["secret"] == {"secretName": "netdra-neutron"}
    (physnets_map,) = of_kind(found, "ConfigMap")
    assert mounted["/etc/netdra/neutron-physnets"]["configMap"] == {"name": name(physnets_map)}
    assert yaml.safe_load(physnets_map["data"]["physnets.yaml"]) == case.values["controller"]["neutron"]["physnets"]
    changed = Case(values={"controller": {"neutron": {"cloudsSecret": "netdra-neutron"}}})
    (other,) = (each for each in of_kind(changed.objects(), "Deployment") if name(each) == "netdra-controller")
    assert pod_of(other)["metadata"]["annotations"] != pod["metadata"]["annotations"]
    assert pod["metadata"]["annotations"]["example.com/a"] == "b"


def test_the_controller_reaches_neutron_where_it_has_one() -> None:
    def ways(case: Case) -> dict[str, list[Any]]:
        return {name(each): each["spec"]["egress"] for each in of_kind(case.objects(), "NetworkPolicy")}

    usual, asked = ways(Case()), ways(CASES["neutron"])
    assert asked["netdra-webhook"] == usual["netdra-webhook"]
    assert asked["netdra-controller"] == [
        *usual["netdra-controller"],
        {
            "ports": [{"port": 5000, "protocol": "TCP"}, {"port": 9696, "protocol": "TCP"}],
            "to": [{"ipBlock": {"cidr": "10.2.0.0/24"}}],
        },
    ]


def test_a_cluster_that_is_too_old_is_refused() -> None:
    with pytest.raises(helm.HelmError, match="incompatible with Kubernetes"):
        helm.helm("template", "netdra", str(CHART), "--kube-version=v1.35.0")


def test_manifests_that_were_rendered_before_are_read_instead_of_rendered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the SR-IOV machine: with the same values, of the same chart."""
    values: tuple[Mapping[str, Any], ...] = ({}, helm.WITH_ALL)
    rendered = [helm.template(CHART, "netdra", "netdra", each) for each in values]
    helm.keep(tmp_path / "kept", *values)
    monkeypatch.setenv(helm.RENDERED, str(tmp_path / "kept"))
    monkeypatch.setenv("NETDRA_TESTBED_CACHE", str(tmp_path / "without helm"))
    assert [helm.template(CHART, "netdra", "netdra", each) for each in values] == rendered
    with pytest.raises(BuildError):
        helm.template(CHART, "netdra", "netdra", {"console": {"enabled": False}})
