"""A VF with a port in Neutron, in a real pod: the real Neutron's answer gets to the NIC and into the pod, and back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.objects import CLASS, manifest
from testbed.openstack.cloud import Cloud
from testbed.vm.beside import PATIENCE, joined_cloud
from testbed.waiting import until
from tests.cluster import identities
from tests.cluster.identities import NETDRA
from tests.cluster.pods.driver import ATTRIBUTES, POLICY, TOPOLOGY, WITHIN, Offer, addresses
from tests.hardware.node import PF, VF
from tests.hardware.pods import node_state, of_pf, until_as_before
from tests.hardware.real.offers import device_of, pf_of
from tests.hardware.real.worker import Worker

NEUTRON_PORT = "networking.dra.io/v1alpha1/NeutronPort"
PHYSNET, RATE = "physnet2", 200


@pytest.fixture
def cloud(worker: Worker) -> Iterator[Cloud]:
    """The cloud outside, whose agent of this node has a PF on a physical network."""
    cloud = joined_cloud()
    cloud.beat(worker.machine.node.name, **{PHYSNET: ["enp65s0f0"]})
    yield cloud
    cloud.silence(worker.machine.node.name)


@pytest.fixture
def controller(worker: Worker, cloud: Cloud) -> Iterator[None]:
    """The controller, with its own rights, on the node; it ends with the test."""
    command = [
        *(sys.executable, "-m", "netdra", "controller", "--identity=controller"),
        f"--kubeconfig={identities.kubeconfig(worker.plane, worker.api, 'netdra-controller')}",
        f"--neutron-clouds={cloud.clouds(worker.plane.authority.folder / 'clouds.yaml')}",
    ]

    def leads() -> bool:
        leases = worker.api.list("coordination.k8s.io/v1/Lease", NETDRA, fields="metadata.name=netdra-controller")
        return any(lease["spec"].get("holderIdentity") == "controller" for lease in leases)

    process = worker.machine.node.start("netdra-controller", command, leads)
    yield
    process.stop()


def slow(cloud: Cloud) -> Any:
    """A QoS policy of `RATE` Mbit/s."""
    made = cloud.admin("neutron", "POST", "/v2.0/qos/policies", {"policy": {"name": "slow", "shared": True}})["policy"]
    rule = {"bandwidth_limit_rule": {"max_kbps": RATE * 1000, "direction": "egress"}}
    cloud.admin("neutron", "POST", f"/v2.0/qos/policies/{made['id']}/bandwidth_limit_rules", rule)
    return made


def offer_on_physnet(offer: Offer, vf: VF) -> None:
    """Offer a VF as one of the physical network, and wait until it is published."""
    exposure = {
        "supportedCNIPlugins": [{"name": "sriov", "exclusive": True}],
        "additionalAttributes": {"physnet": PHYSNET},
    }
    cel = f"{ATTRIBUTES}.pfName == {pf_of(vf).name!r} && {ATTRIBUTES}.vfIndex == {vf.index}"
    spec = {"selector": {"cel": cel}, "exposure": exposure}
    offer.workspace.create(manifest(POLICY, offer.workspace.name("physnet"), spec=spec))
    offer.wait_published(device_of(vf))


def topology(offer: Offer, **neutron: Any) -> str:
    """A topology of one VF with a port; the class that the controller makes of it."""
    name = offer.workspace.name("ported")
    step = {"name": "vf", "type": "sriov", "selector": {"cel": f'{ATTRIBUTES}.physnet == "{PHYSNET}"'}}
    offer.workspace.create(manifest(TOPOLOGY, name, spec={"steps": [{**step, "neutron": neutron}]}))
    offer.workspace.api.wait_for(CLASS, f"{name}-vf", lambda found: found is not None)
    return f"{name}-vf"


def test_a_vf_in_a_pod_gets_the_settings_of_its_neutron_port_and_is_restored_afterwards(
    pfs: tuple[PF, ...], offer: Offer, cloud: Cloud, controller: None
) -> None:
    vf = pfs[0].vf(5)
    network = cloud.network("machine", PHYSNET, ["10.66.0.0/24"])
    before = node_state()
    offer_on_physnet(offer, vf)
    claim = offer.claim("ported", vf=topology(offer, network="machine", qosPolicy=slow(cloud)["id"]))
    offer.pods.run("ported", claim)

    (port,) = (each for each in cloud.ports() if each["network_id"] == network["id"])
    assert port["binding:host_id"] == offer.driver.node.name
    assert port["binding:profile"]["pci_slot"] == vf.pci
    held = of_pf(vf)
    vlan = int(port["binding:vif_details"]["vlan"])
    assert (held["address"], held["vlan_list"]) == (port["mac_address"], [{"vlan": vlan}])
    assert (held["spoofchk"], held["trust"], held["rate"]["max_tx"]) == (True, False, RATE)
    inside = offer.inside("ported")["net1"]
    assert (inside["address"], inside["parentdev"]) == (port["mac_address"], vf.pci)
    (fixed,) = port["fixed_ips"]
    assert addresses(inside) == {f"{fixed['ip_address']}/24"}
    (device,) = offer.status(claim)
    assert device["networkData"]["hardwareAddress"] == port["mac_address"]
    assert device["networkData"]["ips"] == [f"{fixed['ip_address']}/24"]
    (told,) = offer.workspace.api.list(NEUTRON_PORT, offer.workspace.namespace)
    assert told["status"]["portID"] == port["id"]

    offer.pods.delete("ported")
    offer.driver.until_nothing_is_left()
    until_as_before(before)
    # Kubernetes has taken its devices from a claim that no pod uses, and with them the ports go.
    until(lambda: port["id"] not in {each["id"] for each in cloud.ports()}, "the port to be deleted", seconds=PATIENCE)
    until(
        lambda: not offer.workspace.api.list(NEUTRON_PORT, offer.workspace.namespace),
        "the NeutronPort to be gone",
        seconds=WITHIN,
    )
