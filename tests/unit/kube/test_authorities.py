"""A process keeps no authorities that it does not ask: aiohttp would keep the system's, which are megabytes."""

from __future__ import annotations

import importlib

from aiohttp import connector


def test_the_default_tls_context_trusts_no_authority_and_checks_host_names() -> None:
    importlib.import_module("netdra.kube.connection")
    trusting = connector._SSL_CONTEXT_VERIFIED
    assert trusting is not None
    assert trusting.cert_store_stats()["x509_ca"] == 0
    assert trusting.check_hostname
