"""Two small CNI plugins, `bridge` and `macvlan`, for a lab on a machine that has no CNI plugins installed.

They are programs like any other plugin's (CNI 1.0: configuration on stdin, verb in the environment, result on stdout)
and take what the lab's topologies use of the well-known plugins' parameters. The lab prefers real ones where it finds
them. Run as `python -m netdra.lab.plugin bridge` by the shell scripts that `demo` writes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from netdra.kernel import kinds, link, netns
from netdra.kernel.netlink import Socket
from netdra.model.errors import NetdraError

CNI_VERSION = "1.0.0"
_VERSIONS = json.dumps({"cniVersion": CNI_VERSION, "supportedVersions": [CNI_VERSION]})
VERSION_IN_SHELL = f"""[ "$CNI_COMMAND" = VERSION ] && echo '{_VERSIONS}' && exit"""
"""The answer to VERSION, given by the shell that starts a plugin: starting Python for it would take longer."""
_BAD_CONFIG = 7  # CNI specification, "Error": Invalid network config
_FAILED = 100

Config = Mapping[str, Any]


def bridge(verb: str, config: Config, pod: netns.Namespace, name: str) -> list[dict[str, Any]]:
    """A port of a bridge of the host: a veth pair with one end in the pod and the other in the bridge."""
    with Socket() as host, pod.socket() as inside:
        if verb == "DEL":
            _delete(inside, name)
            return []
        port = f"nd{os.environ['CNI_CONTAINERID'][:6]}{name}"[:15]
        if verb == "ADD":
            mtu = config.get("mtu")
            peer = kinds.Peer(name, netns_fd=pod.fd, mtu=mtu)
            link.create(host, port, "veth", kinds.veth(peer), mtu=mtu)
            link.change(host, port, master=link.get(host, config["bridge"]).index, up=True)
            link.change(inside, name, up=True)
        return [
            {"name": config["bridge"], "mac": link.get(host, config["bridge"]).address},
            {"name": port, "mac": link.get(host, port).address},
            _seen(inside, name, pod.path),
        ]


def macvlan(verb: str, config: Config, pod: netns.Namespace, name: str) -> list[dict[str, Any]]:
    """A macvlan on an interface of the host, or of the pod with `linkInContainer`."""
    with Socket() as host, pod.socket() as inside:
        if verb == "DEL":
            _delete(inside, name)
            return []
        if verb == "ADD":
            home = inside if config.get("linkInContainer") else host
            lower = link.get(home, config["master"]).index
            data = kinds.macvlan(config.get("mode", "bridge"))
            link.create(home, name, "macvlan", data, lower=lower, mtu=config.get("mtu"), netns_fd=pod.fd)
            link.change(inside, name, up=True)
        return [_seen(inside, name, pod.path)]


PLUGINS: Mapping[str, Callable[[str, Config, netns.Namespace, str], list[dict[str, Any]]]] = {
    "bridge": bridge,
    "macvlan": macvlan,
}


def main(arguments: list[str]) -> int:
    """Obey the protocol for the plugin that is named; returns the exit code."""
    verb = os.environ.get("CNI_COMMAND", "")
    try:
        config = json.load(sys.stdin)
        with netns.Namespace.open(os.environ["CNI_NETNS"]) as pod:
            made = PLUGINS[arguments[0]](verb, config, pod, os.environ["CNI_IFNAME"])
    except (KeyError, ValueError) as problem:
        return _error(_BAD_CONFIG, f"{arguments[0]}: missing or malformed: {problem}")
    except NetdraError as problem:
        return _error(_FAILED, f"{arguments[0]}: {problem.what}")
    if verb == "ADD":
        before = config.get("prevResult") or {}
        print(json.dumps({**before, "cniVersion": CNI_VERSION, "interfaces": [*before.get("interfaces", ()), *made]}))
    return 0


def _delete(inside: Socket, name: str) -> None:
    if link.find(inside, name) is not None:
        link.delete(inside, name)


def _seen(inside: Socket, name: str, path: str) -> dict[str, Any]:
    return {"name": name, "mac": link.get(inside, name).address, "sandbox": path}


def _error(code: int, message: str) -> int:
    print(json.dumps({"cniVersion": CNI_VERSION, "code": code, "msg": message}))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
