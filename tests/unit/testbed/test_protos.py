"""The messages in the package are those of `protos/`."""

from __future__ import annotations

from pathlib import Path

from testbed import protos


def test_the_generated_messages_are_those_of_the_protos(tmp_path: Path) -> None:
    generated = protos.generate(tmp_path)
    committed = protos.ROOT / protos.PACKAGE
    assert {path.name: path.read_text() for path in generated} == {
        path.name: path.read_text() for path in committed.glob("*_pb2.py*")
    }, "run `make protos`"
