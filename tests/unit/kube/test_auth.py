"""Credentials as kubectl takes them: every way to state who we are, to a server that states what it was shown."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import stat
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from netdra.kube import auth
from netdra.kube import connection as connections
from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config, is_direct, proxy_of, reason
from netdra.kube.errors import UnavailableError
from netdra.kube.kubeconfig import ApiServer, Config, ExecPlugin, User, Variable
from netdra.model.errors import InvalidInputError
from testbed.certificates import Authority, new_authority
from testbed.waiting import until_async

V1, BETA = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
SECRET = "hunter2-of-the-kubeconfig"


@dataclass
class Server:
    """A server that takes some credentials; what it was shown is kept.

    Attributes:
        allowed: values of the header Authorization, or common names of certificates; all if it is empty.
        shown: the headers of each request.
        names: the common name of the certificate of each request, "" without one.
    """

    url: str = ""
    allowed: set[str] = field(default_factory=set)
    shown: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert") or {}
        subject = {key: value for part in certificate.get("subject", ()) for key, value in part}
        self.shown.append(request.headers)
        self.names.append(subject.get("commonName", ""))
        await asyncio.sleep(0.01)
        ways = {request.headers.get("Authorization", ""), self.names[-1]}
        return web.Response(status=401 if self.allowed and self.allowed.isdisjoint(ways) else 200, text="told")

    @property
    def tokens(self) -> list[str]:
        return [each.get("Authorization", "").removeprefix("Bearer ") for each in self.shown]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@asynccontextmanager
async def serving(authority: Authority, name: str = "127.0.0.1") -> AsyncIterator[Server]:
    pair = authority.server(f"server-{name}", [name])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    context.load_verify_locations(authority.own.certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    server.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def config(server: Server, authority: Authority, user: User, **cluster: Any) -> Config:
    trusted = cluster or {"certificate_authority": str(authority.own.certificate)}
    return Config(cluster=ApiServer(server=server.url, **trusted), user=user, context="test")


async def version(config: Config, times: int = 1) -> None:
    async with Client(connect(config)) as client:
        for _ in range(times):
            await client.read("/version", "version")


def program(folder: Path, text: str) -> Path:
    """A plugin, in Python; `said(...)` prints an ExecCredential and `runs` states how often it ran so far."""
    path = folder / "plugin"
    count = folder / "runs"
    path.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys, time\n"
        f"count = {str(count)!r}\n"
        "with open(count, 'a') as file: file.write('x')\n"
        "runs = os.path.getsize(count)\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "def said(**status):\n"
        "    print(json.dumps({'kind': 'ExecCredential', 'apiVersion': info['apiVersion'], 'status': status}))\n"
        f"{text}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def ran(folder: Path) -> int:
    return (folder / "runs").stat().st_size


def plugin(folder: Path, text: str, **more: Any) -> User:
    known: dict[str, Any] = {"api_version": V1, "interactive_mode": "Never"}
    return User(exec_=ExecPlugin(command=str(program(folder, text)), **{**known, **more}))


@pytest.mark.parametrize("api", [V1, BETA])
def test_a_plugins_token_is_asked_for_once_and_used(authority: Authority, tmp_path: Path, api: str) -> None:
    async def story() -> None:
        async with serving(authority) as server:
            user = plugin(tmp_path, "said(token=os.environ['A'] + sys.argv[1])", api_version=api, args=("-x",))
            assert user.exec_ is not None
            user = User(exec_=ExecPlugin(**{**fields(user.exec_), "env": (Variable(name="A", value="token"),)}))
            async with Client(connect(config(server, authority, user))) as client:
                await asyncio.gather(*(client.read("/version", "version") for _ in range(20)))
            assert set(server.tokens) == {"token-x"}
            assert ran(tmp_path) == 1

    asyncio.run(story())


def fields(of: ExecPlugin) -> dict[str, Any]:
    return {name: getattr(of, name) for name in of.__struct_fields__}


def test_credentials_are_asked_for_anew_when_their_time_is_over_and_after_a_refusal(
    authority: Authority, tmp_path: Path
) -> None:
    until = "time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() + (3600 if runs != 1 else -1)))"

    async def story() -> None:
        async with serving(authority) as server:
            user = plugin(tmp_path, f"said(token=f't{{runs}}', expirationTimestamp={until})")
            async with Client(connect(config(server, authority, user))) as client:
                for _ in range(3):
                    await client.read("/version", "version")
                assert server.tokens == ["t1", "t2", "t2"]
                server.allowed = {"Bearer t3"}
                await asyncio.gather(*(client.read("/version", "version") for _ in range(10)))
                assert ran(tmp_path) == 3
                server.allowed = {"Bearer none"}
                with pytest.raises(UnavailableError, match="401"):
                    await client.read("/version", "version")
                assert ran(tmp_path) == 4
                assert server.tokens[-2:] == ["t3", "t4"]

    asyncio.run(story())


def test_a_plugins_certificate_is_shown_and_changed_after_a_refusal(authority: Authority, tmp_path: Path) -> None:
    pairs = [authority.client(name, []) for name in ("first", "second")]
    read = [f"(open({str(each.certificate)!r}).read(), open({str(each.key)!r}).read())" for each in pairs]

    async def story() -> None:
        async with serving(authority) as server:
            text = f"pair = {read[0]} if runs == 1 else {read[1]}\n"
            user = plugin(tmp_path, text + "said(clientCertificateData=pair[0], clientKeyData=pair[1])")
            server.allowed = {"second"}
            await version(config(server, authority, user), 2)
            assert server.names == ["first", "second", "second"]

    asyncio.run(story())


def test_an_exec_plugin_receives_the_cluster_info_if_it_requests_it(authority: Authority, tmp_path: Path) -> None:
    text = "open(count + '.info', 'w').write(os.environ['KUBERNETES_EXEC_INFO']); said(token='t')"

    async def story() -> None:
        async with serving(authority) as server:
            user = plugin(tmp_path, text, provide_cluster_info=True)
            await version(config(server, authority, user))
            told = json.loads((tmp_path / "runs.info").read_text())
            cluster = told["spec"]["cluster"]
            assert (told["kind"], told["apiVersion"], told["spec"]["interactive"]) == ("ExecCredential", V1, False)
            assert cluster["server"] == server.url
            assert base64.b64decode(cluster["certificate-authority-data"]) == authority.own.certificate.read_bytes()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        ("", InvalidInputError, "printed nothing"),
        (f"print('{SECRET}')", InvalidInputError, "printed something else"),
        ("print('[' * 100000)", InvalidInputError, "printed something else"),
        ("print(json.dumps({'kind': 'Secret'}))", InvalidInputError, "another kind or version"),
        ("info['apiVersion'] += 'x'; said(token='t')", InvalidInputError, "another kind or version"),
        ("said()", InvalidInputError, "neither a token nor a certificate"),
        (f"said(clientKeyData='{SECRET}')", InvalidInputError, "without its certificate"),
        (f"said(clientCertificateData='c', clientKeyData='{SECRET}')", InvalidInputError, "invalid certificate or key"),
        (f"said(token='{SECRET}\\n')", InvalidInputError, "not one line"),
        ("sys.exit(f'log in first, {os.environ[\"A\"]} {sys.argv[1]}')", UnavailableError, "failed with 1: log in fi"),
        ("print('x' * 5_000_000)", InvalidInputError, "more than"),
        ("time.sleep(60)", UnavailableError, "timed out after 2 s"),
        ("os.system('sleep 60')", UnavailableError, "timed out after 2 s"),
    ],
)
def test_a_failing_exec_plugin_is_named_with_a_hint_and_without_secrets(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: type[Exception], why: str
) -> None:
    monkeypatch.setattr(auth, "PLUGIN_SECONDS", 2.0)
    given = {"env": (Variable(name="A", value=SECRET),), "args": (f"--secret={SECRET}",), "install_hint": "get it at X"}

    async def story() -> None:
        async with serving(authority) as server:
            user = plugin(tmp_path, text, **given)
            with pytest.raises(error, match=why) as told:
                await version(config(server, authority, user))
            assert str(tmp_path / "plugin") in str(told.value)
            assert 'context "test"' in str(told.value)
            assert "get it at X" in str(told.value)
            assert SECRET not in str(told.value)
            assert not server.shown

    began = time.monotonic()
    asyncio.run(story())
    assert time.monotonic() - began < 30


def test_a_missing_exec_plugin_is_reported_with_its_install_hint(authority: Authority, tmp_path: Path) -> None:
    async def story(command: str) -> None:
        async with serving(authority) as server:
            user = User(
                exec_=ExecPlugin(command=command, api_version=V1, interactive_mode="Never", install_hint="brew it")
            )
            with pytest.raises(InvalidInputError, match="cannot be run") as told:
                await version(config(server, authority, user))
            assert told.value.hint == "brew it"
            assert command in str(told.value)

    asyncio.run(story("netdra-no-such-plugin"))
    asyncio.run(story(str(tmp_path)))


def test_a_plugin_that_needs_a_person_is_not_run_without_a_terminal(authority: Authority, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(authority) as server:
            user = plugin(tmp_path, "said(token='t')", interactive_mode="Always")
            with pytest.raises(InvalidInputError, match="requires a terminal"):
                await version(config(server, authority, user))
            assert not (tmp_path / "runs").exists()

    asyncio.run(story())


def test_a_cancelled_request_keeps_the_plugin_for_others_and_closing_the_client_stops_it(
    authority: Authority, tmp_path: Path
) -> None:
    pid = tmp_path / "runs.pid"
    text = "open(count + '.pid', 'w').write(str(os.getpid()))\ntime.sleep(60 if runs == 2 else 0.5); said(token='t')"

    def runs() -> bool:
        return pid.exists() and pid.read_text() != ""  # it is there before its text is

    async def story() -> None:
        async with serving(authority) as server:
            user = plugin(tmp_path, text)
            async with Client(connect(config(server, authority, user))) as client:
                first, second = (asyncio.create_task(client.read("/version", "version")) for _ in range(2))
                await until_async(runs, "the plugin to run")
                first.cancel()
                await second
                assert ran(tmp_path) == 1
                pid.unlink()
                server.allowed = {"none"}
                third = asyncio.create_task(client.read("/version", "version"))
                await until_async(runs, "the plugin to run again")
                third.cancel()

    asyncio.run(story())
    assert not Path("/proc", pid.read_text()).exists()


def test_a_token_file_is_read_again_after_a_while_and_after_a_refusal(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")

    async def story() -> None:
        async with serving(authority) as server:
            user = User(token_file=str(file))
            async with Client(connect(config(server, authority, user))) as client:
                await client.read("/version", "version")
                file.write_text("two\n")
                await client.read("/version", "version")
                assert server.tokens == ["one", "one"]
                server.allowed = {"Bearer two"}
                await client.read("/version", "version")
                assert server.tokens[2:] == ["one", "two"]
                server.allowed = {"none"}
                with pytest.raises(UnavailableError, match="401"):
                    await client.read("/version", "version")
                assert server.tokens[4:] == ["two"]
            monkeypatch.setattr(auth, "TOKEN_SECONDS", 0.0)
            server.allowed = set()
            async with Client(connect(config(server, authority, user))) as client:
                await client.read("/version", "version")
                file.write_text("three\n")
                await client.read("/version", "version")
                file.unlink()
                await client.read("/version", "version")
            assert server.tokens[5:] == ["two", "three", "three"]
            with pytest.raises(InvalidInputError, match=r"token file .*token: No such file"):
                await version(config(server, authority, user))

    asyncio.run(story())


def test_certificates_are_shown_from_files_and_from_data(authority: Authority) -> None:
    pair = authority.client("somebody", [])
    of_data = User(
        client_certificate_data=base64.b64encode(pair.certificate.read_bytes()).decode(),
        client_key_data=base64.b64encode(pair.key.read_bytes()).decode(),
        client_key="/nonexistent",
    )

    async def story() -> None:
        async with serving(authority) as server:
            of_files = User(client_certificate=str(pair.certificate), client_key=str(pair.key))
            trusted = base64.b64encode(authority.own.certificate.read_bytes()).decode()
            await version(config(server, authority, of_files))
            await version(config(server, authority, of_data, certificate_authority_data=trusted))
            assert server.names == ["somebody", "somebody"]

    asyncio.run(story())


def test_a_certificate_for_another_name_is_accepted_only_with_tls_server_name_or_skip_verify(
    authority: Authority,
) -> None:
    async def story() -> None:
        async with serving(authority, "kubernetes.example") as server:
            known = {"certificate_authority": str(authority.own.certificate)}
            with pytest.raises(UnavailableError, match="certificate is not valid"):
                await version(config(server, authority, User(), **known))
            await version(config(server, authority, User(), **known, tls_server_name="kubernetes.example"))
            with pytest.raises(UnavailableError, match="certificate is not valid"):
                await version(config(server, authority, User(), tls_server_name="kubernetes.example"))
            await version(config(server, authority, User(), insecure_skip_tls_verify=True))

    asyncio.run(story())


def test_basic_credentials_and_impersonation_headers_are_sent(authority: Authority) -> None:
    async def story() -> None:
        async with serving(authority) as server:
            await version(config(server, authority, User(username="me", password="p:w")))
            assert base64.b64decode(server.shown[0]["Authorization"].removeprefix("Basic ")) == b"me:p:w"
            user = User(token="t", as_="other", as_groups=("a", "b"), as_user_extra={"example.com/x": ("1",)})
            await version(config(server, authority, user))
            assert server.shown[1]["Impersonate-User"] == "other"
            assert server.shown[1].getall("Impersonate-Group") == ["a", "b"]
            assert server.shown[1]["Impersonate-Extra-example.com%2Fx"] == "1"

    asyncio.run(story())


@asynccontextmanager
async def proxying(tls: ssl.SSLContext | None = None, *, silent: bool = False) -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy for CONNECT: its address, and its requests."""
    heads: list[str] = []

    async def pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        if silent:
            await reader.read()
            writer.close()
            return
        if "Proxy-Authorization: Basic" not in head:
            writer.write(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        host, _, port = head.split(" ")[1].rpartition(":")
        upstream, sender = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        await asyncio.gather(pipe(reader, sender), pipe(upstream, writer), return_exceptions=True)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}", heads
    finally:
        listening.close()


def test_requests_use_the_proxy_with_its_password_and_errors_do_not_reveal_it(authority: Authority) -> None:
    async def story() -> None:
        async with serving(authority) as server, proxying() as (proxy, heads):
            known = {"certificate_authority": str(authority.own.certificate)}
            await version(
                config(server, authority, User(token="t"), **known, proxy_url=f"http://me:{SECRET}@{proxy}"), 2
            )
            assert len(heads) == 1
            assert heads[0].startswith(f"CONNECT {server.url.removeprefix('https://')} ")
            assert base64.b64decode(heads[0].split("Basic ")[1].split()[0]).decode() == f"me:{SECRET}"
            assert "Bearer" not in heads[0]
            assert server.tokens == ["t", "t"]
            with pytest.raises(UnavailableError, match="proxy rejected the request: 407") as told:
                await version(config(server, authority, User(), **known, proxy_url=f"http://{proxy}"))
            with pytest.raises(UnavailableError, match="proxy cannot be reached") as other:
                await version(config(server, authority, User(), **known, proxy_url=f"http://me:{SECRET}@127.0.0.1:1"))
            assert SECRET not in str(told.value) + str(other.value)

    asyncio.run(story())


def test_requests_use_a_tls_proxy_and_a_silent_proxy_times_out(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = authority.server("proxy", ["127.0.0.1"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate, pair.key)
    known = {"certificate_authority": str(authority.own.certificate), "tls_server_name": "kubernetes.example"}

    async def story() -> None:
        async with serving(authority, "kubernetes.example") as server:
            async with proxying(tls) as (proxy, heads):
                await version(config(server, authority, User(token="t"), **known, proxy_url=f"https://a:b@{proxy}"), 2)
                assert (len(heads), server.tokens) == (1, ["t", "t"])
            monkeypatch.setattr(connections, "PROXY_SECONDS", 0.2)
            async with proxying(silent=True) as (proxy, heads):
                with pytest.raises(UnavailableError, match="did not answer in time"):
                    await version(config(server, authority, User(), **known, proxy_url=f"http://{proxy}"))
                assert len(heads) == 1

    asyncio.run(story())


def test_the_environment_proxy_applies_unless_no_proxy_or_the_cluster_overrides_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    far = Config(cluster=ApiServer(server="https://10.1.2.3:6443"), context="c")
    assert proxy_of(far) == ""
    monkeypatch.setenv("HTTPS_PROXY", "proxy:3128")
    assert proxy_of(far) == "http://proxy:3128"
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    assert proxy_of(far) == ""
    own = Config(cluster=ApiServer(server="https://10.1.2.3", proxy_url="https://p"), context="c")
    assert proxy_of(own) == "https://p"
    with pytest.raises(InvalidInputError, match="proxy must be an http") as told:
        proxy_of(Config(cluster=ApiServer(server="https://x", proxy_url=f"socks5://me:{SECRET}@p"), context="c"))
    assert SECRET not in str(told.value)


@pytest.mark.parametrize(
    ("host", "without", "direct"),
    [
        ("localhost", "", True),
        ("127.8.0.1", "", True),
        ("::1", "", True),
        ("api.example.com", "", False),
        ("api.example.com", "*", True),
        ("api.example.com", "other, example.com", True),
        ("api.example.com", ".example.com", True),
        ("api.example.com", "*.example.com", True),
        ("example.com", ".example.com", False),
        ("badexample.com", "example.com", False),
        ("API.example.com", "api.EXAMPLE.com:6443", True),
        ("api.example.com", "api.example.com:443", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.3:6443", True),
        ("10.1.2.3", "11.0.0.0/8,3", False),
        ("fd00::1", "fd00::/8", True),
        ("fd00::1", "[fd00::1]:6443", True),
    ],
)
def test_hosts_reached_without_a_proxy_match_the_no_proxy_rules_of_go(host: str, without: str, direct: bool) -> None:
    assert is_direct(host, 6443, without) is direct


@pytest.mark.parametrize(
    ("user", "why"),
    [
        (User(client_certificate="/nonexistent.crt", client_key="/nonexistent.key"), "/nonexistent.crt: No such file"),
        (User(client_certificate_data="!" + SECRET, client_key_data="eA=="), "not Base64"),
        (User(client_certificate_data="eA==", client_key_data="eA=="), "are invalid"),
        (User(token=f"{SECRET}\n"), "line break"),
    ],
)
def test_unusable_credentials_are_reported_without_revealing_secrets(user: User, why: str) -> None:
    cluster = ApiServer(server="https://127.0.0.1:1")
    with pytest.raises(InvalidInputError, match=why) as told:
        connect(Config(cluster=cluster, user=user, context="c"))
    assert SECRET not in str(told.value)


def test_an_encrypted_client_key_is_rejected_without_a_password_prompt(authority: Authority, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    pair = authority.client("locked", [])
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    locked = tmp_path / "key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(SECRET.encode()),
        )
    )
    user = User(client_certificate=str(pair.certificate), client_key=str(locked))
    with pytest.raises(InvalidInputError, match="are invalid"):
        connect(Config(cluster=ApiServer(server="https://127.0.0.1:1"), user=user, context="c"))


def test_nothing_that_is_printed_of_a_configuration_is_secret(tmp_path: Path) -> None:
    user = {"token": SECRET, "exec": {"apiVersion": V1, "command": "x", "interactiveMode": "Never", "args": [SECRET]}}
    document = {
        "clusters": [{"name": "a", "cluster": {"server": "https://a"}}],
        "users": [{"name": "a", "user": user}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    (tmp_path / "config").write_text(json.dumps(document))
    found = find_config(tmp_path / "config")
    assert found.user.token == SECRET
    assert SECRET not in f"{found!r} {found.user!r} {found.user.exec_!r} {found.user} {[found]}"


def test_errors_of_aiohttp_are_reported_in_plain_words() -> None:
    assert reason(aiohttp.ServerDisconnectedError()) == "the server closed the connection without sending a response"
    assert reason(aiohttp.ClientOSError(104, "ApiConnection reset by peer")) == "ApiConnection reset by peer"
