"""A PF that cannot be read has the VFs that it had: pods may have them. One that is gone has none."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from netdra.discovery import live
from netdra.discovery.facts import MachineFacts
from netdra.discovery.live import Kernel
from netdra.kernel.sysfs import Sysfs
from tests import refusing
from tests.refusing import Refusal
from tests.trees import Tree

PF, VF = "0000:3b:00.0", "0000:3b:02.0"


@pytest.mark.parametrize("number", refusing.ERRNOS, ids=errno.errorcode.get)
def test_of_a_pf_that_cannot_be_read_no_vf_is_gone(tmp_path: Path, number: int) -> None:
    tree = Tree(tmp_path)
    tree.pci(PF)
    tree.sriov(PF, [VF])
    facts = MachineFacts()
    with Kernel(Sysfs(str(tree))) as kernel:
        live.read_pf(kernel, facts, PF)
        live.read_functions(kernel, facts)
        assert set(facts.functions) == {VF}
        with refusing.counting() as counted:
            live.read_pf(kernel, facts, PF)
        for first in range(1, counted.calls + 1):
            for length in (1, counted.calls):
                with refusing.refusing(Refusal(number, first, length)) as refusal:
                    live.read_pf(kernel, facts, PF)
                live.read_functions(kernel, facts)
                assert set(facts.functions) == {VF}, str(refusal)
        shutil.rmtree(tmp_path / "devices" / "pci0000:00" / PF)
        live.read_pf(kernel, facts, PF)
        live.read_functions(kernel, facts)
        assert not facts.functions
