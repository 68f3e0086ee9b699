"""The TLS context that the webhook serves with, and how its certificate is changed while connections are open.

Filled by `netdra.admission.keeper` or `netdra.admission.mounted`, used by `netdra.admission.server`. A connection keeps
the certificate that it began with; the next one gets the new.
"""

from __future__ import annotations

import os
import ssl
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from netdra.model.errors import InvalidInputError


@dataclass(frozen=True)
class Clients:
    """Who may ask: whoever shows a certificate of an authority, or, without one, whoever reaches the port.

    Attributes:
        authority: the file with the authority's certificates.
        names: common names that are the API server's; any of that authority, if none is named.
    """

    authority: Path | None = None
    names: frozenset[str] = frozenset()

    @property
    def known(self) -> bool:
        """Whether it can be told who asks."""
        return self.authority is not None


ANYBODY = Clients()


def context(clients: Clients = ANYBODY) -> ssl.SSLContext:
    """A server's context without a certificate: no connection succeeds before `use` gives it one.

    The kubelet asks about health without a certificate, so none is asked for where there may be no authority to it.

    Raises:
        InvalidInputError: the authority of clients cannot be read.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if clients.authority is not None:
        try:
            made.load_verify_locations(cafile=clients.authority)
        except OSError as problem:  # an SSLError is an OSError
            raise InvalidInputError(
                f"client CA {clients.authority}: {problem.strerror or problem}",
                hint="it must be a file of PEM certificates",
            ) from None
        made.verify_mode = ssl.CERT_OPTIONAL
    return made


def use(serving: ssl.SSLContext, chain: str, key: str) -> None:
    """Serve with another certificate from now on.

    Raises:
        ssl.SSLError: the two do not belong together or cannot be read; what was served with before stays.
        OSError: this process cannot have a file just now, which says nothing about the certificate; the same.
    """
    # OpenSSL reads these from files only. This one is in memory: it needs no disk, and nobody else can open it.
    with closing(os.fdopen(os.memfd_create("netdra-tls"), "w")) as file:
        file.write(f"{chain}\n{key}\n")
        file.flush()
        path = f"/proc/self/fd/{file.fileno()}"
        # A context takes a certificate before it sees that the key is not its own, so another one tries first.
        for each in (context(), serving):
            each.load_cert_chain(path)
