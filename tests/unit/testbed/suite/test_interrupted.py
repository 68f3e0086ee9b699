"""A run that is interrupted, asked to end or killed leaves nothing running, and lets tests clean up."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from testbed.waiting import until

ROOT = Path(__file__).parents[4]
TEST = """
    import os, time
    from pathlib import Path
    import pytest

    @pytest.fixture
    def made():
        Path("pid").write_text(str(os.getpid()))
        Path("pid").rename("pids")
        yield
        Path("cleaned").touch()

    def test_it(made):
        time.sleep(600)
"""
# The command line's own way in, with one level of one file.
RUN = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from testbed.suite import __main__ as program, levels
levels.LEVELS.clear()
command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "test_it.py"]
levels.LEVELS["a"] = levels.Level("a", lambda call: command, after=())
sys.argv[1:] = ["a"]
sys.exit(program.main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("before", ["", "trap '' INT;"], ids=["", "background"])
def test_tests_clean_up_and_end(tmp_path: Path, number: signal.Signals, before: str) -> None:
    (tmp_path / "test_it.py").write_text(dedent(TEST))
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # what is killed cannot remove its folder
    # A shell has what it runs in the background ignore Ctrl-C.
    command = ("sh", "-c", f'{before} exec "$@"', "sh", sys.executable, "-c", RUN)
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as run:
        until((tmp_path / "pids").exists, "the test to begin")
        handle = os.pidfd_open(int((tmp_path / "pids").read_text()))
        run.send_signal(number)
        told, _ = run.communicate(timeout=60)
    ended, _, _ = select.select([handle], [], [], 60)
    os.close(handle)
    assert ended
    assert (tmp_path / "cleaned").exists()
    if number != signal.SIGKILL:
        assert run.returncode == 130
        assert "interrupted" in told


def test_a_second_run_in_the_same_checkout_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(dedent(TEST))
    with subprocess.Popen((sys.executable, "-c", RUN), cwd=tmp_path, stdout=subprocess.DEVNULL) as run:
        until((tmp_path / "pids").exists, "the test to begin")
        second = subprocess.run((sys.executable, "-c", RUN), cwd=tmp_path, capture_output=True, text=True, check=False)
        run.send_signal(signal.SIGINT)
    assert second.returncode == 1
    assert "another run of the tests has build/test" in second.stdout
