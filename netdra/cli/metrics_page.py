"""Writes docs/metrics.md from the processes' declarations: `python -m netdra.cli.metrics_page` prints it.

Called by `make docs`; a test compares the page with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click

from netdra.admission.metrics import WEBHOOK
from netdra.controller.metrics import CONTROLLER
from netdra.kube.metrics import KUBE
from netdra.node.metrics import NODE, TRAFFIC
from netdra.ops.metrics import OUTCOMES, PROCESS, Catalogue

PROCESSES: Mapping[str, Sequence[Catalogue]] = {
    "netdra node": (PROCESS, KUBE, NODE, TRAFFIC),
    "netdra controller": (PROCESS, KUBE, CONTROLLER),
    "netdra webhook": (PROCESS, KUBE, WEBHOOK),
}

_HEAD = f"""\
# Metrics

<!-- Written by `make docs` from the declarations (modules called `metrics`). Do not edit. -->

A daemon with `--health-address` serves these metrics at `/metrics` ([operating](operating.md)), and the standard
metrics `process_*` (memory, CPU time, descriptors, start) and `python_*` of Prometheus' client library. Durations are
in seconds. Only labels of the [traffic of pods](traffic.md), which is off by default, name a pod, a claim or a device;
[alerts](alerts.md) shows how to find the device.

`outcome` is one of {", ".join(f"`{outcome}`" for outcome in OUTCOMES)}:
`invalid` is an error in the input, `permanent` an error of the machine or the cluster, `temporary` an error that may
disappear when the operation is retried, and `defect` an error in netdra itself.
"""


def page() -> str:
    """The Markdown of docs/metrics.md: a table for each catalogue of `PROCESSES`."""
    catalogues = dict.fromkeys(catalogue for catalogues in PROCESSES.values() for catalogue in catalogues)
    return "\n".join([_HEAD, *(line for catalogue in catalogues for line in _table(catalogue))])


def _table(catalogue: Catalogue) -> Iterator[str]:
    serving = [f"`{name}`" for name, catalogues in PROCESSES.items() if catalogue in catalogues]
    yield from (f"## {catalogue.title}", "", f"Served by {', '.join(serving)}.", "")
    yield from ("| metric | type | labels | meaning |", "| --- | --- | --- | --- |")
    for family in catalogue.families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {family.type} | {labels} | {family.help} |"
    yield ""


if __name__ == "__main__":
    click.echo(page().rstrip("\n"))
