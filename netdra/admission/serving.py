"""The TLS context that the webhook serves with, and how its certificate is changed while connections are open.

Filled by `netdra.admission.keeper`, or by `Mounted` with a certificate that another program renews (cert-manager); used
by `netdra.admission.server`. A connection keeps the certificate that it began with; the next connection gets the new
one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from netdra.admission import certificates, metrics
from netdra.model.errors import InvalidInputError
from netdra.ops.health import CheckResult

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""Seconds between two looks at a mounted folder."""


@dataclass(frozen=True)
class Clients:
    """The clients that may ask: those with a certificate of an authority; without an authority, all.

    Attributes:
        authority: the file with the authority's certificates.
        names: the common names of the API server; any name of that authority, if none is given.
    """

    authority: Path | None = None
    names: frozenset[str] = frozenset()

    @property
    def identified(self) -> bool:
        """Whether clients show who they are."""
        return self.authority is not None


ANYBODY = Clients()


def context(clients: Clients = ANYBODY) -> ssl.SSLContext:
    """A server's context without a certificate: no connection succeeds before `use` gives it one.

    The kubelet asks for health without a certificate, so a client's certificate is optional.

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
                hint="it must be a file with PEM certificates",
                code="ND3091",
            ) from None
        made.verify_mode = ssl.CERT_OPTIONAL
    return made


def use(serving: ssl.SSLContext, chain: str, key: str) -> None:
    """Serve with another certificate from now on.

    Raises:
        ssl.SSLError: certificate and key do not belong together or cannot be read; the former certificate stays.
        OSError: this process cannot open a file just now, which is not a fault of the certificate; the former one
            stays.
    """
    # OpenSSL reads these from files only. This file is in memory: it needs no disk, and no other process can open it.
    with closing(os.fdopen(os.memfd_create("netdra-tls"), "w")) as file:
        file.write(f"{chain}\n{key}\n")
        file.flush()
        path = f"/proc/self/fd/{file.fileno()}"
        # A context takes a certificate before it sees that the key is another's, so another context tries first.
        for tls in (context(), serving):
            tls.load_cert_chain(path)


class Mounted:
    """The folder with `tls.crt` and `tls.key`, as it was last seen.

    The kubelet swaps a mounted secret whole, by a symbolic link, so a certificate and a key that do not belong together
    are there for a moment at most, and the next look has the right ones.

    Attributes:
        not_after: when the certificate in use ends, None while none exists.
    """

    def __init__(self, folder: Path, tls: ssl.SSLContext, clock: Callable[[], datetime]) -> None:
        self._folder = folder
        self._tls = tls
        self._clock = clock
        self.not_after: datetime | None = None
        self._loaded: tuple[str, str] | None = None

    def load(self) -> bool:
        """Serve with the certificate that is in the folder now; returns whether that is a new one.

        Raises:
            InvalidInputError: it cannot be read, is not a certificate with its key, or is not valid now while the
                former one is.
        """
        now = self._clock()
        try:
            pair = ((self._folder / "tls.crt").read_text(), (self._folder / "tls.key").read_text())
            if pair == self._loaded:
                return False
            end = certificates.not_after(pair[0])
            invalid = certificates.validity_problem(pair[0], now)
            if invalid:
                self._check_unusable(now, invalid)
            use(self._tls, *pair)
        except (OSError, ValueError) as problem:  # an SSLError is an OSError
            raise InvalidInputError(
                f"certificate in {self._folder}: {problem}",
                hint="it must contain a valid tls.crt and the matching tls.key",
                code="ND3092",
            ) from None
        if invalid:
            log.warning("certificate in %s: %s; the API server cannot call the webhook", self._folder, invalid)
        self._loaded = pair
        self.not_after = metrics.serves(end)
        return True

    def _check_unusable(self, now: datetime, invalid: str) -> None:
        """Check that the certificate in use is not valid either: an invalid one may replace it.

        Raises:
            ValueError: it is valid.
        """
        if self.not_after is not None and self.not_after > now:
            raise ValueError(f"{invalid}; the former one is used until {self.not_after:%Y-%m-%dT%H:%M:%SZ}")

    def check(self, now: datetime) -> CheckResult:
        """Whether there is a certificate to serve with, as a check of the process's health."""
        return certificates.check(self.not_after, now)

    async def run(self, seconds: float = LOOK_SECONDS) -> None:
        """Look again and again until cancelled; a certificate that cannot be used changes nothing."""
        while True:
            await asyncio.sleep(seconds)
            try:
                # Not in a thread: a connection that begins between certificate and key would fail.
                if self.load():
                    log.info("loaded a new certificate from %s", self._folder)
            except InvalidInputError as problem:
                log.warning("%s", problem)
