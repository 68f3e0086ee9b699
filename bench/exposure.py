"""How long policies take: 1,000 devices and 20 policies, from nothing and after one device has changed."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from bench.figures import Figure
from netdra.cel import compile_selector, device_variables
from netdra.exposure import Exposer
from netdra.model import documents, names
from netdra.model.device import ExposureResult
from netdra.model.inventory import Interface, Inventory, InventoryNode, attributes
from netdra.model.policy import DeviceExposurePolicy
from netdra.slices.pack import pack

DEVICES = 1000
PFS = 20
VFS = 30
FIRST_PASS_MS = 150.0
SECOND_PASS_MS = 2.0
EVALUATION_US = 20.0
FIRST_PASS_RATIO = 3.0
MANY_INTERFACES, MANY_POLICIES = 2000, 200
MOST_FIRST_PASS_MS = 500.0
ROUNDS = 7
OURS = 'device.attributes["dra.networking"]'
QUICK = {"ROUNDS": 2}


def run() -> list[Figure]:
    """The figures of policy evaluation, in CPU time: the best of several rounds, because neighbours make noise."""
    node, policies = inventory(), documents_of(policies_yaml())
    first = min(_milliseconds(lambda: Exposer(policies).expose(_anew(node))) for _ in range(ROUNDS))
    result = Exposer(policies).expose(node)
    packed = min(_milliseconds(lambda: pack(result, node=node.node.name)) for _ in range(ROUNDS))
    bare = _evaluation_us(node)
    many_policies = [_of_one(number) for number in range(MANY_POLICIES)]
    many = _of_nics(MANY_INTERFACES)
    most = min(_milliseconds(lambda: Exposer(many_policies).expose(_anew(many))) for _ in range(ROUNDS))
    size = f"{len(node.interfaces)} devices x {len(policies)} policies, {len(result.devices)} exposed"
    evaluations = bare * len(node.interfaces) * len(policies) / 1000
    return [
        Figure("one CEL evaluation", bare, "us", EVALUATION_US, "prepared device, compiled selector"),
        Figure("policies, first pass", first, "ms", FIRST_PASS_MS, size),
        Figure(
            "policies, first pass, beside its CEL evaluations alone", first / evaluations, "x", FIRST_PASS_RATIO, size
        ),
        Figure(
            f"first pass, {MANY_INTERFACES:,} interfaces x {MANY_POLICIES} policies", most, "ms", MOST_FIRST_PASS_MS
        ),
        Figure("policies, one VF changed", _second_ms(policies, node, index=5), "ms", SECOND_PASS_MS, size),
        Figure("policies, one bridge changed", _second_ms(policies, node, index=-1), "ms", SECOND_PASS_MS, size),
        Figure("packing into slices", packed, "ms", 0.0, size),
    ]


def inventory() -> Inventory:
    """A node with PFs, their VFs, and bridges for the rest."""
    interfaces: list[Interface] = []
    for pf in range(PFS):
        parent = Interface(
            if_name=f"ens{pf}f0",
            type="pf",
            pci_address=f"0000:{pf:02x}:00.0",
            link_speed=100_000,
            num_vfs=VFS,
            mtu=1500,
        )
        interfaces.append(parent)
        interfaces += (
            Interface(
                if_name=f"{parent.if_name}v{index}",
                type="vf",
                pf_name=parent.if_name,
                vf_index=index,
                pci_address=f"0000:{pf:02x}:{1 + index // 8:02x}.{index % 8}",
                mac=f"02:00:00:00:{pf:02x}:{index:02x}",
                rdma=True,
            )
            for index in range(VFS)
        )
    bridges = (Interface(if_name=f"br{index}", type="bridge", mtu=9000) for index in range(DEVICES - len(interfaces)))
    return Inventory(node=InventoryNode(name="node"), interfaces=(*interfaces, *bridges))


def _of_nics(count: int) -> Inventory:
    nics = (
        Interface(
            if_name=f"eth{number}",
            type="nic",
            driver="mlx5_core",
            pci_address=f"0000:{number // 256:02x}:{number % 256 // 8:02x}.{number % 8}",
            mac=f"02:00:00:00:{number // 256:02x}:{number % 256:02x}",
        )
        for number in range(count)
    )
    return Inventory(node=InventoryNode(name="node"), interfaces=tuple(nics))


def _of_one(number: int) -> DeviceExposurePolicy:
    (policy,) = documents_of(
        f"""apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {{name: nic-{number}}}
spec: {{selector: {{cel: '{OURS}.driver == "mlx5_core" && {OURS}.ifName == "eth{number}"'}}}}
"""
    )
    return policy


def policies_yaml() -> str:
    """Twenty policies as clusters have them: excludes, and PFs, VFs and bridges by type and name."""
    selectors = {
        "exclude-cni": f'{OURS}.ifName in ["br-int", "ovn-k8s-mp0"]',
        "exclude-bridged": f'{OURS}.masterBridge != ""',
        "bridges": f'{OURS}.type == "bridge"',
        "other-vfs": f'{OURS}.type == "vf" && {OURS}.rdma',
    }
    for pf in range(8):
        selectors[f"vfs-{pf}"] = f'{OURS}.type == "vf" && {OURS}.pfName == "ens{pf}f0"'
        selectors[f"pf-{pf}"] = f'{OURS}.type == "pf" && {OURS}.ifName == "ens{pf}f0"'
    return "---\n".join(
        f"""apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {{name: {name}}}
spec:
  selector: {{cel: '{cel}'}}
  action: {"exclude" if name.startswith("exclude") else "expose"}
"""
        for name, cel in selectors.items()
    )


def documents_of(text: str) -> list[DeviceExposurePolicy]:
    """The policies in a YAML text."""
    return [each for each in documents.read(text, "bench") if isinstance(each, DeviceExposurePolicy)]


def _evaluation_us(node: Inventory) -> float:
    selector = compile_selector(f'{OURS}.type == "vf" && {OURS}.pfName == "ens3f0"')
    devices = [device_variables(names.DRIVER, attributes(interface)) for interface in node.interfaces]

    def every() -> None:
        for device in devices:
            selector.matches(device)

    return min(_milliseconds(every) for _ in range(ROUNDS)) * 1000 / len(devices)


def _second_ms(policies: list[DeviceExposurePolicy], node: Inventory, *, index: int) -> float:
    exposer = Exposer(policies)
    exposer.expose(node)
    times = []
    for number in range(ROUNDS):
        interfaces = list(node.interfaces)
        interfaces[index] = msgspec.structs.replace(interfaces[index], mtu=3000 + number)
        changed = Inventory(node=node.node, interfaces=tuple(interfaces))
        times.append(_milliseconds(lambda changed=changed: exposer.expose(changed)))  # type: ignore[misc]
    return min(times)


def _anew(node: Inventory) -> Inventory:
    """The same inventory in objects of its own, so that nothing is remembered of it."""
    return msgspec.structs.replace(node, interfaces=tuple(map(msgspec.structs.replace, node.interfaces)))


def _milliseconds(action: Callable[[], ExposureResult | object]) -> float:
    start = time.process_time()
    action()
    return (time.process_time() - start) * 1000
