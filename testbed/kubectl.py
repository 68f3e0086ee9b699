"""Run the real kubectl, as users do: the tests' second way to the API server beside `testbed.api`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from testbed.build import program
from testbed.waiting import waiting


class KubectlError(Exception):
    """kubectl ended with another code than 0."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        super().__init__(f"'{' '.join(map(str, done.args))}' ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        self.code = done.returncode
        self.stdout = done.stdout
        self.stderr = done.stderr


def kubectl(kubeconfig: Path, *arguments: str, text: str = "") -> str:
    """Run kubectl and return what it printed; its caches stay beside the kubeconfig file.

    Raises:
        KubectlError: it ended with another code than 0.
    """
    options = (f"--kubeconfig={kubeconfig}", f"--cache-dir={kubeconfig.parent / 'kubectl-cache'}")
    command = (str(program("kubectl")), *options, *arguments)
    with waiting("kubectl"):
        # It ends before it would have garbage worth collecting.
        environment = os.environ | {"GOGC": "off"}
        done = subprocess.run(command, input=text, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KubectlError(done)
    return done.stdout


def denial(kubeconfig: Path, *arguments: str, text: str = "") -> str:
    """The error that kubectl prints for a rejected request, "" if it is accepted."""
    try:
        kubectl(kubeconfig, *arguments, text=text)
    except KubectlError as problem:
        return problem.stderr
    return ""
