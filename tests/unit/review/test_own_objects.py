"""Objects that netdra writes itself pass its own review: the DeviceClasses of PodNetworks."""

from __future__ import annotations

from pathlib import Path

import yaml
from click.testing import CliRunner

from netdra.cli.validate import command as validate
from netdra.model import documents
from netdra.model.pod_network import PodNetwork
from netdra.networks import shares
from tests.unit.rules.test_any_value import SOUND


def test_classes_of_pod_networks_have_no_remarks(tmp_path: Path) -> None:
    networks = [documents.convert(value, PodNetwork, "test") for value in SOUND["PodNetwork"]]
    classes = {each.metadata.name: documents.plain(each) for each in shares.device_classes(networks)}
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(classes.values()))
    done = CliRunner().invoke(validate, [str(tmp_path), "--strict"])
    assert done.output == f"netdra: {len(classes)} objects checked, no problems\n"
    assert classes
