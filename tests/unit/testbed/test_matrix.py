"""The tests that run on every runtime, and the table that is written of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import matrix
from testbed.components import CONTAINERD_VERSIONS, CRIO_VERSION, KUBERNETES_VERSIONS
from testbed.matrix import BEGIN, END, GROUPS, Found, Place, judged, places, table, written
from testbed.suite.results import Outcome

ROOT = Path(__file__).parents[3]
PODS = "tests/cluster/pods/"


def outcome(test: str, what: str, text: str = "") -> Outcome:
    return Outcome("r", test, what, 1.0, {}, text)


def test_every_runtime_is_with_the_newest_kubernetes_and_every_kubernetes_with_the_newest_runtime() -> None:
    told = [(place.runtime, place.kubernetes) for place in places()]
    newest, *others = [version.removeprefix("v") for version in KUBERNETES_VERSIONS]
    runtimes = [*(f"containerd {each.removeprefix('v')}" for each in CONTAINERD_VERSIONS)]
    runtimes.append(f"CRI-O {CRIO_VERSION.removeprefix('v')}")
    assert told == [*((each, newest) for each in runtimes), *((runtimes[0], each) for each in others)]


def test_the_matrix_page_contains_results_for_every_version_in_the_test_bed() -> None:
    page = (ROOT / matrix.PAGE).read_text()
    rows = [line for line in page.partition(BEGIN)[2].partition(END)[0].splitlines() if line.startswith("| ")][2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [tuple(row[:2]) for row in cells] == [(place.runtime, place.kubernetes) for place in places()]
    # A number with others is of how many; what is known to fail is explained below the table.
    for row in cells:
        assert len(row) == 2 + len(GROUPS)
        for cell in row[2:]:
            passed, _, rest = cell.partition(" of ")
            assert passed.isdigit()
            assert not rest or "(" in rest, f"{row[0]}: {cell}: something fails there, and nothing says why"


def test_all_tests_of_pods_are_in_a_group_but_those_of_single_parts() -> None:
    files = {str(path.relative_to(ROOT)) for path in (ROOT / PODS).rglob("test_*.py")}
    grouped = {file for group in GROUPS.values() for file in group}
    assert all((ROOT / file).exists() for file in grouped)
    names = ("kubelet_plugin", "measured", "monitoring", "plugins", "pod_groups", "soak", "why")
    alone = {f"{PODS}test_{name}.py" for name in names}
    assert files - grouped == alone | {
        f"{PODS}networks/test_{name}.py"
        for name in ("addresses", "edited", "full_networks", "kube_proxy", "restored", "services", "two_nodes")
    }


def test_a_test_counts_for_the_group_of_its_file() -> None:
    found = judged(
        [
            outcome(f"{PODS}test_pods.py::test_one", "passed"),
            outcome(f"{PODS}networks/test_devices.py::test_two[x]", "flaky"),
            outcome(f"{PODS}networks/test_restarts.py::test_three", "failed", "why"),
            outcome(f"{PODS}test_nri.py::test_four", "skipped", "it is known"),
            outcome(f"{PODS}test_nri.py::test_five", "skipped"),
        ]
    )
    assert (found["pods"].passed, found["pods"].flaky) == (2, [f"{PODS}networks/test_devices.py::test_two[x]"])
    assert found["restarts"].failed == [f"{PODS}networks/test_restarts.py::test_three"]
    assert found["NRI"].known == {f"{PODS}test_nri.py::test_four": "it is known"}
    assert found["NRI"].failed == [f"{PODS}test_nri.py::test_five"]  # a test that does not run proves nothing


def test_the_table_contains_a_row_per_place_and_explains_known_failures() -> None:
    well = {group: Found(passed=3) for group in GROUPS}
    bad = {**well, "NRI": Found(passed=2, known={"a": "it leaves sandboxes behind"}), "CDI": Found(1, failed=["b"])}
    text = table([Place("a", "containerd 9.9.1", "1.99.0", well), Place("b", "CRI-O 9.9.2", "1.99.0", bad)])
    assert text.splitlines() == [
        "| runtime | Kubernetes | pods | NRI | CDI | faults | restarts |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| containerd 9.9.1 | 1.99.0 | 3 | 3 | 3 | 3 | 3 |",
        "| CRI-O 9.9.2 | 1.99.0 | 3 | 2 of 3 (1) | 1 of 2 | 3 | 3 |",
        "",
        "(1) it leaves sandboxes behind.",
    ]


def test_the_table_takes_the_place_of_the_one_before() -> None:
    page = f"before\n\n{BEGIN}\n\n| old |\n\n{END}\n\nafter\n"
    assert written(page, "| new |") == f"before\n\n{BEGIN}\n\n| new |\n\n{END}\n\nafter\n"
    assert written(written(page, "| new |"), "| new |") == written(page, "| new |")
    with pytest.raises(ValueError, match="has no"):
        written("a page without it", "| new |")
