"""Fixtures of the hardware level. Its tests run inside the SR-IOV machine and nowhere else: `make test-hardware`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from netdra.chain.site import ChainSettings
from netdra.cni.plugins import PluginPath
from testbed import build
from testbed.waiting import until
from tests.hardware.node import NAMES, PATIENCE, PF, PFS, TOTAL_VFS, VF, Function, bind, ip, run, up
from tests.hardware.pods import PLUGINS, Pod, assert_as_before, node_state

ACROSS_BOOTS = "across_boots"


def pytest_configure(config: pytest.Config) -> None:
    """The marker of tests whose pods see a reboot."""
    config.addinivalue_line("markers", f"{ACROSS_BOOTS}: its pods are there before and after a boot")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure at once: a machine that is stopped before its end would not report it."""
    if report.failed:
        print(f"\n{report.nodeid} ({report.when})\n{report.longreprtext}", flush=True)


@pytest.fixture(scope="session", autouse=True)
def machine() -> None:
    """Refuse to run elsewhere: a test that is skipped proves nothing and looks as if it did."""
    if any(pf.driver != "igb" for pf in PFS):
        pytest.fail("this test needs the SR-IOV machine, which has its NICs: run 'make test-hardware'", pytrace=False)


@pytest.fixture
def pfs() -> tuple[PF, ...]:
    """Both PFs, up, with 7 VFs each, under the names that they have after each boot, which go into those of devices."""
    assert tuple(pf.name for pf in PFS) == NAMES
    return PFS


@pytest.fixture
def set_num_vfs() -> Iterator[Callable[[PF, int], None]]:
    """Change a PF's number of VFs, until the test ends."""
    changed: set[PF] = set()

    def change(pf: PF, count: int) -> None:
        changed.add(pf)
        pf.set_num_vfs(count)

    yield change
    for pf in changed:
        ip("link", "set", pf.name, "up")
        pf.set_num_vfs(TOTAL_VFS)
        up(pf.name)


@pytest.fixture
def rebind() -> Iterator[Callable[[Function, str], None]]:
    """Give a function to another driver, until the test ends."""
    changed: dict[Function, tuple[str, str]] = {}

    def change(function: Function, driver: str) -> None:
        changed.setdefault(function, (function.driver, function.name))
        bind(function, driver)

    yield change
    for function, (driver, name) in changed.items():
        if function.folder.exists():
            bind(function, "")
            assert function.driver == driver
            if function in PFS:  # its driver has the kernel name it anew
                ip("link", "set", function.name, "name", name)


@pytest.fixture
def new_netns(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Make network namespaces; when the test ends they go, and the devices in them come back to the host."""
    made: list[str] = []

    def make() -> str:
        made.append(f"hw-{len(made)}")
        ip("netns", "add", made[-1])
        return made[-1]

    yield make
    for name in made:
        ip("netns", "delete", name)


@pytest.fixture(scope="session")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> PluginPath:
    """The stock CNI plugins and sriov-cni, in the guest's memory: run over 9p they would be slow."""
    folder = tmp_path_factory.mktemp("plugins")
    for name in PLUGINS:
        (folder / name).write_bytes(build.program(name).read_bytes())
        (folder / name).chmod(0o755)
    return PluginPath(directories=(str(folder),))


@pytest.fixture
def settings(tmp_path: Path, plugins: PluginPath) -> ChainSettings:
    """How chains are run."""
    return ChainSettings(state=tmp_path / "state", plugins=plugins, budget=60.0)


@pytest.fixture
def new_pod(settings: ChainSettings) -> Iterator[Callable[[], Pod]]:
    """Make pods; when the test ends they are detached and gone, and the node must be as it was when the first came."""
    before: list[dict[str, Any]] = []
    with making_pods(settings) as make:

        def make_after_a_look() -> Pod:
            if not before:
                before.append(node_state())
            return make()

        yield make_after_a_look
    for state in before:
        assert_as_before(state, settings)


@contextmanager
def making_pods(settings: ChainSettings) -> Iterator[Callable[[], Pod]]:
    """Make pods; in the end they are detached and gone."""
    made: list[Pod] = []

    def make() -> Pod:
        pod = Pod(netns=f"pod-{len(made)}", settings=settings)
        made.append(pod)
        ip("netns", "add", pod.netns)
        return pod

    yield make
    reports = [pod.detach() for pod in reversed(made)]
    for pod in made:
        if Path(pod.path).exists():
            ip("netns", "delete", pod.netns)
    assert [str(report) for report in reports if not report.is_clean] == []


@pytest.fixture
def pod(new_pod: Callable[[], Pod]) -> Pod:
    """One pod."""
    return new_pod()


@pytest.fixture
def rdma_vfs(pfs: tuple[PF, ...]) -> Iterator[tuple[tuple[VF, VF], ...]]:
    """Two pairs of VFs, one of each PF, with names, an MTU of 9000 and RDMA, which in software ends when they move."""
    pairs = tuple((pfs[0].vf(at), pfs[1].vf(at)) for at in (5, 6))
    names = {vf: vf.name for pair in pairs for vf in pair}
    for pf in pfs:
        ip("link", "set", pf.name, "mtu", "9000")
    for pf in pfs:
        up(pf.name)  # igb resets itself for another MTU, and has no link for some seconds
    for number, vf in enumerate(names):
        ip("link", "set", names[vf], "name", f"ai{number}")
        ip("link", "set", f"ai{number}", "mtu", "9000")
        run("rdma", "link", "add", f"rxe{number}", "type", "rxe", "netdev", f"ai{number}")
    yield pairs
    for number, vf in enumerate(names):
        run("rdma", "link", "delete", f"rxe{number}", check=False)
        ip("link", "set", vf.name, "mtu", "1500")
        ip("link", "set", vf.name, "name", names[vf])
    for pf in pfs:
        ip("link", "set", pf.name, "mtu", "1500")
    for pf in pfs:
        up(pf.name)


@pytest.fixture
def open_vswitch() -> Iterator[None]:
    """Open vSwitch's database and daemon."""
    folder = Path("/run/openvswitch")
    folder.mkdir(exist_ok=True)
    database, options = str(folder / "conf.db"), ("--detach", "--no-chdir", "--pidfile", "--log-file=/dev/null")
    run("ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema")
    run("ovsdb-server", database, f"--remote=punix:{folder}/db.sock", *options)
    try:
        run("ovs-vsctl", "--no-wait", "init")
        run("/usr/lib/openvswitch-switch/ovs-vswitchd", *options)
        try:
            yield
        finally:
            run("ovs-appctl", "exit", "--cleanup")
    finally:
        run("ovs-appctl", "-t", "ovsdb-server", "exit")
        (folder / "conf.db").unlink()


@pytest.fixture(autouse=True)
def restored(request: pytest.FixtureRequest, machine: None) -> Iterator[None]:
    """Hold every test to leaving the node as it was: VFs, drivers, netdevs, their masters, no link too many."""
    if request.node.get_closest_marker(ACROSS_BOOTS) is not None:
        yield
        return
    before = _state()
    yield
    until(
        lambda: _state() == before,
        "the node to be as before the test",
        seconds=PATIENCE,
        detail=lambda: f"{before}, not {_state()}",
    )


def _state() -> tuple[object, ...]:
    """Read from sysfs alone: a program takes long to begin there, and this is asked twice a test."""
    functions = [function for pf in PFS for function in (pf, *pf.vfs())]
    names = {function.name for function in functions}
    masters = {link.name: _master(link) for link in Path("/sys/class/net").iterdir() if link.is_symlink()}
    return (
        [(function.pci, function.driver, bool(function.name)) for function in functions],
        {name: master for name, master in masters.items() if name not in names or master},
    )


def _master(link: Path) -> str:
    master = link / "master"
    return master.readlink().name if master.is_symlink() else ""
