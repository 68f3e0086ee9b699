"""The registry's client is a library: a provider that imports it loads nothing of the daemons."""

from __future__ import annotations

import subprocess
import sys

LOADED = "import sys, netdra.registry_client; print(*sys.modules)"


def test_the_client_needs_no_http_no_certificates_and_no_daemon() -> None:
    program = subprocess.run((sys.executable, "-c", LOADED), check=True, capture_output=True, text=True)
    modules = set(program.stdout.split())
    assert {"grpclib", "google.protobuf"} <= modules
    assert not {"aiohttp", "cryptography", "prometheus_client", "click", "yaml"} & modules
    assert {name for name in modules if name.startswith("netdra.") and name.count(".") == 1} == {
        "netdra.model",
        "netdra.node",
        "netdra.registry_client",
    }
    assert {name for name in modules if name.startswith("netdra.node.")} == {
        "netdra.node.wire",
        "netdra.node.wire.registry_pb2",
    }
