"""Installs one CNI plugin's binary in a node's folder of plugins, entirely or not at all, and removes it again.

Run by `netdra cni-plugin`, in a pod of its own on each node. `.netdra/<plugin>/<digest>/<plugin>` below the CNI folder
is an installed version, and the plugin itself is a hard link to it: a change is one rename, which no running program
and no runtime can see half done, and the way back is another rename. A file whose digest
belongs to no version is not netdra's, and is neither replaced nor removed (decision D46).

If this process or the machine dies at any point, the plugin is the former version or the new one, and the next call
finishes the work.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import select
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec

from netdra.cni import plugins, protocol
from netdra.cni.plugins import PluginPath
from netdra.kernel.errors import KernelError
from netdra.kernel.inotify import FolderChanges
from netdra.model import documents
from netdra.model.cni_plugin import DescribedPlugin
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError
from netdra.model.schema import CNIPluginSchema, CNIPluginSchemaSpec
from netdra.model.topology import described
from netdra.node import executables
from netdra.ops import files
from netdra.rules.contract import compile_schema

SCHEMA = "schema.yaml"
MAX_BINARY = 1 << 30
LOCK_SECONDS = 30.0
CHECK_SECONDS, UNWATCHED_SECONDS = 60.0, 5.0
SETTLING_SECONDS = 0.2
"""How long a change is waited out: a file may be replaced in two steps."""
_CHUNK = 1 << 20
_NEW = "new"
"""What a file is called until it is complete, in the folder of its version."""


class PluginInstallation(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that is to be installed.

    Attributes:
        source: the binary in the vendor's image.
        folder: the node's folder of CNI plugins.
        name: its name there, which is the type of steps.
        digest: the SHA-256 that the binary must have, in hexadecimal; "" for any.
    """

    source: Path
    folder: Path
    name: str
    digest: str = ""


class _Store:
    """The versions of one plugin that were installed on this node."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.root = folder / plugins.STORE
        self.path = self.root / name
        self.target = folder / name

    def file(self, digest: str) -> Path:
        return self.path / digest / self.name

    def digests(self) -> tuple[str, ...]:
        """The versions that are complete."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return tuple(sorted(path.name for path in self.path.iterdir() if self.file(path.name).is_file()))
        return ()

    def installed(self) -> str:
        """The digest of the plugin as it stands in the folder; "" if none exists.

        Raises:
            PermanentError: the file was not installed by netdra.
        """
        try:
            status = self.target.lstat()
        except FileNotFoundError:
            return ""
        digest = _digest(self.target) if stat.S_ISREG(status.st_mode) else ""
        if digest not in self.digests():
            what = f"{self.target} (sha256 {digest})" if digest else f"{self.target}, which is not a regular file,"
            raise PermanentError(
                f"{what} is not netdra's, and is left as it is",
                hint="give the CNIPlugin another name, or choose other nodes: the pod network may need the file",
                code="ND2184",
            )
        return digest

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes of this node from changing the plugin meanwhile.

        Raises:
            TemporaryError: another process has held the lock for too long.
        """
        deadline = time.monotonic() + LOCK_SECONDS
        while time.monotonic() < deadline:
            self.root.mkdir(mode=0o755, exist_ok=True)
            descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if self._has_lock(descriptor):
                    yield
                    return
            finally:
                os.close(descriptor)
            time.sleep(0.05)
        raise TemporaryError(f"another process has locked {self.root}", code="ND2185")

    def _has_lock(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that removes a node's last plugin removes the folder.
            return os.path.samestat(os.fstat(descriptor), self.root.stat())
        except (BlockingIOError, FileNotFoundError):
            return False


def describe(wanted: PluginInstallation, schema: Path | None = None) -> DescribedPlugin:
    """A binary's digest and CNI versions, and the schema that comes with it, without installing it.

    Args:
        schema: its CNIPluginSchema as YAML; None for `schema.yaml` beside the binary, if there is one.

    Raises:
        NetdraError: the binary is not there, has another digest, or is not a plugin for this machine; or its schema
            cannot be used.
    """
    with _named(wanted):
        digest = _checked(wanted)
        versions = _versions(wanted.source.parent, wanted.source.name)
        path = schema or wanted.source.parent / SCHEMA
        spec = _schema(path, wanted.name) if schema is not None or path.exists() else None
        return DescribedPlugin(digest=digest, cni_versions=versions, schema=spec)


def _schema(path: Path, name: str) -> CNIPluginSchemaSpec:
    text = path.read_text(encoding="utf-8", errors="replace")
    specs = [schema for schema in documents.read(text, str(path), strict=False) if isinstance(schema, CNIPluginSchema)]
    expected = described(name, is_builtin=False)
    if len(specs) != 1 or specs[0].spec.plugin != expected:
        raise InvalidInputError(
            f"{path} in the image must hold one CNIPluginSchema, of the plugin {expected}",
            hint=f"its spec.cniType must be {name}, with execution: Binary if netdra has that type built in",
            code="ND2186",
        )
    compile_schema(specs[0])
    return specs[0].spec


def install(wanted: PluginInstallation) -> str:
    """Have the plugin in the folder, and return its digest; a plugin that is there already is left alone.

    Raises:
        NetdraError: it cannot be installed; a former version is still there.
    """
    with _named(wanted):
        digest = _checked(wanted)
        store = _Store(wanted.folder, wanted.name)
        with store.locked():
            before = store.installed()
            if before != digest:
                _keep_version(store, digest, wanted.source)
                _link(store, digest)
            _prune(store, digest, before)
        return digest


class PluginKeeper:
    """Keeps a plugin installed until it is stopped, also if the file is deleted meanwhile.

    Attributes:
        digest: the SHA-256 of the installed plugin; "" before it is installed.
    """

    def __init__(self, wanted: PluginInstallation, ready: Path | None) -> None:
        """Do nothing yet.

        Args:
            ready: a file that is there for as long as the plugin is.
        """
        self._wanted, self._ready = wanted, ready
        self._identity: tuple[int, ...] = ()
        self.digest = ""
        self._mark(ready=False)

    def run(self, stop: int) -> None:
        """Keep the plugin installed until a descriptor is readable.

        Raises:
            NetdraError: it cannot be installed, or another file was put in its place.
        """
        with ExitStack() as closing:
            changes = None
            with suppress(KernelError):  # the kernel has no watches left: the folder is checked more often
                changes = closing.enter_context(FolderChanges())
            poll = select.poll()
            for source in (stop, *([changes.fileno()] if changes is not None else [])):
                poll.register(source, select.POLLIN)
            while True:
                self.check(changes)
                ended = [
                    fd for fd, _ in poll.poll(1000 * (CHECK_SECONDS if changes is not None else UNWATCHED_SECONDS))
                ]
                if stop in ended:
                    return
                if ended and changes is not None:
                    time.sleep(SETTLING_SECONDS)
                    changes.take()

    def check(self, changes: FolderChanges | None = None) -> None:
        """Have the plugin installed now.

        Raises:
            NetdraError: it cannot be installed.
        """
        if changes is not None:
            with plugins.folders(PluginPath(directories=(str(self._wanted.folder),))) as folders:
                changes.watch(folders)
        identity = self._seen()
        if identity and identity == self._identity:
            return
        try:
            self.digest = install(self._wanted)
        except NetdraError:
            self._mark(ready=False)
            raise
        self._identity = self._seen()
        self._mark(ready=True)

    def _seen(self) -> tuple[int, ...]:
        """The identity of the file in the plugin's place, which also differs after a change of the file."""
        try:
            status = (self._wanted.folder / self._wanted.name).lstat()
        except OSError:
            return ()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def _mark(self, *, ready: bool) -> None:
        if self._ready is not None and ready:
            self._ready.write_text(self.digest)
        elif self._ready is not None:
            self._ready.unlink(missing_ok=True)


def remove(folder: Path, name: str) -> bool:
    """Have the plugin no longer in the folder, if it is netdra's, and return whether it was.

    Raises:
        NetdraError: it cannot be removed.
    """
    _check_name(name)
    wanted = PluginInstallation(source=folder, folder=folder, name=name)
    with _named(wanted):
        store = _Store(folder, name)
        if not store.path.exists():
            with suppress(OSError):  # a former call was killed just before this, or other plugins are there
                store.root.rmdir()
            return False
        with store.locked():
            try:
                is_own = store.installed() != ""
            except PermanentError:
                is_own = False
            if is_own:
                store.target.unlink()
                files.sync(folder)
            shutil.rmtree(store.path)
            files.sync(store.root)
            with suppress(OSError):  # other plugins have their versions there
                store.root.rmdir()
        return is_own


@contextmanager
def _named(wanted: PluginInstallation) -> Iterator[None]:
    """Errors of files name the plugin and the next thing to do."""
    try:
        yield
    except OSError as problem:
        path = problem.filename or wanted.folder
        kind = TemporaryError if problem.errno in {errno.ENOSPC, errno.EDQUOT, errno.EAGAIN} else PermanentError
        hints = {
            errno.ENOSPC: "make room on the node's disk",
            errno.EROFS: "mount the node's CNI folder into the pod so that it can be written to",
            errno.EACCES: "run as the owner of the folder, uid 0",
        }
        raise kind(
            f'CNI plugin "{wanted.name}": {path}: {problem.strerror}', hint=hints.get(problem.errno or 0, "")
        ) from None
    except NetdraError as problem:
        raise type(problem)(_about(wanted.name, problem.what), hint=problem.hint, code=problem.code) from None


def _about(name: str, what: str) -> str:
    return what if what.startswith("CNI plugin ") else f'CNI plugin "{name}": {what}'


def _check_name(name: str) -> None:
    if not plugins.is_name(name):
        raise InvalidInputError(
            f"{name[:128]!r} is not a valid CNI plugin name",
            hint="ASCII letters, digits, '-', '_' and '.', no path",
            code="ND2187",
        )


def _checked(wanted: PluginInstallation) -> str:
    """The digest of the source, if that can be installed.

    Raises:
        NetdraError: it cannot be installed.
    """
    _check_name(wanted.name)
    status = wanted.source.stat()
    if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= MAX_BINARY:
        raise InvalidInputError(
            f"{wanted.source} in the image is not a file that can be a plugin",
            hint="give the path of the binary in the image",
            code="ND2188",
        )
    digest = _digest(wanted.source)
    if wanted.digest and digest != wanted.digest:
        raise PermanentError(
            f"{wanted.source} in the image has the SHA-256 {digest}, and {wanted.digest} is asked for",
            hint="the image is a wrong one, or digest belongs to another version or architecture",
            code="ND2189",
        )
    executables.check(wanted.source)
    return digest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _keep_version(store: _Store, digest: str, source: Path) -> None:
    """Have a complete copy of the source in the store, which answers VERSION.

    Raises:
        NetdraError: the copy does not answer, and is removed from the store.
    """
    path = store.file(digest)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    # A file that was overwritten in place no longer has the content of its digest.
    if not (path.is_file() and _digest(path) == digest):
        part = path.parent / _NEW
        part.unlink(missing_ok=True)
        try:
            _copy(source, part, digest)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        part.rename(path)
        files.sync(path.parent)
        files.sync(store.path)
        files.sync(store.root)
    try:
        _versions(path.parent, store.name)
    except NetdraError:
        shutil.rmtree(path.parent)
        raise


def _copy(source: Path, target: Path, digest: str) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755)
    with os.fdopen(descriptor, "wb") as written, source.open("rb") as read:
        os.fchmod(descriptor, 0o755)
        shutil.copyfileobj(read, written, _CHUNK)
        written.flush()
        os.fsync(descriptor)
    if _digest(target) != digest:
        raise OSError(errno.EIO, "what was written is not what was read", str(target))


def _versions(folder: Path, name: str) -> tuple[str, ...]:
    """The versions of CNI that a binary supports by its own word.

    Raises:
        NetdraError: it does not answer, or supports no version that netdra supports.
    """
    where = PluginPath(directories=(str(folder),))
    try:
        return protocol.supported_versions(protocol.find(name, where).binary)
    except NetdraError as problem:
        raise PermanentError(
            f"the binary does not answer VERSION, so it is not installed: {problem.what}",
            hint="is it a CNI plugin, linked statically? The one that was there before stays",
            code=problem.code,
        ) from None


def _link(store: _Store, digest: str) -> None:
    """Put a version in the plugin's place."""
    part = store.path / digest / _NEW
    part.unlink(missing_ok=True)
    os.link(store.file(digest), part)
    part.rename(store.target)
    files.sync(store.folder)


def _prune(store: _Store, present: str, before: str) -> None:
    """Remove all versions but the present one and the one before it, and incomplete files."""
    others = sorted(set(store.digests()) - {present}, key=lambda digest: store.file(digest).stat().st_mtime_ns)
    former = before if before in others else (others or [""])[-1]
    for path in store.path.iterdir():
        if path.name not in {present, former}:
            shutil.rmtree(path)
        else:
            (path / _NEW).unlink(missing_ok=True)
