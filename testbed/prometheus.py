"""Debian's Prometheus on a node of the test bed: it scrapes netdra's daemons, and evaluates rules and queries.

`python -m testbed build` unpacks the package into the cache. It is not installed: its scripts would start a service.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from testbed.build import BuildError, cache_root, locked
from testbed.node import CommandError, Node
from testbed.process import Process
from testbed.system import APT

PACKAGE = "prometheus"
PORT = 9090
_PREFIX = "debian-prometheus-"
# At its start it resolves the host's name, and on a node waits ten seconds for a name server.
_CALLED_LOCALHOST = ("unshare", "--uts", "sh", "-c", 'hostname localhost && exec "$@"', "sh")


def ensure() -> Path:
    """Unpack the package unless it is in the cache, and return the folder of its programs.

    Raises:
        BuildError: apt or dpkg failed.
    """
    if found := _unpacked():
        return found
    with locked(APT):
        return _unpacked() or _unpack()


def program(name: str) -> Path:
    """The path of `prometheus` or `promtool`.

    Raises:
        BuildError: the package is not unpacked.
    """
    found = _unpacked()
    if found is None:
        raise BuildError(f"{name} is not there: run 'python3 -m testbed build {PACKAGE}'")
    return found / name


def check_rules(rules: Path) -> str:
    """The output of promtool for a file of rules.

    Raises:
        BuildError: it found an error.
    """
    return _run(str(program("promtool")), "check", "rules", "--lint-fatal", str(rules))


def run_rule_tests(tests: Path) -> str:
    """The output of promtool for a file of tests of rules.

    Raises:
        BuildError: a test failed.
    """
    return _run(str(program("promtool")), "test", "rules", str(tests))


class Prometheus:
    """A Prometheus on a node, which ends with the node.

    Attributes:
        process: to be stopped.
    """

    process: Process

    def __init__(self, node: Node, scrapes: Sequence[Mapping[str, Any]], rules: Mapping[str, Any]) -> None:
        """Start it, and wait until it answers.

        Args:
            node: where.
            scrapes: what it scrapes, as `scrape_configs` of its configuration.
            rules: groups of rules.

        Raises:
            ProcessError: it did not become ready.
        """
        self._node = node
        folder = node.folder / "prometheus"
        folder.mkdir()
        (folder / "rules.json").write_text(json.dumps(rules))
        often = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        configuration = {"global": often, "rule_files": ["rules.json"], "scrape_configs": [*scrapes]}
        (folder / "prometheus.yml").write_text(json.dumps(configuration))
        command = (
            *_CALLED_LOCALHOST,
            *(str(program("prometheus")), f"--config.file={folder}/prometheus.yml"),
            *(f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{PORT}"),
        )
        self.process = node.start("prometheus", command, self._is_ready)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression evaluates to now.

        Raises:
            CommandError: Prometheus rejects the expression.
        """
        found: list[dict[str, Any]] = self._get(f"/api/v1/query?query={quote(expression)}")["result"]
        return found

    def series(self) -> set[str]:
        """The names of all metrics that it has a sample of."""
        return set(self._get("/api/v1/label/__name__/values"))

    def rules(self) -> list[dict[str, Any]]:
        """All rules, with their health and last error."""
        return [rule for group in self._get("/api/v1/rules")["groups"] for rule in group["rules"]]

    def firing(self) -> dict[str, dict[str, Any]]:
        """The alerts that fire, by name; one of each."""
        alerts = self._get("/api/v1/alerts")["alerts"]
        return {alert["labels"]["alertname"]: alert for alert in alerts if alert["state"] == "firing"}

    def targets(self) -> dict[str, str]:
        """The health of each scraped pod, by its name."""
        return {each["labels"]["pod"]: each["health"] for each in self._get("/api/v1/targets")["activeTargets"]}

    def _is_ready(self) -> bool:
        try:
            self._wget("/-/ready")
        except CommandError:
            return False
        return True

    def _get(self, path: str) -> Any:
        return json.loads(self._wget(path))["data"]

    def _wget(self, path: str) -> str:
        return self._node.run("busybox", "wget", "-q", "-O", "-", f"http://127.0.0.1:{PORT}{path}")


def _unpacked() -> Path | None:
    """The folder of the programs: in the cache, or where the machine has them anyway."""
    if found := sorted(cache_root().glob(f"{_PREFIX}*")):
        return found[-1] / "usr/bin"
    installed = [shutil.which(name) for name in ("prometheus", "promtool")]
    return Path(installed[1]).parent if all(installed) and installed[1] else None


def _unpack() -> Path:
    print(f"testbed: unpacking {PACKAGE} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix=f".{_PREFIX}", dir=cache_root()) as folder:
        package = _download(Path(folder))
        version = _run("dpkg-deb", "--field", str(package), "Version").strip()
        _run("dpkg-deb", "--extract", str(package), f"{folder}/root")
        target = cache_root() / f"{_PREFIX}{version}"
        Path(folder, "root").rename(target)
    return target / "usr/bin"


def _download(folder: Path) -> Path:
    if shutil.which("apt-get") is None:
        raise BuildError(f"{PACKAGE} and promtool are not installed, and their package is only available with apt")
    # A fresh machine has no lists of packages, and old lists name packages that the mirror does not have any more.
    _run("apt-get", "-q", "update")
    _run("apt-get", "-q", "download", PACKAGE, folder=folder)
    (package,) = folder.glob("*.deb")
    return package


def _run(*command: str, folder: Path | None = None) -> str:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"'{' '.join(command)}' failed:\n{done.stdout}{done.stderr}")
    return done.stdout
