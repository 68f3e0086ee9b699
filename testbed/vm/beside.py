"""A control plane outside the SR-IOV machine, for a node inside it: an emulated API server would take minutes to start.

Started by `python -m testbed.vm run --control-plane`, and joined in the machine by `joined_control_plane`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from testbed.access import Access, joined
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.vm.hardware import OUTSIDE

PATIENCE = 180.0  # seconds: what takes one outside takes twenty in the machine
_VARIABLE = "NETDRA_CONTROL_PLANE"


@contextmanager
def control_plane() -> Iterator[Mapping[str, str]]:
    """Run a control plane; what comes is the environment in which `joined_control_plane` finds it.

    Raises:
        ProcessError: a component does not become ready.
        BuildError: a component is not built.
    """
    with tempfile.TemporaryDirectory(prefix="netdra-") as folder, ControlPlane(Settings(hosts=[OUTSIDE])) as plane:
        plane.share(Path(folder), f"https://{OUTSIDE}:{urlsplit(plane.server).port}")
        yield {_VARIABLE: folder}


def joined_control_plane() -> Access:
    """The control plane outside this machine.

    Raises:
        KeyError: the machine was started without one.
    """
    plane = joined(Path(os.environ[_VARIABLE]))
    plane.patience = PATIENCE
    return plane
