"""Names of the kernel become names of Kubernetes without two of them becoming one."""

from hypothesis import given
from hypothesis import strategies as st

from netdra.model import names


@given(st.text(max_size=80))
def test_every_name_becomes_a_label_and_a_subdomain(name: str) -> None:
    assert names.is_label(names.label(name))
    assert names.is_subdomain(names.subdomain(name))


@given(st.text(alphabet="ab.-_A", max_size=12), st.text(alphabet="ab.-_A", max_size=12))
def test_two_names_never_share_a_label(first: str, second: str) -> None:
    assert (names.label(first) == names.label(second)) == (first == second)


def test_a_valid_name_is_kept() -> None:
    assert names.label("enp3s0f0") == "enp3s0f0"
    assert names.subdomain("worker-1.example.org") == "worker-1.example.org"


def test_a_bent_name_can_still_be_read() -> None:
    assert names.label("eth0.100").startswith("eth0-100-")
