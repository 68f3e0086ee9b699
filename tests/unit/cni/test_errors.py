"""Which words of a plugin report that it has no such verb."""

from __future__ import annotations

import pytest

from netdra.cni.errors import Kind, PluginFailure


def failure(message: str, code: int = 999, kind: Kind = "error", details: str = "") -> PluginFailure:
    return PluginFailure(plugin="p", verb="CHECK", kind=kind, message=message, code=code, details=details)


@pytest.mark.parametrize(
    "told",
    [
        failure("CNI CHECK method is not implemented"),
        failure("check is not supported"),
        failure("Not implemented"),
        failure("CHECK: unimplemented", code=100),
        failure("command CHECK not yet implemented"),
        failure("plugin version does not allow CHECK", code=1),
        failure("unknown CNI_COMMAND: CHECK", code=4),
        failure("failed", details="CHECK not implemented"),
    ],
)
def test_a_failure_that_reports_a_missing_check_is_unimplemented(told: PluginFailure) -> None:
    assert told.is_unimplemented


@pytest.mark.parametrize(
    "told",
    [
        failure("rule is gone"),
        failure("mode 7 is not supported"),
        failure("CHECK failed: interface net1 is not there"),
        failure("required env variables [CNI_NETNS] missing", code=4),
        failure("it was terminated by signal 9", kind="signal", code=0),
        failure("CHECK is not implemented", kind="rubbish", code=0),
    ],
)
def test_any_other_check_failure_is_not_taken_for_unimplemented(told: PluginFailure) -> None:
    assert not told.is_unimplemented
