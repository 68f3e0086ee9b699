"""A release's checksums and their signature, by OpenSSH's `ssh-keygen -Y`: written, and verified offline.

One signature covers `SHA256SUMS`, which names every other file of the folder. docs/releases.md has the same
verification as two commands, for users without a checkout. A private key on P-256 also signs for other tools: for
`cosign verify-blob` the same checksums, and for `helm verify` each chart.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from release import pgp
from release.home import NAMESPACE, SIGNER, Home

SUMS, SIGNATURE, COSIGN = "SHA256SUMS", "SHA256SUMS.sig", "SHA256SUMS.cosign"
SIGNERS, PUBLIC, KEYRING = "allowed_signers", "netdra.pem", "netdra.gpg"
"""The public halves of the keys, for ssh-keygen, cosign and helm."""
_HEAD = "# The public keys that sign netdra's releases, as ssh-keygen(1) reads them under ALLOWED SIGNERS.\n"


class SignatureError(Exception):
    """The folder cannot be signed, or differs from the signed one; the text names the file and the error."""


def write_sums(folder: Path) -> None:
    """Write the checksums of all files of a folder, as sha256sum(1) reads them."""
    lines = [f"{_sha256(path)}  {path.name}\n" for path in _signed(folder)]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def make_key(path: Path, comment: str, passphrase: str | None = None) -> str:
    """Make a maintainer's key, ECDSA on P-256, and return its public half as one line.

    Args:
        path: of the private half; the public one is beside it with `.pub`.
        comment: the name in the public half.
        passphrase: without one ssh-keygen asks for it.

    Raises:
        SignatureError: the file exists, or ssh-keygen is not installed.
    """
    if path.exists():
        raise SignatureError(f"{path} already exists")
    path.parent.mkdir(parents=True, exist_ok=True)
    phrase = () if passphrase is None else ("-N", passphrase)
    command = ("-q", "-t", "ecdsa", "-b", "256", "-m", "PKCS8", "-C", comment, "-f", str(path), *phrase)
    if passphrase is None:
        _ask_ssh_keygen(*command)
    else:
        _ssh_keygen(*command)
    return path.with_name(f"{path.name}.pub").read_text(encoding="utf-8").strip()


def sign_release(folder: Path, key: Path, home: Home, epoch: int, *, local: bool = False) -> None:
    """Write the checksums of a release and all signatures of it.

    Args:
        folder: the release.
        key: as for `sign`; only a private key on P-256 signs for cosign and helm.
        home: has the keys that users trust.
        epoch: the time of the signatures for helm, in seconds since 1970.
        local: the file of allowed signers has this key, too.

    Raises:
        SignatureError: ssh-keygen is not installed, or refuses the key.
    """
    own = _ssh_keygen("-y", "-f", str(key)) if local else ""
    (folder / SIGNERS).write_text(_HEAD + home.signers(*([own] if local else ())), encoding="utf-8")
    private = _private(key)
    if private is not None:
        _write_public(folder, private)
        for chart in sorted(folder.glob("*.tgz")):
            provenance = pgp.clearsigned(private, _chart_provenance(chart), epoch)
            chart.with_name(f"{chart.name}.prov").write_text(provenance, encoding="utf-8")
    write_sums(folder)
    sign(folder, key)
    if private is not None:
        (folder / COSIGN).write_text(_cosigned(private, (folder / SUMS).read_bytes()), encoding="utf-8")


def _private(key: Path) -> Any:
    """The private key on P-256 in a file; another key, and a public one for an agent, is `None`."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    content = key.read_bytes()
    passphrase = getpass.getpass(f"Passphrase of {key}: ").encode() if b"ENCRYPTED" in content else None
    load = serialization.load_ssh_private_key if b"OPENSSH" in content else serialization.load_pem_private_key
    try:
        found = load(content, passphrase)
    except (ValueError, TypeError):
        return None
    is_p256 = isinstance(found, ec.EllipticCurvePrivateKey) and isinstance(found.curve, ec.SECP256R1)
    return found if is_p256 else None


def _write_public(folder: Path, private: Any) -> None:
    from cryptography.hazmat.primitives import serialization

    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / PUBLIC).write_bytes(private.public_key().public_bytes(*form))
    (folder / KEYRING).write_bytes(pgp.keyring(private))


def _chart_provenance(chart: Path) -> str:
    """The text that helm signs: a chart's Chart.yaml, and the checksum of its archive."""
    with tarfile.open(chart) as archive:
        (name,) = (each for each in archive.getnames() if each.count("/") == 1 and each.endswith("/Chart.yaml"))
        file = archive.extractfile(name)
        text = file.read().decode() if file is not None else ""
    stripped = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    return f"{stripped}\n...\nfiles:\n  {chart.name}: sha256:{_sha256(chart)}\n"


def _cosigned(private: Any, content: bytes) -> str:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    method = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
    return base64.b64encode(private.sign(content, method)).decode()


def sign(folder: Path, key: Path) -> None:
    """Sign the checksums.

    Args:
        folder: the release.
        key: a private key of ssh-keygen, or a public one whose private half an agent or a token has.

    Raises:
        SignatureError: ssh-keygen is not installed, or refuses the key.
    """
    (folder / SIGNATURE).unlink(missing_ok=True)
    _ssh_keygen("-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(folder / SUMS))


def verify(folder: Path, signers: Path) -> int:
    """Verify a release, and return the number of its files.

    Args:
        folder: the release.
        signers: the file of allowed signers, ssh-keygen(1), from another source than the folder.

    Raises:
        SignatureError: the signature or a file is wrong or missing, or a file is not signed.
    """
    for name in (SUMS, SIGNATURE):
        if not (folder / name).is_file():
            raise SignatureError(f"{folder / name} not found: the release is not signed")
    options = ("-f", str(signers), "-I", SIGNER, "-n", NAMESPACE, "-s", str(folder / SIGNATURE))
    _ssh_keygen("-Y", "verify", *options, given=folder / SUMS)
    listed = dict(_entries((folder / SUMS).read_text(encoding="utf-8")))
    there = {path.name for path in _signed(folder)}
    wrong = [f"{name} is missing" for name in sorted(listed.keys() - there)]
    wrong += [f"{name} is not signed" for name in sorted(there - listed.keys())]
    wrong += [f"{name} was changed" for name in sorted(listed.keys() & there) if _sha256(folder / name) != listed[name]]
    if wrong:
        raise SignatureError(f"{folder}: {'; '.join(wrong)}")
    return len(listed)


def _entries(sums: str) -> Iterator[tuple[str, str]]:
    for line in sums.splitlines():
        checksum, _, name = line.partition("  ")
        yield name, checksum


def _signed(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name not in (SUMS, SIGNATURE, COSIGN))


def _sha256(path: Path) -> str:
    if not path.is_file() or path.is_symlink():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _ssh_keygen(*arguments: str, given: Path | None = None) -> str:
    text = given.read_bytes() if given else b""
    done = subprocess.run((_program(), *arguments), input=text, capture_output=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise SignatureError(f"ssh-keygen {' '.join(arguments)}: {said}")
    return done.stdout.decode()


def _ask_ssh_keygen(*arguments: str) -> None:
    """Run it with the terminal, at which it asks for a passphrase."""
    if subprocess.run((_program(), *arguments), check=False).returncode != 0:
        raise SignatureError(f"ssh-keygen {' '.join(arguments)} failed")


def _program() -> str:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise SignatureError("ssh-keygen (OpenSSH 8.1 or later) is not installed; Debian's package is openssh-client")
    return program
