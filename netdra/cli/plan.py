"""`netdra plan`: the exact ResourceSlices that policies make of a node's interfaces."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from netdra.cli import devices, inputs, shared, terminal
from netdra.model import documents
from netdra.model.device import ExposedDevice, ExposureResult, Features
from netdra.model.inventory import Inventory
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice

_COLUMNS = ("POOL", "DEVICE", "KIND", "CNI PLUGINS", "CAPACITY", "TAKES", "POLICY")


@click.command(name="plan")
@inputs.some_policies_option
@inputs.inventory_option
@inputs.node_option
@inputs.uplink_option
@inputs.host_use_option
@shared.physnet
@inputs.feature_option
@click.option("--cluster", is_flag=True, help="Every node of the cluster, as it is now and as it would be.")
@click.option("--diff", is_flag=True, help="With --cluster: only what changes.")
@click.option("--without", metavar="NAME", multiple=True, help="With --cluster: a policy that would be deleted.")
@click.option("--kubeconfig", metavar="PATH", type=click.Path(path_type=Path), help="With --cluster: where it is.")
@click.option("--context", metavar="NAME", help="With --cluster: the kubeconfig's context.")
@click.option(
    "--output", "-o", type=click.Choice(["yaml", "json", "table"]), help="By default yaml, or table with --cluster."
)
def command(
    policy_paths: tuple[str, ...],
    inventory_path: str | None,
    node_name: str | None,
    uplinks: tuple[str, ...],
    used: tuple[str, ...],
    physnets: tuple[str, ...],
    gates: tuple[str, ...],
    cluster: bool,
    diff: bool,
    without: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
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
        "--inventory": inventory_path,
        "--uplink": uplinks,
        "--host-use": used,
        "--physnet": physnets,
        "--feature": gates,
    }
    only_there = {"--diff": diff, "--without": without, "--kubeconfig": kubeconfig, "--context": context}
    for option, given in (only_here if cluster else only_there).items():
        if given:
            raise click.UsageError(f"{option} {'and --cluster exclude each other' if cluster else 'needs --cluster'}")
    if not policy_paths and not (cluster and without):
        raise click.UsageError("Missing option '--policies'.")
    if cluster:
        from netdra.cli import cluster_plan

        policies = inputs.objects(policy_paths, DeviceExposurePolicy) if policy_paths else []
        nodes = () if node_name is None else (node_name,)
        where = kubeconfig, context
        cluster_plan.show(policies, without, where, nodes, diff=diff, output=output or "table")
        return
    inputs.check_stdin(*policy_paths, inventory_path)
    inventory = inputs.inventory(inventory_path, node_name, uplinks, used, physnets)
    _plan(policy_paths, inventory, inputs.features(gates), output or "yaml")


def _plan(policy_paths: tuple[str, ...], inventory: Inventory, features: Features, output: str) -> None:
    """One node's slices."""
    from netdra.exposure import expose
    from netdra.exposure.registered import Registered
    from netdra.exposure.unwise import misspelt_plugins
    from netdra.rules import shipped
    from netdra.slices.pack import layout

    policies, registrations = inputs.policies(policy_paths, inventory.node.labels)
    result = expose(inventory, policies, features=features, registered=Registered(registrations))
    packed = layout(result, node=inventory.node.name, features=features)
    for text in devices.problem_texts((*result.problems, *packed.problems)):
        terminal.tell(text)
    for text in devices.unknown_use(result.decisions):
        terminal.tell(text)
    for policy in policies:
        for text in misspelt_plugins(policy, shipped.types()):
            terminal.tell(f'policy "{policy.name}": {text}')
    if not packed.slices:
        terminal.tell(devices.nothing_offered(result.decisions))
    if output == "table":
        _print_table(packed.slices, result)
    elif output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(inputs.as_list(packed.slices))))
    else:
        click.echo(documents.to_yaml(packed.slices), nl=False)


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
        device.policy,
    )
