"""Devices that came back from pods are examined before the next pod: no child of one may be left in any namespace.

A pod may have put a macvlan, a VLAN ... on its device and moved it to another namespace: it would continue to receive
what the device's next user receives (`netdra.kernel.children`). To search all namespaces of a node takes longer than a
pod's end may. So the end of a pod searches only those that the pod's namespace knows (`end_known`), and leaves a mark
(`netdra.chain.holders`). One search examines all marked devices, deletes such children and removes the marks
(`examine`): the node daemon has it done soon after, commands at once. A device with a mark goes into no pod:
`check_free` has the search done then, and refuses the device if a child is left.

Children that others had on a device before a pod got it do not belong to the pod. A search notes those of all devices
that are on the host and without a mark (`known`): they are left alone, and such a device goes to a pod only if its
policy allows the host's use, for the others would hear what the pod receives. Children on a device that any sandbox
uses, or shares, are left alone as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from netdra.chain import checkpoint, holders, shares
from netdra.chain.checkpoint import Saved
from netdra.chain.flow import tasks
from netdra.kernel import children, link, netns, reachable
from netdra.kernel.children import StackedLink
from netdra.kernel.errors import KernelError
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.kernel.sysfs import Sysfs
from netdra.model import texts
from netdra.model.errors import NetdraError, PermanentError, TemporaryError
from netdra.model.plan import PlannedDevice
from netdra.ops import files
from netdra.ops.boot import boot_id
from netdra.steps import builtin, netdevs
from netdra.steps.allocated import Allocated
from netdra.steps.contract import Site

_KNOWN = "known.json"
_SIDE_BY_SIDE, _MOST_OPEN = 4, 32
_reachable = reachable.Reachable()


class Known(msgspec.Struct, frozen=True, rename="camel"):
    """A child of a device that others have, by its namespace's cookie and its index there."""

    device: str
    netns: int
    index: int
    text: str


class _KnownFile(msgspec.Struct, frozen=True, rename="camel"):
    boot_id: str
    children: tuple[Known, ...]


class LeftLink(msgspec.Struct, frozen=True):
    """A child that a pod left on its device.

    Attributes:
        device: the name of the device's mark.
        text: the child and the object that refers to its namespace, in words.
        problem: why it could not be deleted, "" if it is gone.
    """

    device: str
    text: str
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.text}: {self.problem}" if self.problem else f"{self.text} was deleted"


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a search.

    Attributes:
        findings: the children that pods had left.
        problems: namespaces that could not be searched, in words.
        complete: whether all namespaces were seen in time.
        namespaces: how many were.
        seconds: how long it took.
    """

    findings: tuple[LeftLink, ...] = ()
    problems: tuple[str, ...] = ()
    complete: bool = True
    namespaces: int = 0
    seconds: float = 0.0

    @property
    def left(self) -> tuple[LeftLink, ...]:
        """The children that could not be deleted."""
        return tuple(finding for finding in self.findings if finding.problem)


def marks(directory: Path) -> frozenset[str]:
    """The marks of devices that are to be examined, by the names that `holders.name_of` makes of their keys.

    Raises:
        TemporaryError: the disk cannot be read.
    """
    return frozenset(files.listed(files.joined(directory, holders.RETURNED))) - {_KNOWN, f".{_KNOWN}"}


def unexamined(directory: Path, devices: Collection[PlannedDevice]) -> frozenset[str]:
    """The marks of devices. A virtual one is recognised by its name, which no other link of the host has.

    Raises:
        TemporaryError: the disk cannot be read.
    """
    names = [holders.name_of(device.key) for device in devices if device.key]
    virtual = {holders.name_of(device.if_name) for device in devices if not device.key and device.if_name}
    return frozenset(
        mark
        for mark in marks(directory)
        if mark.partition(":")[2] in virtual or any(_covers(mark, name) for name in names)
    )


def examine(
    directory: Path,
    seconds: float,
    is_stopped: Callable[[], bool] = lambda: False,
    *,
    is_needed: Callable[[], bool] = lambda: True,
    returning: Collection[str] = (),
) -> Examination:
    """Search all namespaces of the node, delete what pods left on returned devices, and remove these devices' marks.

    The calling thread's namespace is the host's. One search at a time; with none of the marks it only notes `known`.

    Args:
        directory: the folder of checkpoints.
        seconds: how long it may take.
        is_stopped: whether it is to end before that.
        is_needed: whether it is to begin, asked when no other search runs any more.
        returning: the keys of further devices whose pod has ended, on the host but without a mark.

    Raises:
        TemporaryError: another process searches for longer than that, or the disk cannot be read or written.
        KernelError: the host's namespace cannot be read.
    """
    began = time.monotonic()
    with (
        files.folder(files.joined(directory, holders.RETURNED), seconds),
        Socket() as sock,
        Namespace.current() as host,
    ):
        if not is_needed():
            return Examination()
        search = _Search(
            directory,
            sock,
            host,
            _marked(directory),
            _read_known(directory),
            frozenset(map(holders.name_of, returning)),
        )
        complete = search.run(lambda: is_stopped() or time.monotonic() > began + seconds)
        if complete:
            search.conclude()
    return Examination(
        findings=tuple(search.findings),
        problems=tuple(search.problems),
        complete=complete,
        namespaces=search.namespaces,
        seconds=time.monotonic() - began,
    )


def check_free(directory: Path, device: str, seconds: float, *, host_may_use: bool) -> None:
    """Refuse a device on which a child is left in another namespace. Takes microseconds for one that is not marked.

    Args:
        directory: the folder of checkpoints.
        device: its key.
        seconds: how long a search may take.
        host_may_use: whether others may use the device while a pod has it.

    Raises:
        PermanentError: a pod's child could not be deleted, or others have a child on it.
        TemporaryError: the search takes longer, or the disk cannot be read or written.
    """
    name = holders.name_of(device)

    def is_in_doubt() -> bool:
        is_marked = any(_covers(mark, name) for mark in marks(directory))
        return is_marked or any(_covers(name, entry.device) for entry in _read_known(directory))

    if not is_in_doubt():
        return
    hint = "netdra retries automatically"
    try:
        # A search that was running may have examined it: of pods that begin at the same time, one searches for all.
        examined = examine(directory, seconds, is_needed=is_in_doubt)
    except TemporaryError as problem:
        what = f"device {device} came from another pod and is not examined yet: {problem.what}"
        raise TemporaryError(what, hint=hint, code="ND2129") from None
    for finding in examined.left:
        if _covers(name, finding.device) or _covers(finding.device, name):
            raise PermanentError(
                f"device {device} is not free: a former pod left {finding}",
                hint="delete that link, or end what holds its namespace; the device is examined again at the next try",
                code="ND2130",
            )
    if not examined.complete:
        raise TemporaryError(
            f"device {device} came from another pod and is not examined yet: not all namespaces of the node were "
            f"searched in {seconds:.1f} s",
            hint=hint,
            code="ND2131",
        )
    others = [entry.text for entry in _read_known(directory) if _covers(name, entry.device)]
    if others and not host_may_use:
        raise PermanentError(
            f"device {device} is used in another network namespace: {', '.join(others)}",
            hint="delete that link; only if the pod may share the device with it, set allowHostUse in the policy that "
            "offers it",
            code="ND2132",
        )


def end_known(directory: Path, devices: Collection[str], site: Site) -> tuple[str, ...]:
    """Delete the children of devices that a pod has returned, in the namespaces that its own knows by id.

    Returns the deleted children, in words.

    Args:
        directory: the folder of checkpoints.
        devices: their keys.
        site: where; without the pod's namespace nothing is done.

    Raises:
        PermanentError: one could not be deleted.
        KernelError: the kernel refused to list them.
        TemporaryError: the disk cannot be read.
    """
    pod = site.pod
    if pod is None or not devices:
        return ()
    names = {holders.name_of(device) for device in devices}
    deleted = []
    for child in children.find_known(pod.sock, pod.namespace, site.host_namespace):
        name = _device_of(child, site.host, site.sysfs)
        if not any(_covers(mark, name) for mark in names) or _is_known(name, child, _read_known(directory)):
            continue
        finding = LeftLink(name, _words(child, "a namespace that the pod's knows"), children.delete(pod.sock, child))
        if finding.problem:
            raise PermanentError(f"the pod left {finding}", code="ND2133")
        deleted.append(str(finding))
    return tuple(deleted)


@dataclass
class _Search:
    """One search.

    Attributes:
        directory: the folder of checkpoints.
        sock: a socket in the host's namespace.
        host: that namespace.
        marks: the marks when it began, and which files they were. A marked device goes into no pod but one that shares
            a claim; that pod's end makes another file of it.
        known: the children that others had at the last search.
        returning: the names that the marks of further devices would have: their pod has ended, and they are examined.
    """

    directory: Path
    sock: Socket
    host: Namespace
    marks: Mapping[str, tuple[int, int]]
    known: tuple[Known, ...]
    returning: frozenset[str] = frozenset()
    findings: list[LeftLink] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    namespaces: int = 0
    _others: list[Known] = field(default_factory=list)
    _in_use: frozenset[str] = frozenset()
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def run(self, is_over: Callable[[], bool]) -> bool:
        """Search all namespaces; returns whether there was time for that.

        Several at a time: to list links waits for the kernel's lock of all networks (RTNL), which pods that begin hold.
        """
        opened = threading.Semaphore(_MOST_OPEN)
        with ThreadPoolExecutor(_SIDE_BY_SIDE, "examine") as threads:
            searches = []
            try:
                for namespace, called in _reachable.scan(is_over):
                    opened.acquire()
                    search = threads.submit(self._in, namespace.duplicate(), called)
                    search.add_done_callback(lambda _: opened.release())
                    searches.append(search)
            except TimeoutError:
                return False
        for search in searches:
            search.result()
        self.namespaces = len(searches)
        return not is_over()

    def conclude(self) -> None:
        """Remove the marks of devices that no sandbox uses and no child stands on, and write down what others have.

        Raises:
            TemporaryError: the disk cannot be written.
        """
        # A pod that shares the claim of the one that had the device may still use it: it may make more of them.
        used = self._used() if self.marks or self.known else frozenset()
        unclean = used | {finding.device for finding in self.findings if finding.problem}
        now = _marked(self.directory)
        for mark, file in self.marks.items():
            if now.get(mark) == file and not any(_covers(mark, name) for name in unclean):
                path = files.joined(files.joined(self.directory, holders.RETURNED), mark)
                try:
                    path.unlink(missing_ok=True)
                except OSError as problem:
                    raise files.unwritable(path, problem) from None
        # A device that is in a pod is not the host's: what others have on it is not seen until it is back.
        seen = {(entry.netns, entry.index) for entry in self._others}
        self._others += [
            entry for entry in self.known if (entry.netns, entry.index) not in seen and entry.device in used
        ]
        if set(self._others) != set(self.known):
            _write_known(self.directory, tuple(self._others))

    def _in(self, namespace: Namespace, called: str) -> None:
        try:
            with namespace, namespace.visit(Socket) as inside:
                found = children.find(inside, self.host)
                if found:
                    with self._turn:
                        self._judge(found, inside, called)
        except KernelError as problem:
            if problem.is_short:
                raise  # nothing is known of the namespace
            self.problems.append(f"network namespace of {called}: {problem.what}")

    def _judge(self, found: Sequence[StackedLink], inside: Socket, called: str) -> None:
        cookie, sysfs = netns.cookie(inside), Sysfs()
        devices = [_device_of(child, self.sock, sysfs) for child in found]
        # Read after the links: a pod whose plugin has made one has noted that before. Once for a device: if its pod
        # ends during the search, the device has another mark, which the next search examines.
        if not self._in_use.issuperset(devices):
            self._in_use |= self._used()
        for child, device in zip(found, devices, strict=True):
            if not device:
                continue  # it has just gone from the host
            text = _words(child, f"the network namespace of {called}")
            is_known = any(
                (entry.device, entry.netns, entry.index) == (device, cookie, child.index) for entry in self.known
            )
            is_returning = any(_covers(name, device) for name in self.returning)
            if not is_known and not is_returning and device in self._in_use:
                continue
            if not is_known and (is_returning or any(_covers(mark, device) for mark in self.marks)):
                self.findings.append(LeftLink(device, text, children.delete(inside, child)))
            elif is_known or not any(_covers(mark, device) for mark in marks(self.directory)):
                self._others.append(Known(device, cookie, child.index, text))
            # Else its pod has ended during the search: the next search examines it.

    def _used(self) -> frozenset[str]:
        """The devices that sandboxes have or share, by the names of their marks."""
        saved = checkpoint.load_all(self.directory)[0]
        return frozenset(holders.name_of(device) for entry in saved for device in _devices_of(entry))


def _marked(directory: Path) -> dict[str, tuple[int, int]]:
    """The marks, and which files they are."""
    folder, found = files.joined(directory, holders.RETURNED), {}
    for name in marks(directory):
        with suppress(FileNotFoundError):
            status = files.joined(folder, name).lstat()
            found[name] = (status.st_ino, status.st_ctime_ns)
    return found


def _devices_of(saved: Saved) -> Iterator[str]:
    """The keys of the devices of a sandbox's steps that are not undone."""
    if saved.header.boot_id != boot_id():
        return
    try:
        graph = tasks(saved.header.plans)
    except NetdraError:
        return  # undoing puts it aside
    for key, state in saved.steps.items():
        if state.undone or key not in graph:
            continue
        if not graph[key].is_binary:
            yield from builtin.holds(graph[key].step.type, state.undo)
        for record in (holders.RECORD, shares.BEFORE_ADD):
            if record in state.undo:
                yield msgspec.convert(state.undo[record], Allocated).key


def _device_of(child: StackedLink, sock: Socket, sysfs: Sysfs) -> str:
    """The name of the mark that the device below a child would have; "" for one that has gone."""
    lower = link.find(sock, child.lower)
    if lower is not None and child.address not in ("", lower.address):
        return ""
    return holders.name_of(netdevs.key_of(lower, sysfs)) if lower is not None else ""


def _covers(mark: str, name: str) -> bool:
    """Whether a mark is a device's: the mark of a PCI function is that of all its ports."""
    return bool(name) and (name == mark or (texts.fits(mark, "pci") and name.startswith(f"{mark}_")))


def _words(child: StackedLink, where: str) -> str:
    return f'{child.kind} "{reachable.plain(child.name)}" in {where}'


def _is_known(device: str, child: StackedLink, known: Collection[Known]) -> bool:
    """Whether others had a child of that index on a device. Its namespace is not compared: it has only an id here."""
    return any((entry.device, entry.index) == (device, child.index) for entry in known)


def _read_known(directory: Path) -> tuple[Known, ...]:
    path = files.joined(files.joined(directory, holders.RETURNED), _KNOWN)
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_KnownFile)
    except FileNotFoundError:
        return ()
    except OSError as problem:
        raise files.unreadable(path, problem) from None
    except msgspec.MsgspecError:
        return ()  # cut by a power failure: then it is of an earlier boot
    return content.children if content.boot_id == boot_id() else ()


def _write_known(directory: Path, known: tuple[Known, ...]) -> None:
    path = files.joined(files.joined(directory, holders.RETURNED), _KNOWN)
    content = msgspec.json.encode(_KnownFile(boot_id(), known))
    new = path.with_name(f".{_KNOWN}")  # the folder is locked
    try:
        if not known:
            path.unlink(missing_ok=True)
            return
        new.write_bytes(content)
        new.rename(path)
    except OSError as problem:
        raise files.unwritable(path, problem) from None
