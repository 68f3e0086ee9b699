"""VFs come back clean after any change by a pod: their settings at the PF, their driver, and a reset."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from netdra.chain.report import AttachError
from netdra.chain.site import ChainSettings
from tests.hardware.node import PF, PFS, TOTAL_VFS, Function, bind, ip, links
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state, of_pf
from tests.plans import plan, step

SETTINGS = (
    ("vlan", "7", "qos", "2"),
    ("trust", "on"),
    ("spoofchk", "off"),
    ("mac", "02:00:00:00:66:03"),
)


@pytest.fixture(scope="module", autouse=True)
def new_vfs() -> Iterator[None]:
    """Create the VFs again: the driver resets a PF that moves, and its VFs would keep their MACs for good."""
    yield
    PFS[1].set_num_vfs(TOTAL_VFS)


def of_all(pf: PF) -> list[dict[str, object]]:
    """The settings of a PF for its VFs."""
    listed: list[dict[str, object]] = links()[pf.name]["vfinfo_list"]
    return listed


def spoil(name: str, index: int, netns: str) -> None:
    """Set a VF through its PF, as a pod with NET_ADMIN can that has the PF."""
    for setting in SETTINGS:
        ip("link", "set", name, "vf", str(index), *setting, netns=netns)


@pytest.mark.parametrize("binary", [False, True])
def test_settings_that_a_pod_with_a_pf_gave_to_vfs_do_not_reach_their_next_users(
    pfs: tuple[PF, ...], pod: Pod, binary: bool
) -> None:
    pf = pfs[1]
    before = of_all(pf)
    pod.attach(plan(step("pf", "host-device", "net1", device=allocated(pf, allow_host_use=True), binary=binary)))
    spoil("net1", 3, pod.netns)

    report = pod.detach()

    assert report.is_clean, str(report)
    assert of_all(pf) == before
    assert {"has VLAN 7, not 0" in text for text in report.restored if "VLAN" in text} == {True}
    after = Pod(netns=pod.netns, settings=pod.settings)
    after.attach(plan(step("vf", "sriov", "net1", {"mac": "02:00:00:00:66:04"}, device=allocated(pf.vf(3)))))
    assert (after.link("net1")["address"], of_pf(pf.vf(3))["vlan_list"]) == ("02:00:00:00:66:04", [{}])
    assert after.detach().is_clean


@pytest.mark.parametrize("first", ["pf", "vf"])
def test_a_vf_that_another_pod_has_is_left_to_it_and_restored_when_it_comes_back(
    pfs: tuple[PF, ...], new_pod: Callable[[], Pod], first: str
) -> None:
    pf, vf = pfs[1], pfs[1].vf(2)
    before, owner, other = of_all(pf), new_pod(), new_pod()
    of_pods = {owner: allocated(pf, allow_host_use=True), other: allocated(vf)}
    for each in of_pods if first == "pf" else reversed(of_pods):
        each.attach(plan(step("nic", "host-device", "net1", device=of_pods[each])))
    spoil("net1", vf.index, owner.netns)
    assert owner.detach().is_clean
    assert of_pf(vf)["vlan_list"] == [{"vlan": 7, "qos": 2}]

    assert other.detach().is_clean

    assert of_all(pf) == before


def test_a_pod_that_shares_a_pf_does_not_give_a_vf_the_settings_of_another_pod_that_has_ended(
    pfs: tuple[PF, ...], new_pod: Callable[[], Pod]
) -> None:
    """The VF had them when the pod got its share."""
    pf = pfs[1]
    before, user, sharer = of_all(pf), new_pod(), new_pod()
    settings = {"vlan": 7, "trust": "on", "spoofchk": "off"}
    user.attach(plan(step("vf", "sriov", "net1", settings, device=allocated(pf.vf(2)))))
    sharer.attach(plan(step("lan", "macvlan", "net1", {"master": pf.name}, device=allocated(pf))))

    assert user.detach().is_clean
    assert of_all(pf) == before
    assert sharer.detach().is_clean

    assert of_all(pf) == before


def test_a_vf_is_reset_if_a_pod_has_changed_it_and_only_then(pfs: tuple[PF, ...], new_pod: Callable[[], Pod]) -> None:
    vf = pfs[0].vf(3)
    before, index = node_state(), links()[vf.name]["ifindex"]
    for changes in (False, True):
        pod = new_pod()
        config = {"vlan": 100, "mac": "02:00:00:00:66:05", "mtu": 1400}
        pod.attach(plan(step("vf", "sriov", "net1", config, device=allocated(vf))))
        if changes:
            ip("link", "set", pfs[0].name, "vf", str(vf.index), "trust", "on")  # the administrator forgets it
        report = pod.detach()
        assert report.is_clean, str(report)
        assert_as_before(before, pod.settings)
        resets = [text for text in report.restored if f"VF {vf.pci} was reset" in text]
        assert (bool(resets), links()[vf.name]["ifindex"] != index) == (changes, changes)


@pytest.mark.parametrize("binary", [False, True])
def test_a_reset_ends_all_links_and_programs_of_a_pod_on_a_vf(
    pfs: tuple[PF, ...], pod: Pod, new_netns: Callable[[], str], binary: bool
) -> None:
    vf, hidden = pfs[0].vf(4), new_netns()
    before = node_state()
    device = allocated(vf, reset="Always")
    pod.attach(plan(step("vf", "host-device", "net1", device=device, binary=binary)))
    ip("link", "add", "link", "net1", "name", "child", "netns", hidden, "type", "macvlan", netns=pod.netns)

    report = pod.detach()

    assert report.is_clean, str(report)
    assert "child" not in links(hidden)
    assert_as_before(before, pod.settings)


def test_a_vf_that_a_pod_moved_to_a_namespace_of_its_own_is_brought_back(
    pfs: tuple[PF, ...], pod: Pod, new_netns: Callable[[], str]
) -> None:
    vf, hidden = pfs[0].vf(4), new_netns()
    before = node_state()
    pod.attach(plan(step("vf", "sriov", "net1", device=allocated(vf))))
    ip("link", "set", "net1", "netns", hidden, netns=pod.netns)
    report = pod.detach()
    assert report.is_clean, str(report)
    assert_as_before(before, pod.settings)


@pytest.mark.parametrize("driver", ["vfio-pci", ""])
@pytest.mark.parametrize("kind", ["sriov", "host-device"])
def test_a_vf_whose_driver_a_pod_changed_has_its_own_again(
    pfs: tuple[PF, ...], pod: Pod, driver: str, kind: str
) -> None:
    vf = pfs[0].vf(5)
    before = node_state()
    pod.attach(plan(step("vf", kind, "net1", device=allocated(vf))))
    if driver:
        bind(vf, driver)
    else:
        (vf.folder / "driver" / "unbind").write_text(vf.pci)
    report = pod.detach()
    assert report.is_clean, str(report)
    assert_as_before(before, pod.settings)


@pytest.mark.parametrize("binary", [False, True])
def test_a_vf_that_has_another_driver_than_it_was_offered_with_is_refused(
    pfs: tuple[PF, ...], rebind: Callable[[Function, str], None], new_pod: Callable[[], Pod], binary: bool
) -> None:
    vf = pfs[0].vf(6)
    device = allocated(vf)
    rebind(vf, "vfio-pci")
    with pytest.raises(AttachError, match=r"was offered with interface .* but now has driver vfio-pci"):
        new_pod().attach(plan(step("vf", "sriov", "net1", device=device, binary=binary)))


def test_vfs_that_a_pod_with_a_pf_removed_are_created_again_with_their_macs(
    pfs: tuple[PF, ...], new_netns: Callable[[], str], settings: ChainSettings
) -> None:
    """All but their permanent MACs, which their driver draws by lot."""
    pf = pfs[1]
    own = ("address", "ifname", "mtu")
    before = [{key: links()[vf.name][key] for key in own} for vf in pf.vfs()], of_all(pf)
    pod = Pod(netns=new_netns(), settings=settings)
    pod.attach(plan(step("pf", "host-device", "net1", device=allocated(pf, allow_host_use=True))))
    (pf.folder / "sriov_numvfs").write_text("0")
    report = pod.detach()
    assert report.is_clean, str(report)
    assert ([{key: links()[vf.name][key] for key in own} for vf in pf.vfs()], of_all(pf)) == before
