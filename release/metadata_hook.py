"""hatchling's metadata hook: a package names the addresses of the project's home, if it has one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_HOME = "release/home.toml"


class HomeHook(MetadataHookInterface):
    """Adds the project's addresses to the metadata of wheels and sdists."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `urls`, without those that are empty."""
        home = tomllib.loads((Path(self.root) / _HOME).read_text(encoding="utf-8"))
        changes = home["browse"].replace("{path}", "CHANGELOG.md")
        found = {"Homepage": home["docs"], "Source": home["source"], "Issues": home["issues"], "Changelog": changes}
        metadata["urls"] = {name: address for name, address in found.items() if address}
