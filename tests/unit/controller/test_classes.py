"""The required writes of a topology's DeviceClasses, and that none is required when they are as they should be."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from netdra.controller.classes import ClassWrites, changes
from netdra.model import documents
from netdra.model.claim import DeviceClass, DeviceClassSpec
from netdra.model.device import Features
from netdra.model.errors import InvalidInputError
from netdra.model.meta import OwnerReference
from netdra.model.topology import NetworkTopology
from tests import builders

TWO = "- {name: vf0, type: sriov}\n- {name: vf1, type: sriov}\n- {name: b, type: bond, dependOn: [vf0, vf1]}"


def topology(name: str = "net", steps: str = TWO, uid: str = "u1", **metadata: Any) -> NetworkTopology:
    return builders.topology(steps, name, uid=uid, **metadata)


def present(*found: DeviceClass) -> dict[str, DeviceClass]:
    return {each.metadata.name: each for each in found}


def settled(of: NetworkTopology) -> dict[str, DeviceClass]:
    return present(*changes(of, {}, Features()).create)


def foreign(name: str) -> DeviceClass:
    return documents.convert({"metadata": {"name": name}, "spec": {}}, DeviceClass, "test")


def test_a_class_is_made_for_each_root_step_and_belongs_to_the_topology() -> None:
    made = changes(topology(), {}, Features())
    assert made.names == ("net-vf0", "net-vf1")
    assert [each.metadata.name for each in made.create] == ["net-vf0", "net-vf1"]
    first = made.create[0]
    assert first.metadata.owner_references == (
        OwnerReference(
            api_version="networking.dra.io/v1alpha1", kind="NetworkTopology", name="net", uid="u1", controller=True
        ),
    )
    assert first.metadata.labels == {"networking.dra.io/topology": "net", "networking.dra.io/step": "vf0"}
    assert not made.done


def test_when_all_is_as_it_should_be_nothing_is_done() -> None:
    assert changes(topology(), settled(topology()), Features()) == ClassWrites(names=("net-vf0", "net-vf1"))
    assert changes(topology(), settled(topology()), Features()).done


def test_drift_of_a_class_is_corrected_and_labels_and_annotations_of_others_are_kept() -> None:
    there = settled(topology())
    right = there["net-vf0"]
    metadata = replace(right.metadata, labels={"team": "a"}, annotations={"note": "b"}, resource_version="7")
    spec = replace(right.spec, selectors=(), extended_resource_name="example.com/x")
    there["net-vf0"] = replace(right, metadata=metadata, spec=spec)
    (mended,) = changes(topology(), there, Features()).replace
    assert mended.spec == right.spec
    assert mended.metadata.labels == {**right.metadata.labels, "team": "a"}
    assert mended.metadata.annotations == {"note": "b"}
    assert mended.metadata.resource_version == "7"


def test_classes_of_removed_steps_are_deleted() -> None:
    left = changes(topology(steps="- {name: vf0, type: sriov}"), settled(topology()), Features())
    assert [each.metadata.name for each in left.delete] == ["net-vf1"]
    assert not left.create + left.replace


def test_a_foreign_class_is_left_as_it_is() -> None:
    left = changes(topology(), {"net-vf0": foreign("net-vf0")}, Features())
    assert left.foreign == ("net-vf0",)
    assert [each.metadata.name for each in left.create] == ["net-vf1"]
    assert not left.replace + left.delete


def test_the_class_of_another_topology_is_foreign() -> None:
    other = settled(topology("a", "- {name: b-c, type: sriov}", uid="u2"))
    left = changes(topology("a-b", "- {name: c, type: sriov}"), other, Features())
    assert left.foreign == ("a-b-c",)
    assert not left.delete


def test_classes_of_a_former_topology_of_the_same_name_are_deleted_first() -> None:
    former = settled(topology(uid="old"))
    left = changes(topology(uid="new"), former, Features())
    assert [each.metadata.name for each in left.delete] == ["net-vf0", "net-vf1"]
    assert not left.create + left.replace
    gone = {name: marked(each) for name, each in former.items()}
    assert not changes(topology(uid="new"), gone, Features()).delete


def marked(found: DeviceClass) -> DeviceClass:
    return replace(found, metadata=replace(found.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))


def test_a_topology_that_is_being_deleted_has_no_classes() -> None:
    going = topology(deletionTimestamp="2026-01-01T00:00:00Z")
    left = changes(going, settled(topology()), Features())
    assert [each.metadata.name for each in left.delete] == ["net-vf0", "net-vf1"]
    assert changes(going, {}, Features()).done


def test_the_classes_ask_for_supported_cnis_as_they_are_published() -> None:
    there = settled(topology())
    first, _ = changes(topology(), there, Features(list_attributes=True)).replace
    assert isinstance(first.spec, DeviceClassSpec)
    assert first.spec.selectors[0].cel is not None
    assert 'includes("sriov")' in first.spec.selectors[0].cel.expression


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="254 characters of at most 253"):
        changes(topology("a." * 124 + "b", "- {name: vf00, type: sriov}"), {}, Features())
