"""The rights that are asked about are those that the chart gives: no more, no fewer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdra.doctor.rights import PROCESSES, Right, needed, of_options
from testbed import yaml

RENDERED = Path(__file__).parents[2] / "cluster" / "install" / "golden.yaml"
"""The chart with its own values, as a test of the cluster level holds it."""
ROLES = [each for each in yaml.safe_load_all(RENDERED.read_text()) if each["kind"] in ("Role", "ClusterRole")]
WITHOUT = ("Neutron", "the device registry")
"""What the chart's own values are without; with it, `tests/cluster/install/test_rendered.py` holds the chart."""


def given(role: dict[str, Any]) -> Iterator[Right]:
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for kind in rule["resources"]:
                resource, _, subresource = kind.partition("/")
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Right(
                            verb=verb,
                            group=group,
                            resource=resource,
                            subresource=subresource,
                            name=name,
                            namespaced=role["kind"] == "Role",
                        )


@pytest.mark.parametrize("process", PROCESSES)
def test_the_checked_rights_match_the_rights_that_the_chart_grants(process: str) -> None:
    held = [
        right
        for role in ROLES
        if role["metadata"]["name"] in (f"netdra-{process}", f"netdra-{process}-certificate")
        for right in given(role)
    ]
    assert held
    without = {right for option in WITHOUT for right in of_options(process).get(option, ())}
    assert set(needed(process)) - without == set(held)
    assert without <= set(needed(process))
    assert len(needed(process)) == len(set(needed(process)))


def test_a_right_is_printed_in_kubectl_syntax() -> None:
    told = {str(right) for right in needed("node")}
    assert "patch resourceclaims.resource.k8s.io --subresource=status" in told
    assert "list pods" in told
