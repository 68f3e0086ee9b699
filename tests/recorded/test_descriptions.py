"""The descriptions in tests/servers are true: they have exactly the facts of the recordings that discovery reads.

`make test-recorded` runs these tests where recordings are; `make test` does without.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from netdra.discovery.capture import anonymize, to_text
from netdra.discovery.scan import scan_recorded
from netdra.model.inventory import InventoryNode
from tests.servers import description
from tests.servers.facts import Facts, Trees

EACH_SERVER = pytest.mark.parametrize("name", description.NAMES)
SOMEWHERE = InventoryNode(name="somewhere")


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    return cache(lambda name: description.build(name, tmp_path_factory.mktemp(name)).root)


class TestRecordedServers(Facts):
    @pytest.fixture
    def tree(self, recorded: Trees) -> Trees:
        return recorded


@EACH_SERVER
def test_discovery_finds_the_same_in_the_described_and_the_recorded_tree(
    recorded: Trees, described: Trees, name: str
) -> None:
    """But for MAC addresses, of which equal ones must be equal in both, and others different."""
    of_recorded, of_described = (
        to_text(anonymize(scan_recorded(str(trees(name)), SOMEWHERE))).splitlines() for trees in (recorded, described)
    )
    assert of_described == of_recorded


@EACH_SERVER
def test_every_file_and_link_of_the_described_tree_is_in_the_recorded_one(
    recorded: Trees, described: Trees, name: str
) -> None:
    for path in described(name).rglob("*"):
        original = recorded(name) / path.relative_to(described(name))
        if path.is_symlink():
            assert path.readlink() == original.readlink()
        elif path.name == "address":
            assert len(path.read_text().strip()) == len(original.read_text().strip())
        elif path.name == "uevent":
            assert set(lines(path)) <= set(lines(original)), path
        elif path.is_file():
            assert lines(path) == lines(original), path


@EACH_SERVER
def test_no_function_that_has_to_do_with_networks_is_left_out(recorded: Trees, name: str) -> None:
    functions = {folder.name: folder.resolve() for folder in (recorded(name) / "bus/pci/devices").iterdir()}
    of_networks = {address: folder for address, folder in functions.items() if has_to_do_with_networks(folder)}
    above = {
        parent.name for folder in of_networks.values() for parent in folder.parents if (parent / "class").is_file()
    }
    assert set(description.read(name).pci) == of_networks.keys() | above


@EACH_SERVER
def test_no_address_of_the_recorded_server_is_in_its_description(recorded: Trees, name: str) -> None:
    text = (Path(description.__file__).parent / f"{name}.yaml").read_text()
    for interface in scan_recorded(str(recorded(name))).interfaces:
        own = interface.mac[
            -17:
        ]  # of an InfiniBand address, which begins with the subnet's prefix, what is the port's own
        assert not own.strip("0:") or own not in text


def has_to_do_with_networks(function: Path) -> bool:
    is_controller = (function / "class").read_text().startswith("0x02")
    return is_controller or any((function / entry).exists() for entry in ("net", "infiniband", "sriov_totalvfs"))


def lines(file: Path) -> list[str]:
    return file.read_text().strip().splitlines()
