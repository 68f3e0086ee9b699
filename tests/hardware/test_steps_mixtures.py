"""VFs, a bond of them, VLANs on the bond and their addresses: built in, as programs, and each mixture of the two.

The pod's network is the same, and the node is the same afterwards, even if one goes in between: a program, the pod's
namespace, or netdra itself.
"""

from __future__ import annotations

import itertools
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.chain.check import check
from netdra.chain.report import AttachError
from netdra.cni.plugins import PluginPath
from netdra.model.plan import Plan
from tests.hardware import killed, programs
from tests.hardware.node import PF, ip, links
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state
from tests.plans import on_devices

LAYERS = ("sriov", "bond", "vlan")
MIXTURES = tuple(itertools.product(("Auto", "Binary"), repeat=len(LAYERS)))
CHAIN = """
- {{name: vf0, type: sriov, execution: {sriov}, config: {{vlan: 0}}}}
- {{name: vf1, type: sriov, execution: {sriov}, config: {{vlan: 0}}}}
- name: bond0
  type: bond
  execution: {bond}
  dependOn: [vf0, vf1]
  config:
    mode: active-backup
    miimon: 100
    failOverMac: active
    links: [{{name: "{{{{ vf0.interfaceName }}}}"}}, {{name: "{{{{ vf1.interfaceName }}}}"}}]
- name: data
  type: vlan
  execution: {vlan}
  dependOn: [bond0]
  config:
    id: 100
    master: "{{{{ bond0.interfaceName }}}}"
    name: data0
    mtu: 1400
    ipam: {{type: static, addresses: [{{address: 10.100.0.5/24}}]}}
- name: mgmt
  type: vlan
  execution: {vlan}
  dependOn: [bond0]
  config:
    id: 200
    name: mgmt0
    ipam: {{type: static, addresses: [{{address: 10.200.0.5/24}}], routes: [{{dst: 10.201.0.0/16, gw: 10.200.0.1}}]}}
"""
# What the kernel numbers, counts or finds out by itself as time goes by.
PASSING = {"ifindex", "link_index", "operstate", "active_slave", "info_slave_data", "flags", "stats64", "stats"}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of programs that stands before the others."""
    folder = tmp_path / "programs"
    folder.mkdir()
    programs.bond(folder)
    return folder


@pytest.fixture
def new_mixed_pod(new_pod: Callable[[], Pod], plugins: PluginPath, own: Path) -> Callable[[], Pod]:
    """Pods whose chains find these programs too."""
    both = PluginPath(directories=(str(own), *plugins.directories))

    def make() -> Pod:
        pod = new_pod()
        return Pod(netns=pod.netns, settings=msgspec.structs.replace(pod.settings, plugins=both))

    return make


def chain(pfs: tuple[PF, ...], mixture: tuple[str, ...]) -> Plan:
    written = CHAIN.format(**dict(zip(LAYERS, mixture, strict=True)))
    if mixture[LAYERS.index("bond")] == "Auto":  # the program takes objects alone
        written = re.sub(r'\{name: ("[^"]*")\}', r"\1", written)
    return on_devices(written, vf0=allocated(pfs[0].vf(6)), vf1=allocated(pfs[1].vf(6)))


def shown(pod: Pod) -> dict[str, Any]:
    """The output of `ip -d` for the pod, without transient fields; whether a link is up is kept.

    A bond of this mode has the address of the VF that is active, and a VLAN on it that of the VF that was active when
    the VLAN was made. Whose carrier comes first decides which VF that is.
    """
    listed = links(pod.netns)
    vfs = {each["address"] for each in listed.values() if "linkinfo" not in each or "info_data" not in each["linkinfo"]}
    found = {name: {**_lasting(each), "up": "UP" in each["flags"]} for name, each in listed.items() if name != "lo"}
    for name in found.keys() & {"bond0", "data0", "mgmt0"}:
        assert found[name]["address"] in vfs, name
        found[name]["address"] = "a VF's"
    addresses = {name: sorted(pod.addresses(name)) for name in found}
    # Who set a route is told by netdra alone: stock plugins leave its protocol open.
    routes = [
        tuple(each.get(key) for key in ("dst", "gateway", "dev", "scope"))
        for each in json.loads(ip("-j", "-4", "route", netns=pod.netns))
    ]
    return {"links": found, "addresses": addresses, "routes": routes}


def flat(value: Any, place: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """By place, each value that is not an object."""
    if not isinstance(value, dict):
        return {place: value}
    return {where: found for key in value for where, found in flat(value[key], (*place, str(key))).items()}


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(each) for key, each in value.items() if key not in PASSING}
    return value


def test_a_pod_gets_the_same_from_built_in_steps_from_programs_and_from_each_mixture(
    pfs: tuple[PF, ...],
    new_mixed_pod: Callable[[], Pod],
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    before, seen = node_state(), []
    pod = new_mixed_pod()
    for mixture in MIXTURES:
        report = pod.attach(chain(pfs, mixture))
        record_testsuite_property(f"{'+'.join(mixture)}, ms", round(report.seconds * 1000, 1))
        seen.append(shown(pod))
        assert check(pod.netns, pod.settings).is_clean, mixture
        gone = pod.detach()
        assert gone.is_clean, (mixture, str(gone))
        assert_as_before(before, pod.settings)
    first = seen[0]
    assert {
        name: each["linkinfo"]["info_data"]["id"] for name, each in first["links"].items() if name in ("data0", "mgmt0")
    } == {"data0": 100, "mgmt0": 200}
    assert first["addresses"]["data0"] == ["10.100.0.5/24"]
    # Compared value by value: pytest shows which objects differ, and not in what.
    wanted = flat(first)
    for mixture, each in zip(MIXTURES, seen, strict=True):
        found = flat(each)
        places = sorted(place for place in wanted.keys() | found.keys() if wanted.get(place) != found.get(place))
        assert {place: (wanted.get(place), found.get(place)) for place in places} == {}, mixture


FAULTS = [
    (then, kind, mixture)
    for number, (then, kind) in enumerate(itertools.product((programs.DIES, programs.LOSES_THE_NAMESPACE), LAYERS))
    for mixture in [[each for each in MIXTURES if each[LAYERS.index(kind)] == "Binary"][number % 4]]
]


@pytest.mark.parametrize(
    ("then", "kind", "mixture"),
    FAULTS,
    ids=[
        f"{'dies' if then == programs.DIES else 'loses'}-{kind}-{'+'.join(mixture)}" for then, kind, mixture in FAULTS
    ],
)
def test_a_program_that_dies_or_loses_the_namespace_once_it_has_acted_leaves_nothing(
    pfs: tuple[PF, ...],
    new_mixed_pod: Callable[[], Pod],
    plugins: PluginPath,
    own: Path,
    then: str,
    kind: str,
    mixture: tuple[str, ...],
) -> None:
    before, pod = node_state(), new_mixed_pod()
    real = Path(plugins.directories[0]) / kind if kind != "bond" else (own / "bond").rename(own / "real-bond")
    programs.failing(real, own / kind, then)
    with pytest.raises(AttachError):
        pod.attach(chain(pfs, mixture))
    report = pod.detach()
    assert report.is_clean, str(report)
    assert_as_before(before, pod.settings)


@pytest.mark.parametrize(
    ("after", "mixture"),
    [("vf0", MIXTURES[-1]), ("bond0", MIXTURES[2]), ("data", MIXTURES[-1])],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_a_chain_whose_netdra_was_killed_is_undone_from_its_checkpoint(
    pfs: tuple[PF, ...], new_mixed_pod: Callable[[], Pod], after: str, mixture: tuple[str, ...]
) -> None:
    before, pod = node_state(), new_mixed_pod()
    job = killed.Job(chain(pfs, mixture), pod.netns, pod.settings, after)
    assert killed.exit_code(job) == -signal.SIGKILL
    report = pod.detach()
    assert report.is_clean, str(report)
    assert_as_before(before, pod.settings)


@pytest.mark.parametrize("mixture", [MIXTURES[3], MIXTURES[-1]], ids="+".join)
def test_a_chain_whose_namespace_goes_gives_its_vfs_back_as_they_were(
    pfs: tuple[PF, ...], new_mixed_pod: Callable[[], Pod], mixture: tuple[str, ...]
) -> None:
    before, pod = node_state(), new_mixed_pod()
    pod.attach(chain(pfs, mixture))
    ip("netns", "delete", pod.netns)
    report = pod.detach()
    assert report.is_clean, str(report)
    assert_as_before(before, pod.settings)
