"""The API server's refusals as errors, whose types state whether to try again.

Raised by `netdra.kube.client`; every error has the server's own `Status`
(k8s.io/apimachinery/pkg/apis/meta/v1/types.go).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Literal

import msgspec

from netdra.model.errors import NetdraError, PermanentError, TemporaryError

MAX_TEXT = 2048

RefusalCause = Literal["permission", "quota", "terminating", "admission", "other"]
"""The part of the API server that refuses a request: the authorizer (RBAC as a rule), a ResourceQuota, the end of the
namespace, a policy or webhook, or a rule of the kind."""
# k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go, forbiddenMessage: every authorizer's answer.
_NOT_PERMITTED = re.compile(r'User "[^"]*" cannot \S+ (path|resource) "')
# k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go
_OVER_QUOTA = re.compile(r"is forbidden: (exceeded|failed) quota: ")
_STATUSES = range(100, 600)
_TERMINATING = "NamespaceTerminating"
_BY_ADMISSION = re.compile(r"ValidatingAdmissionPolicy '[^']*' |admission webhook \"[^\"]*\" ")
_HINTS: Mapping[RefusalCause, str] = {
    "permission": "grant the permission to netdra's service account: `helm upgrade` installs the required roles",
    "quota": "raise the ResourceQuota of the namespace, or delete objects that it counts",
    "terminating": "create the namespace again once it is gone",
    "admission": "an admission policy or webhook of the cluster rejects the object; ask its owner to allow it",
    "other": "",
}


class StatusCause(msgspec.Struct, frozen=True):
    """One reason among several: a field, and its error."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """The status's object, its causes, and when to come back."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """The server's answer in place of an object. `code` is 0 without any answer."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class ApiError(NetdraError):
    """The server did not do a request.

    Attributes:
        status: its answer.
        retry_after: seconds that it wants to be left alone; 0 if it gave none.
    """

    def __init__(self, what: str, status: Status, *, retry_after: float = 0.0, hint: str = "") -> None:
        super().__init__(what, hint=hint, code=f"ND8{status.code if status.code in _STATUSES else 0:03}")
        self.status = status
        self.retry_after = retry_after

    @property
    def cause(self) -> RefusalCause:
        """The part of the API server that refused the request."""
        return cause_of(self.status)


class NotFoundError(ApiError, PermanentError):
    """No such object, or no such kind exists."""


class AlreadyExistsError(ApiError, PermanentError):
    """An object of that name is there already."""


class RefusedError(ApiError, PermanentError):
    """The server understood and refuses: no right to it, or the object breaks a rule."""


class ConflictError(ApiError, TemporaryError):
    """The object was changed, or replaced by another of its name, since it was read."""


class GoneError(ApiError, TemporaryError):
    """The resourceVersion or the page that was asked for is too old: list again."""


class UnavailableError(ApiError, TemporaryError):
    """The server is away, overloaded or broken, or does not take the token just now."""


_BY_CODE: dict[int, type[ApiError]] = {
    HTTPStatus.UNAUTHORIZED: UnavailableError,
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.REQUEST_TIMEOUT: UnavailableError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.GONE: GoneError,
    HTTPStatus.TOO_MANY_REQUESTS: UnavailableError,
}


def api_error(what: str, status: Status, *, retry_after: float = 0.0) -> ApiError:
    """The error for a status.

    Args:
        what: the request, e.g. `create resourceslices`.
        status: the server's answer.
        retry_after: the seconds of a Retry-After header.
    """
    kind = _BY_CODE.get(
        status.code, RefusedError if status.code < HTTPStatus.INTERNAL_SERVER_ERROR else UnavailableError
    )
    if status.code == HTTPStatus.CONFLICT and status.reason == "AlreadyExists":
        kind = AlreadyExistsError
    wait = retry_after or (status.details.retry_after_seconds if status.details else 0)
    text = status.message[:MAX_TEXT] or status.reason or "no reason given"
    return kind(f"API server: {what}: {status.code} {text}", status, retry_after=wait, hint=_hint(status))


def no_answer(what: str, problem: Exception | str) -> UnavailableError:
    """The error for a request that got no answer."""
    text = str(problem) or type(problem).__name__
    return UnavailableError(f"API server: {what}: {text}", Status(message=text))


def cause_of(status: Status) -> RefusalCause:
    """The part of the API server that refused a request.

    A status has no field for that: 403 is the answer of authorizers, quotas, policies and webhooks, and policies
    answer 422, too. The texts are the API server's own.
    """
    causes = (status.details.causes if status.details is not None else None) or ()
    if any(cause.reason == _TERMINATING for cause in causes):
        return "terminating"
    if _BY_ADMISSION.search(status.message):
        return "admission"
    if status.code != HTTPStatus.FORBIDDEN:
        return "other"
    if _NOT_PERMITTED.search(status.message):
        return "permission"
    if _OVER_QUOTA.search(status.message):
        return "quota"
    # A proxy's refusal has no reason. All others are those of admission plugins, e.g. PodSecurity.
    return "admission" if status.reason else "other"


def _hint(status: Status) -> str:
    if status.code == HTTPStatus.UNAUTHORIZED:
        return "the server rejects the token or certificate; check that it belongs to this cluster and has not expired"
    return _HINTS[cause_of(status)]
