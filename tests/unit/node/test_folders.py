"""A path lies in a folder where its links lead there, in the root that plugins see."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdra.node.permits import lies_in, resolved


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a folder that is allowed, and links that lead out of it and into it."""
    for folder in ("var/lib/cni/networks", "etc/cron.d", "var/lib/cni-other"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "var/lib/cni/out").symlink_to("/etc")
    (tmp_path / "var/lib/cni/up").symlink_to("../../../etc")
    (tmp_path / "into").symlink_to("/var/lib/cni/networks")
    (tmp_path / "loop").symlink_to("/loop")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "lies"),
    [
        ("/var/lib/cni", True),
        ("/var/lib/cni/networks/new/folder", True),
        ("/into/net", True),
        ("//var/./lib/cni//x", True),
        ("/var/lib/cni-other", False),
        ("/var/lib", False),
        ("/var/lib/cni/../../../etc", False),
        ("/var/lib/cni/out/cron.d", False),
        ("/var/lib/cni/up/cron.d", False),
        ("/var/lib/cni/out/../var/lib/cni", True),
        ("/loop/x", False),
        ("var/lib/cni", False),
        ("/var/lib/cni\0", False),
        ("", False),
    ],
)
def test_a_path_lies_where_its_links_lead(root: Path, path: str, lies: bool) -> None:
    assert lies_in(path, ["/var/lib/cni"], str(root)) is lies


def test_an_allowed_folder_may_be_a_link_itself(root: Path) -> None:
    assert lies_in("/var/lib/cni/networks/x", ["/into"], str(root))
    assert not lies_in("/etc", ["/into"], str(root))


def test_the_whole_root_may_be_allowed(root: Path) -> None:
    assert lies_in("/etc/cron.d", ["/"], str(root))
    assert not lies_in("/etc/cron.d", [], str(root))


def test_links_are_followed_in_the_root_that_plugins_see(root: Path) -> None:
    assert resolved("/var/lib/cni/out/cron.d", str(root)) == "/etc/cron.d"
    assert resolved("/../../etc", str(root)) == "/etc"
