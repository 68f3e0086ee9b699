"""Watch the devices that several pods share, around each call of a plugin (decision D55).

A shared device must be the same after a plugin's ADD or DEL as before. Used by `execute`: it takes a record before the
call, compares after it, and has the device restored. A device that a plugin has changed is marked: for a while, or
until the plugin is replaced, it is tainted, and the plugin is not called on it again. The runtime tries every few
seconds, and each try would break the network of all pods that share the device. `netdra.node.sandboxes.network` reads
the marks.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from netdra.chain.checkpoint import StepState
from netdra.chain.flow import ChainStep
from netdra.cni import plugins
from netdra.cni.plugins import Binary, PluginPath
from netdra.model.errors import UNREADABLE, NetdraError, PermanentError, TemporaryError
from netdra.model.plan import PlannedDevice
from netdra.ops import files
from netdra.ops.boot import boot_id, since_boot
from netdra.steps import allocated
from netdra.steps.allocated import Allocated, Returned
from netdra.steps.contract import Site

BEFORE_ADD, BEFORE_DEL = "sharedBeforeAdd", "sharedBeforeDel"
"""The keys of a binary's undo with its shared device as it was before each call."""
_COMPARED = "sharedCompared"  # the key of the result: unchanged after the last call
_FOLDER = "changed"
_WRITE_SECONDS = 1.0
KEPT_OFF_SECONDS = 600.0
"""How long a plugin is not called on a shared device that it has changed. It may have been somebody else's doing."""


class ChangedDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A shared device that a plugin has changed.

    Attributes:
        pool: the device's pool.
        device: its name there.
        text: what the plugin did.
        plugin: the program that did it; another one of its name may do better.
        where: where programs were searched for.
        boot_id: the boot in which it was.
        at: when it was, in seconds since that boot.
    """

    pool: str
    device: str
    text: str
    plugin: Binary
    where: PluginPath
    boot_id: str
    at: float

    @property
    def left(self) -> float:
        """The seconds for which the program is still kept off the device."""
        return self.at + KEPT_OFF_SECONDS - since_boot() if self.boot_id == boot_id() else 0.0

    @property
    def holds(self) -> bool:
        """Whether the same program is still kept off the device."""
        if self.left <= 0:
            return False
        try:
            return plugins.find(self.plugin.name, self.where) == self.plugin
        except TemporaryError:
            return True  # whether there is another program cannot be read
        except NetdraError:
            return False


def mark(directory: Path, device: PlannedDevice, text: str, plugin: Binary, where: PluginPath) -> None:
    """Note that a plugin has changed a shared device.

    Raises:
        TemporaryError: the file system does not take it.
    """
    changed = ChangedDevice(
        pool=device.pool,
        device=device.device,
        text=text,
        plugin=plugin,
        where=where,
        boot_id=boot_id(),
        at=since_boot(),
    )
    path = _path(directory, device)
    try:
        path.parent.mkdir(mode=files.FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as problem:
        raise files.unwritable(path, problem) from None
    files.replace(path, msgspec.json.encode(changed), _WRITE_SECONDS, lasting=False)


def changed_devices(directory: Path) -> Iterator[ChangedDevice]:
    """The shared devices that plugins have changed, as far as these plugins are kept off them.

    Raises:
        TemporaryError: the disk cannot be read.
    """
    for name in sorted(files.listed(directory / _FOLDER)):
        if name.startswith("."):
            continue
        path = directory / _FOLDER / name
        try:
            changed = msgspec.json.decode(path.read_bytes(), type=ChangedDevice)
        except (FileNotFoundError, *UNREADABLE):
            continue
        except OSError as problem:
            raise files.unreadable(path, problem) from None
        if changed.holds:
            yield changed


class SharedDevices:
    """The shared devices of one sandbox's steps, from before a call until they were compared. Close it at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._records: dict[str, Allocated] = {}

    def before_add(self, task: ChainStep, site: Site) -> dict[str, Any]:
        """A step's shared device as it is before ADD, as its undo.

        Raises:
            TemporaryError: it is not on the host, since another plugin may have moved it; or the plugin is kept off it.
        """
        device, kind = _device(task), task.step.type
        for changed in changed_devices(self._directory):
            if (changed.pool, changed.device, changed.plugin.name) == (device.pool, device.device, kind):
                raise TemporaryError(
                    f"{changed.text}; the plugin is not called on the device for {changed.left:.0f} s",
                    hint="other pods use the device; correct the plugin's config before that, or replace "
                    "the plugin, which is then called immediately",
                    code="ND2134",
                )
        now = _now(task, site)
        if now is None:
            raise TemporaryError(
                f'shared device "{device.device}" ("{device.if_name}") is not on the host',
                hint="check other network namespaces and other names for its interface",
                code="ND2135",
            )
        record = self._records[task.key] = self._begin(now)
        return {BEFORE_ADD: msgspec.to_builtins(record)}

    def check(self, task: ChainStep, site: Site) -> tuple[str, ...]:
        """Check that a plugin's ADD has left a shared device alone; return what others may have done to it, in words.

        Raises:
            PermanentError: it has not; undo the step.
        """
        if task.key not in self._records:
            return ()
        changed, others = allocated.changes(self._records[task.key], site)
        if changed:
            what = self._mark(task, changed, site)
            raise PermanentError(
                what, hint="other pods use the device; replace the plugin, or correct its config", code="ND2136"
            )
        self._forget(task.key)
        return others

    def before_del(self, task: ChainStep, state: StepState, site: Site) -> Mapping[str, Any]:
        """Have a step's shared device compared after DEL; return the step's undo with its record.

        A call that was cut off counts from its beginning: it may have changed the device already. After an ADD that
        succeeded the device was as before, and an administrator may have changed it since, or it was unplugged.
        """
        if task.key in self._records:
            return state.undo
        key = BEFORE_DEL if BEFORE_DEL in state.undo else BEFORE_ADD
        record = msgspec.convert(state.undo[key], Allocated)
        if key == BEFORE_ADD and (state.result is not None or _COMPARED in state.undo):
            now = _now(task, site)
            if now is None:
                return state.undo
            record = now
        record = self._records[task.key] = self._begin(record)
        return {**state.undo, BEFORE_DEL: msgspec.to_builtins(record)}

    def restore(self, task: ChainStep, site: Site) -> Returned:
        """Restore a shared device where a plugin has changed it; one that was gone before the call is skipped.

        Raises:
            StrandedError: it is not what it was.
        """
        record = self._records.get(task.key)
        if record is None:
            return Returned()
        with _calls.restoring((self._directory, record.key)):
            changed, _ = allocated.changes(record, site)
            if changed:
                self._mark(task, changed, site)
            return allocated.give_back(record, site, lambda: "")

    def end(self, task: ChainStep, state: StepState) -> Mapping[str, Any]:
        """A shared device was compared after DEL; return the step's undo.

        DEL may have failed, and may be tried again much later: then the device counts as it is then.
        """
        self._forget(task.key)
        return {**{key: value for key, value in state.undo.items() if key != BEFORE_DEL}, _COMPARED: True}

    def close(self) -> None:
        """No plugin is called any more."""
        for key in list(self._records):
            self._forget(key)

    def _mark(self, task: ChainStep, changed: Collection[str], site: Site) -> str:
        """Have a device tainted that a plugin has changed; return what the plugin did, in words."""
        device = _device(task)
        what = f'plugin "{task.step.type}" changed shared device "{device.device}": {"; ".join(changed)}'
        with suppress(NetdraError):  # a program that is gone does no more harm
            mark(self._directory, device, what, plugins.find(task.step.type, site.plugins), site.plugins)
        return what

    def _begin(self, record: Allocated) -> Allocated:
        """Note that a call begins, and return the record to compare with: that of a call that has not ended yet.

        While another plugin has the device in its hands, its present state may be that plugin's doing.
        """
        first = _calls.begin((self._directory, record.key), record)
        if first.netdev is None or record.netdev is None:
            return first
        # The interface that is made of it has another name in each pod.
        netdev = msgspec.structs.replace(first.netdev, pod_name=record.netdev.pod_name)
        return msgspec.structs.replace(first, netdev=netdev)

    def _forget(self, key: str) -> None:
        record = self._records.pop(key, None)
        if record is not None:
            _calls.end((self._directory, record.key))


class _Calls:
    """The devices that plugins have in their hands in this process, each with its record from before the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[tuple[Path, str], tuple[Allocated, int]] = {}  # the first call's record; how many calls
        self._restoring: dict[tuple[Path, str], threading.Lock] = {}

    def begin(self, device: tuple[Path, str], record: Allocated) -> Allocated:
        """A call begins; return the record of the first of those that have not ended."""
        with self._lock:
            first, calls = self._records.get(device, (record, 0))
            self._records[device] = first, calls + 1
            return first

    def end(self, device: tuple[Path, str]) -> None:
        """A call has ended, and the device was compared."""
        with self._lock:
            first, calls = self._records.pop(device)
            if calls > 1:
                self._records[device] = first, calls - 1

    @contextmanager
    def restoring(self, device: tuple[Path, str]) -> Iterator[None]:
        """Let one thread at a time restore a device: all sandboxes that have it see the change."""
        with self._lock:
            lock = self._restoring.setdefault(device, threading.Lock())
        with lock:
            yield


_calls = _Calls()


def _path(directory: Path, device: PlannedDevice) -> Path:
    return directory / _FOLDER / f"{device.pool}_{device.device}".replace("/", "_")


def _device(task: ChainStep) -> PlannedDevice:
    assert task.step.device is not None
    return task.step.device


def _now(task: ChainStep, site: Site) -> Allocated | None:
    """A step's device as it is now, None if it is not on the host."""
    device = _device(task)
    record = allocated.observe(device, task.step.if_name, site)
    return None if record is None or (device.if_name and record.netdev is None) else record
