"""Random pods and random faults on a node with a real kubelet and containerd; `make soak` does hundreds of runs.

NETDRA_SOAK_RUNS is how many, NETDRA_SOAK_SEED the first one's seed (each next run has the next number), and
NETDRA_SOAK_AWAY how many seconds the API server may be away.
"""

from __future__ import annotations

import os
import random

import pytest

from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.pods import Pods
from testbed.workspace import Workspace
from tests.cluster.pods.conftest import Machine
from tests.cluster.pods.running import account, running_driver
from tests.cluster.pods.soak import Soak, soak

RUNS = int(os.environ.get("NETDRA_SOAK_RUNS") or 5)
AWAY = float(os.environ.get("NETDRA_SOAK_AWAY") or 5)
SECONDS_EACH = 300


@pytest.mark.timeout(SECONDS_EACH * (RUNS + 1))
def test_whatever_dies_whenever_no_pod_loses_its_network_and_nothing_is_left(
    machine: Machine,
    control_plane: ControlPlane,
    api: Api,
    custom_kinds: None,
    workspace: Workspace,
    pods: Pods,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = int(os.environ.get("NETDRA_SOAK_SEED") or random.randrange(1_000_000))

    def tell(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    kubeconfig = account(machine, control_plane, api)
    with running_driver(machine, api, tmp_path_factory.mktemp("driver"), kubeconfig) as driver:
        soak(Soak(driver, pods, workspace, control_plane), range(first, first + RUNS), AWAY, tell)
