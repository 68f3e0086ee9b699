"""hatchling's build hook: a package knows its version, and the sources do not change.

An editable installation runs the sources, so it keeps the version that they name.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MODULE = "netdra/__init__.py"


class VersionHook(BuildHookInterface[Any]):
    """Packs `netdra/__init__.py` with the version of the build, in wheels and in sdists."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Replace the file in the package; hatchling calls the kinds of a wheel `standard` and `editable`."""
        if version == "editable":
            return
        source = (Path(self.root) / _MODULE).read_text(encoding="utf-8")
        lines = source.splitlines(keepends=True)
        (at,) = (number for number, line in enumerate(lines) if line.startswith("__version__ = "))
        lines[at] = f'__version__ = "{self.metadata.version}"\n'
        self._folder = tempfile.TemporaryDirectory(prefix="netdra-version-")
        stamped = Path(self._folder.name) / "__init__.py"
        stamped.write_text("".join(lines), encoding="utf-8")
        build_data["force_include"][str(stamped)] = _MODULE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copy."""
        if version != "editable":
            self._folder.cleanup()
