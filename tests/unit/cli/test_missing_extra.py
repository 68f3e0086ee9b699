"""A daemon's command without the daemons' dependencies is an error that states what to install."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from netdra.cli.main import COMMANDS
from netdra.model.extras import how_to_install

ROOT = Path(__file__).resolve().parents[3]
HIDE = "import sys; sys.modules.update(dict.fromkeys(('aiohttp', 'cryptography', 'prometheus_client')))"


@pytest.mark.parametrize("command", ["controller", "webhook"])
def test_a_daemon_command_reports_its_missing_dependencies(command: str) -> None:
    code = f"{HIDE}; sys.argv = ['netdra', '{command}']; from netdra.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 3
    assert f"netdra {command} requires " in done.stderr
    assert how_to_install("cluster") in done.stderr
    assert "Traceback" not in done.stderr


def test_the_doctor_reports_how_to_install_missing_dependencies() -> None:
    code = f"{HIDE}; sys.argv = ['netdra', 'doctor', '-o', 'json']; from netdra.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, capture_output=True, text=True)
    finding = next(entry for entry in json.loads(done.stdout) if entry["where"] == "cluster")
    assert "is not installed" in finding["seen"]
    assert finding["fix"] == how_to_install("cluster")


def test_every_command_has_its_help_without_them() -> None:
    """Also what a command imports is then what its help costs: none of these packages."""
    names = [*COMMANDS]
    code = f"{HIDE}; from click.testing import CliRunner; from netdra.cli.main import cli; import json; "
    code += f"print(json.dumps({{name: CliRunner().invoke(cli, [name, '--help']).exit_code for name in {names}}}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert json.loads(done.stdout) == dict.fromkeys(names, 0), done.stderr


def test_help_lists_every_command_without_them() -> None:
    code = f"{HIDE}; sys.argv = ['netdra', '--help']; from netdra.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0
    assert "webhook" in done.stdout
