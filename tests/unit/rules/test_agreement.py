"""The built-in steps accept topologies that pass the checks: no error is found later that could be found now.

Configs are drawn of the parameters that the plugins' schemas know, with values right, almost right and wrong. A step's
own `prepare` is the check of a chain before it touches anything.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.cni.plugins import PluginPath
from netdra.model.documents import convert
from netdra.model.plan import PlannedDevice
from netdra.model.result import CNIInterface, StepDevice, StepResult
from netdra.model.topology import NetworkTopology
from netdra.rules import shipped
from netdra.rules.topologies import check_topology
from netdra.steps import builtin
from netdra.steps.bond import BondParams
from netdra.steps.contract import Order
from netdra.topology.bind import unbound
from netdra.topology.references import find, resolve
from tests import draws

NOWHERE = PluginPath(directories=())
TEXTS = st.sampled_from([
    "", "10.0.0.1", "10.0.0.1/24", "fd00::1/64", "nope", "net1", "net2", "eth7", "02:00:00:00:00:01",
    "01:00:5e:00:00:01",
    "zz", "0000:3b:00.0", "3b:00.0", "default", "10.0.0.0/8", "on", "off", "100", "-1", "802.1q", "802.1ad", "auto",
    "active-backup", "802.3ad", "1", "layer2", "fast", "all", "none", "{{ a.mac }}", "{{ a.interfaceName }}",
    "{{ b.interfaceName }}", "{{ a.interfaces }}", "{{ a.pciAddress }}", "x{{ a.interfaceName }}", "vfio-pci", "better",
])  # fmt: skip
NUMBERS = st.sampled_from([-1, 0, 1, 2, 7, 8, 67, 68, 100, 1500, 4094, 4095, 9000, 65535, 65536, 2**32, 2**40])
SCALARS = st.one_of(TEXTS, NUMBERS, st.booleans(), st.none())
ROUTE_KEYS = ("destination", "dst", "gateway", "gw", "metric", "priority", "scope", "table", "onlink", "source")
ROUTES = st.fixed_dictionaries({}, optional=dict.fromkeys(ROUTE_KEYS, SCALARS))
LINKS = st.lists(st.fixed_dictionaries({}, optional={"name": TEXTS}) | TEXTS, max_size=3)
SYSCTLS = st.dictionaries(
    st.sampled_from(["net.core.somaxconn", "kernel.shmmax", "net", "net/ipv4/conf/IFNAME/forwarding"]), SCALARS
)
SHAPED: dict[str, st.SearchStrategy[Any]] = {
    "routes": st.lists(ROUTES, max_size=2),
    "addresses": st.lists(TEXTS, max_size=2),
    "links": LINKS,
    "sysctl": SYSCTLS,
    "arpIpTarget": st.lists(TEXTS, max_size=2) | TEXTS,
    "ethtool": st.dictionaries(
        st.sampled_from(["features", "rings", "channels", "coalesce", "other"]),
        st.dictionaries(st.sampled_from(["rx", "tso"]), SCALARS, max_size=2),
        max_size=2,
    ),
}
RIGHT: dict[str, dict[str, Any]] = {
    "bond": {
        "mode": "active-backup",
        "links": [{"name": "{{ a.interfaceName }}"}, {"name": "{{ b.interfaceName }}"}],
    },
    "vlan": {"id": 7, "master": "{{ a.interfaceName }}"},
    "vrf": {"vrfname": "blue", "table": 100},
}
AS_IT_MUST = {"name", "ipam", "dns", "args", "capabilities", "runtimeConfig", "deviceID", "logFile", "dataDir"}


def configs(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """A right config with some of the plugin's parameters drawn over it."""
    contract = shipped.contracts([kind])[kind]
    optional = {key: SHAPED.get(key, SCALARS) for key in sorted(set(contract.names) - AS_IT_MUST)}
    drawn = st.fixed_dictionaries({}, optional=optional)
    few = drawn.map(lambda found: dict(list(found.items())[:3]))
    return st.one_of(few, drawn).map(lambda found: {**RIGHT.get(kind, {}), **found})


def planned(kind: str, config: dict[str, Any], *, root: bool) -> NetworkTopology:
    steps: list[dict[str, Any]] = [
        {"name": name, "type": "host-device", "selector": {"cel": "true"}} for name in ("a", "b")
    ]
    own: dict[str, Any] = {"name": "x", "type": kind, "config": config}
    own |= {"selector": {"cel": "true"}} if root else {"dependOn": ["b", "a"]}
    value = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "NetworkTopology",
        "metadata": {"name": "t"},
        "spec": {"steps": [*steps, own]},
    }
    return convert(value, NetworkTopology, "drawn")


def result(if_name: str) -> StepResult:
    made = CNIInterface(name=if_name, mac="02:00:00:00:00:01", mtu=1500, sandbox="/s", pci_id="0000:3b:00.0")
    return StepResult(interfaces=(made,), devices=(StepDevice(pci_address="0000:3b:00.0", iommu_group="1"),))


@pytest.mark.parametrize("kind", sorted(builtin.TYPES))
@pytest.mark.parametrize("root", [True, False])
def test_a_config_accepted_by_the_topology_checks_can_be_prepared(kind: str, root: bool) -> None:
    passed = 0

    @settings(max_examples=draws.count(100, 2000))
    @given(configs(kind))
    def holds(config: dict[str, Any]) -> None:
        nonlocal passed
        if root and kind == "vlan":  # it stands on the device that it is allocated
            config = {key: value for key, value in config.items() if key != "master"}
        topology = planned(kind, config, root=root)
        if check_topology(topology):
            return
        plan = unbound(topology)
        names = {step.name: step.if_name for step in plan.steps}
        (step,) = (each for each in plan.steps if each.name == "x")
        if any(reference.field == "ips" for _, reference in find(step.config)):
            return
        device = PlannedDevice(
            request="x", pool="p", device="d", if_name="eth7", pci_address="0000:3b:00.1", mac="02:00:00:00:00:07"
        )
        if kind == "device-file":
            device = PlannedDevice(request="x", pool="p", device="d", device_file="/dev/null")
        if root and any(key in config for key in ("device", "pciBusID", "hwaddr", "rdmaDevice", "master")):
            return  # which device it is, nobody knows before it is allocated
        results = {name: result(names[name]) for name in ("a", "b")}
        order = Order(
            topology="t",
            step="x",
            type=kind,
            if_name=step.if_name,
            network="n",
            config=resolve(step.config, results) if not root else step.config,
            device=device if root else None,
            previous=result(names["a"]),
        )
        builtin.prepare(order, NOWHERE, 1.0)
        passed += 1

    holds()
    needs_others, needs_device = {"bond", "tuning", "vrf"}, {"host-device", "sriov", "vfio-pci", "device-file"}
    assert passed or kind in (needs_others if root else needs_device)


def test_a_bond_takes_the_interfaces_of_a_result_as_its_links() -> None:
    both = StepResult(interfaces=(*result("net1").interfaces, *result("net2").interfaces))
    config = resolve({"mode": "active-backup", "links": "{{ both.interfaces }}"}, {"both": both})
    order = Order(topology="t", step="b", type="bond", if_name="bond0", network="n", config=config, previous=both)
    prepared = builtin.prepare(order, NOWHERE, 1.0)
    assert isinstance(prepared.params, BondParams)
    assert prepared.params.members == ("net1", "net2")
