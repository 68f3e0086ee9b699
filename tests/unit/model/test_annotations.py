"""Types that commands read have annotations that are types: msgspec compiles those that are texts once more."""

from __future__ import annotations

import msgspec
import pytest

from netdra.model import claim, health, inventory, meta, policy, schema, topology


@pytest.mark.parametrize("module", [claim, health, inventory, meta, policy, schema, topology])
def test_annotations_of_types_that_commands_read_are_not_texts(module: object) -> None:
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    own = [kind for kind in kinds if kind.__module__ == getattr(module, "__name__", "")]
    assert own
    assert not [kind for kind in own if any(isinstance(value, str) for value in kind.__annotations__.values())]
