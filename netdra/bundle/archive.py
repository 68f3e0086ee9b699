"""A bundle's file: a gzipped tar with plain files and a manifest. Written and read in memory, never unpacked to a disk.

A bundle comes from strangers. So the reader knows regular files of a plain tar alone (POSIX.1-1988, ustar), takes a
bounded number of bytes out of the compression, and reports all else as bad input.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import msgspec

from netdra.model.errors import UNREADABLE, InvalidInputError

VERSION = 1
MANIFEST = "manifest.json"
MIB = 1024 * 1024
MOST_READ = 1024 * MIB
"""Bytes of all files of a bundle that is read."""
MOST_FILES = 20_000
_MAX_SUFFIX = 8
_BLOCK = 512
_CHUNK = 256 * 1024
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*){0,7}", re.ASCII)
_MAX_PART = 72
"""Characters of a part of a file's name: a sandbox's id has 64. A ustar header has 100 for the last part."""
_REGULAR = (b"0", b"\0")
_HINT = "use a file that netdra support-bundle wrote"


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part that a bundle does not contain.

    Attributes:
        part: the file, or the part of it.
        reason: why it is left out.
        code: the API server's HTTP status; 0 if it did not refuse.
    """

    part: str
    reason: str
    code: int = 0


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The first file of a bundle.

    Attributes:
        bundle: the version of the form.
        netdra: the version of the program that wrote it.
        created: when, in RFC 3339.
        of: `cluster` or `node`.
        anonymized: whether names and addresses are made up.
        namespace: the namespace of the context.
        files: the bytes of each other file.
        left_out: the missing parts.
    """

    bundle: int
    netdra: str
    created: str
    of: str
    anonymized: bool = False
    namespace: str = ""
    files: Mapping[str, int] = {}
    left_out: tuple[LeftOut, ...] = ()


class Bundle(msgspec.Struct, frozen=True):
    """A bundle that was read: its manifest, and its other files by their names."""

    manifest: Manifest
    files: Mapping[str, bytes]


def file_name(*parts: str) -> str:
    """The name of a file in a bundle; invalid characters are replaced, and long parts keep their suffix."""
    return "/".join(map(_file_part, parts))


def _file_part(part: str) -> str:
    valid = re.sub(r"[^A-Za-z0-9_.-]|\A[^A-Za-z0-9]", "_", part, flags=re.ASCII)
    suffix = PurePosixPath(valid).suffix[:_MAX_SUFFIX]
    return valid[: _MAX_PART - len(suffix)] + suffix if len(valid) > _MAX_PART else valid


def pack(manifest: Manifest, files: Mapping[str, bytes], wrote: Callable[[], object] = lambda: None) -> bytes:
    """The bundle's bytes.

    Args:
        manifest: its first file; the sizes of the others are added.
        files: the other files.
        wrote: called for each of these.
    """
    sized = msgspec.structs.replace(manifest, files={name: len(data) for name, data in files.items()})
    text = msgspec.json.format(msgspec.json.encode(sized), indent=2) + b"\n"
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w|", format=tarfile.USTAR_FORMAT) as tar,
    ):
        _add(tar, MANIFEST, text)
        for name, data in files.items():
            _add(tar, name, data)
            wrote()
    return packed.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o600
    tar.addfile(entry, io.BytesIO(data))


def read_file(path: Path) -> Bundle:
    """The bundle in a file.

    Raises:
        InvalidInputError: the file cannot be read, or is not a bundle of a version that is known here.
    """
    try:
        with path.open("rb") as file:
            return read(file, str(path))
    except OSError as problem:
        raise InvalidInputError(f"{path}: {problem.strerror or problem}", hint=_HINT, code="ND4071") from None


def read(file: BinaryIO, name: str, most: int = MOST_READ) -> Bundle:
    """The bundle in an open file.

    Args:
        name: its name in messages.
        most: bytes of all files of the bundle together.

    Raises:
        InvalidInputError: it is not a bundle of a version that is known here.
    """
    try:
        files = dict(_members(_Unzipped(file, most)))
    except (ValueError, zlib.error) as problem:
        raise InvalidInputError(f"{name}: not a support bundle: {problem}", hint=_HINT, code="ND4072") from None
    if MANIFEST not in files:
        raise InvalidInputError(f"{name}: not a support bundle: {MANIFEST} is missing", hint=_HINT, code="ND4073")
    manifest = _manifest(files.pop(MANIFEST), name)
    return Bundle(manifest, files)


def _manifest(text: bytes, name: str) -> Manifest:
    try:
        version = msgspec.json.decode(text, type=_Version).bundle
        if version != VERSION:
            what = f"{name}: version {version} of a bundle is not supported; this netdra reads version {VERSION}"
            raise InvalidInputError(
                what, hint="use the version of netdra that wrote it, or write it again with this version", code="ND4074"
            )
        return msgspec.json.decode(text, type=Manifest)
    except UNREADABLE as problem:
        raise InvalidInputError(f"{name}: {MANIFEST} cannot be read: {problem}", hint=_HINT, code="ND4075") from None


class _Version(msgspec.Struct):
    bundle: int


class _Unzipped:
    """Reads a number of bytes of the uncompressed data."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file = file
        self._left = most + _BLOCK * 2 * MOST_FILES
        self._zip = zlib.decompressobj(wbits=31)
        self._ready = bytearray()

    def take(self, size: int) -> bytes:
        """So many bytes.

        Raises:
            ValueError: fewer follow, or the limit is reached.
            zlib.error: the file is not compressed by gzip, or is damaged.
        """
        if size > self._left:
            raise ValueError("it is larger than the limit")
        self._left -= size
        while len(self._ready) < size:
            self._ready += self._more()
        taken = bytes(self._ready[:size])
        del self._ready[:size]
        return taken

    def _more(self) -> bytes:
        data = self._zip.unconsumed_tail or self._file.read(_CHUNK)
        found = self._zip.decompress(data, _CHUNK)
        if not data and not found:
            raise ValueError("it ends too early")
        return found


def _members(unzipped: _Unzipped) -> Iterator[tuple[str, bytes]]:
    """The files of a tar: the name and the content of each."""
    names: set[str] = set()
    while any(header := unzipped.take(_BLOCK)):
        name, size = _read_header(header)
        if name in names or len(names) == MOST_FILES:
            raise ValueError(f"file {name} occurs twice" if name in names else f"it has more than {MOST_FILES} files")
        names.add(name)
        data = unzipped.take(size)
        unzipped.take(-size % _BLOCK)
        yield name, data


def _read_header(header: bytes) -> tuple[str, int]:
    """The name and the size of a regular file.

    Raises:
        ValueError: the header is damaged, or is of something else.
    """
    signed = header[:148] + b" " * 8 + header[156:]
    if _octal(header[148:156]) != sum(signed):
        raise ValueError("the header of a file is damaged")
    parts = [_text(header[345:500]), _text(header[:100])] if header[257:262] == b"ustar" else [_text(header[:100])]
    name = "/".join(filter(None, parts))
    if header[156:157] not in _REGULAR:
        raise ValueError(f"{name!r} is not a regular file")
    if not _NAME.fullmatch(name) or ".." in name:
        raise ValueError(f"{name!r} is not a valid name of a file")
    return name, _octal(header[124:136])


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("ascii", errors="replace")


def _octal(field: bytes) -> int:
    text = field.strip(b"\0 ")
    if not text or not set(text) <= set(b"01234567"):
        raise ValueError("the header of a file is damaged")
    return int(text, 8)
