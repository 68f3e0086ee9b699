"""The environment that tells a program which devices and interfaces its claims gave it. Pure; docs/containers.md."""

from __future__ import annotations

import re
from collections.abc import Sequence

from netdra.node.cdi.outcome import DeviceOutcome
from netdra.node.claims.prepared import PreparedClaim

_UNFIT = re.compile(r"[^A-Z0-9]")


def environment(prepared: PreparedClaim, request: str, outcomes: Sequence[DeviceOutcome]) -> tuple[str, ...]:
    """The variables of a request, as `NAME=value`; lists are joined by commas, what is empty is left out.

    Always one at least, since a CDI device without any edit is none.

    Args:
        prepared: the claim.
        request: its request.
        outcomes: what the request's devices became.
    """
    prefix = variable_prefix(prepared, request)
    networks = [each.network for each in outcomes if each.network is not None]
    values = {
        "DEVICES": [name for _, name in (each.key for each in outcomes)],
        "INTERFACES": [each.interface_name for each in networks],
        "PCI_ADDRESSES": [each.pci_address for each in outcomes],
        "RDMA_DEVICES": [name for each in outcomes for name in each.rdma_devices],
    }
    return tuple(f"{prefix}_{name}={','.join(filter(None, found))}" for name, found in values.items() if any(found))


def variable_prefix(prepared: PreparedClaim, request: str) -> str:
    """What a request's variables begin with: the name that the pod knows the claim by, and the request's."""
    claim = prepared.pod_claim_name or prepared.claim.name
    return "_".join(("NETDRA", *(_UNFIT.sub("_", name.upper()) for name in (claim, request))))
