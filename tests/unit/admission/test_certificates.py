"""Certificates of our own: valid for the names, trusted through a change, and changed while a server serves."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from netdra.admission import certificates, serving
from netdra.admission.certificates import LIFETIME, Certificate
from netdra.admission.serving import Mounted
from netdra.model.errors import InvalidInputError
from testbed.waiting import until_async

HOSTS = ("netdra-webhook.netdra.svc", "127.0.0.1")


def now() -> datetime:
    return datetime.now(UTC)


async def presented(port: int, authorities: str, host: str = HOSTS[0]) -> bytes:
    """Connect as the API server would, and return the certificate that was accepted."""
    trust = ssl.create_default_context(cadata=authorities)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=host)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return found


async def listening(tls: ssl.SSLContext) -> tuple[asyncio.Server, int]:
    async def nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(nothing, "127.0.0.1", 0, ssl=tls)
    return server, server.sockets[0].getsockname()[1]


def der(certificate: Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.chain)


def test_a_certificate_is_accepted_for_its_names_only() -> None:
    async def story() -> None:
        made = certificates.make(HOSTS, now())
        tls = serving.context()
        serving.use(tls, made.chain, made.key)
        server, port = await listening(tls)
        async with server:
            for host in HOSTS:
                assert await presented(port, made.authorities, host) == der(made)
            with pytest.raises(ssl.SSLCertVerificationError):
                await presented(port, made.authorities, "other.netdra.svc")
            with pytest.raises(ssl.SSLCertVerificationError):
                await presented(port, certificates.make(HOSTS, now()).authorities)

    asyncio.run(story())


def test_through_a_change_the_old_and_the_new_one_are_trusted_by_the_new_authorities() -> None:
    async def story() -> None:
        first = certificates.make(HOSTS, now())
        second = certificates.make(HOSTS, now(), first)
        tls = serving.context()
        serving.use(tls, first.chain, first.key)
        server, port = await listening(tls)
        async with server:
            assert await presented(port, second.authorities) == der(first)
            serving.use(tls, second.chain, second.key)
            assert await presented(port, second.authorities) == der(second)

    asyncio.run(story())


def test_expired_authorities_are_no_longer_trusted() -> None:
    old = certificates.make(HOSTS, now() - LIFETIME - timedelta(days=1))
    assert len(x509.load_pem_x509_certificates(certificates.make(HOSTS, now(), old).authorities.encode())) == 1


def test_renewal_is_due_at_two_thirds_of_the_life() -> None:
    begin = now()
    due = certificates.renew_at(certificates.make(HOSTS, begin))
    assert abs(due - (begin + LIFETIME * 2 / 3)) < timedelta(minutes=10)


def test_names_that_are_not_in_it_are_found() -> None:
    made = certificates.make(HOSTS, now())
    assert certificates.is_for(made, HOSTS)
    assert not certificates.is_for(made, (*HOSTS, "other"))


def test_a_key_that_does_not_fit_changes_nothing() -> None:
    async def story() -> None:
        first, second = certificates.make(HOSTS, now()), certificates.make(HOSTS, now())
        tls = serving.context()
        serving.use(tls, first.chain, first.key)
        with pytest.raises(ssl.SSLError):
            serving.use(tls, second.chain, first.key)
        server, port = await listening(tls)
        async with server:
            assert await presented(port, first.authorities) == der(first)

    asyncio.run(story())


def test_verify_rejects_certificates_with_mismatched_or_malformed_pem_texts() -> None:
    first, second = certificates.make(HOSTS, now()), certificates.make(HOSTS, now())
    certificates.verify(first)
    for wrong, told in (
        (Certificate(first.chain, second.key, first.authorities), "the key does not match the certificate"),
        (Certificate(first.chain, first.key, second.authorities), "not signed by any CA"),
        (Certificate(first.chain, "nonsense", first.authorities), "the key is not in PEM format"),
        (Certificate("", first.key, first.authorities), "not in PEM format"),
        (Certificate(first.chain, first.key, ""), "not in PEM format"),
    ):
        with pytest.raises(ValueError, match=told):
            certificates.verify(wrong)


def test_previous_authorities_stay_trusted_for_one_hour_unless_expired() -> None:
    begin = now()
    old, new = certificates.make(HOSTS, begin), certificates.make(HOSTS, begin)
    both = certificates.bundle(new, old.authorities, begin)
    assert both == new.authorities + old.authorities
    assert certificates.bundle(new, both, begin) == both, "twice changes nothing"
    assert certificates.bundle(new, both, begin + certificates.SETTLED + timedelta(minutes=1)) == new.authorities
    over = certificates.make(HOSTS, begin - LIFETIME - timedelta(days=1))
    for trusted in (over.authorities, "", "nonsense"):
        assert certificates.bundle(new, trusted, begin) == new.authorities


def test_however_often_it_is_replaced_few_authorities_are_trusted() -> None:
    begin, trusted = now(), ""
    for _ in range(30):
        trusted = certificates.bundle(certificates.make(HOSTS, begin), trusted, begin)
    assert len(x509.load_pem_x509_certificates(trusted.encode())) == 9


def test_a_mounted_certificate_is_taken_when_it_changes(tmp_path: Path) -> None:
    async def story() -> None:
        first, second = certificates.make(HOSTS, now()), certificates.make(HOSTS, now())
        tls = serving.context()
        mounted = Mounted(tmp_path, tls, now)
        with pytest.raises(InvalidInputError, match=r"tls\.crt"):
            mounted.load()
        write(tmp_path, first.chain, first.key)
        assert mounted.load()
        assert not mounted.load()
        server, port = await listening(tls)
        async with server:
            looking = asyncio.create_task(mounted.run(0.01))
            write(tmp_path, second.chain, first.key)
            assert await presented(port, first.authorities) == der(first)
            write(tmp_path, second.chain, second.key)
            await until_trusted(port, second.authorities)
            looking.cancel()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("age", "problem"),
    [
        pytest.param(LIFETIME + timedelta(days=1), "the certificate expired at", id="expired"),
        pytest.param(-timedelta(days=1), "the certificate is not valid before", id="not valid yet"),
    ],
)
def test_a_mounted_certificate_that_is_not_valid_does_not_replace_a_valid_one(
    age: timedelta, problem: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    valid, wrong = certificates.make(HOSTS, now()), certificates.make(HOSTS, now() - age)
    write(tmp_path, valid.chain, valid.key)
    mounted = Mounted(tmp_path, serving.context(), now)
    assert mounted.load()
    write(tmp_path, wrong.chain, wrong.key)
    with pytest.raises(InvalidInputError, match=f"{problem} .*; the former one is used until"):
        mounted.load()
    assert mounted.not_after == certificates.not_after(valid.chain)
    # Without a valid one it is used, so that the API server reports the reason, too.
    alone = Mounted(tmp_path, serving.context(), now)
    assert alone.load()
    assert problem in caplog.text
    assert alone.check(now()).ok == (problem != "the certificate expired at")
    write(tmp_path, valid.chain, valid.key)
    assert alone.load()
    assert alone.check(now()).ok


async def until_trusted(port: int, authorities: str) -> None:
    async def trusted() -> bool:
        with suppress(ssl.SSLCertVerificationError):
            await presented(port, authorities)
            return True
        return False

    await until_async(trusted, "the new certificate to be served")


def write(folder: Path, chain: str, key: str) -> None:
    (folder / "tls.crt").write_text(chain)
    (folder / "tls.key").write_text(key)
