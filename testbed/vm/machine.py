"""Boot the SR-IOV machine, run a command in it, bring out what it printed and wrote, and leave nothing running.

Called by `python -m testbed.vm`. Only one machine runs at a time: it would slow the next one down past all limits.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.build import cache_root
from testbed.components import KUBERNETES, RUNTIME
from testbed.vm import hardware, initramfs
from testbed.vm.disk import make_disk
from testbed.vm.ingredients import Ingredients

BOOT_LIMIT = 240.0
_GUEST_SCRIPT = Path(__file__).with_name("guest.sh")
# On a busy host the emulated timer may be too late for the kernel's check of it, which ends in a panic. The mitigations
# of speculation and the initialisation of pages cost a twelfth of the processor here.
_KERNEL_ARGUMENTS = (
    "console=ttyS0 loglevel=4 panic=-1 no_timer_check mitigations=off init_on_alloc=0 "
    "intel_iommu=on iommu=pt rdinit=/init"
)
# The environment variables that the guest's processes need from outside, because they run the same programs from the
# same places.
_ENVIRONMENT = (
    "PATH",
    "HOME",
    "NETDRA_TESTBED_CACHE",
    "NETDRA_REPORT",
    "NETDRA_SEED",
    "NETDRA_DRAW",
    RUNTIME,
    KUBERNETES,
)
_READY = "machine: ready"
_NICE = -10


class MachineError(Exception):
    """The machine did not boot, or did not end in time; the text has its last phase and the end of its console."""


@dataclass
class _Progress:
    """How far a boot came; written by the reader of the guest's output and by the timer."""

    ready: bool = False
    stopped_after: float = 0.0


def run(
    command: Sequence[str],
    ingredients: Ingredients,
    results: Path,
    limit: float,
    environment: Mapping[str, str] | None = None,
    then: Sequence[str] = (),
    programs: Iterable[Path] = (),
) -> int:
    """Run a command in a fresh machine, from the current folder, and return its exit code.

    The guest sees the host's files and changes none of them, but for `results`, which it writes through to the host.
    That folder is emptied first; afterwards it has `output.log`, `console.log`, `dmesg.log` and the command's files.

    Args:
        command: the program and its arguments.
        ingredients: what to boot.
        results: the folder to share.
        limit: seconds that the command may take, once the machine is up.
        environment: variables that the command finds, beside those that it needs to find its programs.
        then: what is run after the machine was started again with the same disk, if the command succeeds: only the disk
            and `results` are as they were left.
        programs: what is on the disk from the start.

    Raises:
        MachineError: it did not boot, or was stopped because time was up.
    """
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    results = results.resolve()
    with _only_one(), tempfile.TemporaryDirectory(prefix="netdra-vm-") as folder:
        parts = _Parts(ingredients, Path(folder) / "initramfs", Path(folder) / "disk", results)
        initramfs.write(parts.archive, ingredients)
        make_disk(parts.disk, programs)
        status = 0
        for number, each in enumerate((command, then) if then else (command,), start=1):
            (results / "settings").write_text(_settings(each, ingredients, environment or {}))
            status = status or _boot(parts, "" if number == 1 else f"-{number}", limit)
    return status


@dataclass(frozen=True)
class _Parts:
    """The common parts of one machine's boots."""

    ingredients: Ingredients
    archive: Path
    disk: Path
    results: Path


def _boot(parts: _Parts, suffix: str, limit: float) -> int:
    """Boot with the settings of `parts`, run the command, and return its exit code.

    Raises:
        MachineError: see `run`.
    """
    results = parts.results
    arguments = f'{_KERNEL_ARGUMENTS} "guest={_GUEST_SCRIPT.resolve()}" "results={results}" "suffix={suffix}"'
    console = results / f"console{suffix}.log"
    command = hardware.command(parts.ingredients, parts.archive, parts.disk, arguments, results, console)
    status = results / "status"
    status.unlink(missing_ok=True)
    progress = _follow(command, results, limit)
    if status.exists():
        return int(status.read_text())
    raise MachineError(_explanation(progress, results, console))


def _settings(command: Sequence[str], ingredients: Ingredients, environment: Mapping[str, str]) -> str:
    """The shell assignments that the guest's script reads."""
    values = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | dict(environment)
    values |= {"MODULES": str(ingredients.kernel.modules), "FOLDER": str(Path.cwd()), "COMMAND": shlex.join(command)}
    values["UPLINK_MAC"] = hardware.UPLINK_MAC
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def _follow(command: Sequence[str], results: Path, limit: float) -> _Progress:
    """Pass the guest's output on until it powers off or its time is up."""
    progress = _Progress()
    with (
        (results / "qemu.log").open("wb") as complaints,
        (results / "output.log").open("a") as copy,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as qemu,
    ):
        _prefer(qemu.pid)
        assert qemu.stdout is not None
        timer = _stop_after(BOOT_LIMIT, qemu, progress)
        try:
            for line in qemu.stdout:
                copy.write(line)
                print(line, end="", flush=True)
                if line.startswith(_READY):
                    progress.ready = True
                    timer.cancel()
                    timer = _stop_after(limit, qemu, progress)
        finally:
            timer.cancel()
            qemu.kill()
    return progress


def _prefer(pid: int) -> None:
    """Let the machine have a core before anything else, as far as this user may.

    It is one thread that everything in the guest waits for, and a guest that has half a core is not a node: its kubelet
    takes minutes where real ones take seconds. A session is scheduled as a whole (sched(7), autogroups).
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _NICE)
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(_NICE), encoding="ascii")


def _stop_after(seconds: float, qemu: subprocess.Popen[str], progress: _Progress) -> threading.Timer:
    def stop() -> None:
        progress.stopped_after = seconds
        qemu.kill()

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    return timer


def _explanation(progress: _Progress, results: Path, console: Path) -> str:
    if progress.ready:
        what = "the machine ended before its command did"
        if progress.stopped_after:
            what = f"the command was stopped after {progress.stopped_after:.0f} s"
    else:
        what = (
            f"the machine did not boot within {BOOT_LIMIT:.0f} s"
            if progress.stopped_after
            else "the machine did not boot"
        )
    tails = [f"{what}; its output is in {results}"]
    for log in (results / "qemu.log", console):
        text = log.read_text(errors="replace")[-3000:].strip() if log.exists() else ""
        tails.append(f"--- the end of {log.name}:\n{text or '(empty)'}")
    return "\n".join(tails)


@contextmanager
def _only_one() -> Iterator[None]:
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / ".vm.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            started = time.monotonic()
            print("testbed: another SR-IOV machine is running, waiting for its end ...", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
            print(f"testbed: waited {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        yield
