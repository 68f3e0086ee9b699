"""`netdra validate` reports the rejections of API server and webhook: drawn single edits, and people's mistakes.

An edit that the cluster accepts and validate reports does not count as a disagreement: it may fail later.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from netdra.model.topology import DeclaredParameter
from netdra.topology import parameters
from testbed import yaml
from testbed.api import Api, ApiError, Object
from testbed.control_plane import ControlPlane
from testbed.objects import manifest
from testbed.waiting import until
from testbed.workspace import Workspace
from tests import draws, edits, validation
from tests.cluster.daemons import DENIED, running_webhook

pytestmark = pytest.mark.usefixtures("webhook")

EDITS, EDITS_OF_CLAIMS = draws.count(200, 8000), draws.count(60, 1000)
WARNING = "webhook's warning"
MISTAKES = [
    (path.stem, validation.text_of(written, mistake), mistake["by"])
    for path in sorted((Path(__file__).parents[1] / "mistakes").glob("*.yaml"))
    for written in [yaml.safe_load(path.read_text())]
    for mistake in written["mistakes"]
]


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The webhook, installed and asked by the API server."""
    with running_webhook(control_plane, api):
        yield


def rejection(api: Api, value: Object) -> str:
    """Why the cluster rejects an object, as kubectl asks it; "" if it accepts it."""
    kind, namespace = f"{value['apiVersion']}/{value['kind']}", edits.namespace_of(value)
    try:
        api.request("POST", api.path(kind, namespace), value, dryRun="All", fieldValidation="Strict")
    except ApiError as problem:
        return problem.message
    return ""


def rejecting(api: Api, text: str) -> str:
    """The API server or the webhook if it rejects one of a file's objects; else `WARNING` if it warns, or ""."""
    try:
        values = [value for value in yaml.safe_load_all(text) if value is not None]
    except yaml.YAMLError:
        return ""
    warned = False
    for value in values:
        if not isinstance(value, dict) or not {"apiVersion", "kind"} <= value.keys():
            return ""
        if isinstance(value.get("metadata"), dict) and (namespace := edits.namespace_of(value)):
            value["metadata"]["namespace"] = namespace
        if why := rejection(api, value):
            return "webhook" if why.startswith(DENIED) else "apiserver"
        warned = warned or bool(api.warnings)
    return WARNING if warned else ""


def test_validate_reports_every_edit_that_the_cluster_rejects(api: Api, tmp_path: Path) -> None:
    draw = random.Random(draws.seed())
    silent, rejected = [], 0
    for what, new in edits.drawn(draw, EDITS):
        if why := rejection(api, new):
            rejected += 1
            code, said = validation.lines(tmp_path, yaml.safe_dump(new, sort_keys=False))
            if code != 1:
                silent.append(f"{what}\n  cluster: {why}\n  validate: {said}")
    assert silent == [], "\n".join(silent)
    assert rejected > EDITS // 3


def test_validate_with_topology_files_reports_claim_edits_that_the_cluster_rejects(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Claims and templates of topologies, and their required requests, parameters and values."""
    given = [each for each in edits.objects() if each["kind"] == "NetworkTopology"]
    names = {each["metadata"]["name"]: each for each in given}
    made = [*names.values()]
    for topology in made:
        workspace.create(topology)
    wanted = [each for each in edits.objects() if each["kind"] in {"ResourceClaim", "ResourceClaimTemplate"}]
    claims = [each for each in wanted if any(f"{name}-" in yaml.safe_dump(each) for name in names)]
    claims += [claim_of(topology, kind) for topology in made for kind in ("ResourceClaim", "ResourceClaimTemplate")]
    until(lambda: all(is_known(workspace.api, topology) for topology in made), "the webhook to know the topologies")
    draw = random.Random(draws.seed())
    silent, rejected = [], 0
    for what, new in edits.drawn(draw, EDITS_OF_CLAIMS, claims):
        if why := rejection(workspace.api, new):
            rejected += 1
            code, said = validation.lines(tmp_path, yaml.safe_dump_all([new, *made], sort_keys=False))
            if code != 1:
                silent.append(f"{what}\n  cluster: {why}\n  validate: {said}")
    assert silent == [], "\n".join(silent)
    assert rejected > EDITS_OF_CLAIMS // 3


def claim_of(topology: Object, kind: str) -> Object:
    """A claim, or a template, for a topology, with the values that its parameters need."""
    name = topology["metadata"]["name"]
    roots = [step["name"] for step in topology["spec"]["steps"] if not step.get("dependOn")]
    devices: Object = {"requests": [{"name": root, "exactly": {"deviceClassName": f"{name}-{root}"}} for root in roots]}
    needed = [each for each in topology["spec"].get("parameters", ()) if "default" not in each]
    values = {each["name"]: parameters.examples(msgspec.convert(each, DeclaredParameter))[0] for each in needed}
    if values:
        given = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "ParameterValues", "values": values}
        devices["config"] = [{"opaque": {"driver": "dra.networking", "parameters": given}}]
    spec: Object = {"devices": devices}
    spec = spec if kind == "ResourceClaim" else {"spec": spec}
    return manifest(f"resource.k8s.io/v1/{kind}", f"of-{name}", "default", spec=spec)


def is_known(api: Api, topology: Object) -> bool:
    """Whether the webhook judges claims by a topology: it rejects one with a request too few or of a wrong name."""
    claim = claim_of(topology, "ResourceClaim")
    claim["spec"]["devices"]["requests"][0]["name"] = "other"
    return rejection(api, claim).startswith(DENIED)


def test_the_mistakes_are_reported_by_the_named_component(api: Api) -> None:
    """An object whose mistake shows only beside another object of its file is accepted alone."""
    wrong = []
    for name, text, by in MISTAKES:
        found = rejecting(api, text)
        accepted = {"prepare", "validate"} | ({"webhook"} if text.count("kind:") > 1 else set())
        if found == WARNING:
            # Some depend on what is in the cluster just now: other tests' policies, the devices that nodes report.
            found = "webhook" if by == "webhook" else ""
        if by != found if found else by not in accepted:
            wrong.append(f"{name}: by {by}, found {found or 'nobody'}:\n{text}")
    assert wrong == [], "\n".join(wrong)
    assert len(MISTAKES) > 300
