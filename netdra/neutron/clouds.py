"""The login to a cloud: clouds.yaml, as the OpenStack SDK and the command `openstack` read it.

Read by `netdra.neutron.session` at each login, so that a secret that was replaced counts from the next login on. Errors
in the file are reported without any of its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from netdra.model import yaml_text
from netdra.model.errors import InvalidInputError
from netdra.neutron.errors import CloudsError

MAX_BYTES = 256 * 1024
AuthType = Literal["v3applicationcredential", "v3password", "password", "none", "noauth"]
_HINT = "it is written as for the command `openstack`; `openstack --os-cloud NAME network list` tries it"


class CloudAuth(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to log in; of the secrets nothing is printed."""

    auth_url: str = ""
    application_credential_id: str = ""
    application_credential_secret: str = ""
    username: str = ""
    user_id: str = ""
    password: str = ""
    user_domain_id: str = ""
    user_domain_name: str = ""
    project_id: str = ""
    project_name: str = ""
    project_domain_id: str = ""
    project_domain_name: str = ""
    endpoint: str = ""

    def __repr__(self) -> str:
        return f"Auth(auth_url={self.auth_url!r}, ...)"


class Cloud(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cloud of the file.

    Attributes:
        auth: who logs in.
        auth_type: how; without it, by application credential if the file has one, else by password.
        region_name: whose endpoints of the catalog count; any one's without it.
        interface: which of a service's endpoints.
        cacert: a file of the authorities that the servers' certificates are checked with.
        verify: whether they are.
        network_endpoint_override: Neutron's URL, in the place of the catalog's.
    """

    auth: CloudAuth = CloudAuth()
    auth_type: AuthType | None = None
    region_name: str = ""
    interface: Literal["public", "internal", "admin"] = "public"
    cacert: str = ""
    verify: bool = True
    network_endpoint_override: str = ""

    @property
    def way(self) -> Literal["credential", "password", "none"]:
        """How to log in."""
        if self.auth_type in {"none", "noauth"}:
            return "none"
        by_credential = self.auth_type == "v3applicationcredential"
        return "credential" if by_credential or self._has_credential_alone else "password"

    @property
    def _has_credential_alone(self) -> bool:
        return self.auth_type is None and bool(self.auth.application_credential_id)


def read(path: Path, name: str = "") -> Cloud:
    """A cloud of a file.

    Args:
        path: clouds.yaml.
        name: which one; without a name the only one there is.

    Raises:
        CloudsError: the file cannot be read, or is not sufficient to log in.
    """
    named = _clouds(path)
    if not name and len(named) > 1:
        raise CloudsError(
            f"{path}: it has {len(named)} clouds", hint=f"name one of them: {', '.join(sorted(named))}", code="ND3052"
        )
    chosen = name or next(iter(named), "")
    if chosen not in named:
        hint = f"there are: {', '.join(sorted(named))}" if named else _HINT
        raise CloudsError(
            f'{path}: cloud "{chosen}" not found' if name else f"{path}: it has no clouds", hint=hint, code="ND3053"
        )
    where = f'{path}: cloud "{chosen}"'
    try:
        cloud = msgspec.convert(_texts(named[chosen]), Cloud)
    except msgspec.ValidationError as problem:
        raise CloudsError(f"{where}: {_fault(str(problem))}", hint=_HINT, code="ND3054") from None
    for missing in _missing(cloud):
        raise CloudsError(f"{where}: {missing}", hint=_HINT, code="ND3055")
    if cloud.cacert and not Path(cloud.cacert).is_absolute():
        cloud = msgspec.structs.replace(cloud, cacert=str(path.parent / cloud.cacert))
    return cloud


def read_yaml(path: Path) -> Any:
    """The content of an administrator's file, as plain data.

    Raises:
        CloudsError: it cannot be read, or is not YAML; the text has nothing of its content.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise CloudsError(
            f"{path}: {problem.strerror or 'cannot be read'}", hint="name a file that is there", code="ND3056"
        ) from None
    if len(data) > MAX_BYTES:
        raise CloudsError(f"{path}: longer than the {MAX_BYTES} bytes that are read", code="ND3057")
    try:
        return yaml_text.load_secret(data)
    except InvalidInputError as problem:
        raise CloudsError(f"{path}: {problem.what}", hint=_HINT, code=problem.code) from None


def _clouds(path: Path) -> Mapping[str, Any]:
    plain = read_yaml(path)
    clouds = plain.get("clouds") if isinstance(plain, dict) else None
    if not isinstance(clouds, dict):
        raise CloudsError(f"{path}: it has no `clouds:` with clouds by name", hint=_HINT, code="ND3058")
    return {str(name): cloud for name, cloud in clouds.items()}


def _texts(value: Any) -> Any:
    """Numbers in place of texts, as a password of digits is written without quotes."""
    if not isinstance(value, dict):
        return value
    auth = value.get("auth")
    if not isinstance(auth, dict):
        return {key: inner for key, inner in value.items() if inner is not None}
    plain = {
        key: str(value) if isinstance(value, int | float) else value for key, value in auth.items() if value is not None
    }
    return {**{key: inner for key, inner in value.items() if inner is not None}, "auth": plain}


def _fault(text: str) -> str:
    """The errors in a value, without the value."""
    place = text.rpartition(" - at ")[2].strip("`").removeprefix("$.")
    return text if text.startswith(("Expected ", "Object missing")) else f"{place}: a value that is not known"


def _missing(cloud: Cloud) -> list[str]:
    auth, lacking = cloud.auth, []
    if cloud.way == "none":
        if not (auth.endpoint or cloud.network_endpoint_override):
            lacking.append("without a login it needs auth.endpoint, the URL of Neutron")
        return [*lacking, *_no_urls(cloud)]
    if not auth.auth_url:
        lacking.append("auth.auth_url is missing, the URL of Keystone")
    if cloud.way == "credential":
        lacking += [
            f"auth.{name} is missing"
            for name in ("application_credential_id", "application_credential_secret")
            if not getattr(auth, name)
        ]
        return [*lacking, *_no_urls(cloud)]
    if not auth.password:
        lacking.append("auth.password is missing")
    if not auth.user_id and not (auth.username and (auth.user_domain_id or auth.user_domain_name)):
        lacking.append("auth.username needs auth.user_domain_name or auth.user_domain_id")
    if not auth.project_id and not (auth.project_name and (auth.project_domain_id or auth.project_domain_name)):
        lacking.append("auth.project_id is missing, or auth.project_name with auth.project_domain_name")
    return [*lacking, *_no_urls(cloud)]


def _no_urls(cloud: Cloud) -> list[str]:
    urls = {
        "auth.auth_url": cloud.auth.auth_url,
        "auth.endpoint": cloud.auth.endpoint,
        "network_endpoint_override": cloud.network_endpoint_override,
    }
    return [f"{name} is not an http:// or https:// URL" for name, url in urls.items() if url and not _is_url(url)]


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and not parts.username
    except ValueError:
        return False
