"""A certificate that somebody else keeps (cert-manager): files of a mounted secret, read again when they change.

Run by `netdra webhook --certificates`. The kubelet swaps a mounted secret whole, by a symbolic link, so a certificate
and a key that do not belong together are seen for a moment at most, and the next look finds the right ones.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from datetime import datetime
from pathlib import Path

from netdra.admission import certificates, metrics, serving
from netdra.model.errors import InvalidInputError
from netdra.ops.health import Finding

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0


class Mounted:
    """The folder with `tls.crt` and `tls.key`, as it was last seen.

    Attributes:
        not_after: when the certificate in use ends, None while there is none.
    """

    def __init__(self, folder: Path, tls: ssl.SSLContext) -> None:
        self._folder = folder
        self._tls = tls
        self.not_after: datetime | None = None
        self._known: tuple[str, str] | None = None

    def load(self) -> bool:
        """Serve with what is in the folder now; whether that is something new.

        Raises:
            InvalidInputError: it cannot be read, or is no certificate with its key.
        """
        try:
            found = ((self._folder / "tls.crt").read_text(), (self._folder / "tls.key").read_text())
            if found == self._known:
                return False
            end = certificates.not_after(found[0])
            serving.use(self._tls, *found)
        except (OSError, ValueError) as problem:  # an SSLError is an OSError
            raise InvalidInputError(
                f"certificate in {self._folder}: {problem}", hint="it must have a tls.crt and the tls.key that fits"
            ) from None
        self._known = found
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
