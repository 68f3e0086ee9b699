"""`netdra plan`: the exact ResourceSlices that policies make of a node's interfaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from netdra.cli import devices, inputs, node_slices, objects, shared, terminal
from netdra.model import names
from netdra.model.device import ExposedDevice, ExposureResult, Features
from netdra.model.inventory import Inventory
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice

if TYPE_CHECKING:
    from netdra.slices.pack import Packed

_COLUMNS = ("POOL", "DEVICE", "KIND", "CNI PLUGINS", "CAPACITY", "TAKES", "SLOTS", "POLICY")


@click.command(name="plan")
@objects.options("Show every node of the cluster, now and with the policies of the PATHs.")
@inputs.policies_option
@inputs.inventory_options
@inputs.feature_option
@click.option("--diff", is_flag=True, help="With --cluster: show only changes.")
@shared.option("--without", "NAME", "With --cluster: a policy to be deleted.", multiple=True)
@shared.output("yaml", "json", "table", text="By default yaml, or table with --cluster.")
def command(
    given: objects.InputOptions,
    policy_paths: tuple[str, ...],
    recorded: inputs.RecordedInventory,
    gates: tuple[str, ...],
    diff: bool,
    without: tuple[str, ...],
    output: str | None,
) -> None:
    """Print the ResourceSlices that DeviceExposurePolicies create for a node's network interfaces.

    PATHs are files, directories, or "-": policies, CustomDevices, inventories (`netdra capture`), and Nodes, whose
    labels policies select. Other kinds are ignored. Without an inventory, this machine's interfaces are used.

    Invalid policies and omitted devices are reported on stderr, and the reason if no devices are offered. The node
    would still publish the slices, so the exit code is 0; it is 2 if a file cannot be read.

    With --cluster, the devices of every node are printed as they are published now, and as they would be if the
    policies were created, changed or deleted. The interfaces of nodes are read from their NodeNetworks; nothing is
    written.
    """
    _check(given, policy_paths, recorded, gates, diff=diff, without=without)
    if given.of_cluster:
        from netdra.cli import cluster_plan

        nodes = () if recorded.node_name is None else (recorded.node_name,)
        read = given.read(cluster_plan.KINDS, *policy_paths, driver=names.DRIVER)
        cluster_plan.show(read, without, nodes, diff=diff, output=output or "table")
        return
    read = given.read((), *policy_paths, recorded.inventory_path)
    read.require(DeviceExposurePolicy)
    there = read.inventories(recorded.inventory_path)
    if not there:
        terminal.tell("PATHs contain no inventory (netdra capture): the interfaces of this machine are used")
    inventories = recorded.choose(there)
    _print([_planned(read, inventory, inputs.features(gates)) for inventory in inventories], output or "yaml")


def _check(
    given: objects.InputOptions,
    policy_paths: tuple[str, ...],
    recorded: inputs.RecordedInventory,
    gates: tuple[str, ...],
    *,
    diff: bool,
    without: tuple[str, ...],
) -> None:
    """Check which options go together.

    Raises:
        click.UsageError: some do not.
    """
    only_here = {
        "--inventory": recorded.inventory_path,
        "--uplink": recorded.uplinks,
        "--host-use": recorded.used,
        "--physnet": recorded.physnets,
        "--feature": gates,
    }
    only_there = {"--diff": diff, "--without": without}
    for option, value in (only_here if given.of_cluster else only_there).items():
        if value:
            why = "and --cluster cannot be combined" if given.of_cluster else "needs --cluster"
            raise click.UsageError(f"{option} {why}")
    given.check(*policy_paths)
    if given.of_cluster and not (given.paths or policy_paths or without):
        raise click.UsageError("Missing argument 'PATH...': specify files with policies, or a policy with --without.")


def _planned(read: objects.InputObjects, inventory: Inventory, features: Features) -> tuple[Packed, ExposureResult]:
    """A node's slices; what is wrong is reported on stderr."""
    from netdra.exposure.unwise import misspelt_plugins, of_lanes
    from netdra.rules import shipped

    policies = read.of(DeviceExposurePolicy)
    packed, result = node_slices.plan(read, inventory, features)
    for text in devices.problem_texts((*result.problems, *packed.problems)):
        terminal.tell(text)
    for text in devices.unknown_use(result.decisions):
        terminal.tell(text)
    for text in of_lanes(result):
        terminal.tell(text)
    for policy in policies:
        for finding in misspelt_plugins(policy, shipped.types()):
            terminal.tell(f'policy "{policy.name}": {finding.text_at_path}')
    if not packed.slices:
        terminal.tell(devices.nothing_offered(result.decisions))
    else:
        for text in devices.without_devices(policies, result):
            terminal.tell(text)
    return packed, result


def _print(planned: Sequence[tuple[Packed, ExposureResult]], output: str) -> None:
    slices = tuple(resource_slice for packed, _ in planned for resource_slice in packed.slices)
    if output == "table":
        _print_table(slices, [device for _, result in planned for device in result.devices])
    else:
        terminal.print_objects(slices, output)


def _print_table(slices: Sequence[ResourceSlice], exposed: Sequence[ExposedDevice]) -> None:
    published = {
        (resource_slice.spec.pool.name, device.name)
        for resource_slice in slices
        for device in resource_slice.spec.devices
    }
    shown = (device for device in exposed if (device.pool, device.name) in published)
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
        str(devices.used_slots(device)),
        device.policy,
    )
