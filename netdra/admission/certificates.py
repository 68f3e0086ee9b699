"""Certificates that netdra makes for its own webhook: an authority for each, whose key is thrown away at once.

Pure but for the randomness of keys; called by `netdra.admission.keeper`, which stores the certificates. With a stored
key one can serve as the webhook, and sign no other certificate.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from netdra.ops.health import CheckResult

LIFETIME = timedelta(days=90)
SETTLED = timedelta(hours=1)
"""After how long every replica that is called serves with a new certificate."""
_CLOCK_SKEW = timedelta(minutes=5)
_FORMER = 8


class Certificate(msgspec.Struct, frozen=True):
    """A serving certificate, and the authorities to trust it by, as PEM.

    Attributes:
        chain: the serving certificate.
        key: its private key.
        authorities: the authorities of all serving certificates that may be in use, the newest first.
    """

    chain: str
    key: str
    authorities: str


def make(hosts: Sequence[str], now: datetime, before: Certificate | None = None) -> Certificate:
    """A new certificate, of a new authority.

    Args:
        hosts: the names and addresses that it is for.
        now: the time, with its zone.
        before: the certificate that it replaces, whose authorities are trusted as long as they are valid.
    """
    authority, signing_key = _authority(now)
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([_general(host) for host in hosts])
    certificate = (
        _builder(hosts[0], key, now)
        .issuer_name(authority.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
        .sign(signing_key, hashes.SHA256())
    )
    old = x509.load_pem_x509_certificates(before.authorities.encode()) if before is not None else []
    trusted = [authority, *(former for former in old if former.not_valid_after_utc > now)]
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Certificate(chain=_pem(certificate), key=private.decode(), authorities="".join(map(_pem, trusted)))


def verify(certificate: Certificate) -> None:
    """Check whether one can serve with a certificate, by its texts alone, without a file or a clock.

    Raises:
        ValueError: it cannot be read, the key is another certificate's, or none of its authorities has signed it.
    """
    try:
        chain = x509.load_pem_x509_certificates(certificate.chain.encode())
        authorities = x509.load_pem_x509_certificates(certificate.authorities.encode())
    except ValueError:
        raise ValueError("the certificate or its CA bundle is not in PEM format") from None
    try:
        key = serialization.load_pem_private_key(certificate.key.encode(), None)
        is_its_own = key.public_key() == chain[0].public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):  # a key with a password is a TypeError
        raise ValueError("the key is not in PEM format, is encrypted, or has an unsupported type") from None
    if not is_its_own:
        raise ValueError("the key does not match the certificate")
    if not any(_has_signed(authority, chain[-1]) for authority in authorities):
        raise ValueError("the certificate is not signed by any CA of the bundle")


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def bundle(certificate: Certificate, trusted: str, now: datetime) -> str:
    """The authorities to trust while some replicas serve with a certificate and others with the one before it.

    Args:
        certificate: the certificate to serve with.
        trusted: PEM, the authorities that are trusted at present; unreadable text counts as none.
        now: the time, with its zone.

    Returns:
        PEM: the certificate's own authorities, and behind them those that are trusted at present, as long as they are
        valid and for an hour after the certificate was made. By then a replica that cannot serve it is not called.
    """
    own = x509.load_pem_x509_certificates(certificate.authorities.encode())
    try:
        present = x509.load_pem_x509_certificates(trusted.encode())
    except ValueError:
        present = []
    if now >= settled_at(certificate):
        present = []
    former = [authority for authority in present if authority not in own and authority.not_valid_after_utc > now]
    return "".join(map(_pem, (*own, *former[:_FORMER])))


def check_begun(certificate: Certificate, now: datetime) -> None:
    """Check that a certificate and its newest authority are valid already: who made it may have had a wrong clock.

    Raises:
        ValueError: it is not.
    """
    parts = (certificate.chain, certificate.authorities)
    begin = max(x509.load_pem_x509_certificate(part.encode()).not_valid_before_utc for part in parts)
    if begin > now + _CLOCK_SKEW:
        raise ValueError(f"the certificate is not valid before {begin:%Y-%m-%dT%H:%M:%SZ}")


def settled_at(certificate: Certificate) -> datetime:
    """When every replica that is called serves with a certificate."""
    begin = x509.load_pem_x509_certificate(certificate.chain.encode()).not_valid_before_utc
    return begin + _CLOCK_SKEW + SETTLED


def names(certificate: Certificate) -> tuple[str, ...]:
    """The names and addresses that a certificate is for.

    Raises:
        ValueError: it cannot be read.
    """
    return tuple(str(name.value) for name in _names(certificate))


def renew_at(certificate: Certificate) -> datetime:
    """When two thirds of a certificate's life are over.

    Raises:
        ValueError: it cannot be read.
    """
    cert = x509.load_pem_x509_certificate(certificate.chain.encode())
    return cert.not_valid_before_utc + (cert.not_valid_after_utc - cert.not_valid_before_utc) * 2 / 3


def not_after(chain: str) -> datetime:
    """When a serving certificate ends.

    Args:
        chain: PEM, the serving certificate first.

    Raises:
        ValueError: it cannot be read.
    """
    return x509.load_pem_x509_certificate(chain.encode()).not_valid_after_utc


def validity_problem(chain: str, now: datetime) -> str:
    """Why a serving certificate is not valid at a time, "" if it is.

    Raises:
        ValueError: it cannot be read.
    """
    certificate = x509.load_pem_x509_certificate(chain.encode())
    if certificate.not_valid_after_utc <= now:
        return f"the certificate expired at {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    if certificate.not_valid_before_utc > now:
        return f"the certificate is not valid before {certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
    return ""


def check(end: datetime | None, now: datetime) -> CheckResult:
    """Whether there is a certificate to serve with, as a check of the process's health.

    Args:
        end: when the certificate in use ends, None if none exists.
        now: the time, with its zone.
    """
    if end is None:
        return CheckResult(ok=False, detail="no certificate yet")
    word = "valid until" if end > now else "the certificate expired at"
    return CheckResult(end > now, detail=f"{word} {end:%Y-%m-%dT%H:%M:%SZ}")


def is_for(certificate: Certificate, hosts: Sequence[str]) -> bool:
    """Whether a certificate is valid for all of these names and addresses.

    Raises:
        ValueError: it cannot be read.
    """
    return {_general(host) for host in hosts} <= set(_names(certificate))


def _names(certificate: Certificate) -> tuple[x509.GeneralName, ...]:
    cert = x509.load_pem_x509_certificate(certificate.chain.encode())
    try:
        return tuple(cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return ()


def _authority(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = f"netdra webhook {x509.random_serial_number():x}"[:63]
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(name, key, now)
        .issuer_name(_name(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _builder(name: str, key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name[:64]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
