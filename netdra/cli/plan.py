"""`netdra plan`: the exact ResourceSlices that policies make of a node's interfaces."""

from __future__ import annotations

import click
import msgspec

from netdra.cli import devices, inputs, terminal
from netdra.model import documents
from netdra.model.device import ExposedDevice, ExposureResult
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice

_COLUMNS = ("POOL", "DEVICE", "KIND", "CNI PLUGINS", "CAPACITY", "TAKES", "POLICY")


@click.command(name="plan")
@inputs.policies_option
@inputs.inventory_option
@inputs.node_option
@inputs.uplink_option
@inputs.host_use_option
@inputs.feature_option
@click.option("--output", "-o", type=click.Choice(["yaml", "json", "table"]), default="yaml", show_default=True)
def command(
    policy_paths: tuple[str, ...],
    inventory_path: str | None,
    node_name: str | None,
    uplinks: tuple[str, ...],
    used: tuple[str, ...],
    gates: tuple[str, ...],
    output: str,
) -> None:
    """Print the ResourceSlices that DeviceExposurePolicies make of a node's network interfaces.

    Policies that cannot be used and devices that are left out are told on stderr, and why nothing is offered if so. The
    slices are those that the node would publish in spite of that, so the exit code is 0; it is 2 if a file cannot be
    read at all.
    """
    from netdra.exposure import expose
    from netdra.slices.pack import layout

    features = inputs.features(gates)
    policies = inputs.objects(policy_paths, DeviceExposurePolicy)
    inventory = inputs.inventory(inventory_path, node_name, uplinks, used)
    result = expose(inventory, policies, features=features)
    packed = layout(result, node=inventory.node.name, features=features)
    for text in devices.told_together((*result.problems, *packed.problems)):
        terminal.tell(text)
    for text in devices.kept(result.decisions):
        terminal.tell(text)
    if not packed.slices:
        terminal.tell(devices.nothing_offered(result.decisions))
    if output == "table":
        _print_table(packed.slices, result)
    elif output == "json":
        listed = {"apiVersion": "v1", "kind": "List", "items": documents.plain(packed.slices)}
        click.echo(msgspec.json.format(msgspec.json.encode(listed)))
    else:
        click.echo(documents.to_yaml(packed.slices), nl=False)


def _print_table(slices: tuple[ResourceSlice, ...], result: ExposureResult) -> None:
    published = {(each.spec.pool.name, device.name) for each in slices for device in each.spec.devices}
    shown = (device for device in result.devices if (device.pool, device.name) in published)
    terminal.print_table(_COLUMNS, map(_row, shown))
    pools = len({pool for pool, _ in published})
    counted = (("pool", pools), ("device", len(published)), ("slice", len(slices)))
    click.echo(", ".join(f"{count} {name}{'s' * (count != 1)}" for name, count in counted))


def _row(device: ExposedDevice) -> tuple[str, ...]:
    return (
        device.pool,
        device.name,
        devices.kind(device),
        devices.plugins(device),
        devices.capacity(device),
        devices.taken(device),
        device.policy,
    )
