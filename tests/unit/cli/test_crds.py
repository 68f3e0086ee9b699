"""`netdra crds` prints the definitions or writes them as files."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from netdra.cli.crds import command
from netdra.model import kinds
from testbed import yaml


def test_prints_every_definition_as_one_stream() -> None:
    done = CliRunner().invoke(command)

    assert done.exit_code == 0
    assert [document["kind"] for document in yaml.safe_load_all(done.stdout)] == ["CustomResourceDefinition"] * len(
        kinds.KINDS
    )


def test_writes_one_file_for_each_kind_and_prints_no_data(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["--output-dir", str(tmp_path / "crds")])

    assert done.exit_code == 0
    assert done.stdout == ""
    assert {path.name for path in (tmp_path / "crds").iterdir()} == {f"{kind.name}.yaml" for kind in kinds.KINDS}


def test_a_file_where_the_folder_should_be_is_bad_usage(tmp_path: Path) -> None:
    (tmp_path / "crds").touch()

    assert CliRunner().invoke(command, ["--output-dir", str(tmp_path / "crds")]).exit_code == 2
