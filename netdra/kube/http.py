"""aiohttp, imported without the system's authorities, for `netdra.kube.client` and `netdra.kube.connection`.

aiohttp reads them twice at its import, for requests that name no authorities: 40 ms and megabytes that stay. Every
request here names them; a request that did not would trust no server.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["aiohttp"]

_PLACES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Where OpenSSL reads the names of its files of authorities (SSL_CTX_set_default_verify_paths(3))."""


@contextmanager
def _no_authorities() -> Iterator[None]:
    """Have OpenSSL find no authorities meanwhile."""
    former = {name: os.environ.get(name) for name in _PLACES}
    os.environ.update(dict.fromkeys(_PLACES, os.devnull))
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


with _no_authorities():
    import aiohttp

# Another module may have imported it before.
aiohttp.connector._SSL_CONTEXT_VERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # noqa: SLF001
