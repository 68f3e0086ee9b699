"""A process keeps no authorities that it does not ask: aiohttp would read the system's, which are megabytes."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

from aiohttp import connector

from testbed.certificates import new_authority

_IMPORT = """
import os
from netdra.node import daemon
from aiohttp import connector
contexts = connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED
print(*(context.cert_store_stats()["x509_ca"] for context in contexts))
print(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
"""


def test_the_default_tls_context_trusts_no_authority_and_checks_host_names() -> None:
    importlib.import_module("netdra.kube.connection")
    trusting = connector._SSL_CONTEXT_VERIFIED
    assert trusting is not None
    assert trusting.cert_store_stats()["x509_ca"] == 0
    assert trusting.check_hostname


def test_a_daemon_reads_no_authorities_at_its_import_and_its_environment_stays_as_it_is(tmp_path: Path) -> None:
    certificate = str(new_authority(tmp_path).own.certificate)
    environment = {name: value for name, value in os.environ.items() if name != "SSL_CERT_DIR"}
    environment["SSL_CERT_FILE"] = certificate
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == ["0 0", f"{certificate} None"]
