"""The objects of the documents with which netdra began (docs/mission.md), as data, with no field added or removed.

A test of a document's promise uses the objects of this package. They are never edited, also where Kubernetes 1.37
accepts another form alone: tests/unit/test_documents.py and tests/cluster/test_examples.py list the differences.

`DEVICES` has document A by the numbers of its sections, `GRAPH` document B by kind, `ATTRIBUTES` document C.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed import yaml

HERE = Path(__file__).parent
DEVICES, GRAPH, ATTRIBUTES = HERE / "devices", HERE / "graph", HERE / "attributes"
TOPOLOGIES, CLAIMS, CLASSES, SCHEMAS = (GRAPH / kind for kind in ("topologies", "claims", "classes", "schemas"))
FORM, REFERENCE_NODE = DEVICES / "2.1.yaml", DEVICES / "6.2.yaml"


def filled_in() -> dict[str, Any]:
    """The form of a policy (section 2.1), with a value for each of its placeholders."""
    text = FORM.read_text()
    for placeholder, value in VALUES.items():
        assert placeholder in text
        text = text.replace(placeholder, value)
    filled: dict[str, Any] = yaml.safe_load(text)
    return filled


VALUES = {
    "<policy-name>": "policy-name",
    "<key>: <value>": "example.com/key: value",
    "<CEL expression>": "'true'",
    "<counterName>": "counter",
    "<total capacity>": "'8'",
    "<default per claim>": "'1'",
    "<minimum>": "'1'",
    "<maximum>": "'4'",
    "<granularity>": "'1'",
    "<cni-binary-name>": "macvlan",
    "<amount>": "'1'",
}
