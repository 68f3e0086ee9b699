"""netdra's user on a real API server by a kubeconfig is kubectl's, and where kubectl has no user, netdra has none."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from netdra.kube.resources import Resource
from netdra.model.errors import NetdraError
from netdra.model.meta import ObjectMeta
from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.kubectl import KubectlError, kubectl
from testbed.workspace import Workspace


class Review(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    status: dict[str, Any] = {}


REVIEWS = Resource("authentication.k8s.io/v1", "selfsubjectreviews", Review)
API = "client.authentication.k8s.io"


def by_kubectl(config: Path) -> dict[str, Any] | None:
    """kubectl's user; None if it cannot report one."""
    try:
        printed = kubectl(config, "--request-timeout=20s", "auth", "whoami", "-o", "json")
    except KubectlError:
        return None
    found: dict[str, Any] = json.loads(printed)["status"]
    return found


def by_netdra(config: Path) -> dict[str, Any] | None:
    async def asked() -> dict[str, Any]:
        async with Client(connect(find_config(config))) as client:
            return (await client.create(REVIEWS, Review())).status

    try:
        return asyncio.run(asked())
    except NetdraError:
        return None


def token_of(api: Api, workspace: Workspace) -> str:
    path = api.path("v1/ServiceAccount", workspace.namespace, "default", "token")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token: str = api.request("POST", path, request)["status"]["token"]
    return token


class Files:
    """Kubeconfigs for one control plane."""

    def __init__(self, plane: ControlPlane, folder: Path, token: str) -> None:
        self.folder = folder
        self.token = token
        pair = plane.authority.client("somebody", ["some", "others"])
        self.pair = {
            "clientCertificateData": pair.certificate.read_text(),
            "clientKeyData": pair.key.read_text(),
        }
        self.server = plane.server
        self.trusted = base64.b64encode(plane.authority.own.certificate.read_bytes()).decode()
        (folder / "token").write_text(f"{token}\n")
        (folder / "tls.crt").write_text(self.pair["clientCertificateData"])
        (folder / "tls.key").write_text(self.pair["clientKeyData"])

    def plugin(self, version: str, status: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
        """A user by a program that prints this."""
        printed = {"kind": "ExecCredential", "apiVersion": f"{API}/{version}", "status": status}
        program = self.folder / "login"
        text = json.dumps(printed) if status is not None else ""
        program.write_text(f"#!{sys.executable}\nprint({text!r})\n")
        program.chmod(0o755)
        known = {"apiVersion": f"{API}/{version}", "command": "./login", "interactiveMode": "IfAvailable"}
        return {"exec": known | more}

    def written(self, user: dict[str, Any], **cluster: Any) -> Path:
        known = {"server": self.server, "certificate-authority-data": self.trusted} | cluster
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "a", "cluster": {name: value for name, value in known.items() if value is not None}}],
            "users": [{"name": "a", "user": user}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
        path = self.folder / "config"
        path.write_text(json.dumps(config))
        return path


@pytest.fixture
def files(control_plane: ControlPlane, api: Api, workspace: Workspace, tmp_path: Path) -> Files:
    return Files(control_plane, tmp_path, token_of(api, workspace))


def test_a_kubeconfig_user_is_the_same_for_kubectl_and_netdra(files: Files) -> None:
    certificate = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    other = {"as": "other", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"example.com/x": ["1", "2"]}}
    admins = {**files.pair, "token": files.token}
    users: dict[str, dict[str, Any]] = {
        "certificate": certificate,
        "token": {"token": files.token},
        "token file": {"tokenFile": "token"},
        "both tokens": {"token": "none", "tokenFile": "token"},
        "v1": files.plugin("v1", {"token": files.token}),
        "token before plugin": {"token": files.token, **files.plugin("v1", {"token": "none"})},
        "somebody else": {**certificate, "as": "somebody"},
        "nobody": {"as": "other"},
        "others": {**certificate, **other},
        "short of as": {"token": files.token, "as-groups": ["a"]},
        "two ways": {"token": files.token, "username": "a", "password": "b"},
        "no server has passwords": {"username": "a", "password": "b"},
        "old way": {"auth-provider": {"name": "oidc"}},
    }
    found = {}
    for name, user in users.items():
        config = files.written(user)
        found[name] = by_kubectl(config), by_netdra(config)
    for version in ("v1", "v1beta1"):
        for what, status in (("token", {"token": files.token}), ("pair", files.pair), ("both", admins), ("none", None)):
            config = files.written(files.plugin(version, status, provideClusterInfo=True))
            found[f"{version} {what}"] = by_kubectl(config), by_netdra(config)
    for name, more in (("missing", {"command": "netdra-none"}), ("old", {"apiVersion": f"{API}/v1alpha1"})):
        config = files.written(files.plugin("v1", {"token": files.token}, **more))
        found[name] = by_kubectl(config), by_netdra(config)
    assert {name: each for name, each in found.items() if stable(each[0]) != stable(each[1])} == {}
    assert {name for name, each in found.items() if each[0] is not None} >= {"certificate", "v1 both", "token file"}


def test_a_server_that_kubectl_trusts_is_trusted_here(files: Files) -> None:
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    clusters: tuple[dict[str, Any], ...] = (
        {},
        {"certificate-authority-data": None},
        {"certificate-authority-data": None, "insecure-skip-tls-verify": True},
        {"insecure-skip-tls-verify": True},
        {"tls-server-name": "kubernetes.default.svc"},
        {"tls-server-name": "localhost"},
        {"tls-server-name": "example.com"},
        {"server": f"{files.server}/"},
        {"proxy-url": "http://127.0.0.1:1"},
        {"proxy-url": "ftp://127.0.0.1:1"},
        {"disable-compression": True},
    )
    found = []
    for each in clusters:
        config = files.written(user, **each)
        found.append((each, by_kubectl(config), by_netdra(config)))
    assert [each for each in found if stable(each[1]) != stable(each[2])] == []
    assert sum(theirs is not None for _, theirs, _ in found) >= 4


def stable(status: dict[str, Any] | None) -> Any:
    """Without what each connection or token has of its own."""
    if status is None:
        return None
    info = status["userInfo"]
    return info | {"groups": sorted(info.get("groups", ()))}
