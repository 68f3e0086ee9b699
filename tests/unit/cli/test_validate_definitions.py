"""`netdra validate` refuses what the CustomResourceDefinitions refuse, and takes what they take."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from netdra.model import crd, crd_check, kinds
from testbed.objects import manifest
from tests.custom_objects import BAD, CNI_PLUGIN, GOOD, POLICY, SCHEMA, changed
from tests.unit.cli.conftest import Run

Rule = tuple[str, str, Any]
"""A kind, a path in its spec, and a value that the schema refuses there."""


def breaking(schema: dict[str, Any], value: Any) -> Iterator[Any]:
    """Values beside a good one that a schema refuses, one for each of its bounds."""
    if "enum" in schema:
        yield "Nothing"
    if "pattern" in schema and isinstance(value, str):
        yield "- /x y/ -"
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maximum" in schema:
        yield schema["maximum"] + 1
    if "maxLength" in schema:
        yield "a" * (schema["maxLength"] + 1)


def rules(kind: str, schema: dict[str, Any], value: Any, path: tuple[str, ...] = ()) -> Iterator[Rule]:
    """Every bound of a schema on the fields of a good object, and on those that the objects in it omit."""
    yield from ((kind, ".".join(path), bad) for bad in breaking(schema, value))
    if isinstance(value, list):
        for at, entry in enumerate(value):
            yield from rules(kind, schema.get("items", {}), entry, (*path, str(at)))
    properties = schema.get("properties", {})
    keys = [*value] if isinstance(value, dict) and not properties else [*properties]
    for key in keys if isinstance(value, dict) else ():
        inner = properties.get(key, schema.get("additionalProperties", {}))
        sample = "" if inner.get("type") == "string" else 1 if inner.get("x-kubernetes-int-or-string") else None
        if "." not in key and inner:
            yield from rules(kind, inner, value.get(key, sample), (*path, key))


SCHEMAS = {
    f"{kind.group}/{crd.VERSION}/{kind.type.__name__}": crd.manifest(kind)["spec"]["versions"][0]["schema"]
    for kind in kinds.KINDS
}
BOUNDS = [
    rule
    for kind, spec in GOOD.items()
    for rule in rules(kind, SCHEMAS[kind]["openAPIV3Schema"]["properties"]["spec"], spec)
]
MORE: list[tuple[str, str, Any]] = [
    *((CNI_PLUGIN, "binaryPath", value) for value in ("a/ovs", "/a/../ovs")),
    (CNI_PLUGIN, "image", "x y"),
    (SCHEMA, "configParameters.optional.0.default", "many"),
    (SCHEMA, "configParameters.required.0.enum", [1]),
]


@pytest.fixture
def validate(run: Run, tmp_path: Path) -> Any:
    """Validate one object; the exit code and the output."""

    def validated(value: Any) -> tuple[int, str]:
        file = tmp_path / "object.yaml"
        file.write_text(yaml.safe_dump(value))
        code, out, err = run("validate", str(file))
        return code, out + err

    return validated


@pytest.mark.parametrize(("kind", "path", "value"), [entry[:3] for entry in BAD])
def test_validate_rejects_values_that_the_api_server_rejects(kind: str, path: str, value: Any, validate: Any) -> None:
    code, said = validate(changed(kind, path, value))
    assert code == 1, said


@pytest.mark.parametrize(("kind", "path", "value"), [*BOUNDS, *MORE])
def test_a_value_rejected_by_a_definition_is_reported_at_its_path(
    kind: str, path: str, value: Any, validate: Any
) -> None:
    code, said = validate(changed(kind, path, value))
    place = re.sub(r"\.(\d+)", r"[\1]", f"spec.{path}")
    whole = f"[{place.rpartition('.')[0]}]"  # a parameter of a schema
    assert code == 1
    assert f"[{place}" in said or whole in said, said


@pytest.mark.parametrize("kind", GOOD)
def test_a_spec_allowed_by_a_definition_is_accepted(kind: str) -> None:
    assert crd_check.findings(manifest(kind, "good", spec=GOOD[kind])) == []


def test_every_kind_has_bounds() -> None:
    assert {kind for kind, _, _ in BOUNDS} == set(GOOD)
    assert len(BOUNDS) > 30


def test_max_unavailable_accepts_the_values_of_a_daemon_set(validate: Any) -> None:
    for value in (1, 3, "1%", "10%", "100%"):
        assert validate(changed(CNI_PLUGIN, "maxUnavailable", value))[0] == 0
    _, said = validate(changed(CNI_PLUGIN, "maxUnavailable", "110%"))
    assert 'CNIPlugin "bad": "110%" must be a number from 1, without quotes, or a percentage from 1% to 100%' in said
    assert "[spec.maxUnavailable]" in said


def test_an_invalid_field_is_reported_only_once(validate: Any) -> None:
    _, said = validate(changed(POLICY, "exposure.deviceNameSuffix", "_x"))
    assert said.count("deviceNameSuffix") == 1


def test_a_namespace_on_a_cluster_scoped_object_is_a_warning(validate: Any) -> None:
    bond = manifest(CNI_PLUGIN, "bond", spec=GOOD[CNI_PLUGIN])
    bond["metadata"]["namespace"] = "here"
    code, said = validate(bond)
    assert code == 0
    assert 'warning: CNIPlugin "bond" is cluster-scoped and must not have a namespace; remove its namespace' in said
