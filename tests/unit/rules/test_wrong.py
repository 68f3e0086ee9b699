"""Topologies with people's mistakes (`wrong/*.yaml`, by the users' goals), each with its message.

Every file is a manifest; the annotation `says` of each topology is the sentence that it must give, wherever it is met
first: by `netdra validate`, at admission, and, where the webhook was away, when a claim is prepared.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.admission.messages import AdmissionRequest, Kind
from netdra.admission.requests import verdict_on
from netdra.cli.main import main
from netdra.model.claim import ResourceClaim
from netdra.model.documents import convert
from netdra.model.errors import InvalidInputError
from netdra.model.plan import PlannedDevice
from netdra.model.topology import NetworkTopology
from netdra.review.world import World
from netdra.rules.plans import check
from netdra.topology.bind import bind
from testbed import yaml
from tests.documents import TOPOLOGIES

FILES = sorted((Path(__file__).parents[1] / "topology" / "wrong").glob("*.yaml"))
WRONG = {
    f"{path.stem}: {value['metadata']['name']}": value
    for path in FILES
    for value in yaml.safe_load_all(path.read_text())
}
LEAST = 100
KIND = Kind("networking.dra.io", "v1alpha1", "NetworkTopology")


def sentence(value: dict[str, Any]) -> str:
    """The sentence that a topology must give."""
    said: str = value["metadata"]["annotations"]["says"]
    return said


def test_the_mistake_files_contain_at_least_a_hundred_unique_topologies() -> None:
    assert len(WRONG) == sum(len(list(yaml.safe_load_all(path.read_text()))) for path in FILES) >= LEAST
    assert all(map(sentence, WRONG.values()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_validate_reports_each_mistaken_topology_with_its_message(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["netdra", "validate", str(path), "-o", "json"])
    with pytest.raises(SystemExit) as caught:
        main()
    problems = [each for each in json.loads(capsys.readouterr().out)["problems"] if "severity" not in each]
    assert caught.value.code == 1
    silent = []
    for value in yaml.safe_load_all(path.read_text()):
        named = f'NetworkTopology "{value["metadata"]["name"]}"'
        own = [each for each in problems if named in each["message"]]
        texts = [f"{each['message']} {each.get('hint', '')}".replace(named, "") for each in own]
        # A hint is told after a full stop or a semicolon.
        if not any(_plain(sentence(value)) in _plain(text) for text in texts):
            silent.append((named, sentence(value), texts))
        assert all(each["line"] > 1 and each["path"] for each in own)
    assert silent == []


@pytest.mark.parametrize("name", WRONG)
def test_the_webhook_refuses_it(name: str) -> None:
    value = WRONG[name]
    body = msgspec.Raw(msgspec.json.encode(value))
    request = AdmissionRequest(uid="", kind=KIND, operation="CREATE", name=value["metadata"]["name"], object=body)
    errors = verdict_on(request, World()).errors
    assert any(sentence(value) in error for error in errors), errors


@pytest.mark.parametrize("name", WRONG)
def test_no_claim_is_prepared_with_it(name: str) -> None:
    value = WRONG[name]
    try:
        topology = msgspec.convert(value, NetworkTopology)
    except msgspec.ValidationError:
        return  # no daemon takes it for a topology
    claim, devices = allocated(topology)
    with pytest.raises(InvalidInputError) as caught:
        check(bind([claim], {topology.name: topology}, devices).plans, topologies=[topology])
    assert _plain(sentence(value)) in _plain(str(caught.value))


def allocated(topology: NetworkTopology) -> tuple[ResourceClaim, dict[tuple[str, str], PlannedDevice]]:
    """A claim that was given a device for each root step, and these devices."""
    roots = list(dict.fromkeys(step.name for step in topology.spec.steps if step.is_root))
    parameters = {"networkTopologyRef": {"name": topology.name}}
    results = [{"request": root, "driver": "dra.networking", "pool": "p", "device": f"d-{root}"} for root in roots]
    config = [
        {
            "source": "FromClass",
            "requests": [root],
            "opaque": {"driver": "dra.networking", "parameters": {**parameters, "step": root}},
        }
        for root in roots
    ]
    claim = convert(
        {
            "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
            "spec": {},
            "status": {"allocation": {"devices": {"results": results, "config": config}}},
        },
        ResourceClaim,
        "test",
    )
    devices = {
        ("p", f"d-{root}"): PlannedDevice(
            request=root,
            pool="p",
            device=f"d-{root}",
            if_name=f"eth{at}",
            mac=f"02:00:00:00:00:{at:02x}",
            pci_address=f"0000:3b:00.{at}",
            mtu=9000,
        )
        for at, root in enumerate(roots)
    }
    return claim, devices


def _plain(text: str) -> str:
    """A text without what joins a hint to it."""
    return "".join(sign for sign in text if sign.isalnum())


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_those_that_are_right_are_let_through_everywhere(path: Path) -> None:
    (value,) = yaml.safe_load_all(path.read_text())
    body = msgspec.Raw(msgspec.json.encode(value))
    request = AdmissionRequest(uid="", kind=KIND, operation="CREATE", name=value["metadata"]["name"], object=body)
    assert verdict_on(request, World()).errors == ()
    topology = msgspec.convert(value, NetworkTopology)
    claim, devices = allocated(topology)
    check(bind([claim], {topology.name: topology}, devices).plans, topologies=[topology])
