"""The schemas that are shipped for built-in steps state exactly what those steps take."""

import msgspec
import pytest

from netdra.rules import shipped
from netdra.rules.config import COMMON, check_config
from netdra.steps.builtin import TYPES

TAKEN_FROM_ANYBODY = COMMON | {"cniVersion"}


@pytest.mark.parametrize("cni_type", sorted(TYPES))
def test_a_built_in_step_takes_the_parameters_of_its_schema_and_no_others(cni_type: str) -> None:
    contract = shipped.contracts([cni_type])[cni_type]
    taken = {field.encode_name for field in msgspec.structs.fields(TYPES[cni_type].params)}
    assert set(contract.names) - TAKEN_FROM_ANYBODY == taken - TAKEN_FROM_ANYBODY


@pytest.mark.parametrize(("mode", "fits"), [(4, True), ("802.3ad", True), (7, False), (True, False), ("lacp", False)])
def test_a_bond_s_mode_is_a_name_or_its_number_as_the_step_takes_it(mode: object, fits: bool) -> None:
    config = {"mode": mode, "links": [{"name": "a"}, {"name": "b"}]}
    complaints = list(check_config(config, shipped.contracts(["bond"])["bond"]))
    assert (not complaints) is fits


LINKS = [
    (["{{ vf0.interfaceName }}", "net2"], True),
    ([{"name": "{{ vf0.interfaceName }}"}, "net2"], True),
    ("{{ both.interfaces }}", True),
    ("{{ vf0.deviceNodes }}", False),
    (["net1"], False),
    (["{{ vf0.mac }}", "net2"], False),
    (["no name", "net2"], False),
    ([5, "net2"], False),
    ([{"nme": "net1"}, "net2"], False),
    ("net1", False),
]


@pytest.mark.parametrize(("links", "fits"), LINKS, ids=str)
def test_a_bond_s_links_are_names_or_objects_as_the_step_takes_them(links: object, fits: bool) -> None:
    complaints = list(check_config({"mode": 1, "links": links}, shipped.contracts(["bond"])["bond"]))
    assert (not complaints) is fits


def test_the_program_bond_reads_objects_alone() -> None:
    config = {"mode": "active-backup", "miimon": 100, "links": ["net1", "net2"]}
    program = shipped.contracts(["bond (Binary)"])["bond (Binary)"]
    assert [each.hint for each in check_config(config, program)] == ["Use {name: net1}.", "Use {name: net2}."]
