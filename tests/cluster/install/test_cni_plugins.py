"""CNIPlugins on a real node: images FROM scratch, netdra's own image in a DaemonSet, pods that wait for a plugin."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import yaml
from testbed.api import Object
from testbed.build import program
from testbed.image import write_files_image
from testbed.objects import NAMESPACE, NODE, add_namespace, manifest, scheduling
from testbed.pace import within
from testbed.pods import Pods, is_running
from testbed.site import CNI_PATH, Site
from testbed.waiting import until
from tests.cluster.pods.running import publish

PLUGIN = "networking.dra.io/v1alpha1/CNIPlugin"
SCHEMA = "cni.networking.k8s.io/v1alpha1/CNIPluginSchema"
TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
DAEMON_SET = "apps/v1/DaemonSet"
EXAMPLE = Path(__file__).parents[3] / "examples" / "first-pod"
BINARY = "/opt/cni/bin/plugin"
PATIENCE = 90.0
SOON = 5.0
"""Seconds from a plugin's arrival until a pod that waits for it runs."""


class Plugins:
    """The node's plugins, and images that hold others."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.api, self._images = site, site.api, folder
        self.folder = site.node.folder / CNI_PATH.removeprefix("/var/")

    def image(self, tag: str, binary: bytes, schema: str = "") -> str:
        """Give the node an image with a binary and, beside it, a schema."""
        name = f"localhost/cni-plugin:{tag}"
        files = {BINARY: binary, **({"/opt/cni/bin/schema.yaml": schema.encode()} if schema else {})}
        archive = self._images / f"{tag}.tar"
        write_files_image(archive, name, files)
        self.site.containerd.ctr("--namespace=k8s.io", "images", "import", "--local", str(archive))
        return name

    def create(self, name: str, image: str, **spec: object) -> None:
        wanted = {"image": image, "binaryPath": BINARY, "imagePullPolicy": "Never", **spec}
        self.api.create(manifest(PLUGIN, name, spec=wanted))

    def change(self, name: str, **spec: object) -> None:
        self.api.patch(PLUGIN, name, {"spec": spec})

    def wait(self, name: str, kind: str, reason: str) -> Object:
        """Wait until a condition of a plugin has a reason; its status."""

        def is_so(found: Object | None) -> bool:
            return found is not None and condition(found, kind).get("reason") == reason

        found = self.api.wait_for(PLUGIN, name, is_so, timeout=PATIENCE)
        assert found is not None
        status: Object = found["status"]
        return status

    def fails(self, name: str, text: str) -> None:
        """Wait until the node is among those that a plugin fails on, for that reason."""

        def is_so(found: Object | None) -> bool:
            failures = (found or {}).get("status", {}).get("failures", [])
            return any(each["node"] == self.site.node.name and text in each["message"] for each in failures)

        self.api.wait_for(PLUGIN, name, is_so, timeout=PATIENCE)

    def gone(self, name: str) -> None:
        self.api.wait_for(PLUGIN, name, lambda found: found is None, timeout=PATIENCE)
        self.api.wait_for(DAEMON_SET, f"netdra-cni-{name}", lambda found: found is None, namespace="netdra")

    def digest(self, name: str) -> str:
        return hashlib.sha256((self.folder / name).read_bytes()).hexdigest()


def condition(found: Object, kind: str) -> Object:
    said: list[Object] = found.get("status", found).get("conditions", [])
    return next((each for each in said if each["type"] == kind), {})


def build(name: str, version: str = "") -> bytes:
    """A plugin's program; what follows an ELF file's end makes it another version of it."""
    return program(name).read_bytes() + version.encode()


@pytest.fixture(scope="module")
def plugins(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Plugins:
    """netdra at work on a node without macvlan."""
    found = Plugins(site, tmp_path_factory.mktemp("images"))
    (found.folder / "macvlan").unlink()
    site.install()
    for name in ("policy", "topology"):
        site.api.create(yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text()))
    publish(site.node, site.api, "data0")
    return found


@pytest.fixture(scope="module")
def pods(plugins: Plugins) -> Iterator[Pods]:
    name = "plugins"
    add_namespace(plugins.api, name)
    found = plugins.site.pods(name)
    yield found
    found.delete_all()
    plugins.api.delete(NAMESPACE, name)


def test_a_pod_that_waits_for_a_plugin_runs_as_soon_as_a_cniplugin_has_brought_it(plugins: Plugins, pods: Pods) -> None:
    binary = build("macvlan")
    plugins.site.plane.kubectl("--namespace", pods.namespace, "apply", "-f", str(EXAMPLE / "claim.yaml"))
    pods.add("first", "data")
    pods.wait("first", lambda found: scheduling(found)[1] != "")
    plugins.create("macvlan", plugins.image("v1", binary))
    until((plugins.folder / "macvlan").exists, "the plugin to arrive", seconds=PATIENCE)
    with within(SOON, "a pod's start after its plugin's arrival"):
        pods.wait("first", is_running)
    status = plugins.wait("macvlan", "Installed", "Installed")
    (version,) = status["versions"]
    assert (version["digest"], version["nodes"]) == (hashlib.sha256(binary).hexdigest(), 1)
    assert "1.1.0" in version["cniVersions"]
    assert (status["desiredNodes"], status["readyNodes"]) == (1, 1)
    assert condition(status, "SchemaApplied")["reason"] == "Present"
    assert condition(status, "InUse")["status"] == "True"
    shown = plugins.site.plane.kubectl("get", "cniplugins", "macvlan").splitlines()[1].split()
    assert shown[:5] == ["macvlan", "localhost/cni-plugin:v1", "1", "1", "True"]


def test_an_upgrade_replaces_the_binary_and_a_bad_one_leaves_it(plugins: Plugins) -> None:
    second = hashlib.sha256(build("macvlan", "second")).hexdigest()
    plugins.change("macvlan", image=plugins.image("v2", build("macvlan", "second")), digest=second)
    until(lambda: plugins.digest("macvlan") == second, "the upgrade", seconds=PATIENCE)
    plugins.change("macvlan", image=plugins.image("v3", build("macvlan", "third")))
    third = hashlib.sha256(build("macvlan", "third")).hexdigest()
    plugins.fails("macvlan", f"has the SHA-256 {third}, and {second} is asked for")
    plugins.change("macvlan", image=plugins.image("v4", b"#!/no/such/program\n"), digest="")
    plugins.fails("macvlan", "is a script for /no/such/program, which is not in netdra's image")
    assert plugins.digest("macvlan") == second
    plugins.change("macvlan", image="localhost/cni-plugin:v2")
    plugins.wait("macvlan", "Installed", "Installed")


OWN_SCHEMA = """
apiVersion: cni.networking.k8s.io/v1alpha1
kind: CNIPluginSchema
metadata: {name: any}
spec:
  cniType: demo
  configParameters: {optional: [{name: mode, type: string}]}
"""


def test_a_plugin_applies_its_schema_and_is_installed_on_nodes_that_match_later(plugins: Plugins) -> None:
    api, node = plugins.api, plugins.site.node.name
    image = plugins.image("demo", build("ipvlan"), OWN_SCHEMA)
    plugins.create("demo", image, nodeSelector={"with-demo": "yes"})
    plugins.wait("demo", "Installed", "NoNodes")
    api.patch(NODE, node, {"metadata": {"labels": {"with-demo": "yes"}}})
    status = plugins.wait("demo", "Installed", "Installed")
    assert condition(status, "SchemaApplied")["reason"] in {"Applied", "Pending"}
    status = plugins.wait("demo", "SchemaApplied", "Applied")
    assert status["schema"] == "demo"
    schema = api.get(SCHEMA, "demo")
    assert schema["spec"]["configParameters"]["optional"] == [{"name": "mode", "type": "string"}]
    assert [each["kind"] for each in schema["metadata"]["ownerReferences"]] == ["CNIPlugin"]
    (plugins.folder / "demo").unlink()
    until((plugins.folder / "demo").exists, "it to be back", seconds=SOON)
    assert plugins.wait("macvlan", "Installed", "Installed")["readyNodes"] == 1
    api.delete(PLUGIN, "demo")
    plugins.gone("demo")
    assert not (plugins.folder / "demo").exists()
    api.wait_for(SCHEMA, "demo", lambda found: found is None)


def test_a_foreign_plugin_file_is_reported_and_kept_and_replaced_after_its_removal(plugins: Plugins) -> None:
    before = plugins.digest("ipvlan")
    plugins.create("ipvlan", plugins.image("ipvlan", build("ipvlan", "ours")))
    plugins.fails("ipvlan", f"{CNI_PATH}/ipvlan (sha256 {before}) is not netdra's")
    assert plugins.digest("ipvlan") == before
    (plugins.folder / "ipvlan").unlink()
    plugins.wait("ipvlan", "Installed", "Installed")
    assert plugins.digest("ipvlan") != before
    plugins.api.delete(PLUGIN, "ipvlan")
    plugins.gone("ipvlan")
    assert not (plugins.folder / "ipvlan").exists()


def test_a_plugin_in_use_stays_until_no_topology_uses_it_and_then_goes_without_a_trace(
    plugins: Plugins, pods: Pods
) -> None:
    plugins.api.delete(PLUGIN, "macvlan")
    status = plugins.wait("macvlan", "InUse", "DeletionWaits")
    topology = yaml.safe_load((EXAMPLE / "topology.yaml").read_text())["metadata"]["name"]
    assert f'NetworkTopology "{topology}"' in condition(status, "InUse")["message"]
    assert (plugins.folder / "macvlan").exists()
    pods.delete_all()
    plugins.site.plane.kubectl("--namespace", pods.namespace, "delete", "resourceclaims", "--all")
    plugins.api.delete(TOPOLOGY, topology)
    plugins.gone("macvlan")
    assert not (plugins.folder / "macvlan").exists()
    assert not (plugins.folder / ".netdra").exists()
