"""`netdra gc`: let plugins free what belongs to no sandbox any more."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from netdra.chain.report import NetworkCollected
from netdra.chain.site import ChainSettings
from netdra.cli import chains, shared, terminal


@click.command(name="gc")
@shared.option(
    "--plan",
    "FILE",
    "Plans or topologies of networks that may no longer have any sandbox; repeatable.",
    "plan_paths",
    multiple=True,
)
@chains.settings_options
@shared.output("table", "json", "yaml")
def command(plan_paths: tuple[str, ...], settings: ChainSettings, output: str) -> None:
    """Call GC of every plugin that has it (CNI 1.1), once for each network, with all attachments that are still valid.

    Valid is what the checkpoints in --state say: a plugin frees everything else that it keeps for the network, such as
    leases of pods that are long gone. Where a checkpoint cannot be read nothing is done, and the exit code is 4.
    """
    from netdra.chain.collect import collect

    plans = [plan for path in plan_paths for plan in chains.plans(path)]
    report = collect(settings, plans)
    for problem in report.problems:
        terminal.tell(problem)
    rows = [
        (network.network, network.plugin, str(network.valid), _outcome(network), network.problem or network.skipped)
        for network in report.networks
    ]
    chains.show(report, output, ("NETWORK", "PLUGIN", "VALID", "OUTCOME", "DETAIL"), rows)
    if not report.networks and report.is_clean:
        terminal.tell(f"nothing to collect: {_why(settings.state, plan_paths)}")
    if not report.is_clean:
        sys.exit(4)


def _why(state: Path, plan_paths: tuple[str, ...]) -> str:
    from netdra.chain import checkpoint

    if plan_paths or (state.is_dir() and checkpoint.load_all(state)[0]):
        where = f"the checkpoints in {state}" + (" and the plans" if plan_paths else "")
        return f"no plugin of {where} supports GC"
    return f"no checkpoint in {state} and no --plan contains a network"


def _outcome(network: NetworkCollected) -> str:
    if network.problem:
        return "failed"
    return "not called" if network.skipped else "done"
