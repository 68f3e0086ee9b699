"""The file with the names behind the pseudonyms of anonymous bundles, which stays with its owner."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from netdra.bundle.anonymity import Pseudonymity
from netdra.model.errors import UNREADABLE, InvalidInputError

_HINT = "use a file that netdra support-bundle wrote with --mapping, or a new name"


def read_file(path: Path) -> Pseudonymity:
    """The mapping in a file.

    Raises:
        InvalidInputError: it cannot be read, or is not a mapping.
    """
    try:
        mapping = msgspec.json.decode(path.read_bytes(), type=Pseudonymity)
        bytes.fromhex(mapping.key)
    except OSError as problem:
        raise InvalidInputError(f"{path}: {problem.strerror or problem}", hint=_HINT, code="ND4076") from None
    except (*UNREADABLE, ValueError) as problem:
        raise InvalidInputError(f"{path}: not a mapping of a bundle: {problem}", hint=_HINT, code="ND4077") from None
    return mapping


def write_private(path: Path, data: bytes) -> None:
    """A file that only its owner can read.

    Raises:
        InvalidInputError: it cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as problem:
        hint = 'the directory of the file must exist; "-" is standard output'
        raise InvalidInputError(f"{path}: {problem.strerror or problem}", hint=hint, code="ND4078") from None


def write_file(path: Path, mapping: Pseudonymity) -> None:
    """Keep a mapping.

    Raises:
        InvalidInputError: the file cannot be written.
    """
    write_private(path, msgspec.json.format(msgspec.json.encode(mapping), indent=2) + b"\n")
