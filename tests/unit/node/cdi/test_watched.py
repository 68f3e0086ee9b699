"""A runtime's CDI library and netdra's files: the oldest one reads the folder again on few kinds of events.

`watch` in pkg/cdi/cache.go, from 0.7 to 1.1.0: renamed, removed, or a `.json` or `.yaml` file written to. 1.1.1 is the
first to take a creation for one. The real library is asked in `tests/cluster/sandboxes/test_stand_in.py`.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import KeptDevice, PreparedClaim, PreparedDevice

# include/uapi/linux/inotify.h, and what fsnotify's watch of a folder asks for
MODIFY, ATTRIB, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
ASKED = MODIFY | ATTRIB | MOVED_FROM | MOVED_TO | CREATE | DELETE


@dataclass
class Library:
    """The library's cache of a folder, as long as `read` is called."""

    folder: Path
    devices: set[str] = field(default_factory=set)
    refreshes: int = 0
    _fd: int = -1

    def __post_init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert libc.inotify_add_watch(self._fd, os.fsencode(self.folder), ASKED) > 0

    def read(self) -> None:
        """Read the folder's events until now."""
        for mask, name in self._events():
            is_specification = name.endswith((".json", ".yaml"))
            if mask & (MOVED_FROM | DELETE) or (mask & MODIFY and is_specification):
                self.refreshes += 1
                self.devices = self._found()

    def wait(self) -> None:
        """Wait a moment for something to happen."""
        select.select([self._fd], [], [], 0.02)

    def close(self) -> None:
        os.close(self._fd)

    def _events(self) -> Iterator[tuple[int, str]]:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        while data:
            _, mask, _, length = struct.unpack_from("iIII", data)
            yield mask, data[16 : 16 + length].rstrip(b"\0").decode()
            data = data[16 + length :]

    def _found(self) -> set[str]:
        """The devices of all specifications that are there; one that is half written fails here."""
        found: set[str] = set()
        for path in self.folder.iterdir():
            if path.suffix in (".json", ".yaml"):
                whole = json.loads(path.read_text())
                found |= {f"{whole['kind']}={each['name']}" for each in whole["devices"]}
        return found


def claim(uid: str, *requests: str) -> PreparedClaim:
    """A claim with a device for each request."""
    devices = tuple(
        KeptDevice(
            told=PreparedDevice(requests=(request,), pool="p", device=request),
            facts=PlannedDevice(request=request, pool="p", device=request),
        )
        for request in requests
    )
    return PreparedClaim(
        boot_id="b", claim=ClaimReference(namespace="ns", name="c", uid=uid), devices=devices, pod_claim_name=""
    )


def devices(uid: str, *requests: str) -> set[str]:
    return {f"dra.networking/claim={uid}-{request}" for request in requests}


@pytest.fixture
def files(tmp_path: Path) -> ClaimFiles:
    (tmp_path / "cdi").mkdir()
    return ClaimFiles(plugin=tmp_path / "plugin", cdi=tmp_path / "cdi")


def test_a_specification_that_comes_or_goes_is_seen_at_one_look(files: ClaimFiles) -> None:
    with closing(Library(files.cdi)) as library:
        files.write_spec(claim("u", "one", "two"), ())
        library.read()
        assert library.devices == devices("u", "one", "two")
        files.remove_spec("u")
        library.read()
        assert library.devices == set()
        assert library.refreshes == 2


def test_one_that_takes_anothers_place_is_seen_at_one_look(files: ClaimFiles) -> None:
    files.write_spec(claim("u", "one", "two"), ())
    with closing(Library(files.cdi)) as library:
        files.write_spec(claim("u", "one"), ())
        library.read()
        assert library.devices == devices("u", "one")
        assert library.refreshes == 1


def test_one_is_seen_whole_after_a_process_was_killed_over_another(files: ClaimFiles) -> None:
    (files.cdi / ".new").write_text('{"cdiVersion": "0.')
    with closing(Library(files.cdi)) as library:
        files.write_spec(claim("u", "one"), ())
        library.read()
        assert library.devices == devices("u", "one")
    assert list(files.cdi.iterdir()) == [files.spec_path("u")]


def test_on_a_file_system_that_knows_no_files_without_a_name_one_is_seen_too(
    files: ClaimFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = os.open

    def opened(name: str | Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return opening(name, flags, mode)

    monkeypatch.setattr(os, "open", opened)
    with closing(Library(files.cdi)) as library:
        files.write_spec(claim("u", "one"), ())
        library.read()
        assert library.devices == devices("u", "one")
        assert library.refreshes == 1


ACTS = st.tuples(st.sampled_from(["attach one", "attach both", "detach"]), st.sampled_from("abc"), st.booleans())


@given(st.lists(ACTS, max_size=8))
def test_the_library_lists_exactly_the_existing_devices_after_any_sequence_of_changes(
    acts: list[tuple[str, str, bool]],
) -> None:
    with TemporaryDirectory() as folder:
        files = ClaimFiles(plugin=Path(folder, "plugin"), cdi=Path(folder, "cdi"))
        files.cdi.mkdir()
        there: dict[str, set[str]] = {}
        with closing(Library(files.cdi)) as library:
            for act, uid, looks in acts:
                if act == "detach":
                    files.remove_spec(uid)
                    there.pop(uid, None)
                else:
                    requests = ("one", "two") if act == "attach both" else ("one",)
                    files.write_spec(claim(uid, *requests), ())
                    there[uid] = devices(uid, *requests)
                if looks:
                    library.read()
                    assert library.devices == set().union(*there.values())
            library.read()
            assert library.devices == set().union(*there.values())


def test_at_no_moment_is_a_specification_seen_that_is_not_whole(files: ClaimFiles) -> None:
    """A reader at any time sees whole ones: of one request, or of five."""
    many = tuple(f"r{number}" for number in range(5))
    ended = threading.Event()
    seen: set[int] = set()

    def look() -> None:
        with closing(Library(files.cdi)) as library:
            while not ended.is_set():
                library.wait()
                library.read()
                seen.add(len(library.devices))

    with ThreadPoolExecutor(1) as thread:
        looking = thread.submit(look)
        for number in range(60):
            files.write_spec(claim("u", *(many if number % 2 else many[:1])), ())
        ended.set()
        looking.result()
    assert seen <= {0, 1, 5}
