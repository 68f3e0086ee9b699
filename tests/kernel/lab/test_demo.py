"""The demo runs the whole path, as root and without, states what happened as data, and leaves the machine as it was."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netdra.kernel import netns
from netdra.lab import demo, isolation
from netdra.lab.plugin import VERSION_IN_SHELL
from testbed.waiting import waiting

ROOT = Path(__file__).resolve().parents[3]
CHAPTERS = [
    "scenario",
    "inventory",
    "decisions",
    "slices",
    "allocation",
    "plans",
    "steps",
    "pod",
    "detach",
    "node",
    "outside",
]
# Without capabilities, as an ordinary user's process is, but still the owner of the checkout, wherever that is; for
# mapping uid 0 of all users, user_namespaces(7) asks for CAP_SETFCAP.
AS_USER = ["setpriv", "--bounding-set=-all,+setfcap", "--inh-caps=-all", "--ambient-caps=-all"]

Demo = Callable[..., dict[str, Any]]


@pytest.fixture(params=[[], AS_USER], ids=["as-root", "as-user"])
def told_by(request: pytest.FixtureRequest) -> Demo:
    def run(**environment: str) -> dict[str, Any]:
        command = [*request.param, sys.executable, "-m", "netdra", "lab", "demo", "--output", "json"]
        surrounding = os.environ | environment
        with waiting("netdra lab demo"):
            done = subprocess.run(
                command, cwd=ROOT, env=surrounding, capture_output=True, text=True, timeout=120, check=False
            )
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    return run


def test_the_demo_reports_the_whole_path_as_data(told_by: Demo) -> None:
    told = told_by()
    assert list(told) == CHAPTERS
    assert told["pod"]["ipAgrees"] is True
    assert told["node"]["unchanged"] is True
    assert not any(told["outside"]["left"].values())
    assert told["slices"], "nothing was published"
    assert {step["step"] for step in told["steps"]["steps"]} == {step["step"] for step in told["detach"]["undone"]}
    assert all(step["outcome"] == "undone" for step in told["detach"]["undone"])


def test_the_demo_pod_gets_the_network_of_its_topology(told_by: Demo) -> None:
    told = told_by()
    inside = {seen["name"]: seen for seen in told["pod"]["interfaces"]}
    data = inside["data0"]
    assert data["addresses"] == ["10.100.0.5/24"]
    assert data["mtu"] == 1400
    assert "10.100.0.0/16 via 10.100.0.1" in data["routes"]
    if told["scenario"]["name"] == "bonded-vlans":
        assert inside["net1"]["master"] == inside["net2"]["master"] == "bond0"
        assert inside["mgmt0"]["addresses"] == ["10.200.0.5/24"]
    else:
        assert (data["kind"], inside["net1"]["mtu"]) == ("macvlan", 1450)
        assert inside["net2"]["kind"] == "veth"


def test_the_uplink_and_the_unnamed_are_hidden(told_by: Demo) -> None:
    exposed = {decision["ifName"]: decision.get("exposed", []) for decision in told_by()["decisions"]}
    assert exposed["mgmt0"] == []
    assert exposed["trunk0"] == []
    assert exposed["lan0"] == ["lan0"]


def test_the_uplink_is_kept_back_though_a_policy_names_it(told_by: Demo) -> None:
    (uplink,) = (decision for decision in told_by()["decisions"] if decision["ifName"] == "mgmt0")
    outcomes = {verdict["policy"]: verdict["outcome"] for verdict in uplink["verdicts"]}
    assert outcomes["lab-nics"] == "overruled"


def test_on_a_terminal_it_reads_like_a_story() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "netdra", "lab", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for number, text in ((1, "A node is made"), (8, "The pod's interfaces"), (11, "Outside, nothing is left")):
        assert f"{number}. {text}" in done.stdout
    assert "data0" in done.stdout


def test_a_failure_inside_is_an_error_outside_and_nothing_is_left(tmp_path: Path) -> None:
    for plugin in ("bridge", "macvlan"):
        program = tmp_path / plugin
        program.write_text(f"#!/bin/sh\n{VERSION_IN_SHELL}\n[ $CNI_COMMAND = DEL ] && exit\necho no >&2; exit 3\n")
        program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "netdra", "lab", "demo"],
        cwd=ROOT,
        env=os.environ | {"CNI_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in {3, 4}
    assert 'NetworkTopology "macvlan-and-bridge", step "' in done.stderr
    assert "Traceback" not in done.stderr
    assert demo.traces() == isolation.Traces()


def test_traces_report_leftover_links_namespaces_and_mounts() -> None:
    name = f"trace-{os.getpid()}"
    with netns.Namespace.create(name):
        try:
            left = isolation.traces(("lo",), (name,), f"{netns.NAMED}/{name}")
        finally:
            netns.delete(name)
    assert (left.links, left.namespaces) == (("lo",), (name,))
    assert set(left.mounts) == {f"{netns.NAMED}/{name}"}
    assert isolation.traces((), (name,), f"{netns.NAMED}/{name}").mounts == ()
