"""`netdra attach`: run plans, or a topology as it is written, in a network namespace."""

from __future__ import annotations

import os

import click
import msgspec

from netdra.chain.checkpoint import PodIdentity
from netdra.chain.report import AttachError, AttachReport
from netdra.chain.site import ChainSettings
from netdra.cli import chains, shared, terminal
from netdra.model.errors import InvalidInputError
from netdra.model.result import StepDevice


@click.command(name="attach")
@shared.option("--netns", "PATH", "The pod's network namespace.", required=True)
@shared.option(
    "--plan",
    "FILE",
    "Plans, or a NetworkTopology whose root steps name their devices; may be given several times.",
    "plan_paths",
    multiple=True,
    required=True,
)
@shared.option("--sandbox", "ID", "The name of the sandbox; by default the name of the namespace.")
@shared.option("--pod", "NAMESPACE/NAME", "The pod for CNI_ARGS of the plugins.", default="")
@shared.allow_device_file
@chains.settings_options
@shared.output("table", "json", "yaml")
def command(
    netns: str,
    plan_paths: tuple[str, ...],
    sandbox: str | None,
    pod: str,
    settings: ChainSettings,
    allow_device_files: tuple[str, ...],
    output: str,
) -> None:
    """Attach the networks of plans to a network namespace: all of them, or none.

    Each action is recorded, so that `netdra detach` can undo it, also after a crash. If the sandbox is already
    attached, nothing happens; remains of an earlier attempt are undone first. If a step fails, all earlier steps are
    undone, and the error shows the failure and the result of the undo. Ctrl-C also undoes everything; a second Ctrl-C
    leaves the rest to `netdra detach`.
    """
    from netdra.chain import checkpoint, returned
    from netdra.chain.attach import attach
    from netdra.rules.plans import check

    planned = [chains.planned(path) for path in plan_paths]
    plans = [plan for plans, _ in planned for plan in plans]
    schemas = [schema for _, schemas in planned for schema in schemas]
    if not os.path.exists(netns):  # noqa: PTH110 (a path that is too long is not there; Path raises)
        raise InvalidInputError(
            f'--netns "{netns}" does not exist', hint="list the named namespaces with: ls /run/netns", code="ND4001"
        )
    namespace, name = chains.pod_of(pod)
    identity = PodIdentity(sandbox=sandbox or chains.sandbox_of(netns), namespace=namespace, name=name)
    settings = msgspec.structs.replace(settings, device_files=allow_device_files)
    # Other sandboxes' devices must be known before the pod has them; the daemon records them in the background.
    returned.examine(settings.state, settings.budget)
    try:
        report = attach(check(plans, schemas), identity, netns, settings)
    except KeyboardInterrupt:
        left = checkpoint.path_of(settings.state, identity.sandbox).exists()
        terminal.tell(f"interrupted; {f'finish with: netdra detach {identity.sandbox}' if left else 'all is undone'}")
        raise
    except AttachError as problem:
        if output != "table":
            chains.show(problem.report, output, (), ())
        raise
    for warning in report.problems:
        terminal.tell(warning)
    for step in report.steps:
        for note in step.notes:
            terminal.tell(f'step "{step.step}": {note}')
    if report.repeated:
        terminal.tell(f"sandbox {report.sandbox} is already attached")
    chains.show(report, output, ("STEP", "TYPE", "INTERFACE", "MAC", "MTU", "ADDRESSES", "MS"), _rows(report))


def _rows(report: AttachReport) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for step in report.steps:
        places = [place for place, interface in enumerate(step.result.interfaces) if interface.name == step.interface]
        made = step.result.interfaces[places[-1]] if places else None
        devices = ", ".join(_called(device) for device in step.result.devices)
        rows.append((
            step.step,
            step.plugin,
            step.interface if made else devices or "-",
            made.mac if made else "",
            str(made.mtu or "") if made else "",
            ", ".join(ip.address for ip in step.result.ips if places and ip.interface in places),
            f"{step.seconds * 1000:.1f}",
        ))  # fmt: skip
    return rows


def _called(device: StepDevice) -> str:
    return device.rdma_device or device.pci_address or ", ".join(device.device_nodes)
