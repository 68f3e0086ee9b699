"""The schemas that are shipped for built-in steps say exactly what those steps take."""

import msgspec
import pytest

from netdra.steps.builtin import TYPES
from netdra.topology import shipped
from netdra.topology.config_check import COMMON

TAKEN_FROM_ANYBODY = COMMON | {"cniVersion"}


@pytest.mark.parametrize("cni_type", sorted(TYPES))
def test_a_built_in_step_takes_the_parameters_of_its_schema_and_no_others(cni_type: str) -> None:
    contract = shipped.contracts([cni_type])[cni_type]
    taken = {field.encode_name for field in msgspec.structs.fields(TYPES[cni_type].params)}
    assert set(contract.names) - TAKEN_FROM_ANYBODY == taken - TAKEN_FROM_ANYBODY
