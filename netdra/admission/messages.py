"""AdmissionReview (admission.k8s.io/v1): the API server's request to a webhook, and the answer.

Decoded and encoded by `netdra.admission.server`. Objects stay bytes until the review of their kind.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from netdra.model.depth import shallow
from netdra.model.errors import shortened

NOTHING = msgspec.Raw(b"null")
REFUSED = 422
MAX_WARNING = 256
"""Characters of a warning that the API server passes on for certain."""


class Kind(msgspec.Struct, frozen=True):
    """An object's kind."""

    group: str
    version: str
    kind: str


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One write that is about to happen.

    Attributes:
        uid: the answer must repeat it.
        kind: of the object, as converted for the webhook's rules.
        operation: the write.
        name: the object's name; empty if the server is to make one.
        object: as it will be; null for DELETE.
        old_object: as it is; null for CREATE.
        too_deep: whether the parts of both that were nested too deeply to be read are left out.
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
    """The errors for which a write is refused, and the warnings for its author."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether the write has no errors."""
        return not self.errors


ALLOWED = Verdict()
_reader = msgspec.json.Decoder(AdmissionReview)


def read(body: bytes) -> AdmissionRequest:
    """The request of an AdmissionReview.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: the bytes are not AdmissionReview.
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
        response["warnings"] = [shortened(text, MAX_WARNING) for text in verdict.warnings]
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
