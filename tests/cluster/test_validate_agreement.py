"""What the API server or the webhook rejects, `netdra validate` reports: drawn single edits, and people's mistakes.

An edit that validate reports and the cluster accepts is no disagreement: it may fail only later.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed.api import Api, ApiError, Object
from testbed.control_plane import ControlPlane
from tests import draws, edits, validation
from tests.cluster.daemons import DENIED, running_webhook

pytestmark = pytest.mark.usefixtures("webhook")

EDITS = draws.count(200, 8000)
MISTAKES = [
    (path.stem, validation.text_of(written, mistake), mistake["by"])
    for path in sorted((Path(__file__).parents[1] / "mistakes").glob("*.yaml"))
    if isinstance(written := yaml.safe_load(path.read_text()), dict)
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
    """Who rejects one of a file's objects, or warns of it: the API server or the webhook; "" for nobody."""
    try:
        values = [value for value in yaml.safe_load_all(text) if value is not None]
    except yaml.YAMLError:
        return ""
    for value in values:
        if not isinstance(value, dict) or not {"apiVersion", "kind"} <= value.keys():
            return ""
        if isinstance(value.get("metadata"), dict) and (namespace := edits.namespace_of(value)):
            value["metadata"]["namespace"] = namespace
        if why := rejection(api, value):
            return "webhook" if why.startswith(DENIED) else "apiserver"
        if api.warnings:
            return "webhook"
    return ""


def test_what_the_cluster_rejects_is_reported(api: Api, tmp_path: Path) -> None:
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


def test_the_mistakes_are_reported_by_the_named_component(api: Api) -> None:
    """An object whose mistake shows only beside another object of its file is accepted alone."""
    wrong = []
    for name, text, by in MISTAKES:
        found = rejecting(api, text)
        accepted = {"prepare", "validate"} | ({"webhook"} if text.count("kind:") > 1 else set())
        if by != found if found else by not in accepted:
            wrong.append(f"{name}: by {by}, found {found or 'nobody'}:\n{text}")
    assert wrong == [], "\n".join(wrong)
    assert len(MISTAKES) > 300
