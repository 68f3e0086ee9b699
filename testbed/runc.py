"""runc for a machine on which limits must not be raised: takes out of a bundle what would need that right.

CRI-O asks for it and, unlike containerd, cannot be determined not to. Started by CRI-O in runc's place; it becomes
runc.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Adapt the bundle if one is named, and become runc."""
    for place, argument in enumerate(arguments):
        if argument in ("--bundle", "-b"):
            _mend(Path(arguments[place + 1], "config.json"))
        elif argument.startswith("--bundle="):
            _mend(Path(argument.partition("=")[2], "config.json"))
    os.execvp("runc", ("runc", *arguments))


def _mend(path: Path) -> None:
    configuration = json.loads(path.read_text())
    configuration.get("process", {}).pop("oomScoreAdj", None)
    configuration.get("linux", {}).get("resources", {}).pop("hugepageLimits", None)
    path.write_text(json.dumps(configuration))


if __name__ == "__main__":
    main(sys.argv[1:])
