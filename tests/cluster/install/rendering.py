"""Sets of values that the chart of netdra is rendered and installed with, and the results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from testbed import helm
from testbed.api import Object

CHART = helm.CHARTS / "netdra"
LONG = "a-release-whose-name-is-as-long-as-helm-lets-it-be-53"


@dataclass(frozen=True)
class Case:
    """One way to install it."""

    release: str = "netdra"
    namespace: str = "netdra"
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def objects_namespace(self) -> str:
        """Where its objects are."""
        return str(self.values.get("namespaceOverride", self.namespace))

    @property
    def accounts(self) -> set[str]:
        """The service accounts that the values name."""
        components = [self.values.get(each, {}) for each in ("node", "controller", "webhook", "console")]
        return {each["serviceAccountName"] for each in components if "serviceAccountName" in each}

    @cached_property
    def manifests(self) -> str:
        """As text."""
        return helm.template(CHART, self.release, self.namespace, self.values)

    def objects(self) -> list[Object]:
        """As objects."""
        return helm.objects(self.manifests)


HOOKS = {"hooks": {"render": "always"}}
"""The value with which helm renders without a cluster what it renders with one."""
EXTENSIONS = {
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ssl/ca", "readOnly": True}],
    "podSecurityContext": {"fsGroup": 4242, "supplementalGroups": [4243]},
}
"""Values that every component has."""
CASES = {
    "defaults": Case(),
    "hooks": Case(values=HOOKS),
    "other-names": Case("prod", "networking", HOOKS),
    "long-names": Case(LONG, "n" * 63, HOOKS),
    "named": Case("on", "y", {**HOOKS, "fullnameOverride": "0x1"}),
    "own-namespace": Case(values={"namespace": {"create": True}}),
    "overridden": Case(
        "prod",
        "releases",
        {
            **HOOKS,
            "namespaceOverride": "networking",
            "node": {"serviceAccountName": "driver"},
            "controller": {"serviceAccountName": "operator"},
            "webhook": {"serviceAccountName": "admission"},
            "metrics": {"podMonitor": True, "rules": True},
            "networkPolicy": {"enabled": True},
        },
    ),
    "cert-manager": Case(values={"webhook": {"certManager": {"enabled": True}}}),
    "issuer": Case(values={"webhook": {"certManager": {"enabled": True, "issuerRef": {"name": "corporate"}}}}),
    "everything": Case(
        values={
            **HOOKS,
            "presets": {"shared": True},
            "commonLabels": {"team": "network", "app.kubernetes.io/name": "other"},
            "commonAnnotations": {"example.com/owner": "network"},
            "image": {
                "repository": "registry.example.com/netdra",
                "digest": f"sha256:{'0' * 64}",
                "pullSecrets": [{"name": "pull"}],
            },
            "node": {
                "allowPlugins": ["*"],
                "allowHostPaths": ["/etc/cni"],
                "allowDeviceFiles": ["/dev/fpga*"],
                "deviceRegistry": {
                    "enabled": True,
                    "group": 4242,
                    "tokensOnly": True,
                    "providers": {"bctl": "system:serviceaccount:bctl:probe", "rack": "uid:1000"},
                },
                "cniPath": ["/opt/cni/bin", "/usr/lib/cni"],
                "physnets": {"physnet2": ["enp1s0f0", "0000:02:00.0"], "physnet3": ["enp1s0f1"]},
                "podNetworkKind": "netdra",
                "unknownDifferences": "Hold",
                "extraArgs": ["--nri-index=20"],
                "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"}],
                "nodeSelector": {"node-role.kubernetes.io/worker": ""},
                "podLabels": {"team": "network"},
                "podAnnotations": {"example.com/a": "b: c"},
            },
            "controller": {"replicas": 1, "affinity": {"podAntiAffinity": {}}},
            "webhook": {
                "replicas": 3,
                "clientCA": {"secretName": "api-server", "names": ["kube-apiserver"]},
                "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
            },
            "networkPolicy": {"apiServers": ["10.1.0.10/32", "fd00::10/128"]},
        }
    ),
    "watched": Case(
        "prod",
        values={
            "metrics": {
                **dict.fromkeys(("podMonitor", "serviceMonitor", "rules", "dashboard"), True),
                "labels": {"release": "prometheus"},
            }
        },
    ),
    "neutron": Case(
        values={
            "controller": {
                "neutron": {
                    "cloudsSecret": "netdra-neutron",
                    "cloud": "prod",
                    "clusterName": "prod-1",
                    "physnets": {"physnet2": {"network": "blue", "subnet": "blue-4"}, "physnet3": {"network": "green"}},
                    "allowedProjects": ["59429e61098747c8bce16017b5ac0ebe"],
                    "allowedNetworks": ["1a2a95af-01e5-469c-b7c8-9ebcc26b06cb"],
                    "ownNamesOnly": False,
                },
                "podAnnotations": {"example.com/a": "b"},
            },
            "networkPolicy": {"neutronServers": ["10.2.0.0/24"], "neutronPorts": [5000, 9696]},
        }
    ),
    "dots": Case("net.dra.prod", values=HOOKS),
    "host-network": Case(
        values={
            "webhook": {"hostNetwork": True, "port": 9443, "healthPort": 9444},
            "node": {"updateStrategy": "OnDelete"},
            "image": {"registry": "mirror.example.com:5000", "repository": "net/netdra"},
            "cniPlugins": {"enabled": False},
            "roles": {"aggregate": False},
        }
    ),
    "extended": Case(
        values={
            "presets": {"shared": True},
            **dict.fromkeys(("node", "controller", "webhook"), EXTENSIONS),
            "hooks": {**EXTENSIONS, "render": "always"},
        }
    ),
    "console": Case(values={"console": {"enabled": True, **EXTENSIONS}, "networkPolicy": {"enabled": True}}),
    "little": Case(values={"crds": {"enabled": False}, "networkPolicy": {"enabled": False}}),
}


PEOPLE = ("netdra-view", "netdra-edit", "netdra-admin", "netdra-reader", "netdra-ipam")
"""ClusterRoles of these names are in every release, so that there is one release in a cluster."""


def of_kind(objects: Iterable[Object], *kinds: str) -> list[Object]:
    """Those of some kinds."""
    return [each for each in objects if each["kind"] in kinds]


def name(found: Object) -> str:
    """An object's name."""
    result: str = found["metadata"]["name"]
    return result
