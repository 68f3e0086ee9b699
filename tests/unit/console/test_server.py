"""The console over HTTP: who gets in and by which name; headers, bounds, pages without a script, and events."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import ClientResponse, ClientSession, CookieJar, DummyCookieJar

from netdra.console import pages, server
from netdra.console.access import ConsoleAccess, SignedOnUser, SignOn
from netdra.console.server import HEADERS, Console
from netdra.model.errors import TemporaryError
from tests.unit.console.reading import Page
from tests.unit.console.scene import HOSTILE, NODE, FixedSource

YAML = """
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: a}
spec: {selector: {cel: 'true'}}
"""
PAGES = (
    *("/", f"/nodes/{NODE}", "/pods/default/db-0", f"/devices/{NODE}/bond0", "/claims/default/db-net", "/what-if"),
    *("/nodes", "/devices", "/pods", "/claims", "/topologies", "/policies", "/networks", "/plugins", "/search?q=db"),
    *("/topologies/net", "/?class=net-a", "/traffic", f"/traffic?node={NODE}&sort=-sent"),
)


@dataclass
class Browser:
    """A client without a script."""

    session: ClientSession
    source: FixedSource
    port: int
    tokens: list[str] = field(default_factory=list)

    async def get(self, path: str, **headers: str) -> tuple[ClientResponse, bytes]:
        async with self.session.get(path, headers=headers, allow_redirects=False) as answer:
            return answer, await answer.read()

    async def page(self, path: str) -> Page:
        answer, body = await self.get(path)
        assert answer.status == 200, body
        return Page(body)

    async def enter(self) -> None:
        answer, _ = await self.get(f"/enter?token={self.tokens[-1]}")
        assert answer.status == 200


@asynccontextmanager
async def _console(
    jar: Callable[[], CookieJar | DummyCookieJar], sign_on: SignOn | None = None
) -> AsyncIterator[Browser]:
    source, tokens = FixedSource(), list[str]()
    async with Console(source, ConsoleAccess(tokens.append), sign_on).serving("127.0.0.1", 0) as listening:
        where = f"http://127.0.0.1:{listening.port}"
        async with ClientSession(where, cookie_jar=jar()) as session:
            yield Browser(session, source, listening.port, tokens)


def _run(scene: Callable[[Browser], Awaitable[None]], *, enter: bool = True) -> None:
    async def play() -> None:
        async with asyncio.timeout(30), _console(lambda: CookieJar(unsafe=True)) as browser:
            if enter:
                await browser.enter()
            await scene(browser)

    asyncio.run(play())


def test_without_the_token_every_page_answers_401() -> None:
    async def scene(browser: Browser) -> None:
        for path in (*PAGES, "/live?of=/", "/enter", "/enter?token=guess", "/nothing"):
            answer, body = await browser.get(path)
            assert answer.status == 401
            assert NODE.encode() not in body
        for cookie in ("x", browser.tokens[0]):
            answer, _ = await browser.get("/", Cookie=f"netdra-console-{browser.port}={cookie}")
            assert answer.status == 401

    _run(scene, enter=False)


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def test_a_proxy_names_the_user_whose_rights_count() -> None:
    password, origin = "a password that only the proxy knows", "https://console.example.com"

    async def play() -> None:
        async with asyncio.timeout(30), _console(DummyCookieJar, SignOn(password, origin)) as browser:
            refused: tuple[dict[str, str], ...] = (
                {},
                {"Authorization": _basic("ann", "guess")},
                {"Authorization": _basic("system:admin", password)},
                {"Authorization": _basic("", password)},
                {"Authorization": "Basic %%%"},
                {"Authorization": _basic("ann", password), "X-Forwarded-Groups": "dev,system:masters"},
                {"Authorization": _basic("ann\r\nImpersonate-Group: x", password)},
            )
            for headers in refused:
                answer, body = await browser.get("/", **headers)
                assert answer.status == 401, headers
                assert NODE.encode() not in body
            assert not browser.source.users
            signed_on = {"Authorization": _basic("ann", password), "X-Forwarded-Groups": "dev, ops"}
            assert (await browser.get(f"/enter?token={browser.tokens[-1]}", **signed_on))[0].status == 404
            answer, body = await browser.get("/", **signed_on)
            assert answer.status == 200
            assert NODE.encode() in body
            assert {*browser.source.users} == {SignedOnUser("ann", ("dev", "ops"))}
            for source, status in ((origin, 200), (f"http://127.0.0.1:{browser.port}", 403)):
                data, headers = {"policies": YAML}, {**signed_on, "Origin": source}
                async with browser.session.post("/what-if/result", data=data, headers=headers) as answer:
                    assert answer.status == status

    asyncio.run(play())


def test_the_token_is_valid_once_and_the_cookie_is_kept_from_scripts() -> None:
    async def scene(browser: Browser) -> None:
        first = browser.tokens[0]
        async with browser.session.head(f"/enter?token={first}") as answer:
            assert answer.status == 401  # a preview of the link does not spend it
        answer, body = await browser.get(f"/enter?token={first}")
        assert answer.status == 200
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert first.encode() not in body
        assert Page(body).links == ["/"]
        assert (await browser.get("/"))[0].status == 200
        assert (await browser.get(f"/enter?token={first}"))[0].status == 401
        assert len(browser.tokens) == 2

    _run(scene, enter=False)


def test_another_name_of_the_host_is_refused_with_the_session_too() -> None:
    async def scene(browser: Browser) -> None:
        for path in (*PAGES, "/console.css", "/live?of=/", f"/enter?token={browser.tokens[-1]}"):
            answer, body = await browser.get(path, Host=f"evil.example:{browser.port}")
            assert answer.status == 421
            assert NODE.encode() not in body
        assert len(browser.tokens) == 2

    _run(scene)


def test_every_answer_has_the_headers() -> None:
    async def scene(browser: Browser) -> None:
        for path in (*PAGES, "/console.css", "/console.js", "/nothing", "/enter"):
            answer, _ = await browser.get(path)
            missing = {name for name, value in HEADERS.items() if answer.headers.get(name) != value}
            assert missing <= ({"Cache-Control"} if path.startswith("/console.") else set())
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none';")
            assert "unsafe" not in policy
            assert answer.headers["Server"] == "netdra"

    _run(scene)


def test_pages_are_complete_without_a_script() -> None:
    async def scene(browser: Browser) -> None:
        fleet = await browser.page("/")
        assert f"/nodes/{NODE}" in fleet.links
        node = await browser.page(f"/nodes/{NODE}")
        assert "/pods/default/db-0" in node.links
        pod = await browser.page("/pods/default/db-0")
        assert [found.words for found in pod.all("text", "name")] == ["a", "b", "bond", "vlan"]
        assert "Pod default/db-0 runs on node worker-1." in pod.words
        assert "/claims/default/db-net" in (await browser.page("/search?q=DB-NET")).links
        for path in PAGES:
            for found in (await browser.page(path)).all("script"):
                assert not found.words
                assert found.attributes["src"] == "/console.js"

    _run(scene)


@pytest.mark.parametrize(
    "path",
    [
        "/nodes/A_B",
        "/traffic?node=a%2Cb",
        "/nodes/a%2Cmetadata.name%3Db",
        "/nodes/../x",
        "/pods/default",
        "/secrets/default/x",
        "/pods/default/" + "x" * 300,
        "/claims/a,b/c",
        "/x",
        "/%2Fevil.example",
        "/" + "?a=" + "x" * 5000,
    ],
)
def test_invalid_page_paths_answer_404(path: str) -> None:
    async def scene(browser: Browser) -> None:
        assert (await browser.get(path))[0].status == 404

    _run(scene)


def test_a_forecast_is_asked_for_by_a_form_of_the_console_alone() -> None:
    async def scene(browser: Browser) -> None:
        async def post(text: str, node: str = "", **headers: str) -> tuple[int, bytes]:
            data = {"policies": text, "node": node}
            async with browser.session.post("/what-if/result", data=data, headers=headers) as answer:
                return answer.status, await answer.read()

        status, body = await post(YAML, NODE, Origin=f"http://127.0.0.1:{browser.port}")
        assert status == 200
        assert "1 hidden (1 in use)" in Page(body).words
        ((policies, node),) = browser.source.forecasts
        assert ([policy.name for policy in policies], node) == (["a"], NODE)
        assert (await post(YAML, Origin="http://evil.example"))[0] == 403
        assert (await post(YAML, **{"Sec-Fetch-Site": "same-site"}))[0] == 403
        status, body = await post(f"{HOSTILE}: [")
        assert status == 400
        assert "<img" not in body.decode()
        assert (await post(YAML, "a,b"))[0] == 400
        assert (await post("x" * (server.MAX_BODY + 1)))[0] in (400, 413)
        assert len(browser.source.forecasts) == 1

    _run(scene)


def test_a_cluster_that_cannot_be_read_is_a_page_with_the_reason() -> None:
    async def scene(browser: Browser) -> None:
        browser.source.failure = TemporaryError(f"the API server does not answer {HOSTILE}")
        answer, body = await browser.get("/pods/default/db-0")
        assert answer.status == 502
        assert "the API server does not answer" in Page(body).words
        assert "<img" not in body.decode()

    _run(scene)


def test_a_change_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FLEET_SECONDS", 0.01)
    monkeypatch.setattr(pages, "OBJECT_SECONDS", 0.01)
    monkeypatch.setattr(pages, "TRAFFIC_SECONDS", 0.01)

    async def scene(browser: Browser) -> None:
        for path in ("%2F", "%2Fpods", "%2Fpods%2Fdefault%2Fdb-0", "%2Ftraffic"):
            async with browser.session.get(f"/live?of={path}") as answer:
                assert answer.headers["Content-Type"] == "text/event-stream"
                assert await answer.content.readuntil(b"\n\n") == b"retry: 5000\n\n"
                browser.source.change()
                assert await answer.content.readuntil(b"\n\n") == b"event: changed\ndata:\n\n"
        assert (await browser.get("/live?of=/what-if"))[0].status == 404
        assert (await browser.get("/live?of=https://evil.example/"))[0].status == 404
        assert (await browser.get("/live?of=/", **{"Sec-Fetch-Site": "cross-site"}))[0].status == 403

    _run(scene)


def test_streams_and_waiting_pages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_STREAMS", 2)
    monkeypatch.setattr(server, "MAX_WAITING", 1)

    async def scene(browser: Browser) -> None:
        async with browser.session.get("/live?of=/"), browser.session.get("/live?of=/"):
            await asyncio.sleep(0.5)  # a stream counts a moment after its headers are sent
            assert (await browser.get("/live?of=/"))[0].status == 503
        gate, begun = asyncio.Event(), asyncio.Event()

        async def slow(*_: str) -> None:
            begun.set()
            await gate.wait()

        monkeypatch.setattr(browser.source, "objects", slow)
        first = asyncio.create_task(browser.get(f"/nodes/{NODE}"))
        await begun.wait()
        answer, _ = await browser.get("/pods/default/db-0")
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "5"
        first.cancel()
        gate.set()

    _run(scene)


def test_a_page_that_was_left_frees_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_STREAMS", 1)
    monkeypatch.setattr(server, "BEAT_SECONDS", 0.02)

    async def scene(browser: Browser) -> None:
        async with browser.session.get("/live?of=/pods") as answer:
            assert await answer.content.readuntil(b"waiting\n\n")
            answer.close()
        while True:
            async with browser.session.get("/live?of=/pods") as answer:
                if answer.status == 200 and await answer.content.readuntil(b"waiting\n\n"):
                    return
            await asyncio.sleep(0.02)

    _run(scene)


def test_a_read_that_takes_too_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "READ_SECONDS", 0.05)

    async def scene(browser: Browser) -> None:
        async def slow(*_: str) -> None:
            await asyncio.sleep(60)

        monkeypatch.setattr(browser.source, "objects", slow)
        answer, body = await browser.get(f"/nodes/{NODE}")
        assert answer.status == 502
        assert b"did not answer" in body

    _run(scene)
