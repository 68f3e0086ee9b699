"""A release's checksums and their signature, by OpenSSH's `ssh-keygen -Y`: written, and verified offline.

One signature covers `SHA256SUMS`, which names every other file of the folder. docs/releases.md has the same
verification as two commands, for users without a checkout.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
NAMESPACE = "netdra-release"
"""What the signature is for, so that one of the same key for something else is rejected."""
SIGNER = "netdra"
"""The name that the file of allowed signers gives to the project's keys."""


class SignatureError(Exception):
    """The folder cannot be signed, or differs from the signed one; the text names the file and the error."""


def write_sums(folder: Path) -> None:
    """Write the checksums of all files of a folder, as sha256sum(1) reads them."""
    lines = [f"{_sha256(path)}  {path.name}\n" for path in _signed(folder)]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


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
    return sorted(path for path in folder.iterdir() if path.name not in (SUMS, SIGNATURE))


def _sha256(path: Path) -> str:
    if not path.is_file() or path.is_symlink():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _ssh_keygen(*arguments: str, given: Path | None = None) -> None:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise SignatureError("ssh-keygen (OpenSSH 8.1 or later) is not installed; Debian's package is openssh-client")
    text = given.read_bytes() if given else b""
    done = subprocess.run((program, *arguments), input=text, capture_output=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise SignatureError(f"ssh-keygen {' '.join(arguments)}: {said}")
