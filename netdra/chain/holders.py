"""Which sandbox has which device: one symbolic link a device, beside the checkpoints.

A device that is moved or bound cannot be in two pods. Links are made before the act, by one atomic call, so two
processes cannot both have a device, and a look-up costs nothing. A link counts as long as the checkpoint that it names
is there and of this boot: after a crash the checkpoint still reports that the device must be returned.

A link is never removed: it becomes the mark of a device that was in a pod (`returned`), by one atomic call, too. So
at no moment, and after no crash, can such a device go to the next pod unexamined (`netdra.chain.returned`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from netdra.chain import checkpoint
from netdra.chain.checkpoint import BadCheckpointError, Header, StepState
from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.ops import files
from netdra.ops.boot import boot_id
from netdra.ops.files import NewerStateError
from netdra.steps.allocated import Allocated

RECORD = "device"
"""The key of a binary's undo with its device as it was (`netdra.steps.allocated`)."""
_FOLDER = "devices"
RETURNED = "returned"
"""The folder of the marks."""
_SLASH = "_"  # in the name of a file


def take(directory: Path, device: str, sandbox: str) -> None:
    """Note that a sandbox has a device; done already is not an error.

    Raises:
        TemporaryError: another sandbox has it, or the disk cannot be read or written.
    """
    path = _path(directory, device)
    try:
        _link(directory, path, device, sandbox)
    except OSError as problem:
        raise files.unwritable(path, problem) from None


def _link(directory: Path, path: Path, device: str, sandbox: str) -> None:
    while True:
        try:
            path.symlink_to(sandbox)
        except FileNotFoundError:
            # With the folder for its mark: the disk may be full when the device comes back.
            for folder in (path.parent, files.joined(directory, RETURNED)):
                folder.mkdir(mode=files.FOLDER_MODE, exist_ok=True)
        except FileExistsError:
            other = holder(directory, device)
            if other == sandbox:
                return
            if other:
                raise _held_by(directory, device, other) from None
            _rename(directory, path)
        else:
            return


def _held_by(directory: Path, device: str, sandbox: str) -> TemporaryError:
    """The error for a device of another sandbox, whose pod may be healthy: the path of its namespace proves nothing."""
    what, hint = f"device {device} is still used by sandbox {sandbox}", "netdra retries automatically"
    try:
        saved = checkpoint.load(directory, sandbox)
        header = saved.header
    except (OSError, BadCheckpointError, NewerStateError, InvalidInputError):
        return TemporaryError(what, hint=hint, code="ND2119")
    pod = header.pod
    if pod.name:
        what = f'{what}, of pod "{pod.namespace}/{pod.name}"'
    if saved.held:
        return TemporaryError(f"{what}: {'; '.join(saved.held.values())}", hint=held_hint(sandbox), code="ND2120")
    try:
        os.stat(header.namespace.path)  # noqa: PTH116 (a pod waits for it)
        hint = "the pod uses the device until it ends; create one claim per pod, or wait until the pod ends"
    except FileNotFoundError:
        hint = (
            "netdra node undoes the sandbox automatically when it has ended; if netdra node does not run: "
            f"netdra detach {sandbox}"
        )
    except OSError:
        pass
    return TemporaryError(what, hint=hint, code="ND2121")


def held_hint(sandbox: str) -> str:
    """The hint for a device that a sandbox holds because it differs from its former state."""
    return (
        "set it by hand on the node, and netdra releases the device automatically; to release it as it is: "
        f"netdra detach {sandbox} --accept-differences"
    )


def give_up(directory: Path, device: str, sandbox: str) -> bool:
    """Note that a sandbox has a device no longer and it is to be examined; returns whether that is written down.

    Raises:
        TemporaryError: the disk cannot be read.
    """
    path = _path(directory, device)
    return _target(path) != sandbox or _mark(directory, path)


def _mark(directory: Path, path: Path) -> bool:
    """Make a link the mark of a device that is to be examined; returns whether that is written down."""
    try:
        _rename(directory, path)
    except OSError:
        return False
    return True


def _rename(directory: Path, path: Path) -> None:
    """Make a link a mark; done already is not an error.

    Raises:
        OSError: the disk does not take it: the link stays.
    """
    folder = files.joined(directory, RETURNED)
    try:
        os.rename(path, folder / path.name)  # noqa: PTH104 (a pod's end waits for it)
    except FileNotFoundError:
        if os.path.lexists(path):
            folder.mkdir(mode=files.FOLDER_MODE)
            os.rename(path, folder / path.name)  # noqa: PTH104


def name_of(device: str) -> str:
    """The name that a device's link and mark have, by its key."""
    return device.replace("/", _SLASH)


def forget(directory: Path, sandbox: str) -> None:
    """Note that a sandbox has no device any more; a process may have died before its checkpoint, and left a link.

    Every link of the node is read: a call for sandboxes of which it is not known which devices they have.

    Raises:
        TemporaryError: the disk cannot be read or written.
    """
    folder = files.joined(directory, _FOLDER)
    for name in files.listed(folder):
        path = files.joined(folder, name)
        if _target(path) == sandbox:
            _mark(directory, path)


def holder(directory: Path, device: str) -> str:
    """The sandbox that has a device, or "".

    Raises:
        TemporaryError: the disk cannot be read.
    """
    sandbox = _target(_path(directory, device)) if device else ""
    if not sandbox:
        return ""
    try:
        path = checkpoint.path_of(directory, sandbox)
        saved = checkpoint.read(path.read_bytes(), str(path))
    except (FileNotFoundError, IsADirectoryError, BadCheckpointError):
        return ""
    except OSError as problem:
        raise files.unreadable(path, problem) from None
    except NewerStateError:
        return sandbox
    return sandbox if saved.header.boot_id == boot_id() else ""


def port_holder(directory: Path, address: str) -> str:
    """The sandbox that has a port or a representor of a PCI function, but not the function's first port, or "".

    Raises:
        TemporaryError: the disk cannot be read.
    """
    of_ports = f"{address}{_SLASH}"
    names = (name for name in files.listed(files.joined(directory, _FOLDER)) if name.startswith(of_ports))
    return next(filter(None, (holder(directory, name) for name in names)), "")


def vfs_before(directory: Path, pf: str) -> Mapping[str, Any] | None:
    """The settings of a PF's VFs as they were before a sandbox got the PF, or None.

    Raises:
        TemporaryError: the disk cannot be read.
    """
    sandbox = holder(directory, pf)
    if not sandbox:
        return None
    try:
        states = checkpoint.load(directory, sandbox).steps.values()
    except (FileNotFoundError, BadCheckpointError, NewerStateError, InvalidInputError):
        return None
    for state in states:
        # The record of a built-in step's netdev, of one beside an RDMA device, or of a program's device.
        step, device = state.undo.get("step", {}), state.undo.get(RECORD, {})
        for netdev in (step, step.get("netdev"), device.get("netdev")):
            record: Mapping[str, Any] | None = (netdev or {}).get("vfs")
            if record and record.get("pf") == pf:
                return record
    return None


def shares_claim(directory: Path, device: str, header: Header) -> bool:
    """Whether the sandbox that has a device is another pod's with the same claim."""
    try:
        other = checkpoint.load(directory, holder(directory, device)).header
    except (FileNotFoundError, BadCheckpointError, NewerStateError, InvalidInputError):
        return False  # the sandbox has just released the device: the other one tries again
    claims = {plan.claim.uid for plan in header.plans}
    is_former = bool(header.pod.uid) and other.pod.uid == header.pod.uid
    return not is_former and any(plan.claim.uid in claims for plan in other.plans)


def sharer(directory: Path, device: str, sandbox: str) -> str:
    """Another sandbox of this boot with a binary that has the device, not undone, or "". Reads all checkpoints."""
    return next((sharing for sharing, _ in _sharers(directory, device, sandbox)), "")


def record_of_sharer(directory: Path, device: str, sandbox: str) -> Allocated | None:
    """The device as it was before another sandbox got it that has it still, or None. Reads all checkpoints."""
    records = (state.undo[RECORD] for _, state in _sharers(directory, device, sandbox))
    return next((msgspec.convert(record, Allocated) for record in records), None)


def _sharers(directory: Path, device: str, sandbox: str) -> Iterator[tuple[str, StepState]]:
    for saved in checkpoint.load_all(directory)[0]:
        header = saved.header
        if header.pod.sandbox == sandbox or header.boot_id != boot_id():
            continue
        for state in saved.steps.values():
            if not state.undone and device in written(state):
                yield header.pod.sandbox, state


def written(state: StepState) -> tuple[str, ...]:
    """The key of a binary's device in its record; none where it was given no device."""
    return msgspec.convert(state.undo[RECORD], Allocated).holds if RECORD in state.undo else ()


def _path(directory: Path, device: str) -> Path:
    return files.joined(files.joined(directory, _FOLDER), name_of(device))


def _target(path: Path | str) -> str:
    """The sandbox that a link names; "" if it is not a link.

    Raises:
        TemporaryError: the disk cannot be read.
    """
    try:
        return os.readlink(path)  # noqa: PTH115
    except FileNotFoundError:
        return ""
    except OSError as problem:
        raise files.unreadable(Path(path), problem) from None
