"""A client of the node's device registry, for providers in Python: `pip install 'netdra[registry]'`.

    with RegistryClient("bctl") as registry:
        registry.register("enp1s0", {"rdma": True}, {"bandwidth": 4096}, ttl=60)

Everything is published as `<provider>/<name>` for `ttl` seconds; say it again before that. docs/registry.md has the
rules; other languages make a client of protos/registry.proto.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, StreamTerminatedError

from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.node.wire import registry_pb2 as wire

SOCKET = "/run/netdra/registry.sock"
_SERVICE = "/netdra.registry.v1alpha1.DeviceRegistry"


class RegistryClient:
    """One provider's connection. Not for several threads; every method raises TemporaryError if nobody answers."""

    def __init__(self, provider: str = "", path: str = SOCKET, token: str = "", timeout: float = 10.0) -> None:
        """Connect with the first call; `token` is a pod's, projected for the audience dra.networking."""
        self._provider, self._path, self._timeout = provider, path, timeout
        self._metadata = {"authorization": f"Bearer {token}"} if token else {}
        self._runner = asyncio.Runner()
        self._channel = self._runner.run(self._made())

    async def _made(self) -> Channel:
        return Channel(path=self._path)

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
        """Say something of a device, or of an interface that is to be one (`adds`); returns what there is to know.

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
        """Take back what was said of a device, or all of it; raises InvalidInputError as `register`."""
        request = wire.DeregisterRequest(provider=self._provider, device=device)
        return _granted(self._call("Deregister", request, wire.DeregisterResponse))

    def registrations(self) -> list[wire.Registration]:
        """What is said on the node, by this provider or by all without one."""
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
        except (OSError, GRPCError, StreamTerminatedError) as problem:
            raise TemporaryError(f"{self._path}: {problem}", hint="is netdra node --registry-socket there?") from None


def _attribute(value: Any) -> wire.DeviceAttribute:
    if isinstance(value, wire.DeviceAttribute):
        return value
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return wire.DeviceAttribute(**{kind: value})


def _capacity(value: Any) -> wire.DeviceCapacity:
    return value if isinstance(value, wire.DeviceCapacity) else wire.DeviceCapacity(value=str(value))


def _granted(reply: Any) -> str:
    if not reply.success:
        raise InvalidInputError(reply.message)
    return str(reply.message)
