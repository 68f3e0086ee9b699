"""Kernel settings of the pod's network namespace, below /proc/sys/net. Used by tuning and by `addressing`.

A file below net/ belongs to the namespace of the thread that opens it, so files are opened by a thread inside.
Settings that the kernel has once for the whole machine do not show in a pod's namespace at all, and nothing outside
net/ is accepted: a topology must not change the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from netdra.kernel.errors import KernelError, KernelMissingError, from_os_error
from netdra.kernel.netns import Namespace
from netdra.model.errors import PermanentError

_ROOT = Path("/proc/sys")


def read(space: Namespace, paths: Sequence[str]) -> dict[str, str]:
    """The values of settings in a namespace, by path.

    Raises:
        KernelMissingError: the namespace has no such setting.
        KernelError: it cannot be read.
    """
    return space.run(lambda: {path: _read(path) for path in paths})


def write(space: Namespace, values: Mapping[str, str]) -> None:
    """Set settings in a namespace, in order.

    Raises:
        KernelMissingError: the namespace has no such setting.
        KernelError: the kernel refused a value.
    """

    def write_all() -> None:
        for path, value in values.items():
            _write(path, value)

    space.run(write_all)


def restorable(space: Namespace, paths: Sequence[str]) -> dict[str, str]:
    """The values of settings in a namespace, by path; the kernel takes each as it is, so each can be returned.

    Raises:
        PermanentError: the kernel does not take a value that a setting has, so a change could not be undone.
        KernelMissingError: the namespace has no such setting.
        KernelError: it cannot be read.
    """
    values = read(space, paths)
    for path, value in values.items():
        try:
            write(space, {path: value})
        except KernelError as problem:
            raise PermanentError(
                f'sysctl {path} could not be restored to "{value[:80]}": {problem.what}',
                hint="leave it out: what cannot be undone is not set",
                code=problem.code,
            ) from None
    return values


def give_back(space: Namespace, values: Mapping[str, str]) -> None:
    """Set settings as they were, the last first: which values a setting may have can depend on those set before it.

    Raises:
        KernelError: the kernel refused one; all are tried.
    """
    refused: KernelError | None = None
    for path, value in reversed([*values.items()]):
        try:
            write(space, {path: value})
        except KernelMissingError:
            continue
        except KernelError as problem:
            refused = refused or problem
    if refused is not None:
        raise refused


def has_ipv6(space: Namespace) -> bool:
    """Whether a namespace has settings of IPv6: a kernel without it (ipv6.disable=1) has none."""
    return space.run((_ROOT / "net/ipv6/conf").is_dir)


def normal(value: str) -> str:
    """A value as values are compared: the kernel separates numbers by tabs, people by blanks."""
    return " ".join(value.split())


def _read(path: str) -> str:
    try:
        return (_ROOT / path).read_text().strip()
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as problem:
        raise from_os_error(problem, f"cannot read sysctl {path}") from None


def _write(path: str, value: str) -> None:
    try:
        with (_ROOT / path).open("r+") as file:
            file.write(value or "\n")  # nothing would be written for an empty list
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as problem:
        raise from_os_error(problem, f'cannot set sysctl {path} to "{value}"') from None


def _missing(path: str) -> KernelMissingError:
    return KernelMissingError(2, f"sysctl {path} is not one of this network namespace")
