"""The services that gRPC's own tools ask every server for: health (`grpc.health.v1`) and reflection.

Used by `netdra.node.registry.service`. The messages are those of grpclib.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from grpclib.health.v1 import health_pb2 as health
from grpclib.reflection.v1 import reflection_pb2 as v1
from grpclib.reflection.v1alpha import reflection_pb2 as v1alpha

from netdra.grpc.calls import GrpcError, GrpcStatus, Method, Methods
from netdra.node.registry.connections import AnswerSlots, Caller, of_caller, streaming_to_caller, talking
from netdra.ops.bounded import ConnectionLimits

_HEALTH = "grpc.health.v1.Health"
_SERVING = health.HealthCheckResponse(status=health.HealthCheckResponse.SERVING)
_UNKNOWN = health.HealthCheckResponse(status=health.HealthCheckResponse.SERVICE_UNKNOWN)


def standard_methods(services: Sequence[ServiceDescriptor], limits: ConnectionLimits, places: AnswerSlots) -> Methods:
    """The methods of health and reflection by their paths.

    Args:
        services: the services beside these.
        limits: how long requests and answers may take on their way.
        places: how many streams there may be.
    """
    served = {service.full_name for service in services} | {""}

    async def check(request: health.HealthCheckRequest, _: Caller) -> Message:
        if request.service not in served:
            raise GrpcError(GrpcStatus.NOT_FOUND, f'service "{request.service[:100]}" not found')
        return _SERVING

    async def watch(request: health.HealthCheckRequest) -> AsyncGenerator[Message, None]:
        yield _SERVING if request.service in served else _UNKNOWN
        await asyncio.Event().wait()  # while it answers at all, it serves

    methods: dict[str, Method] = {
        f"/{_HEALTH}/Check": of_caller(health.HealthCheckRequest, check, limits),
        f"/{_HEALTH}/Watch": streaming_to_caller(health.HealthCheckRequest, watch, limits, places),
    }
    names = sorted({*served - {""}, _HEALTH, *(f"grpc.reflection.{form}.ServerReflection" for form in _FORMS)})
    files = _files([*(service.file for service in services), *_STANDARD])
    for form, messages in _FORMS.items():
        methods[f"/grpc.reflection.{form}.ServerReflection/ServerReflectionInfo"] = talking(
            messages.ServerReflectionRequest,
            _reflecting(messages, names, files),
            limits,
            places,
        )
    return methods


_FORMS: Mapping[str, Any] = {"v1": v1, "v1alpha": v1alpha}
_STANDARD: tuple[FileDescriptor, ...] = (health.DESCRIPTOR, v1.DESCRIPTOR, v1alpha.DESCRIPTOR)


def _files(roots: Sequence[FileDescriptor]) -> dict[str, FileDescriptor]:
    """Files with all that they import, by name."""
    files: dict[str, FileDescriptor] = {}
    waiting = list(roots)
    while waiting:
        file = waiting.pop()
        if file.name not in files:
            files[file.name] = file
            waiting += file.dependencies
    return files


def _reflecting(messages: Any, names: Sequence[str], files: Mapping[str, FileDescriptor]) -> Callable[[Any], Message]:
    """The function that answers a request of reflection, of one version of its messages."""

    def answer(request: Any) -> Message:
        if request.HasField("list_services"):
            listed = messages.ListServiceResponse(service=[messages.ServiceResponse(name=name) for name in names])
            return response(request, list_services_response=listed)
        file = None
        if request.HasField("file_by_filename"):
            file = files.get(request.file_by_filename)
        elif request.HasField("file_containing_symbol"):
            file = next((entry for entry in files.values() if _has(entry, request.file_containing_symbol)), None)
        if file is None:
            error = messages.ErrorResponse(error_code=GrpcStatus.NOT_FOUND, error_message="not found")
            return response(request, error_response=error)
        found = messages.FileDescriptorResponse(file_descriptor_proto=[file.serialized_pb])
        return response(request, file_descriptor_response=found)

    def response(request: Any, **fields: Any) -> Message:
        made: Message = messages.ServerReflectionResponse(
            valid_host=request.host[:100], original_request=request, **fields
        )
        return made

    return answer


def _has(file: FileDescriptor, symbol: str) -> bool:
    """Whether a file declares a service, a method of one, a message or an enumeration."""
    prefix = f"{file.package}." if file.package else ""
    if not symbol.startswith(prefix):
        return False
    first, _, rest = symbol[len(prefix) :].partition(".")
    service = file.services_by_name.get(first)
    if service is not None:
        return not rest or rest in service.methods_by_name
    return first in file.message_types_by_name or first in file.enum_types_by_name
