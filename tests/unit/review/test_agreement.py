"""The webhook and `netdra validate` find the same: both ask for one review, and differ in the world that they give it.

Each object is one of the documents, the examples and the mistakes, with one value replaced, as a person might.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from netdra.admission.messages import AdmissionRequest, Kind, Verdict
from netdra.admission.requests import verdict_on
from netdra.cli.validate import command as validate
from netdra.model import crd_check, documents
from netdra.model.errors import sentence, with_code
from netdra.review.world import World
from netdra.rules.workloads import IN_FILES
from tests.unit.rules.test_any_value import SOUND, shapes

MOST = 120
"""Objects of a kind."""
NAMING_PLACES = ("NetworkTopology", "ResourceClaimTemplate")
"""Kinds whose texts name the steps and requests that they are about; the webhook shows their paths no further."""
KINDS = (*NAMING_PLACES, "CNIPluginSchema", "CustomDevice", "DeviceExposurePolicy", "PodNetwork")


def readable(kind: str) -> list[dict[str, Any]]:
    """Objects of a kind that the API server would store as they are."""
    found = []
    given = [*SOUND[kind], *shapes(kind)]
    for value in given[:: max(len(given) // MOST, 1)]:
        document, wrong = documents.examine(value, "test")
        if document is not None and not wrong and not [*crd_check.findings(value)]:
            found.append(value)
    return found


def admitted(value: dict[str, Any]) -> Verdict:
    """The webhook's verdict, in a cluster that has nothing but what every one has."""
    group, _, version = value["apiVersion"].rpartition("/")
    kind = Kind(group, version, value["kind"])
    body = msgspec.Raw(msgspec.json.encode(value))
    name = value["metadata"]["name"]
    return verdict_on(
        AdmissionRequest(uid="1", kind=kind, operation="CREATE", name=name, object=body), World(where=IN_FILES)
    )


def validated(value: dict[str, Any], folder: Path) -> dict[str, set[str]]:
    """The command's findings in a file with the object alone, by severity."""
    path = folder / "object.yaml"
    path.write_text(yaml.safe_dump(value))
    done = CliRunner().invoke(validate, [str(path), "--output=json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    found: dict[str, set[str]] = {"error": set(), "warning": set()}
    for problem in json.loads(done.stdout)["problems"]:
        text = sentence(problem["message"], problem.get("hint", ""))
        if "path" in problem and value["kind"] not in NAMING_PLACES:
            first, *rest = text.splitlines()
            text = "\n".join([f"{first} [{problem['path']}]", *rest])
        found[problem.get("severity", "error")].add(with_code(text, problem.get("code", "")))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_webhook_and_the_command_find_the_same(kind: str, tmp_path: Path) -> None:
    compared = 0
    for value in islice(readable(kind), MOST):
        verdict, found = admitted(value), validated(value, tmp_path)
        if kind == "ResourceClaimTemplate":  # the webhook compiles none of their expressions
            assert {*verdict.errors} <= found["error"], yaml.safe_dump(value)
            assert verdict.errors or found["error"] or {*verdict.warnings} <= found["warning"], yaml.safe_dump(value)
        else:
            assert {*verdict.errors} == found["error"], yaml.safe_dump(value)
            assert {*verdict.warnings} == found["warning"], yaml.safe_dump(value)
        compared += 1
    assert compared > 5
