"""The CNIPluginSchemas that netdra ships, as objects of the cluster: the write that one of them needs.

Pure. Called by `netdra.controller.controller`. An object is netdra's if its label says so (decision D35); another
object of the same name is its author's own, and is left as it is.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from netdra.model.schema import CNIPluginSchema
from netdra.rules import shipped


class SchemaWrite(msgspec.Struct, frozen=True):
    """The write that an object needs.

    Attributes:
        schema: the object as it is to be, or as it is if it is to be deleted.
    """

    verb: Literal["create", "update", "delete"]
    schema: CNIPluginSchema


def change(name: str, present: CNIPluginSchema | None) -> SchemaWrite | None:
    """The write that the object of a name needs; None if it is as it should be, or not netdra's.

    Args:
        present: the object as it is stored, if there is one.
    """
    wanted = shipped.objects().get(name)
    if present is None:
        return SchemaWrite("create", wanted) if wanted is not None else None
    # An object that is being deleted still has its name: the new one is made when it is gone.
    if not present.is_shipped or present.metadata.deletion_timestamp:
        return None
    if wanted is None:
        return SchemaWrite("delete", present)
    return SchemaWrite("update", replace(present, spec=wanted.spec)) if present.spec != wanted.spec else None
