import pytest

from netdra.cni import config
from netdra.cni.config import Attachment, NetworkConfig
from netdra.cni.plugins import PluginPath
from netdra.model.errors import InvalidInputError
from netdra.model.result import CNIInterface, StepResult


def test_the_request_contains_the_version_name_and_type_of_the_runtime() -> None:
    network = NetworkConfig(network="net-a", type="macvlan", config={"mode": "bridge", "name": "eth7", "type": "x"})
    assert config.request(network, "1.0.0", None) == {
        "cniVersion": "1.0.0",
        "name": "net-a",
        "type": "macvlan",
        "mode": "bridge",
    }


def test_an_allocated_device_is_named_in_both_places() -> None:
    network = NetworkConfig(
        network="n", type="sriov", config={"runtimeConfig": {"mac": "02:00:00:00:00:01"}}, device_id="0000:03:00.2"
    )
    request = config.request(network, "1.1.0", None)
    assert request["deviceID"] == "0000:03:00.2"
    assert request["runtimeConfig"] == {"mac": "02:00:00:00:00:01", "deviceID": "0000:03:00.2"}
    assert network.config["runtimeConfig"] == {"mac": "02:00:00:00:00:01"}


def test_capabilities_are_the_runtimes_business_and_not_passed_on() -> None:
    network = NetworkConfig(network="n", type="portmap", config={"capabilities": {"portMappings": True}})
    assert "capabilities" not in config.request(network, "1.1.0", None)


def test_the_previous_result_is_in_the_plugins_version() -> None:
    previous = StepResult(interfaces=(CNIInterface(name="net1", mtu=9000),))
    request = config.request(NetworkConfig(network="n", type="t"), "1.0.0", previous)
    assert request["prevResult"] == {"cniVersion": "1.0.0", "interfaces": [{"name": "net1"}]}


def test_gc_lists_the_attachments_that_are_still_valid() -> None:
    valid = [Attachment(container_id="a", if_name="net1"), Attachment(container_id="b", if_name="net2")]
    request = config.collection_request(NetworkConfig(network="n", type="t"), "1.1.0", valid)
    assert request["cni.dev/valid-attachments"] == [
        {"containerID": "a", "ifname": "net1"},
        {"containerID": "b", "ifname": "net2"},
    ]


def test_the_environment_is_ours_with_cni_parameters_of_this_call_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNI_ARGS", "left=over")
    monkeypatch.setenv("HTTP_PROXY", "kept")
    where = PluginPath(directories=("/a", "/b"))
    attachment = Attachment(
        container_id="c1", if_name="net1", netns="/run/netns/x", arguments={"IgnoreUnknown": "1", "K8S_POD_NAME": "p"}
    )
    found = config.environment("ADD", where, attachment)
    assert {key: value for key, value in found.items() if key.startswith("CNI_")} == {
        "CNI_COMMAND": "ADD",
        "CNI_PATH": "/a:/b",
        "CNI_CONTAINERID": "c1",
        "CNI_NETNS": "/run/netns/x",
        "CNI_IFNAME": "net1",
        "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAME=p",
    }
    assert found["HTTP_PROXY"] == "kept"
    assert "CNI_ARGS" not in config.environment("STATUS", where, None)


@pytest.mark.parametrize(
    "attachment",
    [
        Attachment(container_id="", if_name="net1"),
        Attachment(container_id="../x", if_name="net1"),
        Attachment(container_id="a/b", if_name="net1"),
        Attachment(container_id="-a", if_name="net1"),
        Attachment(container_id="a\n", if_name="net1"),
        Attachment(container_id="a", if_name=""),
        Attachment(container_id="a", if_name="."),
        Attachment(container_id="a", if_name=".."),
        Attachment(container_id="a", if_name="a b"),
        Attachment(container_id="a", if_name="a/b"),
        Attachment(container_id="a", if_name="a:1"),
        Attachment(container_id="a", if_name="sixteen-bytes-xx"),
        Attachment(container_id="a", if_name="ünfzehn-zeichen"),
        Attachment(container_id="a", if_name="net1", netns="/run/\0"),
        Attachment(container_id="a", if_name="net1", arguments={"": "x"}),
        Attachment(container_id="a", if_name="net1", arguments={"a": "1;b=2"}),
        Attachment(container_id="a", if_name="net1", arguments={"a=b": "2"}),
        Attachment(container_id="a", if_name="net1", arguments={"a": "\0"}),
    ],
)
def test_attachments_that_cannot_be_passed_to_a_plugin_are_rejected(attachment: Attachment) -> None:
    with pytest.raises(InvalidInputError):
        config.check_attachment(attachment)


def test_an_attachment_at_the_limits_is_accepted() -> None:
    config.check_attachment(Attachment(container_id="a.b_c-D9", if_name="fifteen-bytes-x", arguments={"a": "b=c"}))
