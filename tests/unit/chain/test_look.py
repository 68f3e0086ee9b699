"""The drift of a bond that a program made: entries of its config that name no member are ignored."""

from __future__ import annotations

import time
from typing import cast

import pytest

from netdra.chain import flow, look
from netdra.cni.plugins import PluginPath
from netdra.kernel import link
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.kernel.sysfs import Sysfs
from netdra.model.result import CNIInterface, StepResult
from netdra.steps.contract import PodSpace, Site
from tests.plans import plan, step

POD = "/run/netns/x"
NO_SOCKET = cast("Socket", None)
NO_NAMESPACE = cast("Namespace", None)


def netdev(name: str, index: int, *, kind: str = "", master: int = 0) -> Link:
    return Link(
        *(index, name, 1, 0, kind, "", b"", "", "", 1500, "up", 0, link.HERE, master),
        *("", (), "", "", 0, 0, 0, "", ""),
    )


IN_THE_POD = {each.name: each for each in (netdev("bond0", 5, kind="bond"), netdev("net1", 6, master=5))}


@pytest.mark.parametrize("entry", ["", {"name": ""}, {"mac": "02:00:00:00:00:01"}, 7, None, ["net1"]])
def test_an_entry_of_a_bonds_links_without_a_name_is_ignored_and_the_others_are_compared(
    monkeypatch: pytest.MonkeyPatch, entry: object
) -> None:
    monkeypatch.setattr(link, "find", lambda _, name: IN_THE_POD.get(name))
    (task,) = flow.tasks([plan(step("a", "bond", "bond0", binary=True))]).values()
    site = Site(
        host=NO_SOCKET,
        host_namespace=NO_NAMESPACE,
        pod=PodSpace(namespace=NO_NAMESPACE, sock=NO_SOCKET, path=POD, cookie=1),
        container_id="sb",
        arguments={},
        plugins=PluginPath(),
        sysfs=Sysfs(),
        deadline=time.monotonic() + 9,
        lock=-1,
        holder=lambda _: "",
    )
    config = {"links": [entry, {"name": "net1"}, "net2"]}
    interfaces = [CNIInterface(name="bond0", sandbox=POD)]
    assert look.drift(task, config, interfaces, StepResult(), site) == (
        'interface "net2" of bond "bond0" does not exist',
    )
