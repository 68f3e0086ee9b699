"""The CustomResourceDefinitions follow from the model, and the files that the chart installs are exactly they."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from netdra.cli.crds import text
from netdra.model import crd, documents, kinds

SUMMARIES = (kinds.TOPOLOGY_USAGE, kinds.POLICY_ROLLOUT, kinds.CUSTOM_DEVICE_ROLLOUT)
"""The controller alone writes them, and they have no spec."""
CHART = Path(__file__).parents[3] / "charts" / "netdra" / "files" / "crds"


def test_the_charts_files_are_what_the_types_say() -> None:
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


WRITTEN = ("deviceexposurepolicies", "networktopologies", "cniplugins", "customdevices", "cnipluginschemas")
"""Kinds whose spec people write."""


@pytest.mark.parametrize("plural", WRITTEN)
def test_kubectl_explain_tells_of_every_field_an_example_its_default_or_what_its_absence_means(plural: str) -> None:
    (kind,) = (kind for kind in kinds.KINDS if kind.plural == plural)
    spec = crd.manifest(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    unclear = {
        name: below["description"]
        for found in schemas(spec)
        for name, below in found.get("properties", {}).items()
        if not _is_explained(below, is_required=name in found.get("required", ()))
    }

    assert unclear == {}


def _is_explained(schema: dict[str, Any], *, is_required: bool) -> bool:
    text = schema["description"]
    has_values = schema.get("type") == "boolean" or "enum" in schema or "properties" in schema
    # A list of objects and a map of them have examples in their fields.
    below = schema.get("items") or schema.get("additionalProperties")
    has_values = has_values or (isinstance(below, dict) and "properties" in below)
    is_clear = is_required or "If absent" in text or "Default: `" in text or "default" in schema
    return is_clear and (has_values or any(sign in text for sign in ("e.g. `", "Default: `")))


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
    [each for each in kinds.KINDS if each not in (kinds.NODE_NETWORK, kinds.CUSTOM_DEVICE)],
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
