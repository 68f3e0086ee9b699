"""How the packages of one of netdra's extras are installed: from the same source as netdra itself.

netdra is not on PyPI. A name there may belong to another project, so no text advises a user to install `netdra` by its
name.
"""

from __future__ import annotations

from netdra import __version__


def how_to_install(extra: str, version: str = __version__) -> str:
    """The command that installs an extra, for a hint.

    Args:
        extra: `cluster` or `registry`.
        version: netdra's.
    """
    if version.endswith(".dev0"):  # the version of sources; a build has its own
        return f"in the folder of netdra's sources: pip install --editable '.[{extra}]'"
    return f"with the wheel that netdra was installed from: pip install './netdra-{version}-py3-none-any.whl[{extra}]'"
