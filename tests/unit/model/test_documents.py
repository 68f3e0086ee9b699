"""Documents are read with errors that name the place, and bad input is never a traceback."""

import pytest

from netdra.model import documents
from netdra.model.errors import InvalidInputError, without_code
from netdra.model.policy import DeviceExposurePolicy

POLICY = """
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: vfs}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
"""


def bomb(line: str) -> str:
    """Twelve lines, each of which names the one before ten times; the first one is a mapping."""
    lines = ["- &a0 {" + ", ".join(f"k{number}: 1" for number in range(10)) + "}"]
    for level in range(1, 12):
        item = line.format(", ".join([f"*a{level - 1}"] * 10))
        lines.append(item.replace("- ", f"- &a{level} ", 1) if "<<" not in item else f"- &a{level}\n  {item[2:]}")
    return "\n".join(lines) + "\n"


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
        (POLICY.replace("cel:", "sel:"), r'DeviceExposurePolicy "vfs": unknown field "sel"; did you mean "cel"\?'),
        (POLICY + "  priority: 1001", r"priority"),
        (POLICY + "  exposure: {capacity: {a: {value: [1]}}}", r"\[spec\.exposure\.capacity"),
        ("[" * 100_000, "f: nested deeper"),
        ('{"a":' * 100_000, "f: nested deeper"),
        ("- " * 100_000, "f: nested deeper"),
        ("? " * 100_000, "f: nested deeper"),
        ("".join(" " * level + "a:\n" for level in range(1000)), "f: nested deeper"),
        ("[" * 400, "f: not YAML"),
        ("a: &a [*a]\n", "f: more than 1000000 values, with the aliases written out"),
        (bomb("- [{}]"), "f: more than 1000000 values"),
        ("".join(f"- &a{level} [*a{level - 1}]\n" if level else "- &a0 [x]\n" for level in range(20_000)), "f: more"),
        (bomb("- <<: [{}]"), "f: not YAML: line 6, column 3: merges more than 1000 keys"),
        ("- &a {x: 1}\n- <<: [" + "*a, " * 2000 + "*a]\n", "f: not YAML: line 2, column 3: merges more"),
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
    assert documents.to_yaml([{"one": part, "two": part}]) == "one:\n  a:\n  - 1\ntwo:\n  a:\n  - 1\n"


def test_a_few_aliases_are_read() -> None:
    plugins = "[&p {name: sriov, exclusive: true}, {<<: *p, name: host-device}]"
    (policy,) = documents.read(POLICY + f"  exposure: {{supportedCNIPlugins: {plugins}}}\n", "f")
    assert isinstance(policy, DeviceExposurePolicy)
    assert policy.spec.exposure is not None
    found = [(plugin.name, plugin.exclusive) for plugin in policy.spec.exposure.supported_cni_plugins]
    assert found == [("sriov", True), ("host-device", True)]


@pytest.mark.parametrize("text", ["", "# nothing\n---\n---\n"])
def test_an_empty_file_is_rejected_with_a_hint_to_make_a_plan(text: str) -> None:
    with pytest.raises(InvalidInputError, match="f: no plan; make one with: netdra render"):
        documents.plans(text, "f")


def test_a_text_instead_of_a_plan_or_an_inventory_is_rejected_with_a_hint() -> None:
    with pytest.raises(InvalidInputError, match="Expected `object`, got `str`; make one with: netdra render"):
        documents.plans("text", "f")
    with pytest.raises(InvalidInputError, match="Expected `object`, got `str`; record one with"):
        documents.inventory_of("text", "f")


def test_errors_below_a_misspelled_field_are_also_reported() -> None:
    value = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "NetworkTopology",
        "metadata": {"name": "t"},
        "spec": {"stepps": [{"name": "vf0", "type": 7}]},
    }
    found, findings = documents.examine(value, "f")
    assert found is None
    assert [(each.what, each.path) for each in findings] == [
        ('NetworkTopology "t": unknown field "stepps"', ("spec", "stepps")),
        ('NetworkTopology "t": expected text, found an integer', ("spec", "steps", 0, "type")),
    ]


@pytest.mark.parametrize("name", ["y", "off", "12", "1e3"])
def test_a_text_that_yaml_takes_for_something_else_is_to_be_quoted(name: str) -> None:
    head = "apiVersion: networking.dra.io/v1alpha1\nkind: NetworkTopology\nspec: {steps: [{name: a, type: tap}]}\n"
    with pytest.raises(InvalidInputError, match="put it in quotes"):
        list(documents.read(f"{head}metadata: {{name: {name}}}\n", "f"))


CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [%s]}}
"""
LAN = "{name: lan, exactly: {deviceClassName: net-lan}}"
FROM_THE_CLUSTER = """
  creationTimestamp: "2026-01-01T00:00:00Z"
  deletionGracePeriodSeconds: 0
  generation: 1
  managedFields: [{manager: kubectl, operation: Apply}]
  ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u, blockOwnerDeletion: true}]
  resourceVersion: "7"
  selfLink: /x
  uid: u
status: {ofANewerVersion: 1, conditions: []}
"""


@pytest.mark.parametrize(
    ("text", "path", "told"),
    [
        (POLICY + "spce: {}", "spce", 'unknown field "spce"'),
        (
            POLICY.replace("vfs}", "vfs, lables: {}}"),
            "metadata.lables",
            'unknown field "lables"; did you mean "labels"?',
        ),
        (CLAIM % LAN + "foo: 1", "foo", 'unknown field "foo"'),
        (CLAIM % "{name: lan}", "spec.devices.requests[0]", 'request "lan" has neither exactly nor firstAvailable'),
        (
            CLAIM % "{name: lan, exacty: {deviceClassName: net-lan}}",
            "spec.devices.requests[0].exacty",
            'unknown field "exacty"; did you mean "exactly"?',
        ),
        (
            CLAIM % "{name: lan, deviceClassName: net-lan}",
            "spec.devices.requests[0].deviceClassName",
            'unknown field "deviceClassName"; it is a field of exactly',
        ),
        (CLAIM % f"{LAN}, {LAN}", "spec.devices.requests[1].name", 'request "lan" occurs twice'),
        (CLAIM % LAN.replace("name: lan", "name: Lan"), "spec.devices.requests[0].name", 'request "Lan"'),
        (
            CLAIM % LAN.replace("}}", ", firstAvailable: []}}"),
            "spec.devices.requests[0].exactly.firstAvailable",
            'unknown field "firstAvailable"',
        ),
        (
            CLAIM % LAN.replace("}}", "}, firstAvailable: [{name: a, deviceClassName: x}]}"),
            "spec.devices.requests[0]",
            'request "lan" has both exactly and firstAvailable',
        ),
        (
            CLAIM % LAN.replace("}}", ", count: -1}}"),
            "spec.devices.requests[0].exactly.count",
            'request "lan": count -1 is not above 0',
        ),
        (
            CLAIM % LAN.replace("}}", ", count: 2, allocationMode: All}}"),
            "spec.devices.requests[0].exactly.count",
            'request "lan": count 2 beside allocationMode All',
        ),
        (
            CLAIM % LAN.replace("net-lan", '""'),
            "spec.devices.requests[0].exactly.deviceClassName",
            'request "lan": no DeviceClass can be called ""',
        ),
        (
            CLAIM % "{name: a, firstAvailable: [{name: b, deviceClassName: x}, {name: b, deviceClassName: z}]}",
            "spec.devices.requests[0].firstAvailable[1].name",
            'request "a": alternative "b" occurs twice',
        ),
        (CLAIM % ", ".join(LAN.replace("n, ", f"n{at}, ") for at in range(33)), "spec.devices.requests", "33 requests"),
    ],
)
def test_objects_rejected_by_the_api_server_are_rejected_in_files_but_read_from_the_cluster(
    text: str, path: str, told: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        list(documents.read(text, "f"))
    line = next(line for line in refused.value.what.splitlines() if without_code(line).endswith(f" [{path}]"))
    assert f": {told}" in line
    assert len(list(documents.read(text, "f", strict=False))) == 1


@pytest.mark.parametrize(
    "text",
    [
        POLICY.replace(" {name: vfs}", "\n  name: vfs" + FROM_THE_CLUSTER.partition("\nstatus")[0]),
        CLAIM.replace(" {name: c}", "\n  name: c" + FROM_THE_CLUSTER.rstrip()) % LAN,
        CLAIM % LAN.replace("}}", ", count: 0}}"),
        CLAIM % "{name: a, firstAvailable: [{name: a, deviceClassName: x, allocationMode: All}]}",
    ],
)
def test_objects_accepted_or_printed_by_the_api_server_are_read(text: str) -> None:
    assert len(list(documents.read(text, "f"))) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("apiVersion: networking.dra.io/v1alpha1", 'the field "kind" is missing'),
        (POLICY + "  priority: 1001", "expected at most 1000, found 1001"),
        (
            "{apiVersion: networking.dra.io/v1alpha1, kind: NetworkTopology, metadata: {name: t}, spec: {steps: []}}",
            "expected at least 1 entry, found 0",
        ),
    ],
)
def test_missing_fields_and_out_of_range_values_are_reported_in_plain_words(text: str, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        list(documents.read(text, "f"))
