"""Devices that are only a file: registered on a node, offered by a policy, and opened by a container of a real pod."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from netdra.model import names
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.driver import ANY_PLUGIN, Driver
from testbed.node import CommandError
from testbed.objects import CLASS, manifest
from testbed.pods import EVENT, Pods
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.pods.conftest import Machine
from tests.cluster.pods.driver import ATTRIBUTES, POLICY, Offer, opened
from tests.cluster.pods.running import account, make_topology
from tests.device_files import make, new_folder

SOCKET = "/run/netdra/registry.sock"
PACKAGES = Path(__file__).parents[3]
FUSE = (10, 229)
"""A device that no container has by itself, and that can be opened as often as one likes."""
PROVIDER = "bctl"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder for device files, which goes with all that is in it."""
    with new_folder() as made:
        yield made


@pytest.fixture(scope="module")
def driver(machine: Machine, control_plane: ControlPlane, api: Api, custom_kinds: None, folder: Path) -> Driver:
    """The node's driver, whose operator allows the files of the folder."""
    options = (*ANY_PLUGIN, f"--registry-socket={SOCKET}", f"--allow-device-file={folder}/*")
    made = Driver(machine.node, account(machine.node, control_plane, api), options=options)
    made.start()
    return made


@pytest.fixture
def offer(driver: Driver, workspace: Workspace, pods: Pods) -> Iterator[Offer]:
    """The devices that a test offers on the node; afterwards nothing of its pods is left, and nothing is registered."""
    with opened(driver, workspace, pods) as offer:
        yield offer
    netdra(driver, "register", f"--provider={PROVIDER}", "--remove", f"--socket={SOCKET}")


def netdra(driver: Driver, *arguments: str, text: str = "") -> str:
    """Run the command line on the node; what it states on both outputs."""
    command = ("env", f"PYTHONPATH={PACKAGES}", sys.executable, "-m", "netdra", *arguments)
    return driver.node.run("sh", "-c", 'exec "$@" 2>&1', "sh", *command, text=text)


def register(driver: Driver, name: str, path: Path, *more: str) -> str:
    """Register a file, and return the answer."""
    named = (f"--provider={PROVIDER}", "--add", f"--file={path}", f"--socket={SOCKET}")
    return netdra(driver, "register", name, *named, *more)


def refusal(driver: Driver, name: str, path: Path, provider: str = PROVIDER) -> str:
    """The error of a registration that is refused."""
    named = (f"--provider={provider}", "--add", f"--file={path}", f"--socket={SOCKET}")
    with pytest.raises(CommandError) as caught:
        driver.node.run("env", f"PYTHONPATH={PACKAGES}", sys.executable, "-m", "netdra", "register", name, *named)
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


def registrations(driver: Driver) -> list[Object]:
    """The registrations on the node, and their outcomes."""
    listed: list[Object] = json.loads(netdra(driver, "registrations", f"--socket={SOCKET}", "--output=json"))
    return listed


def policy(offer: Offer, **exposure: Any) -> Object:
    """Offer what the provider registers."""
    selector = {"cel": f'{ATTRIBUTES}.registeredBy == "{PROVIDER}"'}
    exposure.setdefault("supportedCNIPlugins", [{"name": "device-file", "exclusive": True}])
    return manifest(POLICY, offer.workspace.name("files"), spec={"selector": selector, "exposure": exposure})


def device_class(offer: Offer) -> str:
    """A class of the provider's device files."""
    name = offer.workspace.name("file")
    expression = (
        f'device.driver == "{names.DRIVER}" && {ATTRIBUTES}.type == "device-file"'
        f' && "model" in device.attributes["{PROVIDER}"] && device.attributes["{PROVIDER}"].model == "a10"'
    )
    offer.workspace.create(manifest(CLASS, name, spec={"selectors": [{"cel": {"expression": expression}}]}))
    return name


def until_withdrawn(offer: Offer, name: str) -> None:
    """Wait until the node publishes no such device."""
    offer.wait_devices(lambda devices: all(device["name"] != name for device in devices))


def until_tainted(offer: Offer, name: str) -> None:
    """Wait until a device reports that it is gone."""

    def is_tainted(device: Object) -> bool:
        return device["name"] == name and [taint["key"] for taint in device.get("taints", [])] == [names.GONE]

    offer.wait_devices(lambda devices: any(map(is_tainted, devices)))


def opens(pods: Pods, pod: str, path: Path) -> str:
    """Open a file in a pod's container, and return its numbers as `stat` there has them."""
    return pods.exec(pod, "sh", "-c", f"exec 3<>{path} && stat -c '%F %t:%T' {path}").strip()


def test_a_file_is_waited_for_given_to_one_pod_and_tainted_when_it_goes(offer: Offer, folder: Path) -> None:
    path = folder / "fpga0"
    said = register(offer.driver, "fpga0", path, "--attribute=model=a10", "--capacity=gates=9")
    assert f"device file {path} does not exist; netdra offers it once it exists" in said
    offer.workspace.create(policy(offer))
    listed = netdra(offer.driver, "registrations", f"--socket={SOCKET}")
    assert f"the file {path}" in " ".join(listed.split())
    assert "fpga0" not in offer.published()

    make(path, FUSE)
    offer.wait_published("fpga0")
    device = offer.published()["fpga0"]
    assert device["attributes"]["deviceFile"] == {"string": str(path)}
    assert device["attributes"]["type"] == {"string": "device-file"}
    assert device["attributes"]["bctl/model"] == {"string": "a10"}
    assert device["capacity"]["bctl/gates"] == {"value": "9"}

    kind = device_class(offer)
    offer.pods.run("first", offer.claim("one", file=kind))
    assert opens(offer.pods, "first", path) == "character special file a:e5"
    assert offer.pods.exec("first", "sh", "-c", "echo $NETDRA_ONE_FILE_DEVICE_FILES").strip() == str(path)
    assert set(offer.inside("first")) == {"lo", "eth0"}

    # It is the claim that opens it: another pod cannot, though its container may make such a file.
    offer.pods.run("without")
    with pytest.raises(CommandError, match="Operation not permitted"):
        offer.pods.exec("without", "sh", "-c", "mknod /tmp/f c 10 229 && exec 3<>/tmp/f")
    offer.pods.delete("without")
    offer.pods.add("second", offer.claim("two", file=kind))
    offer.unschedulable("second", "cannot allocate all claims")
    offer.pods.delete("second")

    # A driver that begins anew knows it by what it published, and by the registry's file.
    offer.driver.restart()
    path.unlink()
    until_tainted(offer, "fpga0")
    offer.pods.delete("first")
    offer.workspace.api.delete("resource.k8s.io/v1/ResourceClaim", "one", offer.workspace.namespace)
    until_withdrawn(offer, "fpga0")


def test_shares_of_a_file_are_given_to_several_pods_and_a_topology_gives_one(offer: Offer, folder: Path) -> None:
    path = make(folder / "clock0", FUSE)
    register(offer.driver, "clock0", path, "--attribute=model=a10")
    slots = {"slots": {"value": "3", "requestPolicy": {"default": "1"}}}
    plugins = [{"name": "device-file"}]
    offer.workspace.create(policy(offer, allowMultipleAllocations=True, capacity=slots, supportedCNIPlugins=plugins))
    offer.wait_published("clock0")
    kind = device_class(offer)
    selector = {"cel": f'{ATTRIBUTES}.type == "device-file"'}
    topology = make_topology(offer.workspace, "clocks", {"name": "clock", "type": "device-file", "selector": selector})
    offer.pods.run("first", offer.claim("one", file=kind))
    offer.pods.run("second", offer.claim("two", clock=f"{topology}-clock"))
    for pod in ("first", "second"):
        assert opens(offer.pods, pod, path) == "character special file a:e5"
    offer.pods.delete_all()
    path.unlink()


def test_a_pod_does_not_begin_with_a_file_that_went_and_begins_when_it_is_back(offer: Offer, folder: Path) -> None:
    path = make(folder / "fpga1", FUSE)
    register(offer.driver, "fpga1", path, "--attribute=model=a10")
    offer.workspace.create(policy(offer))
    offer.wait_published("fpga1")
    claim = offer.claim("one", file=device_class(offer))
    offer.pods.run("first", claim)
    offer.pods.delete("first")
    path.unlink()
    make(path, (1, 1))
    offer.pods.add("again", claim)
    # Whoever is asked first says so: the hook, Prepare if the device is withdrawn by then, or the scheduler.
    told = (
        f"device file {path} is device 1:1, which pods never get",
        "is not known on this node",
        "cannot allocate",
    )
    offer.workspace.api.wait_for_all(
        EVENT,
        lambda events: any(text in event["message"] for event in events for text in told),
        namespace=offer.workspace.namespace,
        fields="involvedObject.name=again",
    )
    path.unlink()
    make(path, FUSE)
    offer.pods.wait("again", lambda pod: (pod or {}).get("status", {}).get("phase") == "Running")
    assert opens(offer.pods, "again", path) == "character special file a:e5"
    offer.pods.delete_all()
    path.unlink()


def test_forbidden_device_files_are_rejected_and_conflicting_ones_are_reported(offer: Offer, folder: Path) -> None:
    (folder / "memory").symlink_to("/dev/mem")
    (folder / "outside").symlink_to("/etc/passwd")
    make(folder / "copy", (1, 1))
    make(folder / "disk", (7, 0), stat.S_IFBLK)
    path = make(folder / "fpga2", FUSE)
    refused = {
        folder / "memory": "leads to /dev/mem, which is not allowed on this node",
        folder / "outside": "leads to /etc/passwd, which is not allowed on this node",
        folder / "copy": "is device 1:1, which pods never get",
        folder / "disk": "is a block device; only character devices are supported",
        Path("/dev/null"): "is not allowed on this node, which allows",
        Path("/etc/passwd"): "is not an absolute path below /dev",
        Path("/dev/../etc/passwd"): 'has an empty part, "." or ".."',
    }
    for bad, rule in refused.items():
        assert rule in refusal(offer.driver, "bad", bad)
    register(offer.driver, "fpga2", path)
    assert f'is device "fpga2" of provider "{PROVIDER}"' in refusal(offer.driver, "fpga3", path, "other")

    # The same device by another path, and the name of an interface: kept, and told.
    twin, named = make(folder / "twin", FUSE), make(folder / "named", (1, 3))
    register(offer.driver, "twin", twin)
    register(offer.driver, "eth-named", named)
    offer.driver.node.run("ip", "link", "add", "eth-named", "type", "bridge")
    offer.workspace.create(policy(offer))
    offer.wait_published("fpga2")
    listed = {each["device"]: each for each in registrations(offer.driver)}
    assert f"is the same device as {path}" in listed["twin"]["outcomes"][0]["problem"]
    until(
        lambda: any(
            '"eth-named" is the name of an interface' in outcome.get("problem", "")
            for each in registrations(offer.driver)
            for outcome in each.get("outcomes", ())
        ),
        "the name to be told",
    )
    assert set(offer.published()) & {"fpga2", "twin", "eth-named"} == {"fpga2"}
    offer.driver.node.run("ip", "link", "delete", "eth-named")
    offer.wait_published("eth-named")
    for file in (path, twin, named):
        file.unlink()


def test_the_explain_command_describes_device_files(offer: Offer, folder: Path) -> None:
    path = make(folder / "fpga4", FUSE)
    register(offer.driver, "fpga4", path, "--attribute=model=a10")
    register(offer.driver, "later", folder / "later")
    given = yaml.safe_dump(policy(offer))
    explain = ("--policies=-", f"--node={offer.driver.node.name}", f"--registry-socket={SOCKET}")
    told = netdra(offer.driver, "explain", "fpga4", *explain, text=given)
    assert f"fpga4 ({path})" in told
    assert "CNI plugins: device-file" in told
    assert "bctl/model" in told
    later = netdra(offer.driver, "explain", "later", *explain, text=given)
    assert f"hidden: device file {folder}/later does not exist" in later
    path.unlink()
