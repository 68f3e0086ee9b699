"""A bundle comes from strangers: for any bytes, the reader returns files of a bounded size, or bad input."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.bundle import archive, mapping
from netdra.bundle.archive import MANIFEST, MOST_READ, Bundle, Manifest
from netdra.cli.main import cli
from netdra.model.errors import InvalidInputError

OF_CLUSTER = Manifest(bundle=1, netdra="1.0", created="2026-11-27T10:00:05Z", of="cluster")
GOOD = archive.pack(OF_CLUSTER, {"objects/pods.json": b'{"items":[]}\n', "doctor.json": b"[]" * 400})
UNZIPPED = gzip.decompress(GOOD)


def read(data: bytes, most: int = MOST_READ) -> Bundle:
    return archive.read(io.BytesIO(data), "bundle.tar.gz", most)


def tar(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.USTAR_FORMAT) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=form) as file:
        for entry, data in entries:
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def entry(name: str, **changes: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for field, value in changes.items():
        setattr(made, field, value)
    return made


def test_a_bundle_is_read_as_it_was_written() -> None:
    files = {f"logs/pod-{number}/node.log": b"x" * number for number in range(600)}
    bundle = read(archive.pack(OF_CLUSTER, files))
    assert bundle.files == files
    assert bundle.manifest.files == {name: len(data) for name, data in files.items()}


def test_other_programs_can_unpack_it(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(GOOD)) as file:
        assert file.getnames() == [MANIFEST, "objects/pods.json", "doctor.json"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "ends too early"),
        (b"no archive", "incorrect header check"),
        (GOOD[:-200], "ends too early"),
        (gzip.compress(b"\0" * 1024), "manifest.json is missing"),
        (gzip.compress(b"x" * 2048), "header of a file is damaged"),
        (tar((entry("../etc/passwd"), b"")), "not a valid name"),
        (tar((entry("/etc/passwd"), b"")), "not a valid name"),
        (tar((entry("a/../b"), b"")), "not a valid name"),
        (tar((entry("a\x1b[2J"), b"")), "not a valid name"),
        (tar((entry("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"), b"")), "not a regular file"),
        (tar((entry("link", type=tarfile.LNKTYPE, linkname="/etc/passwd"), b"")), "not a regular file"),
        (tar((entry("device", type=tarfile.CHRTYPE), b"")), "not a regular file"),
        (tar((entry("x" * 300), b""), form=tarfile.PAX_FORMAT), "not a regular file"),
        (tar((entry("a"), b""), (entry("a"), b"")), "file a occurs twice"),
        (tar((entry(MANIFEST), b"{")), "manifest.json cannot be read"),
        (tar((entry(MANIFEST), b"[" * 100_000)), "manifest.json cannot be read"),
        (tar((entry(MANIFEST), b'{"bundle": 2, "new": []}')), "version 2 of a bundle is not supported"),
        (tar((entry(MANIFEST), b'{"bundle": 1}')), "manifest.json cannot be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_not_a_bundle_is_bad_input(data: bytes, text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"bundle\.tar\.gz: ") as problem:
        read(data)
    assert text in str(problem.value)


def test_a_bundle_that_unpacks_to_more_than_the_limit_is_bad_input() -> None:
    bomb = archive.pack(OF_CLUSTER, {"a": b"\0" * 50_000_000})
    assert len(bomb) < 100_000
    with pytest.raises(InvalidInputError, match="larger than the limit"):
        read(bomb, 1_000_000)


def test_a_bundle_of_too_many_files_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_FILES", 10)
    with pytest.raises(InvalidInputError, match="more than 10 files"):
        read(archive.pack(OF_CLUSTER, {str(number): b"" for number in range(11)}))


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """The bytes, some of them changed, removed or added."""
    change = st.tuples(st.integers(0, len(data)), st.integers(0, 40), st.binary(max_size=40))

    def apply(changes: list[tuple[int, int, bytes]]) -> bytes:
        changed = data
        for at, removed, added in changes:
            changed = changed[:at] + added + changed[at + removed :]
        return changed

    return st.lists(change, min_size=1, max_size=3).map(apply)


@given(st.one_of(st.binary(max_size=2000), damaged(GOOD), damaged(UNZIPPED).map(gzip.compress)))
@settings(max_examples=250, deadline=None)
def test_no_bytes_make_the_reader_fail_otherwise_than_by_bad_input(data: bytes) -> None:
    with suppress(InvalidInputError):
        assert all(".." not in name and not name.startswith("/") for name in read(data).files)


OBJECTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["metadata", "spec", "items"]), inner),
)


@given(
    objects=st.one_of(st.binary(max_size=200), OBJECTS.map(msgspec.json.encode), st.just(b'{"items":[{"a":' * 3000)),
    kind=st.sampled_from(["pods", "nodes", "events", "resourceclaims"]),
    created=st.sampled_from(["2026-11-27T10:00:05Z", "", "yesterday"]),
)
@settings(max_examples=80, deadline=None)
def test_no_objects_of_a_bundle_make_the_command_fail_with_a_traceback(
    objects: bytes, kind: str, created: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "bundle.tar.gz"
    manifest = msgspec.structs.replace(OF_CLUSTER, created=created)
    path.write_bytes(archive.pack(manifest, {f"objects/{kind}.json": objects}))
    done = CliRunner().invoke(cli, ["why", "pod", "a/b", "--bundle", str(path)])
    assert isinstance(done.exception, InvalidInputError | SystemExit), done.exc_info


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.write_bytes(b"\xff"), "not a mapping of a bundle"),
        (lambda path: path.write_text('{"key": "zz"}'), "not a mapping of a bundle"),
    ],
)
def test_a_file_that_is_not_a_mapping_is_bad_input(write: Callable[[Path], object], text: str, tmp_path: Path) -> None:
    write(tmp_path / "m")
    with pytest.raises(InvalidInputError, match=text):
        mapping.read_file(tmp_path / "m")
