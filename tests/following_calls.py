"""Hints that no file of `netdra validate` leads to: a call with a mistake, and the call after its hint was followed.

`CALLS` are by name; `tests/unit/cli/test_hints_followed.py` makes both calls, and counts the hints of the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from netdra.cel import CelEvaluationError, compile_selector, device_variables
from netdra.cel.guards import guarded
from netdra.discovery.overrides import with_physnets
from netdra.exposure import expose, physnets, unwise
from netdra.exposure.ranks import RankIndex
from netdra.exposure.registered import Registered
from netdra.model import claim_rules, documents, metadata_rules, names, yaml_text
from netdra.model.claim import DeviceClass
from netdra.model.cni_plugin import DescribedPlugin
from netdra.model.errors import NetdraError
from netdra.model.findings import Finding
from netdra.model.inventory import INVENTORY_VERSION, Interface
from netdra.model.meta import ObjectMeta
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import Registration
from netdra.model.schema import CNIPluginSchemaSpec, ConfigParameters, Parameter
from netdra.ops import files, server
from netdra.review import topologies
from netdra.review.world import World
from netdra.rules.classes import check_made
from netdra.slices.allocator import Allocator
from netdra.slices.written import faults
from netdra.topology.classes import device_classes
from tests.builders import OURS, exclusive, inventory, pf, policy, topology
from tests.following_bindings import BINDINGS
from tests.unit.slices.asking import ANY
from tests.unit.slices.making import claim, device, request, slice_of
from tests.unit.slices.test_worst_case import one_of_each, rails

T = TypeVar("T")


class Call(NamedTuple):
    """Two calls that return errors as text, with their codes.

    Attributes:
        wrong: with a mistake.
        corrected: after its author followed the hint.
    """

    wrong: Callable[[], list[str]]
    corrected: Callable[[], list[str]]


def refused(function: Callable[[T], object], wrong: T, corrected: T) -> Call:
    """A function that raises an error for a value, and takes the corrected one."""
    return Call(lambda: _error(function, wrong), lambda: _error(function, corrected))


def reported(function: Callable[[T], Iterable[Finding | str]], wrong: T, corrected: T) -> Call:
    """A function that returns errors or warnings about a value, and none about the corrected one."""
    return Call(lambda: _texts(function(wrong)), lambda: _texts(function(corrected)))


def _error(function: Callable[[T], object], value: T) -> list[str]:
    try:
        function(value)
    except (NetdraError, CelEvaluationError) as problem:
        return [str(problem)]
    return []


def _texts(findings: Iterable[Finding | str]) -> list[str]:
    return [finding if isinstance(finding, str) else finding.text for finding in findings]


def _nested(levels: int) -> str:
    """A selector of conditions within conditions."""
    selector = f"{OURS}.rdma"
    for _ in range(levels):
        selector = f"({selector} ? {OURS}.rdma : {OURS}.sriovCapable)"
    return selector


NIC = pf("enp1s0f0")
VETH = Interface(if_name="eth7", type="veth", mac="02:00:00:00:00:07", mtu=1500, oper_state="up")
WHOLE = exclusive("whole", f'{OURS}.ifName == "enp1s0f0"')


def _is_new_firmware(version: str) -> bool:
    selector = compile_selector(f'device.driver != "" && semver("{version}").isGreaterThan(semver("1.0.0"))')
    return selector.matches(device_variables(names.DRIVER, {}))


def _of_ten(last: DeviceExposurePolicy) -> Iterator[Finding]:
    """The warnings for the last one of ten policies."""
    ranks = RankIndex([*(policy(f"p{number}", "true") for number in range(9)), last])
    return (finding for finding in unwise.warnings(last, ranks.of(last)) if "same selector" in finding.what)


def _wired(*options: str) -> list[str]:
    """The errors of a node with a NIC for the options --physnet."""
    here = with_physnets(inventory(NIC), physnets.read(options))
    return [problem.message for problem in physnets.problems(here)]


def _registered(registration: Registration) -> list[str]:
    """The errors of a registration of a veth, for which there is a policy if it is added."""
    offer = policy("offer", f'{OURS}.registeredBy == "bctl"')
    result = expose(inventory(VETH), [offer], registered=Registered([registration]))
    return [outcome.problem for outcome in result.outcomes if outcome.problem]


TOPOLOGY = topology("- {name: nic, type: host-device}", name="lan")


def _changed(name: str) -> list[str]:
    """The errors of the topology with another step, under a name, while pods use the one that is there."""
    step = replace(TOPOLOGY.spec.steps[0], config={"name": "lan0"})
    new = replace(TOPOLOGY, metadata=ObjectMeta(name=name), spec=replace(TOPOLOGY.spec, steps=(step,)))
    old, users = (TOPOLOGY, ("app/one",)) if name == TOPOLOGY.name else (None, ())
    return _texts(topologies.errors(new, World(users=users), old))


def _class(configs: int, size: int, annotation: int) -> Iterator[Finding]:
    """The errors of a DeviceClass with configurations, of a size in bytes, and an annotation."""
    opaque = {"driver": "gpu.example.com", "parameters": {"a": "x" * size}}
    value = {
        "metadata": {"name": "gpu", "annotations": {"example.com/notes": "x" * annotation}},
        "spec": {"config": [{"opaque": opaque}] * configs},
    }
    read = documents.convert(value, DeviceClass, "test")
    yield from metadata_rules.findings(read.metadata)
    yield from claim_rules.findings(read)


def _described(words: int) -> str:
    """The message of a plugin's image whose schema has a long description."""
    noise = hashlib.shake_256(b"words").hexdigest(words)
    parameter = Parameter(name="bridge", type="string", description=noise)
    schema = CNIPluginSchemaSpec(cni_type="ovs", config_parameters=ConfigParameters(required=(parameter,)))
    return DescribedPlugin(digest="0" * 64, schema=schema).as_text()


def _loaded(text: str) -> list[object]:
    return list(yaml_text.load(text, "nodes.yaml"))


def _aliases(levels: int) -> str:
    """A short text that names itself over and over."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, levels)]
    return "\n".join(lines)


def _inventory(version: str) -> object:
    return documents.inventory_of({"apiVersion": version, "node": {"name": "n"}, "interfaces": []}, "n.json")


def _slices(*counts: int) -> Iterator[Finding]:
    """The errors of the slices of one pool, each with a number of devices."""
    made = [
        slice_of(*(device(f"d{at}-{number}") for number in range(count)), name=f"s{at}", count=len(counts))
        for at, count in enumerate(counts)
    ]
    return (finding for _, finding in faults(made))


def _foreseen(*requests: dict[str, Any], lanes: bool = False) -> list[Finding]:
    """The warnings for a claim, on a node with four PFs of 63 VFs, or of a lane."""
    allocator = Allocator(rails(4, 1 if lanes else 63, lanes=lanes), [ANY])
    return allocator.foresee(claim("c", *requests)).findings("c")


_OF_PF = request(
    "pf", f"device.attributes['{names.DRIVER}'].type == 'pf' && device.attributes['{names.DRIVER}'].pf == 3"
)


def _owned(cel: str, written: str) -> Iterator[Finding]:
    """The errors of the DeviceClass of a topology with a selector, as one with another selector would have it."""
    (made,), (other,) = (
        device_classes(topology(f"- {{name: nic, type: host-device, selector: {{cel: '{text}'}}}}", name="lan"))
        for text in (cel, written)
    )
    return check_made(other, [made])


CALLS: dict[str, Call] = {
    **{name: refused(lambda call: call(), *calls) for name, calls in BINDINGS.items()},
    "a selector of many nested conditions": refused(guarded, _nested(25), _nested(3)),
    "a version of two numbers": refused(_is_new_firmware, "2.1", "2.1.0"),
    "two policies of one name": refused(lambda policies: expose(inventory(NIC), policies), [WHOLE, WHOLE], [WHOLE]),
    "the last of ten policies of one rank": reported(
        _of_ten, policy("p9", "true"), policy("p9", "true", spec={"priority": 200})
    ),
    "a NIC in two physical networks": refused(
        physnets.read, ["physnet1=enp1s0f0", "physnet2=enp1s0f0"], ["physnet1=enp1s0f0"]
    ),
    "a physical network without a NIC": refused(physnets.read, ["physnet1"], ["physnet1=enp1s0f0"]),
    "a registered interface that is not a device": reported(
        lambda adds: _registered(Registration(provider="bctl", device="eth7", adds=adds)), False, True
    ),
    "a topology that pods use": Call(lambda: _changed("lan"), lambda: _changed("lan-2")),
    "long opaque parameters": reported(lambda size: _class(1, size, 0), 11_000, 100),
    "many configurations of a class": reported(lambda count: _class(count, 0, 0), 33, 32),
    "long annotations": reported(lambda size: _class(1, 0, size), 300_000, 100),
    "a long schema in an image": refused(_described, 4000, 100),
    "a file of two clusters": refused(_loaded, " " * (yaml_text.MAX_TEXT + 1), "{}"),
    "a long file of YAML": refused(_loaded, f"a: {'x' * yaml_text.MAX_YAML}", f'"{"x" * yaml_text.MAX_YAML}"'),
    "aliases of aliases": refused(_loaded, _aliases(7), _aliases(2)),
    "an inventory of another version": refused(_inventory, "networking.dra.io/inventory-v0", INVENTORY_VERSION),
    "a state file of a newer netdra": refused(lambda newest: files.refuse_newer(b'{"version": 3}', newest, "f"), 2, 3),
    "an address without a port": refused(server.address, "none", ""),
    "a slice of many devices": reported(lambda counts: _slices(*counts), (129,), (65, 64)),
    "requests whose scarcest is the last": reported(
        lambda requests: _foreseen(*requests), [*one_of_each(3), _OF_PF], [_OF_PF, *one_of_each(3)]
    ),
    "requests of many devices": reported(lambda lanes: _foreseen(*one_of_each(4), lanes=lanes), False, True),
    "a DeviceClass of another topology": reported(
        lambda cel: _owned(cel, f'{OURS}.type == "vf"'), f'{OURS}.type == "nic"', f'{OURS}.type == "vf"'
    ),
    "an unknown node": refused(
        lambda node: Allocator([slice_of(device("d"))], [ANY]).allocate(claim("c", request()), nodes=[node]), "n2", "n1"
    ),
    "a NIC that the node does not have": reported(lambda nic: _wired(f"physnet1={nic}"), "eth0", "enp1s0f0"),
}
