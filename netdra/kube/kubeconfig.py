"""Kubeconfig files, and a pod's service account, as one configuration: server, authorities, our identity.

Read at the start of daemons and commands; `netdra.kube.auth` makes credentials of it, `netdra.kube.connection` the
connections. The form and the rules of merging are kubectl's (k8s.io/client-go/tools/clientcmd, 1.37): of several files
in $KUBECONFIG the first one that names a thing counts, and paths are relative to their file. No value of such a file is
ever in an error: it has credentials.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from netdra.model import yaml_text
from netdra.model.errors import InvalidInputError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOME = "~/.kube/config"
_NAME_ONE = "specify it with --kubeconfig or $KUBECONFIG"
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


class _Secretive(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a kubeconfig, which must not be shown as a whole, because parts of it are secret."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class Extension(_Secretive, frozen=True, kw_only=True):
    """Data of other programs than kubectl beside a cluster."""

    name: str
    extension: Any = None


class ApiServer(_Secretive, frozen=True, kw_only=True, rename="kebab"):
    """An API server, and the authority to trust; `*_data` is Base64 of PEM, and comes before the file."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: tuple[Extension, ...] = ()

    @property
    def for_plugins(self) -> Any:
        """The cluster's data for an exec plugin."""
        return next((extension.extension for extension in self.extensions if extension.name == _EXEC_EXTENSION), None)


class Variable(_Secretive, frozen=True, kw_only=True):
    """A variable of a plugin's environment."""

    name: str
    value: str = ""


class ExecPlugin(_Secretive, frozen=True, kw_only=True, rename="camel"):
    """A program that prints credentials."""

    command: str = ""
    api_version: str = ""
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: Literal["", "Never", "IfAvailable", "Always"] = ""


class User(_Secretive, frozen=True, kw_only=True, rename="kebab"):
    """Our identity."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec_: ExecPlugin | None = msgspec.field(default=None, name="exec")
    auth_provider: dict[str, Any] | None = None
    as_: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}


class Context(_Secretive, frozen=True, kw_only=True):
    """A user of a cluster."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class ConfigEntry(_Secretive, frozen=True, kw_only=True):
    """A cluster, a user or a context of a file; in its list the other two are empty."""

    name: str
    cluster: ApiServer = ApiServer()
    user: User = User()
    context: Context = Context()


class Kubeconfig(_Secretive, frozen=True, kw_only=True, rename="kebab"):
    """A file, or several of them merged."""

    clusters: tuple[ConfigEntry, ...] = ()
    users: tuple[ConfigEntry, ...] = ()
    contexts: tuple[ConfigEntry, ...] = ()
    current_context: str = ""


Part = TypeVar("Part", bound=_Secretive)


class Config(_Secretive, frozen=True, kw_only=True):
    """One way to an API server.

    Attributes:
        cluster: the server.
        user: our identity.
        namespace: the namespace of objects that name none.
        context: the context's name in the file, for errors; "" for a pod's service account.
    """

    cluster: ApiServer
    user: User = User()
    namespace: str = "default"
    context: str = ""

    @property
    def where(self) -> str:
        """The configuration's name in errors."""
        return f'kubeconfig, context "{self.context}"' if self.context else "service account"


def find_config(
    kubeconfig: Path | None = None, context: str | None = None, *, service_account: Path = SERVICE_ACCOUNT
) -> Config:
    """The configuration: the file that is named, else the pod's service account, else `$KUBECONFIG` or the home's file.

    Args:
        kubeconfig: a kubeconfig file.
        context: one of its contexts; the current one if none is given. With a context, a file is used.
        service_account: the folder in which a pod finds its token.

    Raises:
        InvalidInputError: none exists, it cannot be read, or it contradicts itself.
    """
    if kubeconfig is not None:
        return _chosen(_read(kubeconfig), context)
    if context is None and os.environ.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        return _of_service_account(service_account)
    named = [Path(path) for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    files = [entry for entry in named if entry.expanduser().exists()] or named[:1] or [Path(HOME)]
    return _chosen(_merged([_read(file, alone=len(files) == 1) for file in files]), context)


def _of_service_account(folder: Path) -> Config:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        namespace = (folder / "namespace").read_text().strip()
    except OSError:
        namespace = ""
    cluster = ApiServer(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}", certificate_authority=str(folder / "ca.crt")
    )
    return Config(cluster=cluster, user=User(token_file=str(folder / "token")), namespace=namespace or "default")


def _read(path: Path, *, alone: bool = True) -> Kubeconfig:
    """A file, its paths made absolute; an empty file among others is skipped."""
    try:
        plain = yaml_text.load_secret(path.expanduser().read_bytes())
        if plain is None and not alone:
            return Kubeconfig()
        config = _converted(plain)
    except FileNotFoundError:
        raise InvalidInputError(f"kubeconfig {path}: not found", hint=_NAME_ONE, code="ND3085") from None
    except (OSError, ValueError, InvalidInputError, RecursionError) as problem:
        raise InvalidInputError(f"kubeconfig {path}: {_unread(problem)}", hint=_NAME_ONE, code="ND3086") from None
    folder = path.expanduser().absolute().parent
    return replace(
        config,
        clusters=tuple(
            replace(entry, cluster=_within(entry.cluster, folder, "certificate_authority")) for entry in config.clusters
        ),
        users=tuple(replace(entry, user=_user_in(entry.user, folder)) for entry in config.users),
    )


def _converted(plain: Any) -> Kubeconfig:
    if not isinstance(plain, dict) or not {"clusters", "contexts", "users"}.intersection(plain):
        raise ValueError("something else")
    return msgspec.convert(_without_nulls(plain), Kubeconfig)


def _unread(problem: Exception) -> str:
    """Why a kubeconfig cannot be read, as a text without values of the file."""
    if isinstance(problem, InvalidInputError):
        return problem.what
    if isinstance(problem, OSError):
        return problem.strerror or "cannot be read"
    if isinstance(problem, msgspec.ValidationError):
        return f"not a kubeconfig: {_kind_of_fault(str(problem))}"
    return "not a kubeconfig: clusters, users and contexts are missing or invalid"


def _kind_of_fault(text: str) -> str:
    """The text of msgspec on a value, if it has only types and the place."""
    place = text.rpartition(" - at ")[2].strip("`")
    if text.startswith(("Expected ", "Object missing")):
        return text
    return f"a value that is not allowed at {place}"


def _without_nulls(value: Any) -> Any:
    """A key without a value counts as none."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value if inner is not None]
    return value


def _within(part: Part, folder: Path, *fields: str) -> Part:
    """A part of a file, the paths in these fields relative to its folder."""
    return replace(part, **{field: str(folder / path) for field in fields if (path := getattr(part, field))})


def _user_in(user: User, folder: Path) -> User:
    plugin = user.exec_
    if plugin is not None and "/" in plugin.command:
        plugin = _within(plugin, folder, "command")
    return replace(_within(user, folder, "client_certificate", "client_key", "token_file"), exec_=plugin)


def _merged(configs: Sequence[Kubeconfig]) -> Kubeconfig:
    return Kubeconfig(
        clusters=_first(config.clusters for config in configs),
        users=_first(config.users for config in configs),
        contexts=_first(config.contexts for config in configs),
        current_context=next((config.current_context for config in configs if config.current_context), ""),
    )


def _first(lists: Iterable[tuple[ConfigEntry, ...]]) -> tuple[ConfigEntry, ...]:
    by_name: dict[str, ConfigEntry] = {}
    for entry in chain.from_iterable(lists):
        by_name.setdefault(entry.name, entry)
    return tuple(by_name.values())


def _chosen(merged: Kubeconfig, wanted: str | None) -> Config:
    name = merged.current_context if wanted is None else wanted
    if not name:
        raise InvalidInputError("kubeconfig: No current context", hint="specify it with --context", code="ND3087")
    context = _named(merged.contexts, name, "context").context
    cluster = _named(merged.clusters, context.cluster, f'context "{name}": cluster').cluster
    user = _named(merged.users, context.user, f'context "{name}": user').user if context.user else User()
    config = Config(cluster=cluster, user=user, namespace=context.namespace or "default", context=name)
    for contradiction in _contradictions(config):
        raise InvalidInputError(f"{config.where}: {contradiction}", code="ND3088")
    return replace(config, cluster=replace(cluster, server=_url_of(config)))


def _named(entries: Sequence[ConfigEntry], name: str, what: str) -> ConfigEntry:
    for entry in entries:
        if entry.name == name:
            return entry
    there = ", ".join(sorted(entry.name for entry in entries)) or "none"
    raise InvalidInputError(f"kubeconfig: {what} '{name}' not found", hint=f"it contains {there}", code="ND3089")


def _url_of(config: Config) -> str:
    """The server's URL, with a scheme and without a slash at its end."""
    cluster, user = config.cluster, config.user
    secure = (
        cluster.certificate_authority,
        cluster.certificate_authority_data,
        cluster.insecure_skip_tls_verify,
        user.client_certificate,
        user.client_certificate_data,
    )
    scheme = "https://" if any(secure) else "http://"
    url = cluster.server if "://" in cluster.server else f"{scheme}{cluster.server}"
    if not is_url(url, ("http", "https")):
        raise InvalidInputError(f'{config.where}: server: must be a URL such as "https://10.0.0.1:6443"', code="ND3090")
    return url.rstrip("/")


def is_url(text: str, schemes: Sequence[str]) -> bool:
    """Whether a text is a URL of a host, by one of these schemes."""
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _contradictions(config: Config) -> Iterable[str]:
    cluster, user = config.cluster, config.user
    if not cluster.server:
        yield f"the cluster does not have a server: {_NAME_ONE}"
    if cluster.insecure_skip_tls_verify and (cluster.certificate_authority or cluster.certificate_authority_data):
        yield "insecure-skip-tls-verify and certificate-authority cannot be combined"
    if bool(user.client_certificate or user.client_certificate_data) != bool(user.client_key or user.client_key_data):
        yield "client-certificate requires client-key, and client-key requires client-certificate"
    if (user.token or user.token_file) and user.username:
        yield "token and username cannot be combined"
    if (user.as_uid or user.as_groups or user.as_user_extra) and not user.as_:
        yield "as-uid, as-groups and as-user-extra require `as`"
    if user.auth_provider is not None:
        yield "auth-provider is no longer supported (Kubernetes 1.26): use an exec plugin"
    if user.exec_ is not None:
        yield from _faults_of_plugin(user.exec_)


def _faults_of_plugin(plugin: ExecPlugin) -> Iterable[str]:
    versions = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
    if not plugin.command:
        yield "exec: command is missing"
    if plugin.api_version not in versions:
        yield f'exec: apiVersion "{plugin.api_version}" is not supported; use one of {", ".join(versions)}'
    elif plugin.api_version.endswith("/v1") and not plugin.interactive_mode:
        yield "exec: interactiveMode must be Never, IfAvailable or Always"
    if any(
        not variable.name or "=" in variable.name or "\0" in variable.name + variable.value for variable in plugin.env
    ):
        yield "exec: env: name is missing or contains `=`"
