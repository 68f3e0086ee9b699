"""The device-file step: a pod's containers get a character device of the node that is not a network interface.

Changes nothing on the node: the result names the file, which reaches containers through CDI. The step asks again
whether the node's operator allows the file. The pod is given the device by its numbers, so another file that takes
its place later is not given.
"""

from __future__ import annotations

import msgspec

from netdra.kernel import device_files
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError
from netdra.model.inventory import DEVICE_FILE
from netdra.model.result import StepDevice, StepResult
from netdra.steps.contract import Builtin, Order, Params, Record, Site


class FileParams(Params, frozen=True, kw_only=True):
    """Nothing beyond every step's parameters: the file is the allocated device's."""


class FileRecord(Record, frozen=True, kw_only=True):
    """A device file as it was inspected."""

    path: str
    number: tuple[int, int]


def _prepare(order: Order, params: FileParams) -> None:
    device = order.device
    if device is None:
        raise InvalidInputError(
            f"{order.called}: no device was allocated for it",
            hint="let it depend on nothing, with a selector",
            code="ND2022",
        )
    if not device.device_file:
        raise InvalidInputError(
            f'{order.called}: device "{device.device}" is not a device file',
            hint=f'add to the selector: type == "{DEVICE_FILE}"',
            code="ND2023",
        )
    if params.ipam:
        raise InvalidInputError(
            f"{order.called}: a device file does not have addresses", hint="remove ipam", code="ND2024"
        )


def _observe(order: Order, _: FileParams, site: Site) -> FileRecord:
    assert order.device is not None
    path = order.device.device_file
    file = site.device_files.look(path)
    if file.number is None:
        problem: type[NetdraError] = TemporaryError if file.missing else PermanentError
        raise problem(f"{order.called}: {file.problem}", hint=file.hint)
    return FileRecord(path=path, number=file.number)


def _apply(order: Order, _: FileParams, record: FileRecord, __: Site) -> StepResult:
    device = StepDevice(device_nodes=(record.path,), number=record.number)
    return msgspec.structs.replace(order.previous, devices=(*order.previous.devices, device))


def _undo(_: FileRecord, __: Site) -> tuple[str, ...]:
    """Nothing was changed: a container that has the file is gone by then."""
    return ()


def _check(order: Order, _: FileParams, final: StepResult, __: Site) -> tuple[str, ...]:
    path = order.device.device_file if order.device is not None else ""
    number = next((device.number for device in final.devices if path in device.device_nodes), None)
    now = device_files.number_of(path)
    if now is None:
        return (f"device file {path} is gone",)
    return () if now == number else (f"device file {path} is another device by now: {now[0]}:{now[1]}",)


FILE = Builtin(
    params=FileParams, record=FileRecord, prepare=_prepare, observe=_observe, apply=_apply, undo=_undo, check=_check
)
