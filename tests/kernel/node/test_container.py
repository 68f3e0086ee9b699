"""In a container the kernel's settings are mounted read-only, and the driver has them writable for itself alone."""

from __future__ import annotations

import subprocess
import sys

_CONTAINER = """
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro,nosuid,nodev,noexec /proc/sys
exec setpriv --bounding-set="$0" --inh-caps="$0" "$@"
"""
_LOOK = """
from netdra.kernel import mounts
print(mounts.sysctl_trouble())
mounts.make_sysctls_writable()
print(mounts.sysctl_trouble())
"""


def looked(capabilities: str) -> list[str]:
    """The output before and after, in a mount namespace like a container's."""
    command = ("unshare", "--mount", "sh", "-c", _CONTAINER, capabilities, sys.executable, "-c", _LOOK)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_settings_that_are_read_only_are_made_writable() -> None:
    before, after = looked("+sys_admin")
    what, _, hint = before.partition("; ")
    assert what == "sysctls cannot be set: /proc/sys is mounted read-only"
    assert "CAP_SYS_ADMIN" in hint
    assert after == "None"


def test_without_cap_sys_admin_settings_remain_read_only_and_the_hint_names_the_capability() -> None:
    before, after = looked("-all,+net_admin")
    assert "CAP_SYS_ADMIN" in before
    assert after == before
