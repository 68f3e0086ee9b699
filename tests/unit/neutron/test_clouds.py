"""clouds.yaml as the command `openstack` reads it; errors are reported without any value of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from netdra.neutron import clouds
from netdra.neutron.errors import CloudsError

CREDENTIAL = {
    "auth_url": "https://keystone.example.com:5000/v3",
    "application_credential_id": "0123",
    "application_credential_secret": "s3cret",
}
PASSWORD = {
    "auth_url": "https://keystone.example.com:5000",
    "username": "netdra",
    "password": "s3cret",
    "project_name": "kubernetes",
    "user_domain_name": "Default",
    "project_domain_name": "Default",
}


def written(folder: Path, auth: Any = None, **cloud: Any) -> Path:
    path = folder / "clouds.yaml"
    path.write_text(yaml.safe_dump({"clouds": {"openstack": {"auth": auth, **cloud}}}))
    return path


@pytest.mark.parametrize(
    ("auth", "kind", "way"),
    [
        (CREDENTIAL, "v3applicationcredential", "credential"),
        (CREDENTIAL, None, "credential"),
        (PASSWORD, "password", "password"),
        (PASSWORD, "v3password", "password"),
        (PASSWORD, None, "password"),
        ({"endpoint": "http://neutron.example.com:9696"}, "none", "none"),
    ],
)
def test_ways_to_log_in(tmp_path: Path, auth: Any, kind: str | None, way: str) -> None:
    found = clouds.read(written(tmp_path, auth, auth_type=kind))
    assert found.way == way
    assert (found.verify, found.interface, found.region_name) == (True, "public", "")


def test_a_numeric_password_is_read_as_text_and_unused_fields_are_ignored(tmp_path: Path) -> None:
    found = clouds.read(written(tmp_path, PASSWORD | {"password": 1234}, identity_api_version="3", compute={"a": 1}))
    assert found.auth.password == "1234"


def test_authorities_are_looked_for_beside_the_file(tmp_path: Path) -> None:
    assert clouds.read(written(tmp_path, CREDENTIAL, cacert="ca.crt")).cacert == str(tmp_path / "ca.crt")
    assert clouds.read(written(tmp_path, CREDENTIAL, cacert="/etc/ca.crt")).cacert == "/etc/ca.crt"


def test_one_of_several_clouds_is_named(tmp_path: Path) -> None:
    path = tmp_path / "clouds.yaml"
    path.write_text(yaml.safe_dump({"clouds": {name: {"auth": CREDENTIAL, "region_name": name} for name in "ab"}}))
    assert clouds.read(path, "b").region_name == "b"
    with pytest.raises(CloudsError, match="it has 2 clouds") as problem:
        clouds.read(path)
    assert problem.value.hint == "name one of them: a, b"
    with pytest.raises(CloudsError, match='cloud "c" not found'):
        clouds.read(path, "c")


@pytest.mark.parametrize(
    ("auth", "cloud", "said"),
    [
        ({**CREDENTIAL, "auth_url": ""}, {}, "auth.auth_url is missing"),
        ({**CREDENTIAL, "auth_url": "keystone"}, {}, "auth.auth_url is not an http:// or https:// URL"),
        (
            {**CREDENTIAL, "auth_url": "https://user:s3cret@keystone/v3"},
            {},
            "auth.auth_url is not an http:// or https:// URL",
        ),
        ({**CREDENTIAL, "application_credential_secret": None}, {}, "auth.application_credential_secret is missing"),
        ({**PASSWORD, "password": ""}, {}, "auth.password is missing"),
        ({**PASSWORD, "user_domain_name": ""}, {}, "auth.username needs auth.user_domain_name"),
        ({**PASSWORD, "project_domain_name": ""}, {}, "auth.project_id is missing"),
        ({}, {"auth_type": "none"}, "it needs auth.endpoint"),
        (PASSWORD, {"auth_type": "v3s3cret"}, "auth_type: a value that is not known"),
        (PASSWORD, {"interface": "s3cret"}, "interface: a value that is not known"),
        (PASSWORD, {"verify": "s3cret"}, "Expected `bool`, got `str` - at `$.verify`"),
        ("s3cret", {}, "Expected `object`, got `str` - at `$.auth`"),
    ],
)
def test_a_missing_or_invalid_setting_is_reported_by_its_name_without_secrets(
    tmp_path: Path, auth: Any, cloud: Any, said: str
) -> None:
    with pytest.raises(CloudsError) as problem:
        clouds.read(written(tmp_path, auth, **cloud))
    assert said in str(problem.value)
    assert 'clouds.yaml: cloud "openstack": ' in problem.value.what
    assert "s3cret" not in str(problem.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it has no `clouds:`"),
        (b"clouds: []", "it has no `clouds:`"),
        (b"clouds: {}", "it has no clouds"),
        (b"clouds: {a: s3cret}", "Expected `object`, got `str`"),
        (b"clouds: [s3cret", "not YAML: line 2, column 1"),
        (b"\xff", "not YAML in UTF-8"),
        (b"[" * 5000, "nested too deeply"),
        (b"# " + b"x" * clouds.MAX_BYTES, "longer than"),
    ],
)
def test_an_invalid_clouds_file_is_reported_without_revealing_its_content(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "clouds.yaml"
    path.write_bytes(content)
    with pytest.raises(CloudsError) as problem:
        clouds.read(path)
    assert said in str(problem.value)
    assert str(problem.value).count(str(path)) == 1
    assert "s3cret" not in str(problem.value)


def test_a_missing_clouds_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CloudsError, match="No such file"):
        clouds.read(tmp_path / "clouds.yaml")


def test_nothing_prints_a_secret(tmp_path: Path) -> None:
    assert "s3cret" not in repr(clouds.read(written(tmp_path, PASSWORD)))
