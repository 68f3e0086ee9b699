"""`netdra preset`: policies that clusters begin with, to apply as they are or to write one's own from."""

from __future__ import annotations

import click

from netdra.model import documents
from netdra.model.meta import ObjectMeta
from netdra.model.policy import (
    CapacityCounter,
    CapacityValueFrom,
    DeviceExposurePolicy,
    DeviceExposurePolicySpec,
    Exposure,
    Selector,
    SupportedCNIPlugin,
)
from netdra.model.resource import CapacityRequestPolicy

_TYPE = 'device.attributes["dra.networking"].type'


@click.command(name="preset")
@click.argument("name", type=click.Choice(["shared"]))
@click.option(
    "--plugin", type=click.Choice(["macvlan", "ipvlan"]), default="macvlan", show_default=True, help="What attaches it."
)
@click.option(
    "--type",
    "types",
    metavar="TYPE",
    multiple=True,
    default=["nic", "pf"],
    show_default=True,
    help="Which interfaces, in the words of `netdra discover`; may be given several times.",
)
@click.option("--host-uplink", is_flag=True, help="Also what carries the node's own traffic.")
@click.option("--output", "-o", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def command(name: str, plugin: str, types: tuple[str, ...], host_uplink: bool, output: str) -> None:
    """Print a policy: `shared` offers each physical interface to as many pods as the node takes.

    Every other policy comes before it, and what the host has for itself alone is not taken away: pods get a share. To
    use it, give it to `kubectl apply -f -`.
    """
    import msgspec

    plain = documents.plain(shared(name, plugin, types, host_uplink=host_uplink))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(plain)))
    else:
        click.echo(documents.to_yaml(plain), nl=False)


def shared(name: str, plugin: str, types: tuple[str, ...], *, host_uplink: bool) -> DeviceExposurePolicy:
    """Everything of these types is shared, by a count of pods."""
    return DeviceExposurePolicy(
        api_version="networking.dra.io/v1alpha1",
        kind="DeviceExposurePolicy",
        metadata=ObjectMeta(name=name),
        spec=DeviceExposurePolicySpec(
            selector=Selector(cel=" || ".join(f'{_TYPE} == "{each}"' for each in types)),
            priority=0,
            exposure=Exposure(
                allow_multiple_allocations=True,
                capacity={
                    "count": CapacityCounter(
                        value_from=CapacityValueFrom(node_allocatable="pods"),
                        request_policy=CapacityRequestPolicy(default="1"),
                    )
                },
                supported_cni_plugins=(SupportedCNIPlugin(name=plugin),),
                additional_facts=("ipv4",),
                allow_host_uplink=host_uplink,
            ),
        ),
    )
