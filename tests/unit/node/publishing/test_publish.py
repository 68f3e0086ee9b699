"""A refusal is blamed on devices only where the server names them."""

import pytest

from netdra.kube.errors import Status, StatusCause, StatusDetails
from netdra.model.meta import ObjectMeta
from netdra.model.resource import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from netdra.node.publishing.publisher import RefusedDevice, refused_devices

SENT = ResourceSlice(
    metadata=ObjectMeta(),
    spec=ResourceSliceSpec(
        driver="d",
        pool=ResourcePool(name="p", generation=1, resource_slice_count=1),
        devices=tuple(Device(name=name) for name in "abc"),
    ),
)


def refused(*fields: str) -> tuple[RefusedDevice, ...]:
    causes = tuple(StatusCause(field=field, message="is wrong") for field in fields)
    return refused_devices(Status(code=422, details=StatusDetails(causes=causes)), SENT)


def test_each_named_device_is_refused_once_with_its_first_reason() -> None:
    found = refused("spec.devices[2].attributes[x].version", "spec.devices[0].name", "spec.devices[2].capacity[y]")

    assert found == (
        RefusedDevice("a", "spec.devices[0].name: is wrong"),
        RefusedDevice("c", "spec.devices[2].attributes[x].version: is wrong"),
    )


@pytest.mark.parametrize("field", ["spec.devices", "spec.pool.name", "spec", "metadata.name", ""])
def test_a_rejection_of_the_whole_slice_blames_no_device(field: str) -> None:
    assert refused("spec.devices[0].name", field) == ()


def test_a_rejection_without_causes_blames_no_device() -> None:
    assert refused_devices(Status(code=403, message="forbidden"), SENT) == ()


def test_a_rejection_with_an_index_past_the_devices_blames_no_device() -> None:
    assert refused("spec.devices[7].name") == ()
