"""`netdra crds`: the CustomResourceDefinitions of netdra's kinds, for `kubectl apply -f -` or as the chart's files."""

from __future__ import annotations

from pathlib import Path

import click
import yaml

from netdra.cli.shared import option
from netdra.model import crd, kinds
from netdra.model.errors import InvalidInputError

HEADER = "# Written by `netdra crds` from the types in netdra/model; change those, not this file.\n"


def text(kind: crd.CustomKind) -> str:
    """One definition as the YAML file that the chart holds."""
    return HEADER + yaml.safe_dump(crd.manifest(kind), sort_keys=False, allow_unicode=True, width=120)


@click.command(name="crds")
@option(
    "--output-dir",
    "DIR",
    "Write one file per kind into this directory instead of writing to stdout.",
    type=click.Path(path_type=Path, file_okay=False),
)
def command(output_dir: Path | None) -> None:
    """Print the CustomResourceDefinitions that a cluster needs before netdra runs on it."""
    if output_dir is None:
        click.echo("---\n".join(text(kind) for kind in kinds.KINDS), nl=False)
        return
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        for kind in kinds.KINDS:
            (output_dir / f"{kind.name}.yaml").write_text(text(kind))
            click.echo(f"{output_dir / kind.name}.yaml", err=True)
    except OSError as problem:
        raise InvalidInputError(f"--output-dir {problem.filename}: {problem.strerror}", code="ND4014") from None
