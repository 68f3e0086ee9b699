"""The doctor names programs that netdra installed and would not remove any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdra.doctor.node_look import Places, kept_plugins
from netdra.doctor.node_verdicts import KeptPlugin, NodeFacts, verdicts


@pytest.fixture
def node(tmp_path: Path) -> Places:
    """A node with two programs of netdra's and a foreign one, whose processes can all be seen."""
    for name in ("ovs", "macvlan"):
        version = tmp_path / "opt/cni/bin/.netdra" / name / ("a" * 64) / name
        version.parent.mkdir(parents=True)
        version.write_text("#!/bin/sh\n")
        (tmp_path / "opt/cni/bin" / name).hardlink_to(version)
    (tmp_path / "opt/cni/bin/bridge").write_text("#!/bin/sh\n")
    process(tmp_path, 2, "", comm="kthreadd")
    return Places(root=tmp_path)


def process(root: Path, number: int, *words: str, comm: str = "netdra") -> None:
    folder = root / "proc" / str(number)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_text("\0".join(words))
    (folder / "comm").write_text(f"{comm}\n")


def test_a_program_without_a_pod_that_keeps_it_is_named_with_the_way_to_remove_it(node: Places) -> None:
    process(node.root, 70, "python3", "/usr/bin/netdra", "cni-plugin", "install", "ovs", "--source=/plugin/ovs")
    process(node.root, 71, "netdra", "cni-plugin", "remove", "macvlan", "--stay")
    kept = kept_plugins(node)
    assert kept == (
        KeptPlugin("macvlan", "/opt/cni/bin", "absent"),
        KeptPlugin("ovs", "/opt/cni/bin", "running"),
    )
    found = {each.check: each for each in verdicts(NodeFacts(kept_plugins=kept)) if "installed" in each.seen}
    assert (found["CNI plugin macvlan"].level, found["CNI plugin ovs"].level) == ("warning", "ok")
    assert "but no pod of a CNIPlugin maintains it" in found["CNI plugin macvlan"].seen
    assert "netdra cni-plugin remove macvlan --cni-folder /opt/cni/bin" in found["CNI plugin macvlan"].fix


def test_where_the_nodes_processes_cannot_be_seen_nothing_is_claimed(node: Places) -> None:
    (node.root / "proc/2/comm").write_text("sh\n")
    kept = kept_plugins(node)
    assert {each.keeper for each in kept} == {"unknown"}
    found = [each for each in verdicts(NodeFacts(kept_plugins=kept)) if "installed" in each.seen]
    assert {each.level for each in found} == {"ok"}
    assert all("it is unknown whether a pod maintains it" in each.seen for each in found)


def test_a_plugin_left_in_the_store_after_a_forced_removal_is_listed_as_absent(node: Places) -> None:
    (node.root / "opt/cni/bin/ovs").unlink()
    assert KeptPlugin("ovs", "/opt/cni/bin", "absent") in kept_plugins(node)


def test_a_node_without_programs_of_netdra_has_none(tmp_path: Path) -> None:
    assert kept_plugins(Places(root=tmp_path)) == ()
