import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model import texts
from netdra.model.errors import InvalidInputError
from netdra.steps import sysctl


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("net.core.somaxconn", "net/core/somaxconn"),
        ("net/core/somaxconn", "net/core/somaxconn"),
        ("net.ipv4.conf.IFNAME.rp_filter", "net/ipv4/conf/eth0.100/rp_filter"),
        ("net/ipv4/conf/IFNAME/rp_filter", "net/ipv4/conf/eth0.100/rp_filter"),
        ("net.ipv4.conf.eth1/7.rp_filter", "net/ipv4/conf/eth1.7/rp_filter"),
        ("net/ipv4/conf/eth1.7/rp_filter", "net/ipv4/conf/eth1.7/rp_filter"),
    ],
)
def test_a_key_is_a_path_below_net(key: str, path: str) -> None:
    assert texts.sysctl_path(key, "eth0.100") == path


@pytest.mark.parametrize(
    "key",
    [
        "",
        ".",
        "net",
        "net.core",
        "kernel.core_pattern",
        "/net/core/somaxconn",
        "net//core/somaxconn",
        "net..core.somaxconn",
        "net/../kernel/core_pattern",
        "net.core./../kernel.x",
        "net.ipv4.//.x",
        "net/core/./somaxconn",
        "net.core.somaxconn\0",
        "net.core.some\nthing",
        "ｎet.core.somaxconn",  # noqa: RUF001
    ],
)
def test_an_invalid_sysctl_key_or_one_outside_net_is_rejected(key: str) -> None:
    with pytest.raises(InvalidInputError):
        texts.sysctl_path(key, "eth0")


@given(st.text(alphabet="net./core\0x", max_size=40))
def test_no_key_leads_out_of_net(key: str) -> None:
    try:
        path = texts.sysctl_path(key, "eth0")
    except InvalidInputError:
        return
    parts = path.split("/")
    assert parts[0] == "net"
    assert not {"", ".", ".."}.intersection(parts)


def test_values_are_compared_as_the_kernel_separates_them() -> None:
    assert sysctl.normal("4096 16384\t4194304\n") == "4096 16384 4194304"
