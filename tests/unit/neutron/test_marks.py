"""The marks by which netdra recognizes its ports, and their labels for operators."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.neutron import marks
from netdra.neutron.marks import MAX_FIELD, OWNER, Label, Mark

UIDS = st.uuids().map(str)
NAMES = st.text(alphabet="abcxyz0123456789-.", min_size=1, max_size=253)


def label(cluster: str = "prod", namespace: str = "apps", claim: str = "data", pod: str = "web-0") -> Label:
    return marks.label(
        cluster=cluster, namespace=namespace, claim=claim, pod=pod, step="vf", node="n1", topology="t", device="d"
    )


def test_people_read_pod_namespace_claim_and_node() -> None:
    made = label()
    assert made.name == "apps/web-0/vf"
    assert made.text == "pod web-0, namespace apps, node n1, claim data, device d"
    assert set(made.tags) == {
        "netdra", "netdra:cluster=prod", "netdra:namespace=apps", "netdra:claim=data", "netdra:pod=web-0",
        "netdra:node=n1", "netdra:topology=t",
    }  # fmt: skip


def test_a_claim_that_pods_share_is_named_by_itself() -> None:
    made = label(pod="")
    assert made.name == "apps/data/vf"
    assert not [tag for tag in made.tags if tag.startswith("netdra:pod=")]


@given(UIDS, UIDS, st.text(max_size=400), st.text(max_size=400))
def test_a_mark_is_read_as_written_with_any_description_text_and_port_name(
    cluster: str, port: str, text: str, name: str
) -> None:
    mark = Mark(cluster, port)
    described = marks.description(mark, text)
    assert len(described) <= MAX_FIELD
    assert marks.mark_of(OWNER, described, name) == mark
    assert marks.mark_of("compute:nova", described, name) is None


@given(UIDS, UIDS)
def test_a_former_versions_port_has_its_neutron_ports_name(cluster: str, port: str) -> None:
    assert marks.mark_of(OWNER, f"netdra cluster={cluster}", port) == Mark(cluster, port)


@pytest.mark.parametrize(
    "described",
    [
        "", "netdra", "netdra cluster=", "netdra cluster=one two", "netdra cluster=one port=",
        "netdra cluster=one;port=p", "netdra cluster=one port=p text", " netdra cluster=one port=p",
        "netdra cluster=one  port=p",
        "by netdra cluster=one", "netdra cluster=one port=p port=q",
    ],
)  # fmt: skip
def test_a_description_of_another_form_is_nobodys(described: str) -> None:
    assert marks.mark_of(OWNER, described, "p") is None


@given(st.text(max_size=300), NAMES, NAMES, NAMES)
def test_tags_fit_neutron_and_can_be_filtered_by(cluster: str, namespace: str, claim: str, pod: str) -> None:
    made = label(cluster, namespace, claim, pod)
    assert len(set(made.tags)) == len(made.tags)
    assert all(0 < len(tag) <= MAX_FIELD and "," not in tag and len(tag.split()) == 1 for tag in made.tags)
    assert all(marks.is_own_tag(tag) for tag in made.tags)
    assert len(made.name) <= MAX_FIELD


@pytest.mark.parametrize(
    ("tag", "own"), [("netdra", True), ("netdra:pod=a", True), ("netdrax", False), ("bill", False)]
)
def test_tags_of_netdra_are_distinguished_from_tags_of_operators(tag: str, own: bool) -> None:
    assert marks.is_own_tag(tag) is own
