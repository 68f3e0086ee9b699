"""A process drops the rights that it no longer needs: to open, connect, start, or signal anything.

Called by `netdra.workers.process` when all that a worker needs is loaded. From then on it reads tasks, computes, and
writes answers; an attacker who takes it over by a task has nothing else either: not the token of its pod, nor its
network. The kernel holds it to that by a filter of system calls (seccomp(2),
Documentation/userspace-api/seccomp_filter.rst).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
from collections.abc import Iterable

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 4, 38, 22, 2
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
_NUMBER, _ARCHITECTURE = 0, 4  # places in struct seccomp_data
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000

_X86_64 = {
    "read": 0,
    "write": 1,
    "close": 3,
    "fstat": 5,
    "poll": 7,
    "lseek": 8,
    "mmap": 9,
    "mprotect": 10,
    "munmap": 11,
    "brk": 12,
    "rt_sigaction": 13,
    "rt_sigprocmask": 14,
    "rt_sigreturn": 15,
    "writev": 20,
    "sched_yield": 24,
    "mremap": 25,
    "madvise": 28,
    "nanosleep": 35,
    "getpid": 39,
    "exit": 60,
    "gettimeofday": 96,
    "getrusage": 98,
    "times": 100,
    "sigaltstack": 131,
    "gettid": 186,
    "futex": 202,
    "sched_getaffinity": 204,
    "restart_syscall": 219,
    "clock_gettime": 228,
    "clock_nanosleep": 230,
    "exit_group": 231,
    "getrandom": 318,
    "rseq": 334,
}
_AARCH64 = {
    "close": 57,
    "lseek": 62,
    "read": 63,
    "write": 64,
    "writev": 66,
    "ppoll": 73,
    "fstat": 80,
    "exit": 93,
    "exit_group": 94,
    "futex": 98,
    "nanosleep": 101,
    "clock_gettime": 113,
    "clock_nanosleep": 115,
    "rseq": 293,
    "sched_getaffinity": 123,
    "sched_yield": 124,
    "restart_syscall": 128,
    "sigaltstack": 132,
    "rt_sigaction": 134,
    "rt_sigprocmask": 135,
    "rt_sigreturn": 139,
    "times": 153,
    "getrusage": 165,
    "gettimeofday": 169,
    "getpid": 172,
    "gettid": 178,
    "brk": 214,
    "munmap": 215,
    "mremap": 216,
    "mmap": 222,
    "mprotect": 226,
    "madvise": 233,
    "getrandom": 278,
}
_MACHINES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}
"""Machine -> its number for the filter (linux/audit.h), and its system calls that a worker needs."""


class _Program(ctypes.Structure):
    """A `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def confine() -> str:
    """Drop all rights except computing; the reason why that is not possible here, or "".

    Without the filter, where the kernel or the machine has none, what limits can hold is held anyway.
    """
    for limit, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NOFILE, 3)):
        resource.setrlimit(limit, (value, value))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    for option, value in ((_PR_SET_DUMPABLE, 0), (_PR_SET_NO_NEW_PRIVS, 1)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            return f"prctl({option}): {os.strerror(ctypes.get_errno())}"
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return f"no filter of system calls for {platform.machine()}"
    rules = _rules(machine[0], sorted(machine[1].values()))
    program = _Program(len(rules) // 8, rules)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(program), 0, 0) != 0:
        return f"the kernel takes no filter of system calls: {os.strerror(ctypes.get_errno())}"
    return ""


def _rules(machine: int, allowed: Iterable[int]) -> bytes:
    """The filter: another machine's calls end the process, these are allowed, all others are not permitted."""
    rules = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, machine), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    for number in allowed:
        rules += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    rules.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("=HBBI", *rule) for rule in rules)
