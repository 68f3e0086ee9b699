"""Where the API server is, how it is trusted, and who we are to it: an HTTP client that is ready for requests.

Called by the daemons' and commands' start. Finding the configuration and authenticating (service account token that is
read again when it was rotated, client certificate, exec plugin) is lightkube's; the connection is made here, because
a peer that vanished must be noticed by TCP itself: a watch waits for minutes without a byte in either direction.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import httpx2
import yaml
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from netdra import __version__
from netdra.kube.client import CONNECT_SECONDS
from netdra.kube.transport import Transport
from netdra.model.errors import InvalidInputError

ANSWER_SECONDS = 15.0
_NAME_ONE = "name one with --kubeconfig or $KUBECONFIG"
_KEEP_IDLE_SECONDS = 60.0

# A peer that does not acknowledge within 15 s and three probes is gone; one that is merely stopped still does.
_SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)


def find_config(
    kubeconfig: Path | None = None, context: str | None = None, *, service_account: Path = Path(SERVICE_ACCOUNT)
) -> SingleConfig:
    """The configuration: the file that is named, else the pod's service account, else `$KUBECONFIG` or the home's file.

    Args:
        kubeconfig: a kubeconfig file.
        context: which of its contexts; the current one if it is not named.
        service_account: the folder in which a pod finds its token.

    Raises:
        InvalidInputError: there is none, or it cannot be read.
    """
    try:
        if kubeconfig is not None:
            found = KubeConfig.from_file(kubeconfig)
        elif "KUBERNETES_SERVICE_HOST" in os.environ and (service_account / "token").exists():
            found = KubeConfig.from_service_account(service_account)
        else:
            found = KubeConfig.from_file(os.environ.get("KUBECONFIG", "~/.kube/config"))
        config = found.get(context)
    except ConfigError as problem:
        raise InvalidInputError(f"kubeconfig: {problem}", hint=_NAME_ONE) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as problem:
        file = kubeconfig or os.environ.get("KUBECONFIG", "~/.kube/config")
        raise InvalidInputError(f"kubeconfig {file}: {_unread(problem)}", hint=_NAME_ONE) from None
    assert config is not None
    return config


def _unread(problem: Exception) -> str:
    """Why a kubeconfig cannot be read, in words that hold nothing of the file: it has credentials."""
    if isinstance(problem, yaml.MarkedYAMLError):
        place = problem.problem_mark or problem.context_mark
        return f"not YAML{f': line {place.line + 1}, column {place.column + 1}' if place is not None else ''}"
    if isinstance(problem, UnicodeDecodeError | yaml.YAMLError):
        return "not YAML in UTF-8"
    if isinstance(problem, OSError):
        return problem.strerror or "cannot be read"
    return "not a kubeconfig: clusters, users and contexts are not there, or not as they should be"


def connect(config: SingleConfig, *, user_agent: str = f"netdra/{__version__}") -> httpx2.AsyncClient:
    """An HTTP client for the API server; it connects when it is used, and must be closed.

    Raises:
        InvalidInputError: the certificates of the configuration cannot be read.
    """
    user = config.user or User()
    try:
        trust = verify_cluster(config.cluster, user, config.abs_file, trust_env=False)
        auth = user_auth(user)
    except (OSError, ValueError, ConfigError) as problem:
        raise InvalidInputError(f'kubeconfig, context "{config.context_name}": {problem}') from None
    return httpx2.AsyncClient(
        base_url=config.cluster.server,
        auth=auth,
        headers={"User-Agent": user_agent},
        timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, pool=None),
        transport=Transport(trust, _SOCKET_OPTIONS, _KEEP_IDLE_SECONDS),
        trust_env=False,
    )
