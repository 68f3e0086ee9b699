"""A refused call as a status of gRPC, with a reason for programs and after how long another attempt may succeed.

Used by `netdra.node.registry.service`. Programs in Go read it by `status.FromError(err).Details()`.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from netdra.grpc.calls import GrpcError, GrpcStatus
from netdra.model import names
from netdra.model.errors import NetdraError
from netdra.node.registry.shares import RefusedRegistrationError
from netdra.node.wire import refusal_pb2 as wire

UNAVAILABLE = "UNAVAILABLE"
CODES: Mapping[str, GrpcStatus] = {
    "INVALID": GrpcStatus.INVALID_ARGUMENT,
    "NOT_OWNER": GrpcStatus.PERMISSION_DENIED,
    "TAKEN": GrpcStatus.ALREADY_EXISTS,
    "FULL": GrpcStatus.RESOURCE_EXHAUSTED,
    "NO_TOKEN": GrpcStatus.UNAUTHENTICATED,
    UNAVAILABLE: GrpcStatus.UNAVAILABLE,
}
"""The statuses of gRPC, by the reasons."""
_RETRY_SECONDS = {"FULL": 60, UNAVAILABLE: 5}


def refusal(problem: NetdraError) -> GrpcError:
    """The status of a call that is refused, with details as `google.rpc.Status`."""
    reason = problem.reason if isinstance(problem, RefusedRegistrationError) else UNAVAILABLE
    details: list[Message] = [wire.ErrorInfo(reason=reason, domain=names.DRIVER)]
    if reason in _RETRY_SECONDS:
        details.append(wire.RetryInfo(retry_delay=Duration(seconds=_RETRY_SECONDS[reason])))
    packed = [
        AnyMessage(
            type_url=f"type.googleapis.com/google.rpc.{detail.DESCRIPTOR.name}", value=detail.SerializeToString()
        )
        for detail in details
    ]
    status, text = CODES[reason], str(problem)
    return GrpcError(status, text, wire.Status(code=status, message=text, details=packed).SerializeToString())
