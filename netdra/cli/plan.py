"""`netdra plan`: the exact ResourceSlices that policies make of a node's interfaces."""

from __future__ import annotations

import click

from netdra.cli import devices, inputs, shared, terminal
from netdra.model.device import ExposedDevice, ExposureResult, Features
from netdra.model.inventory import Inventory
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice

_COLUMNS = ("POOL", "DEVICE", "KIND", "CNI PLUGINS", "CAPACITY", "TAKES", "SLOTS", "POLICY")


@click.command(name="plan")
@inputs.policies_option(required=False)
@inputs.inventory_options
@inputs.feature_option
@click.option(
    "--cluster", "of_cluster", is_flag=True, help="Every node of the cluster, as it is now and as it would be."
)
@click.option("--diff", is_flag=True, help="With --cluster: only what changes.")
@shared.option("--without", "NAME", "With --cluster: a policy that would be deleted.", multiple=True)
@shared.cluster("With --cluster: where it is.", "With --cluster: the kubeconfig's context.")
@shared.output("yaml", "json", "table", text="By default yaml, or table with --cluster.")
def command(
    policy_paths: tuple[str, ...],
    recorded: inputs.RecordedInventory,
    gates: tuple[str, ...],
    of_cluster: bool,
    diff: bool,
    without: tuple[str, ...],
    cluster: shared.ClusterAccess,
    output: str | None,
) -> None:
    """Print the ResourceSlices that DeviceExposurePolicies make of a node's network interfaces.

    Policies that cannot be used and devices that are left out are told on stderr, and why nothing is offered if so. The
    slices are those that the node would publish in spite of that, so the exit code is 0; it is 2 if a file cannot be
    read at all.

    With --cluster the devices of every node are printed as they are published now, and as they would be if the policies
    were written (those of the same name changed) or deleted. What nodes have is read from their NodeNetworks; nothing
    is written.
    """
    only_here = {
        "--inventory": recorded.inventory_path,
        "--uplink": recorded.uplinks,
        "--host-use": recorded.used,
        "--physnet": recorded.physnets,
        "--feature": gates,
    }
    only_there = {
        "--diff": diff,
        "--without": without,
        "--kubeconfig": cluster.kubeconfig,
        "--context": cluster.context,
    }
    for option, given in (only_here if of_cluster else only_there).items():
        if given:
            why = "and --cluster exclude each other" if of_cluster else "needs --cluster"
            raise click.UsageError(f"{option} {why}")
    if not policy_paths and not (of_cluster and without):
        raise click.UsageError("Missing option '--policies'.")
    if of_cluster:
        from netdra.cli import cluster_plan

        policies = inputs.objects(policy_paths, DeviceExposurePolicy) if policy_paths else []
        nodes = () if recorded.node_name is None else (recorded.node_name,)
        cluster_plan.show(policies, without, cluster, nodes, diff=diff, output=output or "table")
        return
    inputs.check_stdin(*policy_paths, recorded.inventory_path)
    _plan(policy_paths, recorded.read(), inputs.features(gates), output or "yaml")


def _plan(policy_paths: tuple[str, ...], inventory: Inventory, features: Features, output: str) -> None:
    from netdra.exposure import expose
    from netdra.exposure.registered import Registered
    from netdra.exposure.unwise import misspelt_plugins, of_lanes
    from netdra.rules import shipped
    from netdra.slices.pack import layout

    policies, registrations = inputs.policies(policy_paths, inventory.node)
    result = expose(inventory, policies, features=features, registered=Registered(registrations))
    packed = layout(result, node=inventory.node.name, features=features)
    for text in devices.problem_texts((*result.problems, *packed.problems)):
        terminal.tell(text)
    for text in devices.unknown_use(result.decisions):
        terminal.tell(text)
    for text in of_lanes(result):
        terminal.tell(text)
    for policy in policies:
        for text in misspelt_plugins(policy, shipped.types()):
            terminal.tell(f'policy "{policy.name}": {text}')
    if not packed.slices:
        terminal.tell(devices.nothing_offered(result.decisions))
    if output == "table":
        _print_table(packed.slices, result)
    else:
        terminal.print_objects(packed.slices, output)


def _print_table(slices: tuple[ResourceSlice, ...], result: ExposureResult) -> None:
    published = {
        (resource_slice.spec.pool.name, device.name)
        for resource_slice in slices
        for device in resource_slice.spec.devices
    }
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
        str(devices.used_slots(device)),
        device.policy,
    )
