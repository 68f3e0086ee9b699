"""Finding the API server's configuration: what is missing or broken is stated, never a traceback."""

import json
from pathlib import Path
from typing import Any

import pytest

from netdra.kube.connection import connect, find_config
from netdra.kube.kubeconfig import Config
from netdra.model.errors import InvalidInputError


def written(folder: Path, *, user: dict[str, Any] | None = None, current: str | None = "b") -> Path:
    path = folder / "config"
    names = ("a", "b")
    config = {
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example.com"}} for name in names],
        "users": [{"name": name, "user": user or {"token": name}} for name in names],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": f"n{name}"}} for name in names
        ],
    }
    path.write_text(json.dumps(config | ({"current-context": current} if current else {})))
    return path


def test_the_current_context_is_used_unless_another_is_named(tmp_path: Path) -> None:
    path = written(tmp_path)

    assert find_config(path).cluster.server == "https://b.example.com"
    assert find_config(path, "a").cluster.server == "https://a.example.com"
    assert find_config(path).namespace == "nb"


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(written(tmp_path)))

    assert find_config(service_account=tmp_path / "none").cluster.server == "https://b.example.com"


def test_in_a_pod_the_service_account_comes_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(written(tmp_path)))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name in ("token", "namespace", "ca.crt"):
        (tmp_path / name).write_text(name)

    found = find_config(service_account=tmp_path)

    assert found.cluster.server == "https://[fd00::1]:443"
    assert found.user.token_file == str(tmp_path / "token")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a kubeconfig: clusters, users"),
        (b"a: b", "not a kubeconfig"),
        (b"a text", "not a kubeconfig"),
        (b"clusters: 7", "not a kubeconfig"),
        (b"token: [", "not YAML: line 2, column 1"),
        (b"token: se\xffcret", "not YAML in UTF-8"),
        (b"token: se\x01cret", "not YAML in UTF-8"),
        (b"clusters: []\ncontexts: []\n", "No current context"),
    ],
)
def test_an_invalid_kubeconfig_is_rejected_without_revealing_its_content(data: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(data)

    with pytest.raises(InvalidInputError, match=why) as caught:
        find_config(tmp_path / "config")
    assert "secret" not in str(caught.value).replace("\\xff", "").replace("\\x01", "")
    assert caught.value.hint.startswith("specify it with --")


def test_a_missing_file_or_context_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="not found"):
        find_config(tmp_path / "nowhere")
    with pytest.raises(InvalidInputError, match="'c' not found"):
        find_config(written(tmp_path), "c")
    with pytest.raises(InvalidInputError, match="No current context"):
        find_config(written(tmp_path, current=None))


def test_a_missing_client_certificate_is_rejected_with_its_context(tmp_path: Path) -> None:
    user = {"client-certificate": "/nonexistent.crt", "client-key": "/nonexistent.key"}

    with pytest.raises(InvalidInputError, match='context "b"'):
        connect(find_config(written(tmp_path, user=user)))


def test_of_several_files_the_first_that_names_a_thing_counts_and_paths_are_relative_to_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    first: dict[str, Any] = {
        "contexts": [{"name": "b", "context": {"cluster": "b", "user": "c"}}],
        "users": [{"name": "c", "user": {"tokenFile": "token", "client-key": None}}],
        "clusters": None,
        "current-context": "",
    }
    (one / "config").write_text(json.dumps(first))
    written(two)
    document = json.loads((two / "config").read_text())
    document["clusters"][1]["cluster"]["certificate-authority"] = "ca.crt"
    (two / "config").write_text(json.dumps(document))
    (tmp_path / "empty").touch()
    files = [tmp_path / "none", one / "config", tmp_path / "empty", two / "config"]
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, files)))

    found = find_config(service_account=tmp_path / "none")

    assert found.cluster.server == "https://b.example.com"
    assert found.cluster.certificate_authority == str(two / "ca.crt")
    assert found.user.token_file == str(one / "token")
    assert found.namespace == "default"
    assert find_config(context="a", service_account=tmp_path / "none").user.token == "a"


@pytest.mark.parametrize(
    ("command", "found"), [("aws", "aws"), ("./bin/login", "{folder}/bin/login"), ("/opt/login", "/opt/login")]
)
def test_a_plugins_path_is_relative_to_the_file_and_its_name_is_not(tmp_path: Path, command: str, found: str) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": command, "args": None}
    user = find_config(written(tmp_path, user={"exec": plugin})).user
    assert user.exec_ is not None
    assert user.exec_.command == found.format(folder=tmp_path)


SECRET = "hunter2"


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ({"token": 7}, r"Expected `str`, got `int` - at `\$.users\[0\].user.token`"),
        ({"exec": {"interactiveMode": SECRET}}, "a value that is not allowed at"),
        ({"exec": {"command": "x", "apiVersion": "v7"}}, 'apiVersion "v7" is not supported'),
        ({"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, "is not supported"),
        ({"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1"}}, "interactiveMode must be"),
        ({"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1"}}, "command is missing"),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": SECRET}}}, "use an exec plugin"),
        ({"token": SECRET, "username": "x", "password": SECRET}, "cannot be combined"),
        ({"client-certificate": "x"}, "requires client-key"),
        ({"as-groups": ["x"]}, "require `as`"),
    ],
)
def test_an_invalid_kubeconfig_user_is_rejected_without_revealing_secrets(
    tmp_path: Path, user: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidInputError, match=why) as told:
        find_config(written(tmp_path, user=user))
    assert SECRET not in str(told.value)


def of_cluster(folder: Path, **cluster: Any) -> Config:
    path = written(folder)
    document = json.loads(path.read_text())
    document["clusters"][1]["cluster"] = cluster
    path.write_text(json.dumps(document))
    return find_config(path)


def test_a_server_may_be_written_short_and_must_be_one(tmp_path: Path) -> None:
    assert of_cluster(tmp_path, server="localhost:8080").cluster.server == "http://localhost:8080"
    secure = of_cluster(tmp_path, server="api:6443/", **{"insecure-skip-tls-verify": True})
    assert secure.cluster.server == "https://api:6443"
    for server in ("ftp://x", "https://", "https://x:port", "https://[::1"):
        with pytest.raises(InvalidInputError, match="must be a URL"):
            of_cluster(tmp_path, server=server)
    with pytest.raises(InvalidInputError, match="does not have a server"):
        of_cluster(tmp_path)
    with pytest.raises(InvalidInputError, match="cannot be combined"):
        of_cluster(tmp_path, server="x", **{"insecure-skip-tls-verify": True, "certificate-authority": "ca"})


def test_a_context_with_an_unknown_cluster_or_user_is_rejected_with_the_known_names(tmp_path: Path) -> None:
    path = written(tmp_path)
    document = json.loads(path.read_text())
    for part in ("cluster", "user"):
        changed = json.loads(json.dumps(document))
        changed["contexts"][1]["context"][part] = "c"
        path.write_text(json.dumps(changed))
        with pytest.raises(InvalidInputError, match=f"context \"b\": {part} 'c' not found") as told:
            find_config(path)
        assert told.value.hint == "it contains a, b"


def test_an_explicit_context_uses_the_kubeconfig_even_inside_a_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(written(tmp_path)))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    (tmp_path / "token").write_text("token")

    assert find_config(service_account=tmp_path).cluster.server == "https://10.0.0.1:443"
    assert find_config(context="a", service_account=tmp_path).cluster.server == "https://a.example.com"


@pytest.mark.parametrize("text", ["[" * 100_000, "a: " * 100_000, "{a: &a [1], b: *a, clusters: *a, users: {" * 300])
def test_a_file_that_is_nested_deeply_is_bad_input(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(InvalidInputError, match="kubeconfig"):
        find_config(tmp_path / "config")
