"""The chart renders with the values of docs/local-clusters.md, and its driver gets the folders that the page names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from testbed import helm, yaml
from testbed.api import Object

PAGE = (helm.CHARTS.parent / "docs" / "local-clusters.md").read_text(encoding="utf-8")
CLUSTERS = ("kind", "k3s", "minikube")
_VALUES = re.compile(r"^```yaml\n# Kubernetes (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(name: str) -> str:
    """The part of the page about a cluster."""
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def rendered(name: str) -> tuple[Object, Any, str]:
    """The driver's pod with the values of the page, the values, and the whole rendered chart."""
    ((version, text),) = _VALUES.findall(section(name))
    values = yaml.safe_load(text)
    whole = helm.template(helm.CHARTS / "netdra", "netdra", "netdra", values, (f"--kube-version={version}",))
    (driver,) = (each for each in helm.objects(whole, "node.yaml") if each["kind"] == "DaemonSet")
    return driver["spec"]["template"]["spec"], values, whole


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_chart_renders_with_the_pages_values(cluster: str) -> None:
    pod, values, whole = rendered(cluster)
    row = {cells[0]: cells[1:][CLUSTERS.index(cluster)] for cells in table()}
    folders = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
    assert f"`{folders['nri']}/nri.sock`" == row["NRI socket"]
    kubelet = row["kubelet's folder"].strip("`")
    assert folders["plugins"] == f"{kubelet}/plugins"
    environment = {each["name"]: each.get("value", "") for each in pod["containers"][0]["env"]}
    paths = environment["NETDRA_CNI_PATH"].split(":")
    named = re.findall(r"`(/[^`]+)`", row["CNI plugins"])
    assert set(named) <= set(paths)
    assert pod["containers"][0]["image"] == f"localhost/netdra:{values['image']['tag']}"
    assert pod["containers"][0]["imagePullPolicy"] == "Never"
    assert "replicas: 1" in whole


def test_the_configuration_of_kind_names_a_version_that_netdra_supports() -> None:
    (text,) = re.findall(r"^```yaml\n(kind: Cluster\n.*?)^```$", section("kind"), re.MULTILINE | re.DOTALL)
    for node in yaml.safe_load(text)["nodes"]:
        assert node["image"] == f"kindest/node:{_VALUES.findall(section('kind'))[0][0]}"


def test_the_version_of_kind_that_is_too_old_is_rejected_by_the_chart_and_its_default_is_not() -> None:
    row = next(cells for cells in table() if cells[0] == "Kubernetes by default")
    ((default, version),) = re.findall(r"^([\d.]+); kind [\d.]+ has ([\d.]+), which is \*\*too old\*\*$", row[1])
    assert f"v{default}" == _VALUES.findall(section("kind"))[0][0]
    with pytest.raises(helm.HelmError, match="incompatible with Kubernetes"):
        helm.template(helm.CHARTS / "netdra", "netdra", "netdra", {}, (f"--kube-version={version}",))


def table() -> list[list[str]]:
    """The rows of the page's table."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]
