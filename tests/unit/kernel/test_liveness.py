"""The meaning of an errno for the inspected object: none, unless the object does not exist."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from netdra.kernel import netns
from netdra.kernel.errors import KernelError, from_os_error
from netdra.model.errors import TemporaryError
from tests import refusing
from tests.refusing import Refusal

MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ESRCH)


@pytest.mark.parametrize("number", [*refusing.ERRNOS, *MISSING], ids=errno.errorcode.get)
def test_only_a_missing_namespace_counts_as_gone_and_other_errors_as_unknown(number: int, tmp_path: Path) -> None:
    own = f"/proc/{os.getpid()}/ns/net"
    netns.inode_at()
    with refusing.refusing(Refusal(number, first=1)):
        if number in MISSING:
            assert netns.status_at(own) is None
        else:
            with pytest.raises(KernelError, match=os.strerror(number)):
                netns.status_at(own)
    assert netns.status_at(own) is not None
    assert netns.status_at(str(tmp_path)) is None  # a file of no namespace, or of one that has ended
    assert netns.status_at(str(tmp_path / "x")) is None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS], ids=errno.errorcode.get)
def test_exhausted_resources_are_a_temporary_kernel_error(number: int) -> None:
    problem = from_os_error(OSError(number, ""), "cannot open it")
    assert isinstance(problem, TemporaryError)
    assert isinstance(problem, KernelError)
