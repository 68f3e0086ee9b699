"""Run the real helm, as users do: charts rendered without a cluster, and installed into one.

The SR-IOV machine, where helm takes many seconds, reads manifests that `testbed.vm.beside` renders outside.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from testbed.api import Object
from testbed.build import program
from testbed.components import KUBERNETES_VERSION
from testbed.waiting import waiting

CHARTS = Path(__file__).parents[1] / "charts"
WITH_ALL = {
    "controller": {"neutron": {"cloudsSecret": "clouds"}, "services": {"enabled": True}},
    "node": {"deviceRegistry": {"enabled": True}},
    "console": {"enabled": True, "traffic": True},
}
"""Values of netdra's chart with which its processes have the rights for all that they can do."""
RENDERED = "NETDRA_RENDERED"
"""The environment variable with a folder of manifests that `keep` has rendered."""


class HelmError(Exception):
    """helm ended with another code than 0."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        super().__init__(f"'{' '.join(map(str, done.args))}' ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        self.code = done.returncode
        self.stdout = done.stdout
        self.stderr = done.stderr


def helm(*arguments: str, kubeconfig: Path | None = None, values: Mapping[str, Any] | None = None) -> str:
    """Run helm and return what it printed.

    Args:
        arguments: its command and options.
        kubeconfig: the way to a cluster; without one helm finds none.
        values: a file of values, given as the last one.

    Raises:
        HelmError: it ended with another code than 0.
    """
    command = [str(program("helm")), *arguments, *(["--values=-"] if values is not None else [])]
    # Its plugins, repositories and caches are in the home folder, and it makes what is not there.
    with waiting("helm"), tempfile.TemporaryDirectory(prefix="helm-") as home:
        environment = {"PATH": "/usr/bin:/bin", "HOME": home, "KUBECONFIG": str(kubeconfig or f"{home}/none")}
        done = subprocess.run(
            command,
            input="" if values is None else json.dumps(values),
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
    if done.returncode != 0:
        raise HelmError(done)
    return done.stdout


def template(
    chart: Path,
    release: str,
    namespace: str,
    values: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
) -> str:
    """The manifests that a release of a chart would have, as text.

    Raises:
        HelmError: the values or the chart are wrong.
    """
    folder = os.environ.get(RENDERED)
    if folder and (kept := Path(folder) / _file(chart, release, namespace, values, options)).exists():
        return kept.read_text()
    where = (f"--namespace={namespace}", f"--kube-version={KUBERNETES_VERSION}")
    return helm("template", release, str(chart), *where, *options, values=values or {})


def keep(folder: Path, *values: Mapping[str, Any]) -> None:
    """Render netdra's chart with each of these values into files of a folder, where `template` finds them.

    Raises:
        HelmError: the values or the chart are wrong.
    """
    folder.mkdir()
    chart, name = CHARTS / "netdra", "netdra"
    for each in values:
        (folder / _file(chart, name, name, each, ())).write_text(template(chart, name, name, each))


def _file(chart: Path, release: str, namespace: str, values: Mapping[str, Any] | None, options: Sequence[str]) -> str:
    """The name of the file with the manifests of a release."""
    described = json.dumps([str(chart), release, namespace, values or {}, [*options]], sort_keys=True)
    return f"{hashlib.sha256(described.encode()).hexdigest()}.yaml"


@cache
def installed(name: str) -> str:
    """The manifests of one of netdra's charts, with its own values, in the namespace of its name."""
    return template(CHARTS / name, name, name)


def objects(manifests: str, source: str = "") -> list[Object]:
    """The objects of manifests that were rendered, again with each call.

    Args:
        manifests: what `template` returned.
        source: a template's name, `rights.yaml`; those of all where it is not given.
    """
    from testbed import yaml  # what renders outside the SR-IOV machine has the standard library alone

    documents = manifests.removeprefix("---\n").split("\n---\n")
    chosen = (text for text in documents if f"/templates/{source}" in text.partition("\n")[0])
    return [found for text in chosen for found in yaml.safe_load_all(text) if found]
