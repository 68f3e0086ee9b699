"""No field of a claim, a template or a class that this Kubernetes knows is refused in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec.inspect as mi
import pytest

from netdra.model.claim import UNUSED_FIELDS, DeviceClass, ResourceClaim, ResourceClaimTemplate
from testbed.control_plane import ControlPlane

Schemas = Mapping[str, Any]


@pytest.mark.parametrize("kind", [ResourceClaim, ResourceClaimTemplate, DeviceClass])
def test_every_field_of_the_api_server_is_known(control_plane: ControlPlane, kind: type) -> None:
    page = json.loads(control_plane.kubectl("get", "--raw", "/openapi/v3/apis/resource.k8s.io/v1"))
    schemas = page["components"]["schemas"]
    (name,) = (name for name in schemas if name.endswith(f".v1.{kind.__name__}"))
    there = list(fields(schemas[name], schemas))
    assert "metadata" in there

    assert list(unknown(mi.type_info(kind), schemas[name], schemas)) == []


def fields(schema: Any, schemas: Schemas) -> Mapping[str, Any]:
    """The properties of a schema, or of the one that it refers to."""
    while "allOf" in schema or "$ref" in schema:
        reference = schema["$ref"] if "$ref" in schema else schema["allOf"][0]["$ref"]
        schema = schemas[reference.rpartition("/")[2]]
    properties: Mapping[str, Any] = schema.get("properties", {})
    return properties


def unknown(info: mi.Type, schema: Any, schemas: Schemas, path: str = "") -> Iterator[str]:
    """The fields of a schema that the model's type does not have; what is below `status` is the cluster's alone."""
    match info:
        case mi.UnionType():
            for part in info.types:
                yield from unknown(part, schema, schemas, path)
        case mi.StructType():
            types = {field.encode_name: field.type for field in info.fields}
            for name, inner in fields(schema, schemas).items():
                place = f"{path}.{name}"
                if name not in types and name not in UNUSED_FIELDS.get(info.cls, ()):
                    yield place
                elif name in types and place != ".status":
                    yield from unknown(types[name], inner, schemas, place)
        case mi.VarTupleType():
            yield from unknown(info.item_type, schema.get("items", {}), schemas, f"{path}[]")
