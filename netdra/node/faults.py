"""Points at which a test may let the daemon die or hang, to see what happens then.

Called at each named point of prepare, attach, detach and unprepare; the names are in docs/crashes.md. Only the
environment variable `NETDRA_FAULT`, which no installation sets, makes a point do anything: `NAME=kill` ends the process
as a crash would, `NAME=hang` stops it where it is, as a kernel call that does not return would.
"""

from __future__ import annotations

import os
import signal
import threading

VARIABLE = "NETDRA_FAULT"
_NAME, _, _ACT = os.environ.get(VARIABLE, "").partition("=")


def point(name: str) -> None:
    """A place that a test can name; anywhere else it does nothing."""
    if name != _NAME:
        return
    if _ACT == "hang":
        # To this thread: another thread may take a signal to the process, later, while this one continues.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    else:
        os.kill(os.getpid(), signal.SIGKILL)
