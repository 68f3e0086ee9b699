"""The CustomResourceDefinitions follow from the model, and the files that the chart installs are exactly they."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.cli.crds import text
from netdra.model import crd, documents, kinds
from testbed import yaml

SUMMARIES = (kinds.TOPOLOGY_USAGE, kinds.POLICY_ROLLOUT, kinds.CUSTOM_DEVICE_ROLLOUT)
"""The controller alone writes them, and they have no spec."""
CHART = Path(__file__).parents[3] / "charts" / "netdra" / "files" / "crds"


def test_the_chart_contains_exactly_the_generated_crd_files() -> None:
    """After a change of the model: `make crds`."""
    expected = {f"{kind.name}.yaml": text(kind) for kind in kinds.KINDS}

    assert {path.name: path.read_text() for path in CHART.iterdir()} == expected


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.plural)
def test_a_definition_names_its_kind_and_keeps_a_status_from_the_spec_s_authors(kind: crd.CustomKind) -> None:
    spec = crd.manifest(kind)["spec"]
    (version,) = spec["versions"]

    assert spec["names"]["kind"] == kind.type.__name__
    assert spec["scope"] == ("Namespaced" if kind is kinds.NEUTRON_PORT else "Cluster")
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    assert ("subresources" in version) == ("status" in properties and kind not in SUMMARIES)
    assert ("spec" in properties) != (kind in (*SUMMARIES, kinds.NODE_NETWORK))
    assert version["additionalPrinterColumns"][-1]["name"] == "Age"


def schemas(value: Any) -> Iterator[dict[str, Any]]:
    """Every schema in a schema, itself first."""
    yield value
    for below in value.get("properties", {}).values():
        yield from schemas(below)
    for place in ("items", "additionalProperties"):
        if isinstance(value.get(place), dict):
            yield from schemas(value[place])


def fields(value: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Every field below a schema: its path, its schema, and whether it is required."""
    for name, below in value.get("properties", {}).items():
        yield f"{path}.{name}", below, name in value.get("required", ())
        yield from fields(below, f"{path}.{name}")
    for place, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(value.get(place), dict):
            yield from fields(value[place], f"{path}{mark}")


def explanations(kind: crd.CustomKind, part: str) -> Iterator[tuple[str, str, bool]]:
    """The fields of a kind's spec or status: path, description, and whether the field is required."""
    properties = crd.manifest(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for path, schema, is_required in fields(properties.get(part, {}), part):
        yield path, schema["description"], is_required


KINDS = pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.plural)


@KINDS
@pytest.mark.parametrize("part", ["spec", "status"])
def test_kubectl_explain_has_an_example_of_every_field(kind: crd.CustomKind, part: str) -> None:
    assert [path for path, text, _ in explanations(kind, part) if not has_example(text)] == []


@KINDS
@pytest.mark.parametrize("part", ["spec", "status"])
def test_every_optional_field_documents_its_absence_for_kubectl_explain(kind: crd.CustomKind, part: str) -> None:
    found = explanations(kind, part)
    assert [path for path, text, is_required in found if not is_required and not says_absence(text)] == []


@pytest.mark.parametrize("kind", [each for each in kinds.KINDS if "spec" in each.type.__annotations__])
def test_every_kind_with_a_spec_explains_at_least_three_fields(kind: crd.CustomKind) -> None:
    assert len([*explanations(kind, "spec")]) >= 3


PLAIN: dict[str, type] = {"boolean": bool, "integer": int, "array": list, "object": dict}
"""The types of YAML that a field's first example must have; a text's example may look like anything."""


@KINDS
@pytest.mark.parametrize("part", ["spec", "status", "chosenVF"])
def test_examples_in_descriptions_are_yaml_of_the_field_type_and_use_existing_fields(
    kind: crd.CustomKind, part: str
) -> None:
    properties = crd.manifest(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    unfit = [path for path, schema, _ in fields(properties.get(part, {}), part) if not _fits(schema)]
    assert unfit == []


def _fits(schema: dict[str, Any]) -> bool:
    found = re.search(r"e\.g\. `([^`]+)`", schema["description"])
    assert found is not None
    return "type" not in schema or schema["type"] == "string" or _is_of(yaml.safe_load(found[1]), schema)


def _is_of(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is of a schema's type, and has no field that the schema lacks, nor a value beyond its enum."""
    if "type" not in schema:
        return True
    if schema["type"] == "string":
        return isinstance(value, str) and value in schema.get("enum", [value])
    if isinstance(value, list) and schema["type"] == "array":
        return all(_is_of(element, schema["items"]) for element in value)
    if isinstance(value, dict) and schema["type"] == "object":
        known = schema.get("properties", {}) or dict.fromkeys(value, schema.get("additionalProperties", {}))
        return all(name in known and _is_of(below, known[name]) for name, below in value.items())
    return isinstance(value, PLAIN[schema["type"]])


def test_an_example_of_another_type_or_with_an_unknown_field_is_found() -> None:
    number = {"type": "integer", "description": "e.g. `many`"}
    cel = {"type": "object", "description": "e.g. `{sel: x}`", "properties": {"cel": {"type": "string"}}}
    assert not _fits(number)
    assert not _fits(cel)
    assert not _fits({**cel, "description": "e.g. `{cel: 1}`"})


def has_example(text: str) -> bool:
    """Whether a description has an example: `e.g.` with a value as it is written in a manifest."""
    return re.search(r"\be\.g\. `[^`]+`", text) is not None


def says_absence(text: str) -> bool:
    """Whether a description states what applies without the field: a sentence of its own, in one of two forms."""
    return re.search(r"(^|\. )(If absent, \S|Default: `[^`]+`\.)", text) is not None


@pytest.mark.parametrize("text", ["A number.", "A number, e.g. many.", "A number, for example `1`.", "e.g. ``"])
def test_a_description_without_a_value_to_copy_has_no_example(text: str) -> None:
    assert not has_example(text)


@pytest.mark.parametrize(
    "text", ["A number.", "Can be absent.", "A number; if absent, 1.", "Default: 1.", "If absent,"]
)
def test_a_description_that_leaves_absence_open_is_found(text: str) -> None:
    assert not says_absence(text)


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.plural)
def test_every_property_is_described_but_the_servers_own(kind: crd.CustomKind) -> None:
    schema = crd.manifest(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    silent = [
        name
        for found in schemas(schema)
        for name, below in found.get("properties", {}).items()
        if name != "metadata" and not below.get("description", "").strip()
    ]

    assert silent == []


@pytest.mark.parametrize(
    "kind",
    [each for each in kinds.KINDS if each not in (kinds.NODE_NETWORK, kinds.CUSTOM_DEVICE, kinds.POD_ADDRESS)],
    ids=lambda kind: kind.plural,
)
def test_conditions_are_a_map_by_type_so_that_writers_do_not_undo_each_other(kind: crd.CustomKind) -> None:
    schema = crd.manifest(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    conditions = schema["properties"]["status"]["properties"]["conditions"]

    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.plural)
def test_the_commands_read_every_kind_that_a_cluster_knows(kind: crd.CustomKind) -> None:
    assert documents.KINDS[kind.type.__name__] is kind.type


def test_an_extension_that_leads_nowhere_is_an_error() -> None:
    astray = msgspec.structs.replace(kinds.POLICY, extensions={"spec.nothing": {}})

    with pytest.raises(KeyError, match="nothing"):
        crd.manifest(astray)


def test_short_names_and_plurals_are_taken_once() -> None:
    names = [name for kind in kinds.KINDS for name in (kind.plural, *kind.short_names)]

    assert len(names) == len(set(names))


def test_the_printed_definitions_are_documents_one_for_each_kind() -> None:
    printed = yaml.safe_load_all("---\n".join(text(kind) for kind in kinds.KINDS))

    assert [document["metadata"]["name"] for document in printed] == [kind.name for kind in kinds.KINDS]


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.name)
def test_kubectl_prints_zero_for_each_number_of_a_status(kind: crd.CustomKind) -> None:
    """The model leaves zeros out, and the API server fills in defaults. A port without a VLAN has no number."""
    schema = crd.manifest(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for column in kind.columns:
        _, status, *path = column.path.split(".")
        if (status, column.type) != ("status", "integer") or column.name == "VLAN":
            continue
        inner = schema["properties"]["status"]
        for part in path:
            written = {*inner.get("required", ()), *inner.get("default", ())}
            inner = inner["properties"][part]
            assert "default" in inner or part in written, column.path
