"""A claim that asks for part of a topology is found before it is allocated, in known words."""

from collections.abc import Callable

import pytest

from netdra.model import documents
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.errors import without_code
from netdra.model.findings import Finding
from netdra.model.topology import NetworkTopology
from netdra.rules.claims import check_claim
from netdra.topology.bind import EXTENDED_RESOURCE_CLAIM
from netdra.topology.classes import device_classes
from testbed import yaml
from tests.documents import CLAIMS

Topology = Callable[..., NetworkTopology]
TWO = "- {name: vf0, type: sriov}\n- {name: vf1, type: sriov}\n- {name: b, type: bond, dependOn: [vf0, vf1]}"


def found(claim: ResourceClaim | ResourceClaimTemplate, *topologies: NetworkTopology) -> tuple[Finding, ...]:
    classes: dict[str, DeviceClass] = {}
    for topology in topologies:
        classes |= {each.metadata.name: each for each in device_classes(topology)}
    return check_claim(claim, {topology.name: topology for topology in topologies}, classes)


def claim(requests: str, **metadata: object) -> ResourceClaim:
    return documents.convert(
        {"metadata": {"name": "c", **metadata}, "spec": {"devices": {"requests": yaml.safe_load(requests)}}},
        ResourceClaim,
        "test",
    )


def template(name: str) -> ResourceClaimTemplate:
    (read,) = documents.read((CLAIMS / f"{name}.yaml").read_text(), name)
    assert isinstance(read, ResourceClaimTemplate)
    return read


@pytest.mark.parametrize(
    ("name", "topology"), [("ai-gpu-bonded-rdma", "ai-bonded-rdma"), ("ai-ovnk-aligned", "ovnk-udn-accelerated")]
)
def test_the_recorded_templates_fit_their_topologies(recorded: Topology, name: str, topology: str) -> None:
    assert found(template(name), recorded(topology)) == ()


def test_a_missing_root_step_request_is_reported_with_the_provided_requests(recorded: Topology) -> None:
    whole = yaml.safe_load((CLAIMS / "ai-gpu-bonded-rdma.yaml").read_text())
    requests = whole["spec"]["spec"]["devices"]["requests"]
    requests[:] = [request for request in requests if request["name"] != "vf1"]
    partial = documents.decode(whole, "test")
    assert isinstance(partial, ResourceClaimTemplate)
    (finding,) = found(partial, recorded("ai-bonded-rdma"))
    assert without_code(finding.text) == (
        'NetworkTopology "ai-bonded-rdma" requires root step requests [vf0, vf1], but ResourceClaimTemplate '
        '"ai-gpu-bonded-rdma" only provides requests [vf0]. Missing: [vf1]'
    )
    assert finding.path == ("spec", "spec", "devices", "requests")


VF0 = "- {name: vf0, exactly: {deviceClassName: two-vf0}}"
VF1 = "- {name: vf1, exactly: {deviceClassName: two-vf1}}"


def test_requests_for_other_drivers_in_a_claim_are_ignored(topology: Topology) -> None:
    two = topology(TWO, name="two")
    assert found(claim("- {name: gpu, exactly: {deviceClassName: gpu}}"), two) == ()
    assert found(claim(f"{VF0}\n{VF1}\n- {{name: gpu, exactly: {{deviceClassName: gpu}}}}"), two) == ()


def test_a_request_of_another_name_does_not_provide_the_step(topology: Topology) -> None:
    renamed = claim(f"- {{name: nic, exactly: {{deviceClassName: two-vf0}}}}\n{VF1}")
    (finding,) = found(renamed, topology(TWO, name="two"))
    assert finding.text.endswith(
        'ResourceClaim "c" only provides requests [nic, vf1]. Missing: [vf0]; rename request "nic" to "vf0" (ND1024)'
    )


def test_swapped_and_superfluous_requests_are_found(topology: Topology) -> None:
    two = topology(TWO, name="two")
    swapped = claim(f"{VF0}\n{VF1}".replace("two-vf0", "x").replace("two-vf1", "two-vf0").replace(": x", ": two-vf1"))
    assert ['its DeviceClass belongs to step "vf1"' in each.what for each in found(swapped, two)] == [True, False]
    assert [each.hint for each in found(swapped, two)] == [
        'set its deviceClassName to "two-vf0"',
        'set its deviceClassName to "two-vf1"',
    ]
    more = claim(f"{VF0}\n{VF1}\n- {{name: more, exactly: {{deviceClassName: two-vf1}}}}")
    (finding,) = found(more, two)
    assert 'ResourceClaim "c", request "more"' in finding.what
    assert finding.path == ("spec", "devices", "requests", 2, "exactly")


def test_every_topology_of_a_claim_is_checked(topology: Topology) -> None:
    topologies = topology(TWO, name="two"), topology(TWO, name="other")
    both = claim(f"{VF0}\n- {{name: vf1, exactly: {{deviceClassName: other-vf1}}}}")
    assert [each.hint for each in found(both, *topologies)] == ["Missing: [vf1]", "Missing: [vf0]"]


def test_alternatives_provide_a_step_by_the_name_of_the_request_or_their_own(topology: Topology) -> None:
    two, one = topology(TWO, name="two"), topology("- {name: port, type: sriov}", name="one")
    request = (
        "- {name: %s, firstAvailable: [{name: %s, deviceClassName: two-vf0}, {name: %s, deviceClassName: one-port}]}"
    )
    assert found(claim(f"{request % ('any', 'vf0', 'port')}\n{VF1}"), two, one) == ()
    (finding,) = found(claim(f"{request % ('vf0', 'fast', 'slow')}\n{VF1}"), two, one)
    assert finding.hint == "Missing: [port]"


@pytest.mark.parametrize("several", ["count: 2", "allocationMode: All"])
def test_several_devices_are_for_topologies_of_one_device_only(topology: Topology, several: str) -> None:
    asked = claim(f"- {{name: vf0, exactly: {{deviceClassName: two-vf0, {several}}}}}\n{VF1}")
    (finding,) = found(asked, topology(TWO, name="two"))
    assert 'request "vf0" requests several devices' in finding.what
    single = claim(f"- {{name: vf0, exactly: {{deviceClassName: two-vf0, {several}}}}}")
    assert found(single, topology("- {name: vf0, type: sriov}", name="two")) == ()


def test_admin_access_and_extended_resources_ask_for_no_topology(topology: Topology) -> None:
    two = topology(TWO, name="two")
    assert found(claim("- {name: vf0, exactly: {deviceClassName: two-vf0, adminAccess: true}}"), two) == ()
    asked = "- {name: container-0, exactly: {deviceClassName: two-vf0}}"
    marked = {EXTENDED_RESOURCE_CLAIM: "true"}
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u", "controller": True}
    assert found(claim(asked, annotations=marked, ownerReferences=[pod]), two) == ()
    # Anybody may write the annotation.
    assert len(found(claim(asked, annotations=marked), two)) == 1


def test_a_class_that_a_topology_left_behind_is_found(topology: Topology) -> None:
    classes = {each.metadata.name: each for each in device_classes(topology(TWO, name="two"))}
    (finding,) = check_claim(claim(f"{VF0}\n{VF1}"), {}, classes)
    assert finding.what == 'ResourceClaim "c" requests devices of NetworkTopology "two", which does not exist'


OWN = (
    'ResourceClaim "c" contains configuration for dra.networking, for all its requests; it is only allowed in a '
    "DeviceClass (decision D32)"
)


def test_a_topology_that_the_claim_brings_itself_is_found() -> None:
    own = documents.convert(
        yaml.safe_load("""
        metadata: {name: c}
        spec:
          devices:
            config:
            - opaque: {driver: gpu.nvidia.com, parameters: {networkTopologyRef: {name: x}}}
            - opaque: {driver: dra.networking, parameters: {networkTopologyRef: {name: x}, step: y}}
        """),
        ResourceClaim,
        "test",
    )
    (finding,) = found(own)
    assert finding.what == OWN
    assert "request the topology's DeviceClasses" in finding.hint
    assert finding.path == ("spec", "devices", "config", 1)


def test_any_configuration_for_the_driver_that_the_claim_brings_itself_is_found() -> None:
    own = documents.convert(
        yaml.safe_load("""
        metadata: {name: c}
        spec:
          devices:
            config:
            - opaque: {driver: dra.networking, parameters: {kind: DeviceParameters}}
            - opaque: {driver: dra.networking, parameters: [networkTopologyRef]}
            - opaque: {driver: gpu.nvidia.com, parameters: {}}
        """),
        ResourceClaim,
        "test",
    )
    assert [(finding.what, finding.path[-1]) for finding in found(own)] == [(OWN, 0), (OWN, 1)]


FIXED = "- {name: vf0, type: sriov, config: {name: data0}}"


def test_two_topologies_that_give_one_interface_name_are_refused(topology: Topology) -> None:
    first, second = topology(FIXED, name="a"), topology(FIXED.replace("vf0", "vf1"), name="b")
    both = claim("[{name: vf0, exactly: {deviceClassName: a-vf0}}, {name: vf1, exactly: {deviceClassName: b-vf1}}]")
    (finding,) = found(both, first, second)
    assert 'interface "data0" is also that of step "vf0" of NetworkTopology "a"' in finding.text
    assert finding.path == ("spec", "devices", "requests")
    alone = claim("[{name: vf0, exactly: {deviceClassName: a-vf0}}]")
    assert found(alone, first, second) == ()


@pytest.mark.parametrize("how", ["count: 2", "allocationMode: All"])
def test_several_devices_of_a_topology_that_names_its_interface_are_refused(topology: Topology, how: str) -> None:
    several = claim(f"[{{name: vf0, exactly: {{deviceClassName: a-vf0, {how}}}}}]")
    (finding,) = found(several, topology(FIXED, name="a"))
    assert 'interface "data0" is also that of step "vf0"' in finding.text
    assert "request one device, or remove interface names from the topology's steps" in finding.text
    assert found(several, topology("- {name: vf0, type: sriov}", name="a")) == ()


def test_alternatives_of_one_interface_name_do_not_clash(topology: Topology) -> None:
    first, second = topology(FIXED, name="a"), topology(FIXED, name="b")
    either = claim(
        "[{name: nic, firstAvailable: [{name: vf0, deviceClassName: a-vf0}, {name: vf0b, deviceClassName: b-vf0}]}]"
    )
    assert not any("data0" in finding.text for finding in found(either, first, second))
