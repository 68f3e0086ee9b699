"""Where the recordings are: NETDRA_FIXTURES names their folder. They are not part of the project.

A recording is `<server>.tar.gz` with the tree `<server>/sys`, as `tests/servers` names the servers.
"""

from __future__ import annotations

import os
import re
import tarfile
from functools import cache
from pathlib import Path

import pytest

from testbed import archives
from tests.confined import PLACES
from tests.servers.facts import Trees

_NEEDED = re.compile(
    r"""[^/]+/sys/(
        class/(net|infiniband)/.* | bus/pci/devices/[^/]*
        | devices/virtual/net/.*
        | devices/pci[^/]*(/[0-9a-f:]+\.[0-7])*(/(net|infiniband)(/[^/]+)*)?(/[^/]+)?
    )\Z""",
    re.VERBOSE,
)


@pytest.fixture(scope="session")
def recordings(pytestconfig: pytest.Config) -> Path:
    folder = os.environ.get("NETDRA_FIXTURES")
    if not folder:
        pytest.fail("NETDRA_FIXTURES is not set: it names the folder of the recorded trees", pytrace=False)
    pytestconfig.stash[PLACES].allow(folder)
    return Path(folder)


@pytest.fixture(scope="session")
def recorded(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Trees:
    """A recorded tree for discovery, unpacked; the folder that stands for /sys."""

    @cache
    def unpack(name: str) -> Path:
        target = tmp_path_factory.mktemp("recorded")
        archive = recordings / f"{name}.tar.gz"
        if not archive.is_file():
            pytest.fail(f"{recordings}, which NETDRA_FIXTURES names, has no {archive.name}", pytrace=False)
        with tarfile.open(archive) as packed:
            archives.unpack(packed, target, [each for each in packed if _NEEDED.match(each.name)])
        return target / name / "sys"

    return unpack
