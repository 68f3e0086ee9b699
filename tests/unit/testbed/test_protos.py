"""The messages in the package are those of `protos/`."""

from __future__ import annotations

from pathlib import Path

from testbed import protos


def test_the_generated_messages_are_those_of_the_protos(tmp_path: Path) -> None:
    generated = protos.generate(tmp_path)
    assert {path: (tmp_path / path).read_text() for path in generated} == {
        path.relative_to(protos.ROOT): path.read_text()
        for package in protos.PACKAGES
        for path in (protos.ROOT / package).glob("*_pb2.py*")
    }, "run `make protos`"
    assert sorted(path.stem for path in protos.SOURCES.iterdir()) == sorted(
        name for names in protos.PACKAGES.values() for name in names
    )
