import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.cni import results
from netdra.model.result import CNIDNS, CNIAddress, CNIInterface, CNIRoute, StepResult

FULL = StepResult(
    interfaces=(
        CNIInterface(name="cni0", mac="00:11:22:33:44:55"),
        CNIInterface(
            name="net1",
            mac="99:88:77:66:55:44",
            mtu=9000,
            sandbox="/run/netns/blue",
            socket_path="/run/vhost.sock",
            pci_id="0000:03:00.2",
        ),
    ),
    ips=(
        CNIAddress(address="10.1.0.5/16", gateway="10.1.0.1", interface=1),
        CNIAddress(address="2001:db8::5/64", interface=1),
    ),
    routes=(CNIRoute(dst="0.0.0.0/0", gw="10.1.0.1", mtu=1400, advmss=1360, priority=5, table=100, scope=0),),
    dns=CNIDNS(nameservers=("10.1.0.1",), domain="lab", search=("lab",), options=("ndots:2",)),
)


def test_a_1_1_result_is_read_with_all_its_fields() -> None:
    assert results.parse(json.dumps(results.render(FULL, "1.1.0")).encode()) == FULL


@pytest.mark.parametrize("version", results.SUPPORTED_VERSIONS)
def test_fields_of_every_version_survive_rendering_and_parsing(version: str) -> None:
    plain = StepResult(
        interfaces=(CNIInterface(name="net1", mac="99:88:77:66:55:44", sandbox="/run/netns/blue"),),
        ips=(CNIAddress(address="10.1.0.5/16", gateway="10.1.0.1", interface=0),),
        routes=(CNIRoute(dst="0.0.0.0/0", gw="10.1.0.1"),),
        dns=CNIDNS(nameservers=("10.1.0.1",)),
    )
    assert results.parse(json.dumps(results.render(plain, version)).encode()) == plain


def test_fields_that_came_with_1_1_are_not_sent_to_older_plugins() -> None:
    rendered = results.render(FULL, "1.0.0")
    assert rendered["cniVersion"] == "1.0.0"
    assert rendered["interfaces"][1] == {"name": "net1", "mac": "99:88:77:66:55:44", "sandbox": "/run/netns/blue"}
    assert rendered["routes"] == [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}]
    assert "version" not in rendered["ips"][0]


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0"])
def test_addresses_carry_their_ip_version_up_to_0_4_0(version: str) -> None:
    assert [address["version"] for address in results.render(FULL, version)["ips"]] == ["4", "6"]


def test_devices_of_ours_are_never_sent() -> None:
    assert "devices" not in results.render(results.parse(b'{"devices": [{"pciAddress": "0000:01:00.0"}]}'), "1.1.0")


def test_null_and_empty_fields_of_go_programs_parse_as_an_empty_result() -> None:
    printed = b'{"cniVersion": "0.4.0", "interfaces": null, "ips": null, "routes": null, "dns": {}}'
    assert results.parse(printed) == StepResult()


def test_unknown_fields_of_a_result_are_dropped() -> None:
    printed = json.loads(json.dumps({**results.render(FULL, "1.1.0"), "secret": "of the node", "code": 0}))
    printed["interfaces"][1] |= {"kubeconfig": "of the node"}
    printed["dns"] |= {"resolvConf": "of the node"}
    assert results.parse(json.dumps(printed).encode()) == FULL


@pytest.mark.parametrize("field", ["name", "mac", "sandbox", "socketPath", "pciID"])
def test_an_interface_with_an_oversized_field_is_rejected(field: str) -> None:
    printed = {"interfaces": [{"name": "net1", field: "x" * 5000}]}
    with pytest.raises(ValueError, match="has more than"):
        results.parse(json.dumps(printed).encode())


def test_an_ipam_result_has_addresses_and_no_interfaces() -> None:
    found = results.parse(b'{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"}],"dns":{}}')
    assert found.ips == (CNIAddress(address="10.0.0.2/24", gateway="10.0.0.1"),)


@pytest.mark.parametrize(
    ("printed", "complaint"),
    [
        (b"", "printed no result"),
        (b" \n", "printed no result"),
        (b"OK", "its result is invalid"),
        (b"[]", "its result is invalid"),
        (b'{"interfaces": {}}', "its result is invalid"),
        (b'{"interfaces": [{"mac": "x"}]}', "its result is invalid"),
        (b'{"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2/24"}}', "CNI version '0.2.0'"),
        (b'{"cniVersion": "2.0.0"}', "CNI version '2.0.0'"),
        (b'{"ips": [{"address": "10.0.0.2/24", "interface": 0}]}', "contains 0 interfaces"),
        (b'{"interfaces": [{"name": "a"}], "ips": [{"address": "10.0.0.2/24", "interface": -1}]}', "interface -1"),
        (b'{"ips": [{"address": "10.0.0.256/24"}]}', "contains an invalid address"),
        (b'{"ips": [{"address": "10.0.0.2/24", "gateway": "here"}]}', "contains an invalid address"),
        (b'{"routes": [{"dst": "everywhere"}]}', "contains an invalid route"),
        (b'{"routes": [{"dst": "10.0.0.0/8", "gw": "10.0.0.0/8"}]}', "contains an invalid route"),
        (b'{"dns":' * 100_000, "its result is invalid"),
        (b"\xff\xfe", "its result is invalid"),
    ],
)
def test_rubbish_is_named(printed: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        results.parse(printed)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_result_or_a_value_error(printed: bytes) -> None:
    try:
        results.parse(printed)
    except ValueError:
        return
