"""The Debian packages that a bare machine lacks are named, and not looked for where everything is there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from testbed import system
from testbed.system import MissingPackagesError, ensure_packages


def test_without_root_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program, path=None: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(system, "AUTHORITIES", tmp_path / "none")
    with pytest.raises(
        MissingPackagesError, match="ca-certificates ethtool iproute2 iptables openssl runc; install them"
    ):
        ensure_packages()


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
