"""AdmissionReview (admission.k8s.io/v1): what the API server sends to a webhook, and what it wants back.

Decoded and encoded by `netdra.admission.server`. Objects stay bytes until somebody knows their kind.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from netdra.model.depth import shallow

NOTHING = msgspec.Raw(b"null")
REFUSED = 422
MAX_WARNING = 256
"""Characters of a warning that the API server passes on for certain."""


class Kind(msgspec.Struct, frozen=True):
    """What an object is."""

    group: str
    version: str
    kind: str


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One write that is about to happen.

    Attributes:
        uid: what the answer must repeat.
        kind: of the object, as converted for the webhook's rules.
        operation: what is done to it.
        name: its name; empty where the server is to make one.
        object: as it will be; null for DELETE.
        old_object: as it is; null for CREATE.
        too_deep: whether both are without what was nested too deeply to be read.
    """

    uid: str
    kind: Kind
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    name: str = ""
    namespace: str = ""
    object: msgspec.Raw = NOTHING
    old_object: msgspec.Raw = NOTHING
    too_deep: bool = False


class AdmissionReview(msgspec.Struct, frozen=True, rename="camel"):
    """The envelope of a request."""

    request: AdmissionRequest
    api_version: Literal["admission.k8s.io/v1"] = "admission.k8s.io/v1"
    kind: Literal["AdmissionReview"] = "AdmissionReview"


class Verdict(msgspec.Struct, frozen=True):
    """Why a write is refused, if it is, and what its author should know in any case."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether nothing stands against the write."""
        return not self.errors


ALLOWED = Verdict()
_reader = msgspec.json.Decoder(AdmissionReview)


def read(body: bytes) -> AdmissionRequest:
    """The request of an AdmissionReview.

    Raises:
        msgspec.DecodeError: it is none.
    """
    try:
        return _reader.decode(body).request
    except RecursionError:
        return msgspec.structs.replace(_reader.decode(shallow(body)).request, too_deep=True)


def answer(uid: str, verdict: Verdict) -> bytes:
    """The AdmissionReview that answers a request. The API server puts the webhook's name before the message."""
    response: dict[str, Any] = {"uid": uid, "allowed": verdict.allowed}
    if verdict.errors:
        response["status"] = {"code": REFUSED, "message": "\n".join(verdict.errors)}
    if verdict.warnings:
        response["warnings"] = [_clipped(text) for text in verdict.warnings]
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_WARNING else f"{text[: MAX_WARNING - 1]}…"
