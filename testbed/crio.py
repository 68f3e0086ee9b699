"""A real CRI-O on a node, with NRI and CDI.

Started by `testbed.runtimes`. It takes images from registries alone: it has `testbed.registry` while it pulls.
Before runc stands `testbed.runc`, for machines without the right to raise limits.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from testbed.build import program
from testbed.image import NAME, write_image
from testbed.node import Node
from testbed.runtime import CDI_FOLDER, CNI_FOLDER, NRI_SOCKET, Runtime, cni_plugins

_REGISTRY_PORT = 5000
_PACKAGE_PARENT = Path(__file__).parent.parent


class Crio(Runtime):
    """The CRI-O of a node."""

    name = "cri-o"
    socket = "/run/crio/crio.sock"

    def __init__(self, node: Node, *, hook_seconds: float = 0.0) -> None:
        """Start it, with the image pulled.

        Args:
            node: where.
            hook_seconds: how long it waits for an NRI plugin, 0 for its default.

        Raises:
            ProcessError: it did not become ready.
            BuildError: it is not built.
            FileNotFoundError: conmon is not installed.
        """
        super().__init__(node)
        (node.folder / "run" / "crio").mkdir(exist_ok=True)
        registries, policy = node.folder / "registries.conf", node.folder / "policy.json"
        host = NAME.partition("/")[0]
        registries.write_text(
            f'[[registry]]\nprefix = "{host}"\nlocation = "127.0.0.1:{_REGISTRY_PORT}"\ninsecure = true\n'
        )
        policy.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        runc = node.folder / "runc"
        runc.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("runc.py")} "$@"\n')
        runc.chmod(0o755)
        configuration = node.folder / "run" / "crio" / "crio.conf"
        configuration.write_text(_configuration(runc, policy, hook_seconds))
        command = (
            *(str(program("crio")), "--config=/run/crio/crio.conf", "--config-dir=", "--log-level=info"),
            f"--registries-conf={registries}",
        )
        self.process = node.start("runtime", command, self.answers(), {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        self._pull()

    def _pull(self) -> None:
        archive = self.node.folder / "image.tar"
        write_image(archive)
        registry = self.node.start(
            "registry",
            (sys.executable, "-m", "testbed.registry", str(archive), str(_REGISTRY_PORT)),
            lambda: self.node.listens(_REGISTRY_PORT),
            {"PYTHONPATH": str(_PACKAGE_PARENT)},
        )
        self.crictl("pull", NAME)
        registry.kill()


def _configuration(runc: Path, policy: Path, hook_seconds: float) -> str:
    """The configuration file: the settings that differ from the defaults, and those that would be the machine's."""
    timeout = f'nri_plugin_request_timeout = "{hook_seconds:g}s"' if hook_seconds else ""
    conmon = shutil.which("conmon")
    if conmon is None:
        raise FileNotFoundError("conmon is not installed: run 'python3 -m testbed system --for runtimes'")
    return f"""[crio]
root = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
# Copies instead of mounts: the node's folder may itself be on an overlay.
storage_driver = "vfs"
log_dir = "/var/log/crio/pods"
version_file = "/run/crio/version"
version_file_persist = ""
clean_shutdown_file = "/run/crio/clean.shutdown"

[crio.api]
listen = "{Crio.socket}"

[crio.runtime]
conmon_cgroup = "pod"
cgroup_manager = "cgroupfs"
default_runtime = "runc"
pinns_path = "{program("pinns")}"
container_attach_socket_dir = "/run/crio"
container_exits_dir = "/run/crio/exits"
cdi_spec_dirs = ["{CDI_FOLDER}"]

[crio.runtime.runtimes.runc]
runtime_path = "{runc}"
runtime_type = "oci"
runtime_root = "/run/runc"
monitor_path = "{conmon}"

[crio.image]
pause_image = "{NAME}"
pause_command = ""
signature_policy = "{policy}"

[crio.network]
network_dir = "{CNI_FOLDER}"
plugin_dirs = ["{cni_plugins()}"]

[crio.nri]
nri_listen = "{NRI_SOCKET}"
nri_plugin_dir = "/run/nri/plugins"
nri_plugin_config_dir = "/run/nri/conf.d"
{timeout}
"""
