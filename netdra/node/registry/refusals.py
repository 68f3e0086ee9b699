"""A refused call as a status of gRPC, with a reason for programs and after how long another attempt may succeed.

Used by `netdra.node.registry.service`. Programs in Go read it by `status.FromError(err).Details()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from grpclib.const import Status
from grpclib.encoding.base import StatusDetailsCodecBase
from grpclib.exceptions import GRPCError

from netdra.model import names
from netdra.model.errors import NetdraError
from netdra.node.registry.shares import RefusedRegistrationError
from netdra.node.wire import refusal_pb2 as wire

UNAVAILABLE = "UNAVAILABLE"
CODES: Mapping[str, Status] = {
    "INVALID": Status.INVALID_ARGUMENT,
    "NOT_OWNER": Status.PERMISSION_DENIED,
    "TAKEN": Status.ALREADY_EXISTS,
    "FULL": Status.RESOURCE_EXHAUSTED,
    "NO_TOKEN": Status.UNAUTHENTICATED,
    UNAVAILABLE: Status.UNAVAILABLE,
}
"""The statuses of gRPC, by the reasons."""
_RETRY_SECONDS = {"FULL": 60, UNAVAILABLE: 5}


def refusal(problem: NetdraError) -> GRPCError:
    """The status of a call that is refused."""
    reason = problem.reason if isinstance(problem, RefusedRegistrationError) else UNAVAILABLE
    details: list[Message] = [wire.ErrorInfo(reason=reason, domain=names.DRIVER)]
    if reason in _RETRY_SECONDS:
        details.append(wire.RetryInfo(retry_delay=Duration(seconds=_RETRY_SECONDS[reason])))
    return GRPCError(CODES[reason], str(problem), details)


class DetailsCodec(StatusDetailsCodecBase):
    """Details of a status as `google.rpc.Status` (grpc-status-details-bin)."""

    def encode(self, status: Status, message: str | None, details: Any) -> bytes:
        """The details as bytes."""
        packed = [
            AnyMessage(
                type_url=f"type.googleapis.com/google.rpc.{detail.DESCRIPTOR.name}", value=detail.SerializeToString()
            )
            for detail in details
        ]
        return wire.Status(code=status.value, message=message or "", details=packed).SerializeToString()

    def decode(self, status: Status, message: str | None, data: bytes) -> Any:
        """The status that the bytes hold."""
        return wire.Status.FromString(data)
