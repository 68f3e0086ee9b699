"""A small client of the API server for tests and benchmarks: plain JSON objects over one connection kept alive.

Independent of netdra on purpose: what netdra writes is read back through this, and through kubectl. Waiting is done by
watches, so it lasts as long as the server needs and no longer. One `Api` serves one thread.
"""

from __future__ import annotations

import http.client
import json
import select
import ssl
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from testbed.certificates import KeyPair
from testbed.waiting import waiting

Object = dict[str, Any]
Objects = list[Object]
TIMEOUT = 60.0
FIELD_MANAGER = "netdra-testbed"
_STARTS = "storage is (re)initializing"
"""What the API server says of objects of a definition until it has read them; it did nothing yet."""
_STARTS_AGAIN_SECONDS = 0.5
_PATCHES = {
    "apply": "application/apply-patch+yaml",
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


class ApiError(Exception):
    """The server refused; `code` is the HTTP status, `reason` the machine's word for it, `message` the text."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message


class Api:
    """One user's way to one API server. A kind is written `v1/Pod` or `resource.k8s.io/v1/ResourceClaim`."""

    def __init__(
        self, server: str, authority: Path, user: KeyPair, *, timeout: float = TIMEOUT, patience: float = TIMEOUT
    ) -> None:
        """Connect on the first request.

        Args:
            server: `https://HOST:PORT`.
            authority: the certificate that signed the server's.
            user: the client certificate.
            timeout: seconds that the server may keep silent.
            patience: seconds that is waited for a condition, unless it is stated.
        """
        parts = urlsplit(server)
        assert parts.hostname is not None
        assert parts.port is not None
        self._address = (parts.hostname, parts.port)
        self._context = ssl.create_default_context(cafile=authority)
        self._context.load_cert_chain(user.certificate, user.key)
        self._timeout = timeout
        self._patience = patience
        self._connection: http.client.HTTPSConnection | None = None
        self._resources: dict[str, tuple[str, bool]] = {}
        self.warnings: tuple[str, ...] = ()
        """Those of the last answer, as the server writes them in its headers."""

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: str
    ) -> Object:
        """One request, and the object that answers it.

        Raises:
            ApiError: the server refused.
            OSError: it could not be reached, or went away in the middle.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._request(method, path, body, content_type, query)
            except ApiError as problem:
                if _STARTS not in problem.message or time.monotonic() > deadline:
                    raise
                time.sleep(_STARTS_AGAIN_SECONDS)

    def _request(self, method: str, path: str, body: Any, content_type: str, query: Mapping[str, str]) -> Object:
        connection = self._alive() or self._connect(self._timeout)
        self._connection = None  # put back only when the answer was read whole
        try:
            response = _send(connection, method, path, body, content_type, query)
            content = response.read()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self.warnings = tuple(response.headers.get_all("Warning") or ())
        answer = json.loads(content) if response.headers.get_content_type() == "application/json" else {}
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise ApiError(
                response.status, answer.get("reason", ""), answer.get("message") or content.decode(errors="replace")
            )
        found: Object = answer
        return found

    def get(self, kind: str, name: str, namespace: str = "") -> Object:
        """One object."""
        return self.request("GET", self.path(kind, namespace, name))

    def list(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> Objects:
        """All objects of a kind that the selectors match, in one namespace or in all."""
        items: Objects = self._list(kind, namespace, labels, fields)["items"]
        return items

    def create(self, manifest: Object, *, dry_run: bool = False) -> Object:
        """Make an object, and return it as it is stored (or, dry, as it would be)."""
        return self.request("POST", self._home(manifest), manifest, **_options(dry_run=dry_run))

    def update(self, manifest: Object, *, subresource: str = "", dry_run: bool = False) -> Object:
        """Put an object in place of the one that has its name."""
        path = self._place(manifest, subresource)
        return self.request("PUT", path, manifest, **_options(dry_run=dry_run))

    def apply(
        self, manifest: Object, *, manager: str = FIELD_MANAGER, subresource: str = "", dry_run: bool = False
    ) -> Object:
        """Server-side apply, taking over fields that others own."""
        options = _options(dry_run=dry_run) | {"fieldManager": manager, "force": "true"}
        path = self._place(manifest, subresource)
        return self.request("PATCH", path, manifest, content_type=_PATCHES["apply"], **options)

    def patch(
        self, kind: str, name: str, change: Any, *, namespace: str = "", style: str = "merge", subresource: str = ""
    ) -> Object:
        """Change an object; `style` is `merge`, `strategic` or `json`."""
        path = self.path(kind, namespace, name, subresource)
        return self.request("PATCH", path, change, content_type=_PATCHES[style])

    def delete(self, kind: str, name: str, namespace: str = "", *, grace: int = 0) -> None:
        """Delete an object; no error if it is gone. A pod with seconds of grace stays until its node has ended it."""
        try:
            self.request("DELETE", self.path(kind, namespace, name), gracePeriodSeconds=str(grace))
        except ApiError as problem:
            if problem.code != http.HTTPStatus.NOT_FOUND:
                raise

    def delete_all(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> None:
        """Delete all objects of a kind that the selectors match."""
        query = _options(labels=labels, fields=fields) | {"gracePeriodSeconds": "0"}
        self.request("DELETE", self.path(kind, namespace), **query)

    def watch(
        self,
        kind: str,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        since: str = "",
        timeout: float = TIMEOUT,
    ) -> Generator[tuple[str, Object], None, None]:
        """The changes of a kind, as (ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, object), on a connection of its own.

        It ends when the server ends it; close the generator to end it earlier.

        Args:
            kind: what to watch.
            namespace: only there; in all of them if none is named.
            labels: only what this label selector matches.
            fields: only what this field selector matches.
            since: the resource version after which to begin; without one, with the present objects.
            timeout: seconds without any event after which `TimeoutError` is raised.
        """
        query = _options(labels=labels, fields=fields) | {"watch": "true", "resourceVersion": since}
        with closing(self._connect(timeout)) as connection:
            response = _send(connection, "GET", self.path(kind, namespace), None, "application/json", query)
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                raise ApiError(response.status, response.reason, response.read().decode(errors="replace"))
            with response:
                while line := response.readline():
                    event = json.loads(line)
                    yield event["type"], event["object"]

    def wait_for(
        self,
        kind: str,
        name: str,
        condition: Callable[[Object | None], bool],
        *,
        namespace: str = "",
        timeout: float | None = None,
    ) -> Object | None:
        """Wait until a condition holds of one object, None while none exists, and return it.

        Raises:
            TimeoutError: it did not hold in time; the text has the object as it was last.
        """
        found = self.wait_for_all(
            kind,
            lambda objects: condition(objects[0] if objects else None),
            namespace=namespace,
            fields=f"metadata.name={name}",
            timeout=timeout,
        )
        return found[0] if found else None

    def wait_for_all(
        self,
        kind: str,
        condition: Callable[[Objects], bool],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        timeout: float | None = None,
    ) -> Objects:
        """Wait until a condition holds of all objects that the selectors match, and return them.

        Raises:
            TimeoutError: it did not hold in time; the text has the objects as they were last.
        """
        timeout = self._patience if timeout is None else timeout
        deadline = time.monotonic() + timeout
        current: Objects = []
        with waiting(self.path(kind).rpartition("/")[2]), suppress(TimeoutError):
            for current in self._states(kind, namespace, labels, fields, deadline):
                if condition(current):
                    return current
        last = json.dumps([_brief(item) for item in current], indent=1)
        raise TimeoutError(f"waited {timeout:g} s for {kind} {fields}{labels}; they were last: {last}")

    def path(self, kind: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL's path of a kind, of one object, or of its subresource."""
        version = kind.rpartition("/")[0]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        plural, namespaced = self._resource(kind, root)
        place = f"/namespaces/{quote(namespace)}" if namespaced and namespace else ""
        tail = "".join(f"/{quote(part)}" for part in (name, subresource) if part)
        return f"{root}{place}/{plural}{tail}"

    def _resource(self, kind: str, root: str) -> tuple[str, bool]:
        """A kind's name in URLs, and whether it lives in namespaces, as the server states (CRDs included)."""
        if kind not in self._resources:
            for resource in self.request("GET", root)["resources"]:
                if "/" not in resource["name"]:
                    known = f"{kind.rpartition('/')[0]}/{resource['kind']}"
                    self._resources[known] = (resource["name"], resource["namespaced"])
        if kind not in self._resources:
            raise ApiError(http.HTTPStatus.NOT_FOUND, "NotFound", f"the server has no kind {kind}")
        return self._resources[kind]

    def _home(self, manifest: Object) -> str:
        return self.path(kind_of(manifest), manifest["metadata"].get("namespace", ""))

    def _place(self, manifest: Object, subresource: str) -> str:
        metadata = manifest["metadata"]
        return self.path(kind_of(manifest), metadata.get("namespace", ""), metadata["name"], subresource)

    def _list(self, kind: str, namespace: str, labels: str, fields: str) -> Object:
        return self.request("GET", self.path(kind, namespace), **_options(labels=labels, fields=fields))

    def _states(self, kind: str, namespace: str, labels: str, fields: str, deadline: float) -> Iterator[Objects]:
        """The matching objects now, and after each change, until the deadline; a watch that ends is begun again."""
        while (left := deadline - time.monotonic()) > 0:
            listed = self._list(kind, namespace, labels, fields)
            objects = {_key(item): item for item in listed["items"]}
            yield [*objects.values()]
            since = listed["metadata"]["resourceVersion"]
            watch = self.watch(kind, namespace, labels=labels, fields=fields, since=since, timeout=left)
            with closing(watch) as changes:
                for change, item in changes:
                    if change == "ERROR":
                        break
                    if change == "DELETED":
                        objects.pop(_key(item), None)
                    else:
                        objects[_key(item)] = item
                    yield [*objects.values()]
                    if time.monotonic() > deadline:
                        return

    def _alive(self) -> http.client.HTTPSConnection | None:
        """The connection that was kept, unless the server closed it meanwhile (then it is readable)."""
        kept = self._connection
        if kept is None or kept.sock is None or select.select([kept.sock], [], [], 0)[0]:
            self.close()
            return None
        return kept

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        host, port = self._address
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)


def kind_of(manifest: Object) -> str:
    """The kind of an object in the form that `Api` takes."""
    return f"{manifest['apiVersion']}/{manifest['kind']}"


def _options(*, dry_run: bool = False, labels: str = "", fields: str = "") -> dict[str, str]:
    options = {"dryRun": "All" if dry_run else "", "labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in options.items() if value}


def _send(
    connection: http.client.HTTPSConnection,
    method: str,
    path: str,
    body: Any,
    content_type: str,
    query: Mapping[str, str],
) -> http.client.HTTPResponse:
    target = f"{path}?{urlencode(query)}" if query else path
    # Without blanks, as Kubernetes' own clients write: a claim's opaque parameters are kept byte by byte, and a patch
    # of its status writes them again in this form, which the server treats as a change of the allocation.
    content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
    headers = {"Content-Type": content_type, "Accept": "application/json", "User-Agent": FIELD_MANAGER}
    connection.request(method, target, content, headers)
    return connection.getresponse()


def _brief(item: Object) -> Object:
    return item | {"metadata": {name: value for name, value in item["metadata"].items() if name != "managedFields"}}


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
