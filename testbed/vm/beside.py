"""A control plane and a cloud outside the SR-IOV machine, for a node inside it: there they would start for minutes.

So would helm run for long: netdra's manifests are rendered outside, too.

Started by `python -m testbed.vm run --control-plane`, and joined in the machine by `joined_control_plane` and
`joined_cloud`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from testbed import helm
from testbed.access import Access, joined
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.openstack.cloud import Cloud
from testbed.vm.hardware import OUTSIDE

PATIENCE = 180.0  # seconds: what takes one outside takes twenty in the machine
_VARIABLE = "NETDRA_CONTROL_PLANE"


@contextmanager
def control_plane() -> Iterator[Mapping[str, str]]:
    """Run a control plane and a cloud; what comes is the environment in which `joined_…` and `helm` find all.

    Raises:
        ProcessError: a component does not become ready.
        BuildError: a component is not built.
        HelmError: netdra's chart is wrong.
    """
    with (
        tempfile.TemporaryDirectory(prefix="netdra-") as folder,
        ControlPlane(Settings(hosts=[OUTSIDE])) as plane,
        Cloud() as cloud,
    ):
        plane.share(Path(folder), f"https://{OUTSIDE}:{urlsplit(plane.server).port}")
        cloud.share(Path(folder), OUTSIDE)
        rendered = Path(folder) / "rendered"
        helm.keep(rendered, {}, helm.WITH_ALL)
        yield {_VARIABLE: folder, helm.RENDERED: str(rendered)}


def joined_control_plane() -> Access:
    """The control plane outside this machine.

    Raises:
        KeyError: the machine was started without one.
    """
    plane = joined(Path(os.environ[_VARIABLE]))
    plane.patience = PATIENCE
    return plane


def joined_cloud() -> Cloud:
    """The cloud outside this machine.

    Raises:
        KeyError: the machine was started without one.
    """
    return Cloud.joined(Path(os.environ[_VARIABLE]))
