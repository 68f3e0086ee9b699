"""The kinds of whereabouts on a control plane, with the fields that its leases have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from testbed.api import Api, ApiError, Object
from testbed.objects import manifest
from testbed.waiting import until
from tests.cluster.conftest import DEFINITION

GROUP = "whereabouts.cni.cncf.io"
POOL, RESERVATION = f"{GROUP}/v1alpha1/IPPool", f"{GROUP}/v1alpha1/OverlappingRangeIPReservation"


@contextmanager
def serving_kinds(api: Api) -> Iterator[None]:
    """IPPools and OverlappingRangeIPReservations are served."""
    text = {"type": "string"}
    allocation = {"type": "object", "properties": {"id": text, "podref": text, "ifname": text}}
    pool = {"range": text, "allocations": {"type": "object", "additionalProperties": allocation}}
    kinds: dict[str, Object] = {
        "IPPool": pool,
        "OverlappingRangeIPReservation": {"podref": text, "ifname": text, "containerid": text},
    }
    made = [_definition(kind, fields) for kind, fields in kinds.items()]
    for definition in made:
        api.create(definition)
    for kind in (POOL, RESERVATION):
        until(partial(_is_served, api, kind), f"{kind} to be served")
    yield
    for definition in made:
        api.delete(DEFINITION, definition["metadata"]["name"])


def _is_served(api: Api, kind: str) -> bool:
    try:
        api.list(kind)
    except ApiError:
        return False
    return True


def _definition(kind: str, fields: Object) -> Object:
    plural = f"{kind.lower()}s"
    spec = {"type": "object", "properties": fields}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    about = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    return manifest(DEFINITION, f"{plural}.{GROUP}", spec=about)
