"""Recorded sysfs trees of real servers, which are not part of the project: unpacked for the tests that read them.

They are looked for in the folder that NETDRA_FIXTURES names, or in `shared/fixtures` beside the checkout. A test that
needs one fails, and says this, where there is none.
"""

from __future__ import annotations

import os
import re
import tarfile
from pathlib import Path

import pytest

_NEEDED = re.compile(
    r"""[^/]+/sys/(
        class/(net|infiniband)/.* | bus/pci/devices/[^/]*
        | devices/virtual/net/.*
        | devices/pci[^/]*(/[0-9a-f:]+\.[0-7])*(/(net|infiniband)(/[^/]+)*)?(/[^/]+)?
    )\Z""",
    re.VERBOSE,
)


def unpack(name: str, target: Path) -> Path:
    """Unpack what discovery reads of the tree `name`, and return the folder that stands for /sys."""
    folder = Path(os.environ.get("NETDRA_FIXTURES") or Path(__file__).parents[2] / "shared" / "fixtures")
    archive = folder / f"{name}.tar.gz"
    if not archive.is_file():
        pytest.fail(f"recorded tree {archive} is not there; NETDRA_FIXTURES names the folder of such trees")
    with tarfile.open(archive) as packed:
        members = [each for each in packed if _NEEDED.match(each.name)]
        packed.extractall(target, members, filter="tar")
    return target / name / "sys"
