"""Finding the API server's configuration: what is missing or broken is said, never a traceback."""

import json
from pathlib import Path
from typing import Any

import pytest

from netdra.kube.connection import connect, find_config
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
    assert found.user is not None
    assert found.user.token_file == str(tmp_path / "token")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a kubeconfig: clusters, users"),
        (b"a: b", "not a kubeconfig"),
        (b"a text", "not a kubeconfig"),
        (b"clusters: 7", "not a kubeconfig"),
        (b"token: [", "not YAML: line 1, column 9"),
        (b"token: se\xffcret", "not YAML in UTF-8"),
        (b"token: se\x01cret", "not YAML in UTF-8"),
        (b"clusters: []\ncontexts: []\n", "No current context"),
    ],
)
def test_a_broken_file_is_bad_input_and_nothing_of_it_is_told(data: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(data)

    with pytest.raises(InvalidInputError, match=why) as caught:
        find_config(tmp_path / "config")
    assert "secret" not in str(caught.value).replace("\\xff", "").replace("\\x01", "")
    assert caught.value.hint == "name one with --kubeconfig or $KUBECONFIG"


def test_a_missing_file_or_context_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="not found"):
        find_config(tmp_path / "nowhere")
    with pytest.raises(InvalidInputError, match="'c' not found"):
        find_config(written(tmp_path), "c")
    with pytest.raises(InvalidInputError, match="No current context"):
        find_config(written(tmp_path, current=None))


def test_a_certificate_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    user = {"client-certificate": "/nonexistent.crt", "client-key": "/nonexistent.key"}

    with pytest.raises(InvalidInputError, match='context "b"'):
        connect(find_config(written(tmp_path, user=user)))
