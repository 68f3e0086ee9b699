"""`netdra wire`: prove the wire between two pods before a job begins. One listens, the other one measures."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from msgspec.structs import replace

from netdra.cli import shared, terminal
from netdra.kernel import wire
from netdra.kernel.errors import KernelError
from netdra.kernel.wire import WireReport

_COLUMNS = ("PEER", "INTERFACE", "ROUND TRIP", "PATH MTU", "LOSS", "RATE", "RESULT")
_MBIT = 1_000_000


@click.group(name="wire")
def command() -> None:
    """Measure the wire between two pods: loss, rate and path MTU, by interface.

    One pod runs `netdra wire listen`, the other one `netdra wire send ADDRESS`. Neither needs privileges.
    """


@command.command(name="listen")
@shared.option("--address", "ADDRESS", "The address to listen on; by default all of the pod.", default="")
@shared.option("--port", "PORT", "The port, for UDP and TCP.", type=shared.PORT, default=wire.PORT)
@shared.option("--seconds", "N", "How long to listen.", type=click.FloatRange(1, 86_400), default=60.0)
def listen(address: str, port: int, seconds: float) -> None:
    """Answer measurements."""
    with wire.Listener(address, port) as listener:
        terminal.tell(f"listening on port {listener.port} for {seconds:.0f} s")
        listener.serve(seconds)


@command.command(name="send")
@click.argument("addresses", metavar="ADDRESS...", nargs=-1, required=True)
@shared.option("--port", "PORT", "The port of the listener.", type=shared.PORT, default=wire.PORT)
@shared.option("--wait", "SECONDS", "How long to wait for an answer.", type=click.FloatRange(0.1, 3600), default=30.0)
@shared.option("--seconds", "N", "How long to send, each way.", type=click.FloatRange(0.1, 3600), default=5.0)
@shared.option("--rate", "MBITS", "The rate of the datagrams.", type=click.FloatRange(0.1, 10_000), default=100.0)
@shared.option("--max-loss", "PERCENT", "Fail if more is lost.", type=click.FloatRange(0, 100), default=0.1)
@shared.option("--min-mtu", "BYTES", "Fail if the path MTU is smaller.", type=click.IntRange(0), default=0)
@shared.option("--min-rate", "MBITS", "Fail if the TCP stream is slower.", type=click.FloatRange(0), default=0.0)
@shared.output("table", "json", "yaml")
def send(
    addresses: Sequence[str],
    port: int,
    wait: float,
    seconds: float,
    rate: float,
    max_loss: float,
    min_mtu: int,
    min_rate: float,
    output: str,
) -> None:
    """Measure the wire to each ADDRESS, one after the other.

    The exit code is 1 if an address does not answer or a limit is not met.
    """
    reports = []
    for host in addresses:
        terminal.tell(f"measuring the wire to {host}: {2 * seconds:g} s once it answers")
        try:
            report = wire.measure(host, port, seconds=seconds, rate=rate * _MBIT, patience=wait)
        except KernelError as problem:
            reports.append(WireReport(peer=host, problem=f"{problem.what}; run netdra wire listen there"))
        else:
            reports.append(replace(report, problem=_problem(report, max_loss, min_mtu, min_rate)))
    terminal.print_report(reports, output, _COLUMNS, map(_row, reports))
    if any(report.problem for report in reports):
        sys.exit(1)


def _problem(report: WireReport, max_loss: float, min_mtu: int, min_rate: float) -> str:
    found = []
    if report.loss * 100 > max_loss:
        found.append(f"loss above {max_loss:g} %")
    if report.path_mtu < min_mtu:
        found.append(f"path MTU below {min_mtu}")
    if report.rate < min_rate * _MBIT:
        found.append(f"rate below {min_rate:g} Mbit/s")
    return "; ".join(found)


def _row(report: WireReport) -> tuple[str, ...]:
    if not report.path_mtu:
        return (report.peer, *("-",) * 5, report.problem)
    return (
        *(report.peer, report.interface, f"{report.round_trip * 1000:.2f} ms", str(report.path_mtu)),
        *(f"{report.loss:.2%}", f"{report.rate / _MBIT:,.0f} Mbit/s", report.problem or "ok"),
    )
