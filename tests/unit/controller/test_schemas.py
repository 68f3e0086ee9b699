"""What is done with the objects that show shipped schemas, and that it is nothing when they are as they should be."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from netdra.controller.schemas import SchemaWrite, change
from netdra.model.names import SHIPPED_LABEL
from netdra.model.schema import CNIPluginSchema
from netdra.rules import shipped
from tests.unit.controller.test_status import schema

EVERY = sorted(shipped.objects())


def labelled(found: CNIPluginSchema, name: str) -> CNIPluginSchema:
    return replace(found, metadata=replace(found.metadata, labels={SHIPPED_LABEL: name, "team": "a"}))


@pytest.mark.parametrize("name", EVERY)
def test_each_is_made_where_it_is_missing_and_left_alone_where_it_is_as_it_should_be(name: str) -> None:
    made = change(name, None)
    assert made is not None
    assert (made.verb, made.schema.metadata.name) == ("create", name)
    assert made.schema.is_shipped
    there = replace(made.schema, metadata=replace(made.schema.metadata, uid="u", resource_version="7", generation=1))
    assert change(name, there) is None


def test_every_shipped_schema_is_shown_under_a_name_of_its_own() -> None:
    assert {each.spec.plugin for each in shipped.objects().values()} == set(shipped.names())


def test_one_of_an_older_version_or_changed_by_hand_becomes_as_it_is_shipped_and_keeps_others_labels() -> None:
    older = labelled(schema("vlan", "vlan", version="0.1"), "vlan")
    planned = change("vlan", older)
    assert planned is not None
    assert planned.verb == "update"
    assert planned.schema.spec == shipped.objects()["vlan"].spec
    assert planned.schema.metadata == older.metadata
    assert change("vlan", planned.schema) is None


def test_one_that_is_no_longer_shipped_goes_once() -> None:
    old = labelled(schema("gone", "gone"), "gone")
    assert change("gone", old) == SchemaWrite("delete", old)
    going = replace(old, metadata=replace(old.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    assert change("gone", going) is None
    assert change("gone", None) is None


@pytest.mark.parametrize("name", ["vlan", "vendor"])
def test_what_is_somebodys_own_is_left_alone(name: str) -> None:
    assert change(name, schema(name, "vlan", version="9")) is None


def test_a_copy_under_another_name_is_its_authors_though_the_label_came_with_it() -> None:
    copied = labelled(schema("my-vlan", "vlan", version="9"), "vlan")
    assert not copied.is_shipped
    assert change("my-vlan", copied) is None
