"""The command line as its tests run it, with a claim of a topology and the beginning of a node's slices."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from netdra.cli.main import main

SLICES = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: dra.networking
  nodeName: n1
  pool: {name: n1-sriov, generation: 1, resourceSliceCount: 1}
  devices:
"""

CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: mine, namespace: ns}
spec:
  devices:
    requests:
      - {name: vf0, exactly: {deviceClassName: bonded-vlan-topology-vf0}}
      - {name: vf1, exactly: {deviceClassName: bonded-vlan-topology-vf1}}
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line; its exit code, stdout and stderr."""

    def ran(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["netdra", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return ran
