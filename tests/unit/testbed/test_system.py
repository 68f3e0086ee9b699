"""Missing requirements of a bare machine are named or fixed, and a complete machine is not changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from testbed import system
from testbed.system import MissingPackagesError, ensure_packages, ensure_watches


def test_missing_packages_are_named_without_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program, path=None: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(system, "AUTHORITIES", tmp_path / "none")
    with pytest.raises(
        MissingPackagesError,
        match="buildah busybox-static ca-certificates ethtool gcc iperf3 iproute2 iptables mmdebstrap "
        "openssh-client openssl qemu-user-static runc skopeo;",
    ):
        ensure_packages()
    with pytest.raises(MissingPackagesError, match="buildah busybox-static ca-certificates chromium ethtool"):
        ensure_packages(browser=True)


def test_programs_are_found_where_only_roots_path_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []

    def found(program: str, path: str) -> str:
        searched.append(path)
        return f"/sbin/{program}"

    monkeypatch.setattr(system, "AUTHORITIES", tmp_path)
    monkeypatch.setattr(shutil, "which", found)
    assert ensure_packages() == []
    assert searched
    assert all({"/usr/sbin", "/sbin"} <= set(path.split(":")) for path in searched)


@pytest.mark.parametrize(("has", "then"), [("128\n", "1024"), ("8192\n", "8192\n")], ids=["too few", "enough"])
def test_inotify_instances_are_raised_if_too_few_and_never_lowered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: str, then: str
) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text(has)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(system, "_INSTANCES", limit)
    ensure_watches()
    assert limit.read_text() == then


def test_an_unwritable_inotify_limit_is_reported_with_the_value_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(system, "_INSTANCES", Path("/proc/sys/kernel/ngroups_max"))  # a number that nobody may set
    monkeypatch.setattr(system, "_ENOUGH_INSTANCES", 2**40)
    ensure_watches()
    assert f"on the host, set fs.inotify.max_user_instances to {2**40}" in capsys.readouterr().err
