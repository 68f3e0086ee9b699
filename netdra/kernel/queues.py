"""The settings of a link's queues that only sysfs has: steering of packets, rates, limits; and those of its polling.

Follows the kernel's Documentation/ABI/testing/sysfs-class-net-queues and sysfs-class-net. Read and restored by
`netdra.steps.settings`, only where sysfs shows the calling thread's namespace: a mount of sysfs belongs to one.
"""

from __future__ import annotations

from collections.abc import Mapping

from netdra.kernel.sysfs import Sysfs

IGNORED: Mapping[str, str] = {
    "tx_timeout": "a counter",
    "traffic_class": "follows the channels",
    "byte_queue_limits/limit": "chosen by the kernel between its bounds",
    "byte_queue_limits/inflight": "a counter",
    "byte_queue_limits/stall_cnt": "a counter",
    "byte_queue_limits/stall_max": "a counter",
}
"""Files of a queue that are not compared, each with the reason."""
_LIMITS = "byte_queue_limits"
_POLLING = ("gro_flush_timeout", "napi_defer_hard_irqs", "threaded")
_files: dict[tuple[str, bool], tuple[str, ...]] = {}


def read(sysfs: Sysfs, name: str, index: int) -> dict[str, str]:
    """The settings that are not zero, by path below the link's folder; none where sysfs does not show the link.

    Args:
        sysfs: the calling thread's namespace's.
        name: the link's name.
        index: the link's index, by which its folder is recognised.
    """
    folder = f"class/net/{name}"
    if sysfs.number(f"{folder}/ifindex") != index:
        return {}
    values: dict[str, str] = {}
    with sysfs.folder(folder) as opened:
        own: dict[str, tuple[str, ...]] = {}
        paths: list[str] = []
        for queue in sysfs.listing(f"{folder}/queues"):
            direction = queue.partition("-")[0]
            if direction not in own:  # the queues of one direction of a link have the same files
                own[direction] = _files_of(sysfs, f"{folder}/queues/{queue}", direction)
            paths += [f"queues/{queue}/{file}" for file in own[direction]]
        for path in (*_POLLING, *paths):
            value = opened.read(path)
            if isinstance(value, str) and value.strip("0,"):
                values[path] = value
    return values


def change(sysfs: Sysfs, name: str, wanted: Mapping[str, str]) -> None:
    """Give files of `read` their former values, "" for zero.

    Raises:
        KernelError: the kernel refused.
    """
    for path, value in wanted.items():
        sysfs.write(f"class/net/{name}/{path}", value or "0")


def _files_of(sysfs: Sysfs, folder: str, direction: str) -> tuple[str, ...]:
    """The files of a queue that are compared: the same on all links of a kernel, but that some links have limits."""
    has_limits = sysfs.is_folder(f"{folder}/{_LIMITS}")
    if (direction, has_limits) not in _files:
        names = [entry for entry in sysfs.listing(folder) if entry != _LIMITS]
        names += [f"{_LIMITS}/{entry}" for entry in sysfs.listing(f"{folder}/{_LIMITS}")] if has_limits else []
        _files[direction, has_limits] = tuple(entry for entry in names if entry not in IGNORED)
    return _files[direction, has_limits]
