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
        files: dict[str, tuple[str, ...]] = {}
        paths: list[str] = []
        for queue in sysfs.listing(f"{folder}/queues"):
            # The queues of one direction of a link have the same files; those of another link may lack limits.
            direction = queue.partition("-")[0]
            if direction not in files:
                files[direction] = _files_of(sysfs, f"{folder}/queues/{queue}")
            paths += [f"queues/{queue}/{file}" for file in files[direction]]
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


def _files_of(sysfs: Sysfs, folder: str) -> tuple[str, ...]:
    """The files of a queue that are compared."""
    names = [entry for entry in sysfs.listing(folder) if entry != _LIMITS]
    names += [f"{_LIMITS}/{entry}" for entry in sysfs.listing(f"{folder}/{_LIMITS}")]
    return tuple(entry for entry in names if entry not in IGNORED)
