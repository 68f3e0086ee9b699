"""The command lines of a control plane's components, made from settings and wiring.

Called by `testbed.control_plane`. Pure: nothing is started or written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.build import program
from testbed.certificates import KeyPair

SERVICE_RANGE = "10.0.0.0/24"
# The defaults throttle a client to 20 requests a second, so that the controllers alone would take 6 s to start.
_UNTHROTTLED = ("--kube-api-qps=5000", "--kube-api-burst=10000")


@dataclass(frozen=True)
class Settings:
    """The settings that distinguish control planes; the defaults are those of the release.

    Attributes:
        feature_gates: given to every Kubernetes component.
        runtime_config: API versions to switch on or off (`api/all=true`, `resource.k8s.io/v1beta1=true`).
        scheduler: whether kube-scheduler runs.
        scheduler_program: which one, `kube-scheduler-1.38` for that of the next release.
        controller_manager: whether kube-controller-manager runs. Without it nothing makes service accounts or claims
            from templates, deletes the objects of a namespace, collects garbage, or watches nodes join and leave.
        arguments: further arguments by component, which win over those given here.
        address: the address that everything listens on.
        hosts: further names and addresses that the serving certificate is valid for.
    """

    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Sequence[str] = ()
    scheduler: bool = True
    scheduler_program: str = "kube-scheduler"
    controller_manager: bool = True
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    address: str = "127.0.0.1"
    hosts: Sequence[str] = ()

    def url(self, port: int, scheme: str = "https") -> str:
        """The URL of something that listens on a port of this control plane."""
        return f"{scheme}://{f'[{self.address}]' if ':' in self.address else self.address}:{port}"


@dataclass(frozen=True)
class Wiring:
    """The ports and files that tie the components of one control plane together.

    Attributes:
        settings: what this control plane is to be.
        data: etcd's folder.
        etcd, peer, apiserver: ports.
        admission: the configuration of the API server's admission plugins.
        authority: the certificate that all clients' and servers' certificates are signed with.
        serving: what every component serves with.
        kubelet_client: what the API server shows to kubelets.
        service_accounts: the key that tokens are signed with.
    """

    settings: Settings
    data: Path
    etcd: int
    peer: int
    apiserver: int
    admission: Path
    authority: Path
    serving: KeyPair
    kubelet_client: KeyPair
    service_accounts: Path


def etcd(wiring: Wiring) -> list[str]:
    """An etcd of one member that syncs nothing to disk and elects itself at once instead of after a second."""
    clients = wiring.settings.url(wiring.etcd, "http")
    peers = wiring.settings.url(wiring.peer, "http")
    return [
        str(program("etcd")),
        "--name=default",
        f"--data-dir={wiring.data}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--heartbeat-interval=100",
        "--election-timeout=500",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        *wiring.settings.arguments.get("etcd", ()),
    ]


def apiserver(wiring: Wiring) -> list[str]:
    """A kube-apiserver with the Node and RBAC authorizers, NodeRestriction and the admission plugins of the release."""
    settings = wiring.settings
    runtime = ",".join(settings.runtime_config)
    return [
        *_served("kube-apiserver", wiring, wiring.apiserver),
        f"--etcd-servers={settings.url(wiring.etcd, 'http')}",
        # It is not reachable through the `kubernetes` service here, and a loopback address may not be published there.
        f"--advertise-address={settings.address}",
        "--endpoint-reconciler-type=none",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--admission-control-config-file={wiring.admission}",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={wiring.service_accounts}",
        f"--service-account-signing-key-file={wiring.service_accounts}",
        f"--client-ca-file={wiring.authority}",
        # Nothing is aggregated here, but the other components log errors for as long as this is not published.
        f"--requestheader-client-ca-file={wiring.authority}",
        "--requestheader-allowed-names=front-proxy-client",
        f"--kubelet-client-certificate={wiring.kubelet_client.certificate}",
        f"--kubelet-client-key={wiring.kubelet_client.key}",
        *([f"--runtime-config={runtime}"] if runtime else []),
        # Nothing creates service accounts here, so the plugin that requires them would refuse every pod.
        *([] if settings.controller_manager else ["--disable-admission-plugins=ServiceAccount"]),
        *settings.arguments.get("kube-apiserver", ()),
    ]


def scheduler(wiring: Wiring, port: int, kubeconfig: Path) -> list[str]:
    """A kube-scheduler with its default profile."""
    return [
        *_served(wiring.settings.scheduler_program, wiring, port),
        *_client(kubeconfig),
        *wiring.settings.arguments.get("kube-scheduler", ()),
    ]


def controller_manager(wiring: Wiring, port: int, kubeconfig: Path) -> list[str]:
    """A kube-controller-manager with all controllers that are on by default."""
    return [
        *_served("kube-controller-manager", wiring, port),
        *_client(kubeconfig),
        "--use-service-account-credentials",
        f"--root-ca-file={wiring.authority}",
        f"--service-account-private-key-file={wiring.service_accounts}",
        # Nodes that are only API objects have no kubelet to renew their leases: let them stay Ready.
        "--node-monitor-grace-period=24h",
        *wiring.settings.arguments.get("kube-controller-manager", ()),
    ]


def _served(name: str, wiring: Wiring, port: int) -> list[str]:
    gates = ",".join(f"{gate}={str(on).lower()}" for gate, on in wiring.settings.feature_gates.items())
    return [
        str(program(name)),
        f"--bind-address={wiring.settings.address}",
        f"--secure-port={port}",
        f"--tls-cert-file={wiring.serving.certificate}",
        f"--tls-private-key-file={wiring.serving.key}",
        *([f"--feature-gates={gates}"] if gates else []),
    ]


def _client(kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        *_UNTHROTTLED,
    ]
