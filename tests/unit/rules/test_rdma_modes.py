"""Pods share an RDMA device only on nodes in the RDMA namespace mode "shared": when written, and at Prepare."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from netdra.cli.main import cli
from netdra.discovery.capture import to_text
from netdra.model import documents
from netdra.model.node_network import InterfaceGroup, PublishedDevice
from netdra.model.plan import PlannedDevice
from netdra.review.objects import review
from netdra.review.offers import NodeOffer, Offers, offered, offering
from netdra.review.searches import asked_by_topology
from netdra.review.world import World
from netdra.rules import rdma
from testbed import yaml
from tests.builders import inventory, pf, shared, topology
from tests.plans import plan, step

WHOLE = "- {name: nic, type: host-device}\n- {name: roce, type: rdma, dependOn: [nic]}"
SHARE = """
- {name: nic, type: macvlan, selector: {cel: 'device.attributes["dra.networking"].rdma'}}
- {name: ip, type: tuning, dependOn: [nic]}
- {name: roce, type: rdma, dependOn: [ip]}
"""
POLICY = shared("share", "true", supportedCNIPlugins=[{"name": "macvlan"}])


def group(mode: str) -> InterfaceGroup:
    facts: dict[str, bool | int | str] = {"rdma": True, "rdmaMode": mode} if mode else {}
    return InterfaceGroup(
        type="pf", count=1, listed=("ens1",), devices=(PublishedDevice(policy="share"),), attributes=facts
    )


@pytest.mark.parametrize(
    ("steps", "modes", "errors", "warnings"),
    [
        (SHARE, ["shared"], 0, 0),
        (SHARE, ["exclusive"], 1, 0),
        (SHARE, ["exclusive", "shared"], 0, 1),
        (SHARE, [""], 0, 0),
        (SHARE, ["", "exclusive"], 1, 0),
        (WHOLE, ["exclusive"], 0, 0),
        (SHARE.replace("type: tuning", "type: rdma, config: {rdmaDevice: '{{ nic.rdmaDevice }}'}"), [], 1, 0),
    ],
    ids=["shared", "exclusive", "both", "no-rdma", "one-with-rdma", "moved", "named"],
)
def test_a_topology_that_shares_an_rdma_device_is_rejected_if_all_nodes_are_exclusive(
    steps: str, modes: list[str], errors: int, warnings: int
) -> None:
    written = topology(steps, name="roce")
    asked = asked_by_topology(written)
    nodes = tuple(NodeOffer(f"n{at}", tuple(offered([group(mode)], asked))) for at, mode in enumerate(modes))
    found = review(written, World(policies={"share": POLICY}, offers=Offers(nodes)))
    of_mode = [
        [entry.text for entry in part if "namespace mode" in entry.text] for part in (found.errors, found.warnings)
    ]
    named = [entry for entry in found.errors if "rdmaDevice" in entry.text]
    assert (len(of_mode[0]) + len(named[:1]), len(of_mode[1])) == (errors, warnings), found


def test_nodes_of_different_modes_are_different_kinds_of_nodes() -> None:
    assert len({offering([group(mode)]) for mode in ("", "shared", "exclusive")}) == 3


@pytest.mark.parametrize(("mode", "code"), [("shared", 0), ("exclusive", 1)])
def test_validate_rejects_a_shared_rdma_device_of_an_inventory_in_exclusive_mode(
    tmp_path: Path, mode: str, code: int
) -> None:
    (tmp_path / "node.json").write_text(to_text(inventory(pf("ens1", rdma_mode=mode, rdma_device="mlx5_0"))))
    objects = [documents.plain(POLICY), documents.plain(topology(SHARE, name="roce"))]
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    done = CliRunner().invoke(cli, ["validate", str(tmp_path)])
    assert done.exit_code == code, done.output
    assert ('the RDMA namespace mode of the node is "exclusive"' in done.output) is bool(code)


def test_prepare_rejects_it_for_the_device_that_was_allocated() -> None:
    device = PlannedDevice(request="r", pool="p", device="ens1", share_id="s", rdma_mode="exclusive")

    def found(kind: str, device: PlannedDevice) -> list[str]:
        steps = (step("nic", kind, "net1", device=device), step("roce", "rdma", "net1", after=["nic"]))
        return [finding.text for finding in rdma.check([plan(*steps)])]

    (text,) = found("ipvlan", device)
    assert 'step "roce" (rdma): it shares the RDMA device of device "ens1"' in text
    assert found("ipvlan", msgspec.structs.replace(device, rdma_mode="shared")) == []
    assert found("host-device", device) == []
