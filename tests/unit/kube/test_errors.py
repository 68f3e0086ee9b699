"""A refusal becomes the error that states whether to try again."""

import pytest

from netdra.kube.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    GoneError,
    NotFoundError,
    RefusedError,
    Status,
    StatusCause,
    StatusDetails,
    UnavailableError,
    api_error,
    no_answer,
)
from netdra.model.errors import NetdraError, PermanentError, TemporaryError


@pytest.mark.parametrize(
    ("status", "kind", "base"),
    [
        (Status(code=400), RefusedError, PermanentError),
        (Status(code=401), UnavailableError, TemporaryError),
        (Status(code=403), RefusedError, PermanentError),
        (Status(code=404), NotFoundError, PermanentError),
        (Status(code=409, reason="Conflict"), ConflictError, TemporaryError),
        (Status(code=409, reason="AlreadyExists"), AlreadyExistsError, PermanentError),
        (Status(code=410), GoneError, TemporaryError),
        (Status(code=413), RefusedError, PermanentError),
        (Status(code=422, reason="Invalid"), RefusedError, PermanentError),
        (Status(code=429), UnavailableError, TemporaryError),
        (Status(code=500), UnavailableError, TemporaryError),
        (Status(code=503), UnavailableError, TemporaryError),
        (Status(code=504), UnavailableError, TemporaryError),
    ],
)
def test_the_code_decides_the_error(status: Status, kind: type[ApiError], base: type[NetdraError]) -> None:
    problem = api_error("create x", status)

    assert isinstance(problem, kind)
    assert isinstance(problem, base)
    assert "create x" in problem.what


def test_the_wait_is_the_headers_or_the_bodys() -> None:
    asked = Status(code=429, details=StatusDetails(retry_after_seconds=7))

    assert api_error("x", asked).retry_after == 7
    assert api_error("x", asked, retry_after=2.0).retry_after == 2.0
    assert api_error("x", Status(code=500)).retry_after == 0


def test_the_servers_words_are_kept_and_bounded() -> None:
    assert "too many" in api_error("x", Status(code=422, message="too many")).what
    assert len(api_error("x", Status(code=422, message="y" * 10**6)).what) < 3000


def test_a_missing_answer_is_a_temporary_error_with_its_cause() -> None:
    problem = no_answer("list nodes", OSError("connection refused"))

    assert isinstance(problem, TemporaryError)
    assert problem.status.code == 0
    assert "list nodes: connection refused" in problem.what
    assert "TimeoutError" in no_answer("list nodes", TimeoutError()).what


def test_the_next_step_of_a_refusal_depends_on_its_cause() -> None:
    denied = (
        'slices "a" is forbidden: User "system:serviceaccount:netdra:x" cannot create resource "slices" in API group ""'
    )
    quota = 'slices "a" is forbidden: exceeded quota: few, requested: count/slices=1, used: 1, limited: 1'
    policy = "slices \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no IPv6 here"
    webhook = 'admission webhook "w.example.com" denied the request: User "x" cannot be trusted'
    causes = (StatusCause(reason="NamespaceTerminating", message="namespace x is being terminated"),)
    plugin = 'pods "a" is forbidden: violates PodSecurity "restricted:latest"'
    told = {
        text: api_error("x", Status(code=code, reason=reason, message=text, details=details))
        for text, code, reason, details in [
            (denied, 403, "Forbidden", None),
            ('forbidden: User "x" cannot get path "/version"', 403, "Forbidden", None),
            (quota, 403, "Forbidden", None),
            (policy, 403, "Forbidden", None),
            (policy.replace("'p'", "'q'"), 422, "Invalid", None),
            (webhook, 403, "Forbidden", None),
            (plugin, 403, "Forbidden", None),
            ("it ends", 403, "Forbidden", StatusDetails(causes=causes)),
            ("not valid", 422, "Invalid", None),
            ("<html>blocked</html>", 403, "", None),
        ]
    }
    expected = ["permission", "permission", "quota", "admission", "admission", "admission", "admission", "terminating"]
    assert [problem.cause for problem in told.values()] == [*expected, "other", "other"]
    assert "helm upgrade" in told[denied].hint
    assert "ResourceQuota" in told[quota].hint
    assert all("helm upgrade" not in problem.hint for problem in (*told.values(),)[2:])
