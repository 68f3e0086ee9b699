"""The TLS context that the webhook serves with, and how its certificate is changed while connections are open.

Filled by `netdra.admission.keeper`, or by `Mounted` with a certificate that somebody else keeps (cert-manager); used by
`netdra.admission.server`. A connection keeps the certificate that it began with; the next one gets the new.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from netdra.admission import certificates, metrics
from netdra.model.errors import InvalidInputError
from netdra.ops.health import Finding

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""How often a mounted folder is looked at."""


@dataclass(frozen=True)
class Clients:
    """Who may ask: clients with a certificate of an authority; without an authority, all that reach the port.

    Attributes:
        authority: the file with the authority's certificates.
        names: common names that are the API server's; any of that authority, if none is named.
    """

    authority: Path | None = None
    names: frozenset[str] = frozenset()

    @property
    def identified(self) -> bool:
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
        for tls in (context(), serving):
            tls.load_cert_chain(path)


class Mounted:
    """The folder with `tls.crt` and `tls.key`, as it was last seen.

    The kubelet swaps a mounted secret whole, by a symbolic link, so a certificate and a key that do not belong together
    are seen for a moment at most, and the next look gets the right ones.

    Attributes:
        not_after: when the certificate in use ends, None while there is none.
    """

    def __init__(self, folder: Path, tls: ssl.SSLContext) -> None:
        self._folder = folder
        self._tls = tls
        self.not_after: datetime | None = None
        self._loaded: tuple[str, str] | None = None

    def load(self) -> bool:
        """Serve with what is in the folder now; whether that is something new.

        Raises:
            InvalidInputError: it cannot be read, or is no certificate with its key.
        """
        try:
            pair = ((self._folder / "tls.crt").read_text(), (self._folder / "tls.key").read_text())
            if pair == self._loaded:
                return False
            end = certificates.not_after(pair[0])
            use(self._tls, *pair)
        except (OSError, ValueError) as problem:  # an SSLError is an OSError
            raise InvalidInputError(
                f"certificate in {self._folder}: {problem}", hint="it must have a tls.crt and the tls.key that fits"
            ) from None
        self._loaded = pair
        self.not_after = metrics.serves(end)
        return True

    def check(self, now: datetime) -> Finding:
        """Whether there is a certificate to be asked with, as a check of the process's health."""
        return certificates.check(self.not_after, now)

    async def run(self, seconds: float = LOOK_SECONDS) -> None:
        """Look again and again until cancelled; what cannot be used changes nothing."""
        while True:
            await asyncio.sleep(seconds)
            try:
                # Not in a thread: a connection that begins between certificate and key would fail.
                if self.load():
                    log.info("a new certificate from %s", self._folder)
            except InvalidInputError as problem:
                log.warning("%s", problem)
