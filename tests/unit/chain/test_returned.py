"""The children of devices that others have are known to the next pod, or a write that failed is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdra.chain import holders, returned
from netdra.chain.returned import Known
from netdra.model.errors import TemporaryError

CHILD = Known("eth1", 7, 3, 'macvlan "m0"')


def test_children_of_others_are_read_back_until_there_are_none(tmp_path: Path) -> None:
    (tmp_path / holders.RETURNED).mkdir()
    for known in ((CHILD,), (), (CHILD, Known("eth2", 7, 4, "vlan"))):
        returned._write_known(tmp_path, known)
        assert returned._read_known(tmp_path) == known


def test_children_of_others_that_cannot_be_written_down_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(TemporaryError, match="No such file or directory"):
        returned._write_known(tmp_path, (CHILD,))
