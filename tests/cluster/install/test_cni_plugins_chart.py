"""The chart cni-plugins makes the pods that netdra's controller makes of CNIPlugins, and takes nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netdra.controller.plugins.installers import PLUGIN_LABEL, TEMPLATE_LABEL, InstallerSettings, Mode, daemon_set
from netdra.model.cni_plugin import CNIPlugin
from testbed import helm
from testbed.api import Object
from testbed.helm import HelmError

CHART = helm.CHARTS / "cni-plugins"
IMAGE = {"repository": "registry.example.com/netdra", "tag": "1"}
PLUGINS: list[Object] = [
    {"name": "macvlan", "image": "registry.example.com/cni:v1", "binaryPath": "/opt/cni/bin/macvlan"},
    {
        "name": "ovs",
        "image": f"registry.example.com/ovs@sha256:{'0' * 64}",
        "binaryPath": "/ovs",
        "digest": "a" * 64,
        "imagePullPolicy": "Always",
        "nodeSelector": {"ovs": "yes"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "maxUnavailable": 3,
    },
]


def rendered(**values: Any) -> list[Object]:
    return helm.objects(helm.template(CHART, "plugins", "netdra", {"image": IMAGE, **values}))


@pytest.mark.parametrize("mode", ["install", "remove"])
@pytest.mark.parametrize("folder", ["/opt/cni/bin", "/usr/lib/cni"])
def test_its_pods_are_those_of_the_controller(mode: Mode, folder: str) -> None:
    found = rendered(plugins=PLUGINS, cniFolder=folder, remove=mode == "remove")
    assert [each["metadata"]["name"] for each in found] == ["cni-plugin-macvlan", "cni-plugin-ovs"]
    settings = InstallerSettings(image="registry.example.com/netdra:1", cni_folder=folder)
    for given, made in zip(PLUGINS, found, strict=True):
        spec = {key: value for key, value in given.items() if key != "name"}
        head = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "CNIPlugin", "metadata": {"name": given["name"]}}
        wanted = daemon_set(msgspec.convert({**head, "spec": spec}, CNIPlugin), settings, mode)
        assert made["spec"]["template"]["spec"] == wanted["spec"]["template"]["spec"]
        assert made["spec"]["updateStrategy"] == wanted["spec"]["updateStrategy"]
        # The controller takes none of them for its own.
        assert not {PLUGIN_LABEL, TEMPLATE_LABEL} & made["metadata"]["labels"].keys()


def test_a_schema_comes_with_its_plugin() -> None:
    schema = {"cniType": "macvlan", "configParameters": {"optional": [{"name": "mode", "type": "string"}]}}
    (_, found) = rendered(plugins=[{**PLUGINS[0], "schema": schema}])
    assert (found["kind"], found["metadata"]["name"], found["spec"]) == ("CNIPluginSchema", "macvlan", schema)


def test_of_nothing_it_makes_nothing() -> None:
    assert rendered() == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": "../evil"}, "name"),
        ({"binaryPath": "opt/macvlan"}, "binaryPath"),
        ({"image": None}, "image"),
        ({"digest": "abc"}, "digest"),
        ({"binarypath": "/a"}, "binarypath"),
    ],
)
def test_a_mistake_is_refused_with_its_place(change: Object, told: str) -> None:
    plugin = {key: value for key, value in {**PLUGINS[0], **change}.items() if value is not None}
    with pytest.raises(HelmError, match=told):
        rendered(plugins=[plugin])


def test_two_plugins_of_one_name_are_refused() -> None:
    with pytest.raises(HelmError, match="plugins: macvlan is there twice"):
        rendered(plugins=[PLUGINS[0], PLUGINS[0]])
