"""A client of the node's device registry, for providers in Python.

Its packages are the extra `registry` (docs/releases.md has the command).

    with RegistryClient("bctl") as registry:
        registry.register("enp1s0", {"rdma": True}, {"bandwidth": 4096}, ttl=60)

Everything is published as `<provider>/<name>` for `ttl` seconds; state it again before that. docs/registry.md has the
rules; other languages make a client of protos/registry.proto.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.protocol import H2Protocol

from netdra.model.errors import InvalidInputError, PermanentError, TemporaryError
from netdra.node.wire import registry_pb2 as wire

SOCKET = "/run/netdra/registry.sock"
_SERVICE = "/netdra.registry.v1alpha1.DeviceRegistry"
_REFUSED = {
    *(Status.INVALID_ARGUMENT, Status.PERMISSION_DENIED, Status.ALREADY_EXISTS),
    *(Status.RESOURCE_EXHAUSTED, Status.UNAUTHENTICATED),
}
_CREDENTIALS = struct.Struct("3i")
_MAP, _OTHERS = Path("/proc/self/uid_map"), Path("/proc/sys/kernel/overflowuid")  # user_namespaces(7)


class RegistryClient:
    """One provider's connection. Not for several threads.

    Every method raises TemporaryError without an answer, and PermanentError, before anything is sent, if the process
    that serves the socket is not root's.
    """

    def __init__(self, provider: str = "", path: str = SOCKET, token: str = "", timeout: float = 10.0) -> None:
        """Connect with the first call; `token` is a pod's, projected for the audience dra.networking."""
        self._provider, self._path, self._timeout = provider, path, timeout
        self._metadata = {"authorization": f"Bearer {token}"} if token else {}
        self._runner = asyncio.Runner()
        self._channel = self._runner.run(self._open())

    async def _open(self) -> Channel:
        return _Channel(path=self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self._runner.close()

    def register(
        self,
        device: str,
        attributes: Mapping[str, bool | int | str | wire.DeviceAttribute] | None = None,
        capacity: Mapping[str, int | str | wire.DeviceCapacity] | None = None,
        *,
        ttl: int = 300,
        adds: bool = False,
        file: str = "",
    ) -> str:
        """Register facts of a device, or of an interface that is to be one (`adds`); returns the outcome.

        With a `file`, such as /dev/fpga0, the device is to be that file; `device` is then a name of its own.

        Raises:
            InvalidInputError: it breaks a rule.
        """
        said = {name: _attribute(value) for name, value in (attributes or {}).items()}
        amounts = {name: _capacity(value) for name, value in (capacity or {}).items()}
        new = adds or bool(file)
        takes = wire.RegisterDeviceRequest if new else wire.RegisterAttributesRequest
        gives = wire.RegisterDeviceResponse if new else wire.RegisterAttributesResponse
        request = takes(device=device, provider=self._provider, attributes=said, capacity=amounts, ttl_seconds=ttl)
        if isinstance(request, wire.RegisterDeviceRequest) and file:
            request.device_file = file
        return _granted(self._call("RegisterDevice" if new else "RegisterAttributes", request, gives))

    def deregister(self, device: str = "") -> str:
        """Delete the registration of a device, or all of them; raises InvalidInputError as `register`."""
        request = wire.DeregisterRequest(provider=self._provider, device=device)
        return _granted(self._call("Deregister", request, wire.DeregisterResponse))

    def registrations(self) -> list[wire.Registration]:
        """The registrations on the node, of this provider or of all without one."""
        listed: list[wire.Registration] = []
        request = wire.ListRegistrationsRequest(provider=self._provider)
        while True:
            page = self._call("ListRegistrations", request, wire.ListRegistrationsResponse)
            listed += page.registrations
            if not page.next_page_token:
                return listed
            request.page_token = page.next_page_token

    def _call(self, name: str, request: Any, gives: type[Any]) -> Any:
        method: Any = UnaryUnaryMethod(self._channel, f"{_SERVICE}/{name}", type(request), gives)
        try:
            return self._runner.run(method(request, timeout=self._timeout, metadata=self._metadata))
        except GRPCError as problem:
            if problem.status in _REFUSED:
                raise InvalidInputError(problem.message or problem.status.name, code="ND4094") from None
            raise TemporaryError(
                f"{self._path}: {problem}", hint="is netdra node --registry-socket there?", code="ND4095"
            ) from None
        except (OSError, StreamTerminatedError) as problem:
            raise TemporaryError(
                f"{self._path}: {problem}", hint="is netdra node --registry-socket there?", code="ND4096"
            ) from None


class _Channel(Channel):
    """A channel to a process of root: one that puts a socket into the folder gets no token."""

    async def _create_connection(self) -> H2Protocol:
        protocol = await super()._create_connection()
        transport: Any = protocol.connection._transport  # noqa: SLF001 (it names addresses alone)
        opened = transport.get_extra_info("socket")
        # unix(7), SO_PEERCRED: the user of the process that listens.
        peer = opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        uid = _CREDENTIALS.unpack(peer)[1]
        if uid not in (0, os.getuid(), _other_users()):
            protocol.processor.close()
            raise PermanentError(
                f"{self._path} is served by user {uid}, not by root",
                hint="only the node's driver may write to the socket's folder; mount it readOnly everywhere else",
                code="ND4097",
            )
        return protocol


def _other_users() -> int:
    """The number by which a user namespace shows users that it does not have, root of the node among them; else 0."""
    if _MAP.read_text().split() == ["0", "0", str(2**32 - 1)]:
        return 0
    return int(_OTHERS.read_text())


def _attribute(value: Any) -> wire.DeviceAttribute:
    if isinstance(value, wire.DeviceAttribute):
        return value
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return wire.DeviceAttribute(**{kind: value})


def _capacity(value: Any) -> wire.DeviceCapacity:
    return value if isinstance(value, wire.DeviceCapacity) else wire.DeviceCapacity(value=str(value))


def _granted(reply: Any) -> str:
    if not reply.success:
        raise InvalidInputError(reply.message, code="ND4098")
    return str(reply.message)
