"""A test that touches a path beside the checkout, or in the home folder, fails and names the path; others do not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.confined import Places

ROOT = Path(__file__).parents[3]

# A checkout in a temporary folder, with something beside it and a home. Each statement is the body of one test there.
BEFORE = """
import os, socket, subprocess, sys, tempfile, threading
from pathlib import Path
import pytest

checkout = Path(__file__).parents[1]
beside, home = checkout.parent / "beside", Path.home()

def in_a_fork(act):
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
"""
TOUCHES = {
    "reads a file": 'open(beside / "file").read()',
    "looks for a file that is not there": 'pytest.raises(FileNotFoundError, open, beside / "none")',
    "writes a file": '(beside / "new").write_text("")',
    "opens a descriptor": 'os.close(os.open(os.fsencode(beside / "file"), os.O_RDONLY))',
    "lists a folder": "os.listdir(beside)",
    "lists all that is beside": "list(os.scandir(checkout.parent))",
    "makes a folder": '(beside / "made").mkdir()',
    "removes a file": '(beside / "new").unlink(missing_ok=True)',
    "moves a file away": 'pytest.raises(OSError, os.rename, beside / "none", checkout / "none")',
    "goes there": "os.chdir(beside); os.chdir(checkout)",
    "connects to a socket": 'pytest.raises(OSError, socket.socket(socket.AF_UNIX).connect, str(beside / "socket"))',
    "goes up from the working folder": 'open("../beside/file").read()',
    "goes up in a path": 'open(f"{checkout}/tests/../../beside/file").read()',
    "takes a neighbour with the checkout's name and more": "pytest.raises(OSError, open, f'{checkout}2/file')",
    "reads a file of the home folder": 'open(home / "file").read()',
    "in a fork": 'in_a_fork(open(checkout / "file").close); in_a_fork(lambda: open(beside / "file"))',
    "in a thread": "thread = threading.Thread(target=os.listdir, args=(beside,)); thread.start(); thread.join()",
    "hands a path to a program": 'subprocess.run(["true", beside / "file"])',
    "starts a program there": 'subprocess.run(["true"], cwd=beside)',
    "says so and skips": 'os.listdir(beside); pytest.skip("not here")',
}
STAYS = {
    "reads the checkout": 'open(checkout / "file").read(), open("file").read(), os.listdir(), os.listdir(checkout)',
    "goes up within the checkout": 'open(f"{checkout}/tests/../file").read(), open("tests/../file").read()',
    "writes a temporary folder": 'tempfile.TemporaryFile().write(b""), os.listdir(tempfile.mkdtemp())',
    "reads the test bed's cache": 'open(home / ".cache/netdra-testbed/file").read()',
    "reads what Python has installed": "open(os.__file__).read(), open(pytest.__file__).read()",
    "reads what the kernel says": 'open("/proc/self/status").read(), os.listdir("/sys")',
    "runs a program": 'subprocess.run([sys.executable, "-c", ""], check=True)',
    "names a folder that no machine has": 'pytest.raises(FileNotFoundError, open, "/nowhere/file")',
    "forks": "in_a_fork(lambda: None)",
}
FIXTURES = """
@pytest.fixture
def reading_before():
    os.listdir(beside)

@pytest.fixture
def reading_after():
    yield
    os.listdir(beside)

def test_setup(reading_before): pass
def test_teardown(reading_after): pass
def test_after_all_that(): pass
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The report of pytest on a checkout's tests: by the test's name, the text of its failure, "" if it passed."""
    above = tmp_path_factory.mktemp("above")
    tests = above / "checkout" / "tests"
    for folder in (tests, above / "beside", above / "home/.cache/netdra-testbed"):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    (above / "home/file").touch()
    (tests.parent / "file").touch()
    (tests.parent / "pytest.ini").touch()
    (tests / "conftest.py").write_text('pytest_plugins = ["tests.confined"]\n')
    bodies = [f"def test_{number}():\n    {body}\n" for number, body in enumerate((*TOUCHES.values(), *STAYS.values()))]
    (tests / "test_statements.py").write_text("\n".join((BEFORE, *bodies, FIXTURES)))
    (tests / "test_import.py").write_text(f"{BEFORE}\nos.listdir(beside)\ndef test(): pass\n")
    environment = {
        **{name: value for name, value in os.environ.items() if name != "NETDRA_TESTBED_CACHE"},
        "HOME": str(above / "home"),
        "PYTHONPATH": str(ROOT),
    }
    command = (sys.executable, "-m", "pytest", "--continue-on-collection-errors", "--junitxml=report.xml", "tests")
    done = subprocess.run(command, cwd=tests.parent, env=environment, capture_output=True, text=True, check=False)
    report = tests.parent / "report.xml"
    assert report.exists(), done.stdout + done.stderr
    return {
        f"{case.get('classname')}.{case.get('name')}": "\n".join("".join(child.itertext()) for child in case)
        for case in ElementTree.parse(report).iter("testcase")
    }


def statement(name: str) -> str:
    return f"tests.test_statements.test_{[*TOUCHES, *STAYS].index(name)}"


@pytest.mark.parametrize("name", TOUCHES)
def test_a_test_fails_that(run: dict[str, str], name: str) -> None:
    test = statement(name).rpartition(".")[2]
    assert f"tests/test_statements.py::{test} touched what is outside the checkout" in run[statement(name)]
    assert re.search(r"^/.*/above0(/(beside|home|checkout2)/?.*)? \([a-zA-Z.]+\)$", run[statement(name)], re.MULTILINE)


@pytest.mark.parametrize("name", STAYS)
def test_a_test_passes_that(run: dict[str, str], name: str) -> None:
    assert run[statement(name)] == ""


@pytest.mark.parametrize(("name", "fails"), [("setup", True), ("teardown", True), ("after_all_that", False)])
def test_a_fixture_fails_the_test_that_it_is_for_and_no_other(run: dict[str, str], name: str, fails: bool) -> None:
    assert (f"test_{name} touched what is outside" in run[f"tests.test_statements.test_{name}"]) == fails
    assert (run[f"tests.test_statements.test_{name}"] != "") == fails


def test_a_module_touching_paths_outside_the_checkout_at_import_fails(run: dict[str, str]) -> None:
    assert "tests/test_import.py touched what is outside the checkout" in run[".tests.test_import"]


@pytest.mark.parametrize(
    ("checkout", "path", "outside"),
    [
        ("/home/me/netdra", "/home/me/netdra/../other/file", True),
        ("/home/me/netdra", "/home/me/netdra/tests/file", False),
        ("/home/me/netdra", "/home/me/.kube/config", True),
        ("/home/me/src/netdra", "/home/me/.kube/config", True),
        ("/home/me/src/netdra", "/home/me/.cache/netdra-testbed/etcd/etcd", False),
        ("/home/me/src/netdra", "/home/me/go/pkg/mod/file", False),
        ("/home/me/src/netdra", "/etc/hosts", False),
        ("/home/me/src/netdra", "/", False),
        ("/home/me/src/netdra", "/home/me/bin/tool", False),
        ("/home/me/go/src/netdra", "/home/me/go/src/other/file", True),
        ("/tmp/x/netdra", "/tmp/x/other/file", True),
        ("/tmp/x/netdra", "/tmp/pytest-of-me/file", False),
        ("/tmp/x/netdra", "/tmp/x/netdra2", True),
        ("/tmp/netdra", "/tmp/pytest-of-me/file", False),
        ("/usr/src/netdra", "/usr/src/other/file", True),
        ("/opt/netdra", "/opt/cni/bin/bridge", False),
    ],
)
def test_the_innermost_folder_decides_wherever_the_checkout_is(
    monkeypatch: pytest.MonkeyPatch, checkout: str, path: str, outside: bool
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("PATH", "/usr/bin:/home/me/bin:/home/me:.")
    for name in ("NETDRA_TESTBED_CACHE", "GOPATH", "GOCACHE"):
        monkeypatch.delenv(name, raising=False)
    assert Places.of(Path(checkout)).is_outside(path) == outside


def test_a_folder_that_is_allowed_is_inside() -> None:
    places = Places((), ("/tmp/x",))
    assert places.is_outside("/tmp/x/recordings/file")
    places.allow("/tmp/x/recordings")
    assert not places.is_outside("/tmp/x/recordings/file")
