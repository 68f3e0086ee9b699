"""Which interface keeps another one from an MTU, by the kernel's facts of links."""

from typing import Any

import msgspec
import pytest

from netdra.kernel.link import Link
from netdra.steps.mtu import limit


def link(index: int, name: str, **facts: Any) -> Link:
    empty: dict[str, Any] = {
        field.name: {"str": "", "int": 0, "bytes": b"", "bool": False}.get(str(field.type.__name__), ())
        if isinstance(field.type, type)
        else ()
        for field in msgspec.structs.fields(Link)
    }
    return Link(**{**empty, "index": index, "name": name, "mtu": 1500, "lower_netns": -1, **facts})


BOND = link(9, "bond0", kind="bond")
NET1 = link(1, "net1", master=9)
VLAN = link(3, "data0", kind="vlan", lower=1)


@pytest.mark.parametrize(
    ("found", "most", "why"),
    [
        (BOND, 65535, "its slave net1 has 1500"),
        (VLAN, 65535, "net1, which it stands on, has 1500"),
        (NET1, 1600, "its device takes at most 1600"),
        (NET1, 0, ""),
    ],
)
def test_the_interface_that_has_less_is_named(found: Link, most: int, why: str) -> None:
    told, hint = limit(found, (NET1, BOND, VLAN), 9000, most)
    assert told == why
    assert bool(hint) is bool(why)


def test_an_interface_with_a_sufficient_mtu_is_not_the_limit() -> None:
    assert limit(BOND, (link(1, "net1", master=9, mtu=9000), BOND), 9000, 65535) == ("", "")
