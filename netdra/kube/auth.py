"""Our credentials for the API server, as kubectl takes them: tokens, token files, certificates, and exec plugins.

Made by `netdra.kube.connection` of a `netdra.kube.kubeconfig.Config`. Credentials that can change are searched for
again when their time is over, and after the server has refused them. Exec plugins, programs that print credentials,
follow KEP-541 and the API client.authentication.k8s.io (v1 and v1beta1, 1.37). A plugin's output on stdout, its
arguments and its environment are never in an error or a log line.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import re
import signal
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from netdra.kube.errors import Status, UnavailableError
from netdra.kube.kubeconfig import ApiServer, Config, ExecPlugin, User
from netdra.model.errors import UNREADABLE, InvalidInputError
from netdra.ops.logs import clean

TOKEN_SECONDS = 60.0
"""How long a token that was read from a file is used before the file is read again."""
PLUGIN_SECONDS = 60.0
"""How long a plugin may take without a user at a terminal."""
PERSON_SECONDS = 600.0
"""How long a plugin may take if a user may have to log in."""
MAX_OUTPUT = 1024 * 1024
_MAX_SHOWN = 500
_MAX_TOKEN = 64 * 1024
_END_SECONDS = 1.0
_PLAIN = "!#$&'*+-.^_`|~"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, repr=False, eq=False)
class Credentials:
    """The credentials of a request.

    Attributes:
        headers: the headers with our identity.
        tls: the authorities to trust, and our certificate; None for a server without TLS.
    """

    headers: tuple[tuple[str, str], ...]
    tls: ssl.SSLContext | None


class CredentialSource:
    """A source of credentials; this one's are fixed, others are read or made again."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def current(self) -> Credentials:
        """The credentials to send a request with.

        Raises:
            InvalidInputError: the configuration does not lead to credentials.
            UnavailableError: no credentials are available just now.
        """
        return self._credentials

    async def renew(self, refused: Credentials) -> bool:
        """Search for other credentials, because the server did not take these; returns whether there are some.

        Raises:
            InvalidInputError, UnavailableError: as `current`.
        """
        return False

    async def close(self) -> None:
        """Leave nothing running."""


def auth_of(config: Config) -> CredentialSource:
    """The source of credentials that a configuration names.

    Raises:
        InvalidInputError: its certificates cannot be read, or do not belong together.
    """
    user = config.user
    try:
        tls = _Tls(config)
        own = (
            (_pem(user.client_certificate_data, user.client_certificate), _pem(user.client_key_data, user.client_key))
            if user.client_certificate or user.client_certificate_data
            else None
        )
        context = tls.context(own)
    except (OSError, ValueError) as problem:  # an SSLError is an OSError
        raise InvalidInputError(f"{config.where}: {_of_certificates(problem)}", code="ND3078") from None
    base = Credentials(_impersonation(user), context)
    if any(_CONTROL.search(value) for _, value in (*base.headers, ("", user.token))):
        raise InvalidInputError(
            f"{config.where}: a token, or a value of `as`, contains a line break or control character", code="ND3079"
        )
    if user.token_file:
        return _TokenFile(config, base)
    if user.token:
        return CredentialSource(_with(base, f"Bearer {user.token}"))
    if user.username:
        return CredentialSource(
            _with(base, "Basic " + base64.b64encode(f"{user.username}:{user.password}".encode()).decode())
        )
    if user.exec_ is not None:
        return _Exec(config, user.exec_, base, tls)
    return CredentialSource(base)


def _with(base: Credentials, authorization: str) -> Credentials:
    return Credentials((*base.headers, ("Authorization", authorization)), base.tls)


def _impersonation(user: User) -> tuple[tuple[str, str], ...]:
    """The headers of another user as whom we ask."""
    headers = [("Impersonate-User", user.as_), ("Impersonate-Uid", user.as_uid)]
    headers += [("Impersonate-Group", group) for group in user.as_groups]
    for name, values in user.as_user_extra.items():
        headers += [(f"Impersonate-Extra-{quote(name, safe=_PLAIN)}", value) for value in values]
    return tuple(header for header in headers if header[1])


class _Tls:
    """TLS contexts for one cluster, with one certificate of netdra or another."""

    def __init__(self, config: Config) -> None:
        self._cluster = config.cluster
        self._is_used = config.cluster.server.startswith("https:")
        authority = _pem(self._cluster.certificate_authority_data, self._cluster.certificate_authority)
        self._trusted = authority.decode("ascii") if authority else ""

    def context(self, own: tuple[bytes, bytes] | None) -> ssl.SSLContext | None:
        """A context, with our certificate and its key as PEM.

        Raises:
            OSError, ValueError: they cannot be used.
        """
        if not self._is_used:
            return None
        made = ssl.create_default_context(cadata=self._trusted or None)
        # Clusters make their certificates with Go, which does not do all that RFC 5280 asks for.
        made.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self._cluster.insecure_skip_tls_verify:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        if own is not None:
            _load(made, *own)
        return made


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Show a certificate. OpenSSL reads files only: these are in memory, and no other process can open them."""
    descriptors: list[int] = []
    try:
        for name, data in (("certificate", certificate), ("key", key)):
            descriptors.append(os.memfd_create(f"netdra-{name}"))
            with open(descriptors[-1], "wb", closefd=False) as file:
                file.write(data)
        paths = [f"/proc/self/fd/{descriptor}" for descriptor in descriptors]
        # Without a password OpenSSL would ask on the terminal for that of an encrypted key.
        context.load_cert_chain(paths[0], paths[1], password=lambda: b"-")
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _pem(data: str, path: str) -> bytes:
    """The content of a field in Base64, or else that of a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the field is not Base64.
    """
    if data:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("certificate or key data is not Base64") from None
    return Path(path).read_bytes() if path else b""


def _of_certificates(problem: Exception) -> str:
    if isinstance(problem, ssl.SSLError):
        return f"its certificates or key are invalid: {problem.reason or 'they are not in PEM format'}"
    if isinstance(problem, OSError):
        return f"{problem.filename or 'a certificate'}: {problem.strerror or 'cannot be read'}"
    return "a certificate is not in PEM format" if isinstance(problem, UnicodeError) else str(problem)


class _TokenFile(CredentialSource):
    """A token in a file that another program writes again, such as the kubelet."""

    def __init__(self, config: Config, base: Credentials) -> None:
        super().__init__(base)
        self._where = config.where
        self._path = Path(config.user.token_file)
        self._fallback = config.user.token
        self._base = base
        self._token = ""
        self._until = -1.0

    async def current(self) -> Credentials:
        if time.monotonic() >= self._until:
            self._read()
        return self._credentials

    async def renew(self, refused: Credentials) -> bool:
        if self._credentials is refused:
            self._read()
        return self._credentials is not refused

    def _read(self) -> None:
        """Take the token that is in the file now; while the file cannot be read, the last token counts."""
        try:
            token = self._path.read_text()[:_MAX_TOKEN].strip()
            reason = "is empty"
        except (OSError, UnicodeError) as problem:
            token, reason = "", getattr(problem, "strerror", None) or "is not text"
        token = token or self._token or self._fallback
        if not token:
            raise InvalidInputError(f"{self._where}: token file {self._path}: {reason}", code="ND3080")
        if not token.isascii() or not token.isprintable():
            raise InvalidInputError(
                f"{self._where}: token file {self._path}: must contain one line of ASCII", code="ND3081"
            )
        self._until = time.monotonic() + TOKEN_SECONDS
        if token != self._token:
            self._token = token
            self._credentials = _with(self._base, f"Bearer {token}")


class _ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of an ExecCredential."""

    expiration_timestamp: datetime | None = None
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _ExecStatus | None = None


_printed = msgspec.json.Decoder(_ExecCredential)


class _Printed(NamedTuple):
    """The credentials that a plugin printed, and until when they hold."""

    credentials: Credentials
    until: datetime | None
    status: _ExecStatus

    @property
    def holds(self) -> bool:
        return self.until is None or datetime.now(UTC) < self.until


class _Exec(CredentialSource):
    """Credentials that a program prints; all callers wait for the same run of the program."""

    def __init__(self, config: Config, plugin: ExecPlugin, base: Credentials, tls: _Tls) -> None:
        super().__init__(base)
        self._config = config
        self._plugin = plugin
        self._base = base
        self._tls = tls
        self._printed: _Printed | None = None
        self._run: asyncio.Task[_Printed] | None = None

    async def current(self) -> Credentials:
        printed = self._printed
        return printed.credentials if printed is not None and printed.holds else (await self._ask()).credentials

    async def renew(self, refused: Credentials) -> bool:
        if self._printed is None or self._printed.credentials is refused:
            await self._ask()
        return self._printed is not None and self._printed.credentials is not refused

    async def close(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.cancel()
            with suppress(asyncio.CancelledError, InvalidInputError, UnavailableError):
                await run

    async def _ask(self) -> _Printed:
        """Run the program, or wait for it if it runs; a caller that stops waiting leaves it to the others."""
        if self._run is None:
            self._run = asyncio.create_task(self._ask_plugin())
            self._run.add_done_callback(self._take_result)
        return await asyncio.shield(self._run)

    def _take_result(self, run: asyncio.Task[_Printed]) -> None:
        if self._run is run:
            self._run = None
        if not run.cancelled():
            run.exception()  # seen, also if no caller waits any more

    async def _ask_plugin(self) -> _Printed:
        interactive = self._is_interactive()
        printed = await self._output(interactive)
        try:
            credential = _printed.decode(printed)
        except UNREADABLE:
            content = "nothing" if not printed.strip() else "something else"
            raise self._fault(f"it must print an ExecCredential, but printed {content}") from None
        fresh = self._checked(credential)
        before = self._printed
        if before is not None and before.status == fresh.status:
            fresh = before  # the same as before: a refused caller need not try again
        self._printed = fresh
        return fresh

    def _checked(self, printed: _ExecCredential) -> _Printed:
        wanted = self._plugin.api_version
        if printed.kind != "ExecCredential" or printed.api_version != wanted:
            raise self._fault(f"it must print an ExecCredential of {wanted}, but printed another kind or version")
        status = printed.status or _ExecStatus()
        pair = status.client_certificate_data, status.client_key_data
        if bool(pair[0]) != bool(pair[1]):
            raise self._fault("it printed a certificate without its key, or a key without its certificate")
        if not status.token and not pair[0]:
            raise self._fault("it printed neither a token nor a certificate: status must have one")
        if status.token and not (status.token.isascii() and status.token.isprintable()):
            raise self._fault("it printed a token that is not one line of ASCII")
        made = _with(self._base, f"Bearer {status.token}") if status.token else self._base
        if pair[0] and pair[1]:
            try:
                made = Credentials(made.headers, self._tls.context((pair[0].encode(), pair[1].encode())))
            except OSError as problem:
                raise self._fault(f"it printed an invalid certificate or key: {_of_certificates(problem)}") from None
        until = status.expiration_timestamp
        return _Printed(made, until.replace(tzinfo=until.tzinfo or UTC) if until else None, status)

    def _is_interactive(self) -> bool:
        mode = self._plugin.interactive_mode or "IfAvailable"
        terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
        if mode == "Always" and not terminal:
            raise self._fault(
                "interactiveMode Always requires a terminal, which is not available", hint="run it in a terminal"
            )
        return terminal and mode != "Never"

    async def _output(self, interactive: bool) -> bytes:
        """The program's output.

        Raises:
            InvalidInputError: no such program exists.
            UnavailableError: it fails, or does not end in time.
        """
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                self._plugin.command,
                *self._plugin.args,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=None if interactive else pipe,
                env=self._environment(interactive),
                start_new_session=not interactive,
            )
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or "its name or arguments contain a zero byte"
            raise self._fault(f"it cannot be run: {reason}") from None
        seconds = PERSON_SECONDS if interactive else PLUGIN_SECONDS
        try:
            async with asyncio.timeout(seconds):
                printed, stderr, code = await asyncio.gather(_all(process.stdout), _all(process.stderr), process.wait())
        except TimeoutError:
            await _end(process, whole=not interactive)
            raise self._away(f"it timed out after {seconds:g} s") from None
        except BaseException:
            await _end(process, whole=not interactive)
            raise
        if code:
            raise self._away(f"it failed with {code}{self._blotted(stderr)}")
        if len(printed) > MAX_OUTPUT:
            raise self._fault(f"it printed more than {MAX_OUTPUT} bytes")
        return printed

    def _environment(self, interactive: bool) -> dict[str, str]:
        plugin, cluster = self._plugin, self._config.cluster
        spec: dict[str, Any] = {"interactive": interactive}
        if plugin.provide_cluster_info:
            spec["cluster"] = _for_plugin(cluster)
        info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
        own = {variable.name: variable.value for variable in plugin.env}
        return {**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(info)}

    def _blotted(self, stderr: bytes) -> str:
        """The program's stderr, without the values that the kubeconfig gave to it."""
        text = stderr[-8192:].decode(errors="replace").strip()
        values = [variable.value for variable in self._plugin.env]
        values += [part for argument in self._plugin.args for part in (argument, argument.partition("=")[2])]
        for value in sorted(filter(None, values), key=len, reverse=True):
            if len(value) > 3:
                text = text.replace(value, "[given]")
        text = clean(text)[-_MAX_SHOWN:].strip()
        return f": {text}" if text else ""

    def _what(self, text: str) -> str:
        return f'{self._config.where}: exec plugin "{self._plugin.command}": {text}'

    def _fault(self, text: str, *, hint: str = "") -> InvalidInputError:
        return InvalidInputError(
            self._what(text), hint=hint or self._plugin.install_hint.strip()[: _MAX_SHOWN * 2], code="ND3082"
        )

    def _away(self, text: str) -> UnavailableError:
        return UnavailableError(self._what(text), Status(message=text), hint=self._plugin.install_hint.strip())


def _for_plugin(cluster: ApiServer) -> dict[str, Any]:
    """The cluster as an ExecCredential's spec has it."""
    trusted = _pem(cluster.certificate_authority_data, cluster.certificate_authority)
    described = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(trusted).decode(),
        "proxy-url": cluster.proxy_url,
        "disable-compression": cluster.disable_compression,
        "config": cluster.for_plugins,
    }
    return {name: value for name, value in described.items() if value}


async def _all(stream: asyncio.StreamReader | None) -> bytes:
    """All bytes of a stream, up to more than `MAX_OUTPUT`; further ones are dropped."""
    content = bytearray()
    while stream is not None and (chunk := await stream.read(64 * 1024)):
        if len(content) <= MAX_OUTPUT:
            content += chunk
    return bytes(content)


async def _end(process: asyncio.subprocess.Process, *, whole: bool) -> None:
    """End a program; `whole` with all processes of its session."""
    kill: Callable[[int, int], None] = os.killpg if whole else os.kill
    with suppress(ProcessLookupError, PermissionError):
        kill(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
