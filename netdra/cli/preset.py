"""`netdra preset`: policies that clusters begin with, to apply as they are or to write one's own from."""

from __future__ import annotations

import time

import click
import msgspec
from click.core import ParameterSource

from netdra.cli import shared as shared_options
from netdra.cli import terminal
from netdra.health.defaults import RULES
from netdra.model.errors import TemporaryError
from netdra.model.meta import ObjectMeta
from netdra.model.policy import (
    MAX_LANES,
    CapacityCounter,
    CapacityValueFrom,
    DeviceExposurePolicy,
    DeviceExposurePolicySpec,
    Exposure,
    PolicySelector,
    PooledVFs,
    SupportedCNIPlugin,
)
from netdra.model.resource import CapacityRequestPolicy, CapacityRequestPolicyRange

_PATIENCE_SECONDS = 120.0
_TYPE = 'device.attributes["dra.networking"].type'


@click.command(name="preset")
@click.argument("name", type=click.Choice(["shared", "pooled-vfs"]))
@click.option(
    "--plugin",
    type=click.Choice(["macvlan", "ipvlan", "sriov", "host-device", "vfio-pci"]),
    help="The plugin that attaches devices; by default macvlan, for pooled VFs sriov.",
)
@shared_options.option(
    "--type",
    "TYPE",
    "The types of interfaces, as printed by `netdra discover`; repeatable.",
    "types",
    multiple=True,
    default=["nic", "pf"],
)
@shared_options.option(
    "--bandwidth",
    "MBITS",
    "With pooled-vfs: the bandwidth that the VFs of a PF share; a PF with a slower link does not offer devices.",
    type=click.IntRange(100),
    default=100_000,
)
@shared_options.option(
    "--lanes", "N", "With pooled-vfs: the number of devices.", type=click.IntRange(1, MAX_LANES), default=1
)
@click.option("--host-uplink", is_flag=True, help="Also offer the interfaces that carry the node's traffic.")
@click.option(
    "--health",
    is_flag=True,
    help="Also define thresholds of error counters: link flaps, symbol and CRC errors, PCIe links (docs/health.md).",
)
@click.option(
    "--create",
    is_flag=True,
    help="Create the policy in the cluster when netdra is ready. An existing policy with this name is not changed.",
)
@shared_options.cluster("With --create: the kubeconfig.", "With --create: the context of the kubeconfig.")
@shared_options.output("yaml", "json")
def command(
    name: str,
    plugin: str | None,
    types: tuple[str, ...],
    bandwidth: int,
    lanes: int,
    host_uplink: bool,
    health: bool,
    create: bool,
    cluster: shared_options.ClusterAccess,
    output: str,
) -> None:
    """Print a policy to start with.

    `shared` offers each physical interface to as many pods as the node supports. `pooled-vfs` offers the VFs of each PF
    together: a claim gets a VF, and an eighth of the bandwidth or the requested amount.

    Every other policy takes precedence over it. Interfaces that the host uses stay on the host, and pods get a share.
    To create the policy, pipe it to `kubectl apply -f -`, or add --create.
    """
    if not create and cluster.is_given:
        raise click.UsageError("--kubeconfig and --context require --create; without it, the policy is only printed")
    allowed = ("macvlan", "ipvlan") if name == "shared" else ("sriov", "host-device", "vfio-pci")
    if plugin is not None and plugin not in allowed:
        raise click.UsageError(f"--plugin {plugin}: the preset {name} supports {', '.join(allowed)}")
    chosen = plugin or allowed[0]
    given = click.get_current_context().get_parameter_source
    theirs = ("bandwidth", "lanes") if name == "shared" else ("types", "host_uplink")
    for option in theirs:
        if given(option) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"the preset {name} does not support --{option.replace('types', 'type').replace('_', '-')}"
            )
    if name == "shared":
        policy = shared(name, chosen, types, host_uplink=host_uplink)
    else:
        policy = pooled_vfs(name, chosen, bandwidth=bandwidth, lanes=lanes)
    if health:
        policy = with_health(policy)
    if create:
        made = shared_options.run(_create(policy, cluster))
        stays = "already exists and is not changed; print the preset's policy without --create to compare"
        terminal.tell(f'DeviceExposurePolicy "{name}" {"was made" if made else stays}')
        return
    terminal.print_data(policy, output)


async def _create(policy: DeviceExposurePolicy, cluster: shared_options.ClusterAccess) -> bool:
    """Make a policy; False if there is one of its name.

    After an installation the API server needs a while to know the kind and the webhook.

    Raises:
        ApiError: the API server refuses the policy, or cannot take it for two minutes.
    """
    import asyncio

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
                terminal.tell(f"retrying in {wait:.1f} s: {problem.what}")
                await asyncio.sleep(wait)
            else:
                return True


def with_health(policy: DeviceExposurePolicy) -> DeviceExposurePolicy:
    """A policy with the default thresholds of error counters."""
    exposure = msgspec.structs.replace(policy.spec.exposure or Exposure(), health=RULES)
    return msgspec.structs.replace(policy, spec=msgspec.structs.replace(policy.spec, exposure=exposure))


def shared(name: str, plugin: str, types: tuple[str, ...], *, host_uplink: bool) -> DeviceExposurePolicy:
    """Everything of these types is shared, by a count of pods."""
    exposure = Exposure(
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
    )
    return _policy(name, " || ".join(f'{_TYPE} == "{kind}"' for kind in types), exposure)


def pooled_vfs(name: str, plugin: str, *, bandwidth: int, lanes: int) -> DeviceExposurePolicy:
    """The VFs of each PF together, with bandwidth in steps of 100 Mbit/s; an eighth of it for a claim that asks not."""
    most = bandwidth // lanes // 100 * 100
    default = max(100, min(bandwidth // 8, most) // 100 * 100)
    span = CapacityRequestPolicyRange(min="100", max=str(most), step="100")
    exposure = Exposure(
        pooled_vfs=PooledVFs(lanes=lanes),
        capacity={
            "bandwidth": CapacityCounter(
                value=str(bandwidth),
                request_policy=CapacityRequestPolicy(default=str(default), valid_range=span),
            )
        },
        supported_cni_plugins=(SupportedCNIPlugin(name=plugin),),
    )
    return _policy(name, f'{_TYPE} == "vf"', exposure)


def _policy(name: str, cel: str, exposure: Exposure) -> DeviceExposurePolicy:
    return DeviceExposurePolicy(
        api_version="networking.dra.io/v1alpha1",
        kind="DeviceExposurePolicy",
        metadata=ObjectMeta(name=name),
        spec=DeviceExposurePolicySpec(selector=PolicySelector(cel=cel), priority=0, exposure=exposure),
    )
