"""Starts programs that may compute and print, and nothing else. Run by `netdra.cni.confined` as a program of its own.

A CNI plugin that is only asked for its versions needs no rights. So it is a user that owns nothing, without
capabilities (capabilities(7), "Effect of user ID changes"), in a process namespace of its own, without a network, and
it writes no file (Documentation/userspace-api/landlock.rst). This process alone may be forked for that: it has one
thread. It knows nothing but the standard library, because it starts again whenever there is something to ask.

Each request has a socket. The number that is sent there is the program's status; a text that begins with its error
number states why it was not run. When the other end is closed, the program is ended with all that it started: its
parent ends, which is the first process of its namespace (pid_namespaces(7)). That one has no rights either; it cannot
be killed from inside, nor traced, and no process needs CAP_KILL.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NoReturn

REQUEST_BYTES = 65536
STREAMS = 4
"""The descriptors of a request: what the program reads, prints to, complains to, and the socket for its status."""
FIRST_USER = 1_900_000_000
"""Beyond the users of systemd's and Kubernetes' containers. Each of the next programs is another user: none of them
can signal another one, or take what another may have of processes."""
_USERS = 1 << 16
_MIB = 1024 * 1024
_LIMITS = (
    (resource.RLIMIT_CORE, 0),
    (resource.RLIMIT_FSIZE, 0),
    (resource.RLIMIT_NOFILE, 256),
    (resource.RLIMIT_NPROC, 128),
    # Go reserves gigabytes of addresses without access (RLIMIT_AS), and only the data counts (RLIMIT_DATA).
    (resource.RLIMIT_DATA, 512 * _MIB),
)
_MAX_COPY = 256 * _MIB
# Python ignores these; a plugin must not inherit that.
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
_BUSY_TRIES, _BUSY_PAUSE = 10, 0.02
_CLONE_NEWIPC, _CLONE_NEWPID, _CLONE_NEWNET = 0x08000000, 0x20000000, 0x40000000
_PR_SET_NO_NEW_PRIVS = 38
# The same numbers on every architecture, as all system calls since Linux 5.1.
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION, _LANDLOCK_PATH = 1, 1
_WRITE, _CHANGE_FOLDERS, _TRUNCATE = 1 << 1, 0x1FF0, 1 << 14
_TRUNCATE_SINCE = 3
_NO_USER = (
    "the driver is not allowed to change the program's user; add the capabilities SETUID and SETGID to its container"
)
_libc = ctypes.CDLL(None, use_errno=True)


def main(control: socket.socket) -> None:
    """Start a program for each request, until the other end of the socket is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.disable()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (without pathlib it starts sooner)
        if int(name) > 2:  # PEP 446 closes others, unless they were made inheritable
            with suppress(OSError):
                os.close(int(name))
    for namespace in (_CLONE_NEWNET, _CLONE_NEWIPC):
        with suppress(OSError):
            _unshare(namespace)
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    for number in count():
        taken, end = os.pipe()
        # The next child alone is to be in a new namespace; where none may be made, it is in this process's.
        with suppress(OSError):
            _unshare(_CLONE_NEWPID)
        if os.fork() == 0:
            _guard(control, end, FIRST_USER + number % _USERS)
        _libc.setns(own, _CLONE_NEWPID)
        os.close(end)
        # The parent of a program is there before its request is, which saves the time of a fork.
        is_over = not os.read(taken, 1)
        os.close(taken)
        if is_over:
            return


def _guard(control: socket.socket, taken: int, user: int) -> NoReturn:
    """Take one request, drop all rights, run its program, and end it when no caller waits for it any more."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _sacrifice()
        processes = os.open("/proc/self/fd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        request, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES, STREAMS)
        if request:
            os.write(taken, b"1")
            control.close()
            _serve(request, descriptors, user, processes)
    finally:
        os._exit(0)


def _serve(request: bytes, descriptors: list[int], user: int, processes: int) -> None:
    status = socket.socket(fileno=descriptors[-1])
    what = ""
    try:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        root, path, seconds, *environment = request.split(b"\0")
        os.chroot(root)
        os.chdir("/")
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        _forbid_writing()
        if os.geteuid() == 0:
            what = _NO_USER
            os.setgroups(())
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            what = ""
        program = path if os.access(path, os.X_OK) else _copy(file, processes)
        _limit(int(seconds))
        variables = dict(each.split(b"=", 1) for each in environment)
        _wait(spawn(program, (path,), variables, tuple(descriptors[:-1])), status)
    except OSError as problem:
        with suppress(OSError):
            status.send(f"{problem.errno or errno.EIO} {what}".encode())


def _wait(child: int, status: socket.socket) -> None:
    poll = select.poll()
    ended = os.pidfd_open(child)
    for waited in (status.fileno(), ended):
        poll.register(waited, select.POLLIN)
    if ended in {descriptor for descriptor, _ in poll.poll()}:
        _, how = os.waitpid(child, 0)
        status.send(str(os.waitstatus_to_exitcode(how)).encode())
    # If this process is not the first one of a namespace, its end kills no other process.
    with suppress(OSError):
        os.killpg(child, signal.SIGKILL)


def spawn(
    program: bytes | str, argv: Sequence[bytes | str], environment: Mapping[Any, Any], descriptors: tuple[int, ...]
) -> int:
    """Start a program in a group of its own, with these as its first descriptors, and return its process.

    All other descriptors of this process are closed at exec (PEP 446).
    """
    actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(descriptors)]
    for attempt in range(_BUSY_TRIES):
        try:
            return os.posix_spawn(
                program,
                list(argv),
                environment,
                file_actions=actions,
                setpgroup=0,
                setsigmask=(),
                setsigdef=_DEFAULT_SIGNALS,
            )
        except OSError as problem:
            # The binary is just being overwritten by a copy. That takes milliseconds, and no event reports its end.
            if problem.errno != errno.ETXTBSY or attempt == _BUSY_TRIES - 1:
                raise
            time.sleep(_BUSY_PAUSE)
    raise AssertionError("unreachable")


def _sacrifice() -> None:
    """Be the one that the kernel ends if the memory of the container is not enough."""
    with suppress(OSError):
        file = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(file, b"1000")
        os.close(file)


def _forbid_writing() -> None:
    """Have no file written, made or removed from now on, and nothing gained by a program's set-user-ID bit."""
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    version = _libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION)
    if version < 1:  # the kernel is older, or without it: what keeps the program from writing is its user
        return
    files = _WRITE | (_TRUNCATE if version >= _TRUNCATE_SINCE else 0)
    rules = _libc.syscall(_LANDLOCK_CREATE, struct.pack("=Q", files | _CHANGE_FOLDERS), ctypes.c_size_t(8), 0)
    if rules < 0:
        return
    with suppress(OSError):
        null = os.open("/dev/null", os.O_PATH | os.O_CLOEXEC)
        _libc.syscall(_LANDLOCK_ADD, rules, _LANDLOCK_PATH, struct.pack("=Qi", files, null), 0)
    _libc.syscall(_LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)


def _copy(file: int, processes: int) -> str:
    """A copy in memory of a program that only its owner may run, or whose folder others may not enter.

    A descriptor of the file itself would not do: who runs it needs the right to (execveat(2)).
    """
    if os.fstat(file).st_size > _MAX_COPY:
        raise PermissionError(errno.EACCES, "")
    written = os.memfd_create("cni-plugin")
    while os.sendfile(written, file, None, _MAX_COPY):
        pass
    # A file that is open for writing cannot be executed (ETXTBSY).
    program = os.open(str(written), os.O_RDONLY | os.O_CLOEXEC, dir_fd=processes)
    os.close(written)
    # The interpreter of a script opens it again by its descriptor.
    os.set_inheritable(program, os.pread(program, 2, 0) == b"#!")
    return f"/proc/self/fd/{program}"


def _limit(seconds: int) -> None:
    for limit, value in (*_LIMITS, (resource.RLIMIT_CPU, seconds)):
        _, most = resource.getrlimit(limit)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(limit, (value, value))


def _unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main(socket.socket(fileno=0))
