"""The API server's answers: typed objects out of bytes, errors out of refusals, and both counted.

Used by `netdra.kube.client` for requests and by the reflector for watches.
"""

from __future__ import annotations

import logging
import time
from functools import cache
from typing import TypeVar

import msgspec

from netdra.kube.errors import Status, api_error, no_answer
from netdra.kube.metrics import REQUEST_SECONDS, REQUESTS
from netdra.kube.resources import KubernetesObject, Resource
from netdra.model import depth
from netdra.model.errors import UNREADABLE, InvalidInputError

log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubernetesObject)


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The moment of a list, where it continues, and how many objects follow."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int = 0


class Page(msgspec.Struct, frozen=True):
    """A part of a list, its objects not yet read."""

    metadata: ListMeta
    items: tuple[msgspec.Raw, ...] | None = ()


_page = msgspec.json.Decoder(Page)
_status = msgspec.json.Decoder(Status)
_seconds_of, _requests_of = cache(REQUEST_SECONDS.labels), cache(REQUESTS.labels)  # of few verbs, kinds and statuses


@cache
def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The reader of a type's objects."""
    return msgspec.json.Decoder(kind)


def page(what: str, body: bytes) -> Page:
    """A part of a list.

    Raises:
        ApiError: the bytes are not list.
    """
    try:
        return depth.decode(_page, body)
    except UNREADABLE as problem:
        raise no_answer(what, problem) from None


def one(resource: Resource[T], body: bytes | msgspec.Raw) -> T:
    """An object of a kind.

    Raises:
        InvalidInputError: the object does not have the form of the kind here.
    """
    try:
        decoded: T = depth.decode(decoder(resource.type), body)
    # Opaque parameters can be nested as deep as 10 KiB allow.
    except UNREADABLE as problem:
        raise InvalidInputError(
            f"API server: an object of {resource.plural} cannot be read: {problem}",
            hint="check whether the CustomResourceDefinition belongs to another version of netdra",
            code="ND3077",
        ) from None
    return decoded


def refusal(what: str, code: int, body: bytes, retry_after: str) -> Exception:
    """The error for a refusal.

    Args:
        what: the request.
        code: the HTTP status.
        body: the Status object, as a rule.
        retry_after: the header of that name, "" without one.
    """
    try:
        status = depth.decode(_status, body)
    except UNREADABLE:
        # Not every refusal comes from the API server itself: a proxy or a load balancer answers in its own way.
        status = Status(message=body[:200].decode(errors="replace").strip())
    wait = float(retry_after) if retry_after.isdecimal() else 0.0
    return api_error(what, msgspec.structs.replace(status, code=code), retry_after=wait)


class RequestMetrics:
    """A request for the metrics: `what` begins with its verb and the kind's plural."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._verb, _, rest = what.partition(" ")
        self._resource = rest.partition(" ")[0]
        self._began = time.perf_counter()

    def count(self, code: int) -> None:
        """Count an answer with this HTTP status."""
        seconds = time.perf_counter() - self._began
        log.debug("%s: %d after %.3f s", self._what, code, seconds)
        _seconds_of(self._verb).observe(seconds)
        _requests_of(self._verb, self._resource, str(code)).inc()

    def count_failure(self) -> None:
        """Count a request without an answer."""
        _requests_of(self._verb, self._resource, "none").inc()
