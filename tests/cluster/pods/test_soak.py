"""Random pods and random faults on a node with a real kubelet and containerd; `make soak` does hundreds of runs.

NETDRA_SOAK_RUNS is how many, NETDRA_SOAK_SEED the first one's seed (each next run has the next number), and
NETDRA_SOAK_AWAY how many seconds the API server may be away. Without them it is a few runs, drawn as `tests.draws`
states.
"""

from __future__ import annotations

import os

import pytest

from testbed.control_plane import ControlPlane
from testbed.driver import Driver
from testbed.pods import Pods
from testbed.workspace import Workspace
from tests import draws
from tests.cluster.pods.soak import Soak, soak

RUNS = int(os.environ.get("NETDRA_SOAK_RUNS") or 3)
AWAY = float(os.environ.get("NETDRA_SOAK_AWAY") or 5)
SECONDS_EACH = 300


@pytest.mark.timeout(SECONDS_EACH * (RUNS + 1))
def test_random_faults_cost_no_pod_its_network_and_leave_nothing_behind(
    driver: Driver, control_plane: ControlPlane, workspace: Workspace, pods: Pods, capsys: pytest.CaptureFixture[str]
) -> None:
    first = int(os.environ.get("NETDRA_SOAK_SEED") or draws.seed())

    def tell(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    soak(Soak(driver, pods, workspace, control_plane), range(first, first + RUNS), AWAY, tell)
