"""A step names the device that it was allocated and interfaces of its own sandbox, and nothing else of the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from netdra.model import documents
from netdra.model.plan import PlannedDevice, PlannedStep
from netdra.model.schema import CNIPluginSchema
from netdra.rules import confine
from netdra.rules.confine import Permits
from netdra.rules.topologies import check_topology
from tests import builders
from tests.plans import plan, step

ALLOCATED = PlannedDevice(
    request="vf0",
    pool="n/sriov-p0",
    device="p0v1",
    if_name="p0v1",
    pci_address="0000:03:00.1",
    mac="02:00:00:00:00:01",
    rdma_device="mlx5_1",
)
ROOT = step("vf0", "sriov", "net1", device=ALLOCATED)


def derived(kind: str, config: Mapping[str, Any], *, binary: bool | None = None) -> PlannedStep:
    return step("mine", kind, "net2", config, after=["vf0"], binary=binary)


def root(kind: str, config: Mapping[str, Any], *, binary: bool | None = None) -> PlannedStep:
    return step("mine", kind, "net2", config, device=ALLOCATED, binary=binary)


def told(*steps: PlannedStep, own: tuple[CNIPluginSchema, ...] = (), permits: Permits | None = None) -> list[str]:
    plans = [plan(*steps)]
    return [each.text for each in confine.check(plans, confine.contracts_of(plans, own), permits)]


UPLINK_BY = [
    ("host-device", {"device": "uplink"}),
    ("host-device", {"hwaddr": "02:00:00:00:00:99"}),
    ("host-device", {"kernelpath": "/sys/devices/pci0000:00/0000:00:02.0"}),
    ("host-device", {"pciBusID": "0000:00:02.0"}),
    ("host-device", {"deviceID": "0000:00:02.0"}),
    ("host-device", {"runtimeConfig": {"deviceID": "0000:00:02.0"}}),
    ("host-device", {"device": "{{ vf0.interfaceName }}"}),
    ("sriov", {"pciBusID": "0000:00:02.0"}),
    ("vfio-pci", {"pciBusID": "0000:00:02.0"}),
    ("rdma", {"rdmaDevice": "mlx5_9"}),
    ("bridge", {"bridge": "br-uplink"}),
    ("bridge", {}),
]


@pytest.mark.parametrize(("kind", "config"), UPLINK_BY, ids=str)
def test_a_derived_step_takes_no_device_of_the_node(kind: str, config: dict[str, Any]) -> None:
    for binary in (True, False):
        (text,) = told(ROOT, derived(kind, config, binary=binary))
        assert (
            "refers to a device of the node: a step with dependOn only uses the results of earlier "
            "steps, not the node's interfaces; allocate it"
        ) in text


OTHER_DEVICE = [
    ("host-device", {"device": "uplink"}),
    ("host-device", {"hwaddr": "02:00:00:00:00:99"}),
    ("host-device", {"kernelpath": "/sys/devices/pci0000:00/0000:00:02.0"}),
    ("host-device", {"pciBusID": "0000:00:02.0"}),
    ("host-device", {"deviceID": "0000:00:02.0"}),
    ("macvlan", {"master": "uplink"}),
    ("ipvlan", {"master": "uplink"}),
    ("vlan", {"master": "uplink", "id": 7}),
    ("bridge", {"bridge": "br-uplink"}),
    ("rdma", {"rdmaDevice": "mlx5_9"}),
    ("bond", {"links": [{"name": "uplink"}]}),
]


@pytest.mark.parametrize(("kind", "config"), OTHER_DEVICE, ids=str)
def test_a_root_step_config_naming_another_device_is_rejected(kind: str, config: dict[str, Any]) -> None:
    for binary in (True, False):
        (text,) = told(root(kind, config, binary=binary))
        assert 'does not match the allocated device "p0v1"' in text


SOUND = [
    root("host-device", {"device": "p0v1", "hwaddr": "02:00:00:00:00:01", "pciBusID": "0000:03:00.1"}, binary=True),
    root("macvlan", {"master": "p0v1"}),
    root("rdma", {"rdmaDevice": "mlx5_1"}),
    derived("sriov", {"deviceID": "{{ vf0.pciAddress }}"}, binary=True),
    derived("rdma", {"rdmaDevice": "{{ vf0.rdmaDevice }}"}),
    derived("macvlan", {"master": "{{ vf0.interfaceName }}", "linkInContainer": True}),
    derived("macvlan", {"master": "eth0", "linkInContainer": True}),
    derived("vlan", {"master": "{{ vf0.interfaceName }}", "id": 7}),
    derived("bond", {"mode": "active-backup", "links": [{"name": "{{ vf0.interfaceName }}"}]}),
    derived("tuning", {"mtu": 1400, "sysctl": {"net.ipv4.ip_forward": "1"}}),
]


@pytest.mark.parametrize("sound", SOUND, ids=lambda one: f"{one.type} {one.config}")
def test_a_step_may_name_its_allocated_device_and_interfaces_in_its_pod(sound: PlannedStep) -> None:
    assert told(*([ROOT] if sound.depend_on else []), sound) == []


@pytest.mark.parametrize("address", ["{{ vf0.pciAddress }}", "0000:03:00.1"])
def test_a_derived_step_takes_no_device_that_others_have_a_share_of(address: str) -> None:
    shared = msgspec.structs.replace(ALLOCATED, share_id="s")
    mac = step("vf0", "macvlan", "net1", device=shared)
    for kind in ("host-device", "vfio-pci", "sriov"):
        (text,) = told(mac, derived(kind, {"pciBusID": address}))
        assert "refers to a device of the node" in text
        assert told(ROOT, derived(kind, {"pciBusID": address})) == []


@pytest.mark.parametrize("kind", ["macvlan", "ipvlan", "vlan"])
def test_a_derived_binary_step_requires_link_in_container_to_be_true(kind: str) -> None:
    for config in ({}, {"linkInContainer": False}, {"linkInContainer": "true"}):
        (text,) = told(ROOT, derived(kind, {"master": "bond0", **config}, binary=True))
        assert "linkInContainer must be true" in text
    assert told(ROOT, derived(kind, {"linkInContainer": True}, binary=True)) == []


def test_a_derived_bond_takes_no_links_of_the_node() -> None:
    links = [{"name": "uplink"}, {"name": "net1"}]
    (text,) = told(ROOT, derived("bond", {"links": links, "linksInContainer": False}, binary=False))
    assert "linksInContainer must be true" in text
    assert told(ROOT, derived("bond", {"links": links}, binary=True)) != []


LINKS_OF_OTHERS = [
    ({"links": ["uplink", {"name": "p0v1"}]}, "config.links[0] "),
    ({"links": [{"name": "p0v1"}, {"name": "uplink"}]}, "config.links[1].name "),
    ({"links": ["p0v1", "uplink"]}, "config.links[1] "),
]


@pytest.mark.parametrize(("config", "where"), LINKS_OF_OTHERS, ids=str)
def test_a_bond_names_no_interface_of_the_host_in_either_spelling_of_its_links(
    config: dict[str, Any], where: str
) -> None:
    (text,) = told(root("bond", config, binary=False))
    assert f'{where}"uplink" does not match the allocated device "p0v1"' in text


@pytest.mark.parametrize("links", [["{{ params.x }}"], [{"name": "{{ params.x }}"}]], ids=str)
def test_a_claim_parameter_must_not_set_bond_links_in_either_spelling(links: list[Any]) -> None:
    (text,) = told(ROOT, derived("bond", {"links": links}, binary=False))
    assert "refers to a device or a path, which a claim must not set" in text


def test_a_path_must_not_depend_on_a_fact() -> None:
    (text,) = told(root("sriov", {"ipam": {"type": "host-local", "dataDir": "/var/{{ node.name }}"}}))
    assert "refers to a device or a path, which must not depend on a fact" in text


def test_a_bond_link_with_a_differently_spelled_key_is_rejected() -> None:
    (text,) = told(ROOT, derived("bond", {"links": ["net1", {"Name": "uplink"}]}, binary=False))
    assert 'config.links[1].Name as "name"; use only name' in text


@pytest.mark.parametrize(
    "links", [["{{ vf0.interfaceName }}", "net2"], ["net1", {"name": "net2"}], [{"name": "net1"}]], ids=str
)
def test_a_bond_may_name_interfaces_of_the_pod_in_either_spelling(links: list[Any]) -> None:
    assert told(ROOT, derived("bond", {"links": links}, binary=False)) == []


@pytest.mark.parametrize(
    ("shape", "value", "places"),
    [
        ("string | object", "uplink", [()]),
        ("string | object", {"dev": "uplink"}, [("dev",)]),
        ("[](string | object)", ["uplink", {"dev": "uplink"}], [(0,), (1, "dev")]),
        ("(string | object)", 5, [()]),
        ("[](object | string)", [5], [(0,)]),
        ("map[string](string | object)", {"a": "uplink", "b": {"dev": "uplink"}}, [("a",), ("b", "dev")]),
        ("[]string | string", ["uplink", "x"], [(0,), (1,)]),
        ("[]string", ["uplink", ["x"]], [(0,), (1, 0)]),
    ],
    ids=str,
)
def test_of_a_value_with_alternatives_each_place_that_names_something_is_seen(
    shape: str, value: Any, places: list[tuple[Any, ...]]
) -> None:
    said: dict[str, Any] = {"format": "hostInterface"}
    if "object" in shape:
        said["properties"] = {"dev": {"type": "string", "format": "hostInterface"}}
    whole = {"items": said} if shape.startswith(("[](", "map")) else said
    own = schema("probe", type=shape, **whole)
    plans = [plan(root("probe", {"uplink": value}))]
    found = confine.check(plans, confine.contracts_of(plans, (own,)))
    assert [each.path[4:] for each in found] == places


def test_a_lists_format_is_that_of_its_elements_that_are_texts() -> None:
    objects = {"properties": {"dev": {"type": "string", "format": "interface"}}}
    own = schema("probe", type="[](string | object)", format="hostInterface", items=objects)
    (text,) = told(root("probe", {"uplink": ["p0v1", {"dev": "p0v1"}, "uplink"]}), own=(own,))
    assert 'config.uplink[2] "uplink" does not match the allocated device' in text


def test_a_root_vlan_step_must_not_set_link_in_container() -> None:
    (text,) = told(root("vlan", {"id": 7, "linkInContainer": True}))
    assert "linkInContainer must not be set" in text


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ({"Master": "uplink", "linkInContainer": True}, 'most plugins read config.Master as "master"'),
        ({"linkincontainer": False, "linkInContainer": True}, 'config.linkincontainer as "linkInContainer"'),
        ({"PrevResult": {}, "linkInContainer": True}, 'config.PrevResult as "prevResult"'),
        ({"lin\u212aInContainer": False, "linkInContainer": True}, 'as "linkInContainer"'),
        ({"x": 1, "X": 2, "linkInContainer": True}, 'config.X as "x"'),
        ({"runtimeConfig": {"DeviceID": "x"}, "linkInContainer": True}, "config.runtimeConfig.DeviceID as"),
        ({"ipam": {"type": "static", "Type": "sh"}, "linkInContainer": True}, 'config.ipam.Type as "type"'),
        (
            {"ipam": {"type": "host-local", "DATADIR": "/etc"}, "linkInContainer": True},
            'config.ipam.DATADIR as "dataDir"',
        ),
    ],
    ids=str,
)
def test_no_other_spelling_that_plugins_take_for_a_key_passes(config: dict[str, Any], wrong: str) -> None:
    (text,) = told(ROOT, derived("macvlan", config))
    assert wrong in text


SECRET = {"type": "host-local", "subnet": "10.1.0.0/24", "resolvConf": "/etc/kubernetes/admin.conf"}
STRICT = Permits(allows=lambda path: "" if path.startswith("/var/lib/cni/") else "this node allows none")


@pytest.mark.parametrize(
    "config",
    [
        {"ipam": SECRET},
        {"ipam": {"type": "host-local", "dataDir": "/etc/cron.d"}},
        {"ipam": {"type": "dhcp", "daemonSocketPath": "/run/containerd/containerd.sock"}},
        {"runtimeConfig": {"CNIDeviceInfoFile": "/etc/cron.d/x"}},
        {"logFile": "/etc/cron.d/x"},
    ],
    ids=str,
)
def test_a_path_of_the_node_is_refused_unless_the_node_allows_it(config: dict[str, Any]) -> None:
    (text,) = told(root("sriov", config), permits=STRICT)
    assert "is a path of the node: this node allows none" in text
    assert "--allow-host-path" in text
    assert told(root("sriov", config)) == []


def test_a_path_that_the_node_allows_may_be_named() -> None:
    ipam = {"type": "host-local", "dataDir": "/var/lib/cni/networks"}
    assert told(root("sriov", {"ipam": ipam}), permits=STRICT) == []


@pytest.mark.parametrize("path", ["etc/x", "/var/lib/cni/../../etc", "/var/{{ vf0.interfaceName }}"])
def test_a_path_is_written_out(path: str) -> None:
    (text,) = told(root("sriov", {"ipam": {"type": "host-local", "dataDir": path}}))
    assert "is not a plain path of the node" in text


def test_only_plugins_of_the_default_list_are_run_by_default() -> None:
    (text,) = told(root("loopback", {}), permits=Permits())
    assert text.endswith(
        'plugin "loopback" is not allowed: it does not have a CNIPluginSchema; create a '
        "CNIPluginSchema for it, or set the "
        "chart's value node.allowPlugins to [default, loopback] "
        "(netdra node --allow-plugin default --allow-plugin loopback) (ND1160)"
    )
    assert told(root("loopback", {}), permits=Permits(), own=(schema("loopback"),)) == []
    (text,) = told(root("macvlan", {}), permits=Permits())
    assert 'plugin "macvlan" is not allowed: the default list' in text
    assert told(root("macvlan", {}), permits=Permits(named=frozenset({"macvlan"}))) == []
    (text,) = told(root("sriov", {"ipam": {"type": "sh"}}), permits=Permits())
    assert 'plugin "sh" is not allowed' in text
    (text,) = told(root("sriov", {"ipam": {"type": "{{ vf0.interfaceName }}"}}), permits=Permits())
    assert "the plugin's type is" in text


def test_a_plugin_allow_list_takes_precedence_over_the_schemas() -> None:
    permits = Permits(plugins=frozenset({"loopback"}))
    assert told(root("loopback", {}), permits=permits) == []
    (text,) = told(root("macvlan", {}), permits=permits)
    assert "node.allowPlugins only contains loopback" in text
    assert told(root("sriov", {}), permits=permits) == []
    assert told(root("sh", {}), permits=Permits(plugins=frozenset({"*"}))) == []


def schema(plugin: str, **parameter: Any) -> CNIPluginSchema:
    optional = [{"name": "uplink", "type": "string", **parameter}]
    raw = {
        "apiVersion": "cni.networking.k8s.io/v1alpha1",
        "kind": "CNIPluginSchema",
        "metadata": {"name": plugin},
        "spec": {"cniType": plugin, "configParameters": {"optional": optional}},
    }
    return documents.convert(raw, CNIPluginSchema, plugin)


def test_a_vendor_schema_declares_which_parameters_name_host_interfaces() -> None:
    own = (schema("vendor", format="hostInterface"),)
    assert len(told(ROOT, derived("vendor", {"uplink": "uplink"}), own=own)) == 1
    assert told(ROOT, derived("vendor", {"uplink": "net1"}), own=(schema("vendor", format="interface"),)) == []


def test_a_user_schema_cannot_remove_restrictions_of_the_shipped_schema() -> None:
    (text,) = told(ROOT, derived("host-device", {"device": "uplink"}), own=(schema("host-device"),))
    assert "refers to a device of the node" in text


TAKES_THE_UPLINK = """
- {name: vf0, type: sriov, selector: {cel: 'true'}}
- {name: thief, type: host-device, dependOn: [vf0], config: {device: uplink}}
"""


def test_a_topology_that_takes_the_uplink_is_refused_when_it_is_written() -> None:
    (finding,) = check_topology(builders.topology(TAKES_THE_UPLINK))
    assert 'step "thief": config.device "uplink" refers to a device of the node' in finding.what
    assert finding.path == ("spec", "steps", 1, "config", "device")
