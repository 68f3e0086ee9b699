"""A certificate authority for one control plane: serving and client certificates, made by the openssl program.

Called by `testbed.control_plane`, which hands the files to the servers and into kubeconfig files. Keys are EC P-256:
one is made in about 10 ms, so nothing is kept between runs. The authority's own is RSA: the API server verifies the
client's certificate with every request, and a signature of RSA is verified in a third of the time.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_DAYS = "30"
_EC = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_RSA = ("rsa:2048",)


class CertificateError(Exception):
    """The openssl program failed; the text has the command and its output."""


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """An authority whose files are in one folder; what it signed once it hands out again.

    Attributes:
        folder: where the authority's and all signed files are.
        own: the authority's own certificate and key.
    """

    folder: Path
    own: KeyPair

    def client(self, user: str, groups: Iterable[str] = ()) -> KeyPair:
        """A client certificate: Kubernetes takes the common name as the user, the organizations as the groups."""
        subject = "".join(f"{number}.O = {group}\n" for number, group in enumerate(groups)) + f"CN = {user}\n"
        return self._signed(user, subject, "extendedKeyUsage = clientAuth\n")

    def server(self, name: str, hosts: Iterable[str]) -> KeyPair:
        """A serving certificate for host names and IP addresses."""
        names = ", ".join(f"{'IP' if _is_address(host) else 'DNS'}:{host}" for host in hosts)
        extensions = f"extendedKeyUsage = serverAuth\nsubjectAltName = {names}\n"
        return self._signed(name, f"CN = {name}\n", extensions)

    def _signed(self, name: str, subject: str, extensions: str) -> KeyPair:
        pair = _pair(self.folder, name, subject + extensions)
        if not pair.certificate.exists():
            signer = ("-CA", str(self.own.certificate), "-CAkey", str(self.own.key))
            usage = "basicConstraints = critical, CA:FALSE\nkeyUsage = critical, digitalSignature\n"
            _certificate(pair, subject, usage + extensions, *signer)
        return pair


def new_authority(folder: Path) -> Authority:
    """Make an authority in a folder, which is made too.

    Raises:
        CertificateError: openssl failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = _own(folder)
    extensions = "basicConstraints = critical, CA:TRUE\nkeyUsage = critical, digitalSignature, keyCertSign\n"
    _certificate(own, "CN = netdra test bed\n", extensions + "subjectKeyIdentifier = hash\n", key=_RSA)
    return Authority(folder, own)


def existing_authority(folder: Path) -> Authority:
    """The authority that was made in a folder before."""
    return Authority(folder, _own(folder))


def new_signing_key(path: Path) -> Path:
    """Make a bare private key, as the API server signs service account tokens with.

    Raises:
        CertificateError: openssl failed.
    """
    # The API server takes an EC key in the traditional form only, which genpkey does not write.
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))
    return path


def _own(folder: Path) -> KeyPair:
    return KeyPair(folder / "ca.crt", folder / "ca.key")


def _pair(folder: Path, name: str, content: str) -> KeyPair:
    """The files of a certificate; the digest keeps apart what differs only in groups, hosts or odd characters."""
    stem = f"{re.sub('[^a-zA-Z0-9-]', '-', name)[:80]}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"
    return KeyPair(folder / f"{stem}.crt", folder / f"{stem}.key")


def _certificate(pair: KeyPair, subject: str, extensions: str, *signer: str, key: Sequence[str] = _EC) -> None:
    # A configuration of our own: the system's would add extensions that make every certificate an authority.
    request = "[req]\nprompt = no\nstring_mask = utf8only\ndistinguished_name = subject\nx509_extensions = extensions\n"
    configuration = f"{request}[subject]\n{subject}[extensions]\n{extensions}"
    made = ("-newkey", *key, "-nodes", "-keyout", str(pair.key))
    output = ("-x509", "-days", _DAYS, "-out", str(pair.certificate), "-config", "/dev/stdin")
    _openssl("req", *made, *output, *signer, text=configuration)


def _openssl(*arguments: str, text: str = "") -> None:
    done = subprocess.run(("openssl", *arguments), input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CertificateError(f"'openssl {' '.join(arguments)}' failed:\n{done.stderr[-2000:]}")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
