"""`netdra preset`: policies that clusters begin with, to apply as they are or to write one's own from."""

from __future__ import annotations

import asyncio
import time

import click

from netdra.cli import shared as shared_options
from netdra.cli import terminal
from netdra.model.errors import TemporaryError
from netdra.model.meta import ObjectMeta
from netdra.model.policy import (
    CapacityCounter,
    CapacityValueFrom,
    DeviceExposurePolicy,
    DeviceExposurePolicySpec,
    Exposure,
    PolicySelector,
    SupportedCNIPlugin,
)
from netdra.model.resource import CapacityRequestPolicy

_PATIENCE_SECONDS = 120.0
_TYPE = 'device.attributes["dra.networking"].type'


@click.command(name="preset")
@click.argument("name", type=click.Choice(["shared"]))
@click.option(
    "--plugin", type=click.Choice(["macvlan", "ipvlan"]), default="macvlan", show_default=True, help="What attaches it."
)
@shared_options.option(
    "--type",
    "TYPE",
    "Which interfaces, in the words of `netdra discover`; may be given several times.",
    "types",
    multiple=True,
    default=["nic", "pf"],
)
@click.option("--host-uplink", is_flag=True, help="Also what carries the node's own traffic.")
@click.option(
    "--create",
    is_flag=True,
    help="Make it in the cluster, once netdra answers there. One of that name that is there already stays as it is.",
)
@shared_options.cluster("With --create: the way to the cluster.", "With --create: the kubeconfig's context.")
@shared_options.output("yaml", "json")
def command(
    name: str,
    plugin: str,
    types: tuple[str, ...],
    host_uplink: bool,
    create: bool,
    cluster: shared_options.ClusterAccess,
    output: str,
) -> None:
    """Print a policy: `shared` offers each physical interface to as many pods as the node takes.

    Every other policy comes before it, and what the host has for itself alone is not taken away: pods get a share. To
    use it, give it to `kubectl apply -f -`, or add --create.
    """
    if not create and cluster.is_given:
        raise click.UsageError("--kubeconfig and --context are for --create: without it, the policy is only printed")
    policy = shared(name, plugin, types, host_uplink=host_uplink)
    if create:
        made = asyncio.run(_create(policy, cluster))
        stays = "is there already and stays as it is; delete it first to have it as netdra makes it"
        terminal.tell(f'DeviceExposurePolicy "{name}" {"was made" if made else stays}')
        return
    terminal.print_data(policy, output)


async def _create(policy: DeviceExposurePolicy, cluster: shared_options.ClusterAccess) -> bool:
    """Make a policy; False if there is one of its name.

    After an installation the API server needs a while to know the kind and the webhook.

    Raises:
        ApiError: the API server refuses the policy, or cannot take it for two minutes.
    """
    from netdra.kube.backoff import Backoff
    from netdra.kube.errors import AlreadyExistsError, NotFoundError
    from netdra.kube.resources import POLICIES

    deadline, backoff = time.monotonic() + _PATIENCE_SECONDS, Backoff()
    async with cluster.client() as client:
        while True:
            try:
                await client.create(POLICIES, policy)
            except AlreadyExistsError:
                return False
            except (NotFoundError, TemporaryError) as problem:
                wait = backoff.next(0.0)
                if time.monotonic() + wait > deadline:
                    raise
                terminal.tell(f"tried again in {wait:.1f} s: {problem.what}")
                await asyncio.sleep(wait)
            else:
                return True


def shared(name: str, plugin: str, types: tuple[str, ...], *, host_uplink: bool) -> DeviceExposurePolicy:
    """Everything of these types is shared, by a count of pods."""
    return DeviceExposurePolicy(
        api_version="networking.dra.io/v1alpha1",
        kind="DeviceExposurePolicy",
        metadata=ObjectMeta(name=name),
        spec=DeviceExposurePolicySpec(
            selector=PolicySelector(cel=" || ".join(f'{_TYPE} == "{kind}"' for kind in types)),
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
