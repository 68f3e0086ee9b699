"""The TLS context that the webhook serves with, and how its certificate is changed while connections are open.

Filled by `netdra.admission.keeper` or `netdra.admission.mounted`, used by `netdra.admission.server`. A connection keeps
the certificate that it began with; the next one gets the new.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path


def context() -> ssl.SSLContext:
    """A server's context without a certificate: no connection succeeds before `use` gives it one."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    return made


def use(serving: ssl.SSLContext, chain: str, key: str) -> None:
    """Serve with another certificate from now on.

    Raises:
        ssl.SSLError: the two do not belong together or cannot be read; what was served with before stays.
    """
    # OpenSSL reads these from files only; the folder is this user's alone, and gone again at once.
    with tempfile.TemporaryDirectory(prefix="netdra-tls-") as folder:
        certificate, private = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_text(chain)
        private.touch(mode=0o600)
        private.write_text(key)
        # A context takes a certificate before it sees that the key is not its own, so another one tries first.
        for each in (context(), serving):
            each.load_cert_chain(certificate, private)
