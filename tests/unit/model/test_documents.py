"""Documents are read with errors that name the place, and bad input is never a traceback."""

import pytest

from netdra.model import documents
from netdra.model.errors import InvalidInputError
from netdra.model.policy import DeviceExposurePolicy

POLICY = """
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: vfs}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
"""


def test_several_documents_and_lists_are_read_in_order() -> None:
    text = (
        f"{POLICY}---\n---\nkind: List\nitems:\n- {{apiVersion: networking.dra.io/v1alpha1, kind: DeviceExposurePolicy"
    )
    text += ", metadata: {name: b}, spec: {selector: {cel: 'true'}}}\n"
    assert [policy.metadata.name for policy in documents.read(text, "f")] == ["vfs", "b"]


def test_defaults_are_the_documented_ones() -> None:
    (policy,) = documents.read(POLICY, "f")
    assert isinstance(policy, DeviceExposurePolicy)
    assert (policy.spec.priority, policy.spec.action, policy.spec.exposure) == (100, "expose", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "f: not YAML"),
        ("- 1", "f, document 1: expected an object"),
        ("kind: Pod", "f, document 1: kind 'Pod' is not known here"),
        (POLICY.replace("cel:", "sel:"), r'DeviceExposurePolicy "vfs": Object contains unknown field `sel`'),
        (POLICY + "  priority: 1001", r"priority"),
        (POLICY + "  exposure: {capacity: {a: {value: [1]}}}", r"\$\.spec\.exposure\.capacity"),
        ("[" * 100_000, "f: nested deeper"),
        ('{"a":' * 100_000, "f: nested deeper"),
        ("- " * 100_000, "f: nested deeper"),
        ("? " * 100_000, "f: nested deeper"),
        ("".join(" " * level + "a:\n" for level in range(1000)), "f: nested deeper"),
        ("[" * 400, "f: not YAML"),
        ("a: &a [*a]\n", "f"),
    ],
)
def test_bad_input_is_an_error_that_names_the_place(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        list(documents.read(text, "f"))


def test_yaml_is_written_as_people_write_it() -> None:
    text = documents.to_yaml(
        [{"spec": {"a": {"string": "15e3"}, "b": ["x"], "c": {}}, "kind": "K", "apiVersion": "v1"}]
    )
    assert text == "apiVersion: v1\nkind: K\nspec:\n  a: {string: '15e3'}\n  b:\n  - x\n  c: {}\n"


def test_equal_parts_are_written_out_without_anchors() -> None:
    part = {"a": [1]}
    assert documents.to_yaml([{"x": part, "y": part}]) == "x:\n  a:\n  - 1\ny:\n  a:\n  - 1\n"
