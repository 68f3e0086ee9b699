"""One way to give input: commands read files, folders and standard input in any mixture, and a cluster."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from netdra.cli.main import cli
from netdra.model.errors import InvalidInputError
from testbed import yaml

EXAMPLES = Path(__file__).parents[3] / "examples"
FIRST = EXAMPLES / "first-pod"
FOLDERS = {
    str(folder.relative_to(EXAMPLES)): folder
    for folder in (*sorted((EXAMPLES / "cookbook").iterdir()), *sorted(EXAMPLES.iterdir()))
    if folder.is_dir() and folder.name not in {"cookbook", "external-ipam", "gpu-shared", "mistakes", "providers"}
}
COMMANDS = ("plan", "explain", "simulate", "validate", "render", "graph")
LACKING = {
    **{
        ("graph", f"cookbook/{folder.name}"): "NetworkTopology not found"
        for folder in (EXAMPLES / "cookbook").iterdir()
    },
    ("graph", "worker-1"): "NetworkTopology not found",
    ("render", "worker-1"): "NetworkTopology or claim not found",
    ("simulate", "worker-1"): "ResourceClaim or ResourceClaimTemplate not found",
    ("simulate", "physnets"): "ResourceClaim or ResourceClaimTemplate not found",
    ("simulate", "neutron"): "ResourceSlice not found",
    ("plan", "neutron"): "DeviceExposurePolicy not found",
    ("explain", "neutron"): "DeviceExposurePolicy not found",
}
"""What a folder does not have and a command cannot do without."""
SHOWN = {
    ("render", "cookbook/8-excluded"): "netdra: team/sneaky: cannot be allocated on 1 node",
    ("render", "cookbook/3-macvlan-parent"): "netdra: team/five: cannot be allocated on 1 node",
    ("render", "cookbook/10-pooled-vfs"): 'netdra: request "net": device "enp3s0f0-vfs" represents several VFs',
}
"""What a folder is about: claims that do not fit, and VFs that the node chooses."""


def call(*arguments: str | Path, text: str = "") -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)], input=text)


def told(done: Result) -> str:
    return str(done.exception) if isinstance(done.exception, InvalidInputError) else done.stderr


def interface_of(folder: Path) -> str:
    """The first interface of a folder's inventory."""
    for file in folder.glob("inventory.*"):
        return str(yaml.safe_load(file.read_text())["interfaces"][0]["ifName"])
    return "eth0"


def manifest(kind: str, name: str, spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    group = "resource.k8s.io/v1" if kind.startswith(("Resource", "DeviceClass")) else "networking.dra.io/v1alpha1"
    version = "v1" if kind in {"Node", "Pod"} else group
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **({"spec": spec} if spec else {}), **more}


def write(path: Path, *objects: Any) -> Path:
    path.write_text(yaml.safe_dump_all(objects))
    return path


def listed(*objects: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}


def example(folder: Path, *names: str) -> list[Any]:
    return [item for name in names for item in yaml.safe_load_all((folder / name).read_text())]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_the_examples_is_one_path_of_every_command(command: str, name: str) -> None:
    interface = [interface_of(FOLDERS[name])] if command == "explain" else []
    done = call(command, *interface, FOLDERS[name])
    if (lacking := LACKING.get((command, name))) is not None:
        assert isinstance(done.exception, InvalidInputError)
        assert done.exception.what == f"{FOLDERS[name]}: {lacking}"
        return
    refused = command == "simulate" and done.exit_code == 1
    assert done.exit_code == 0 or (refused and "cannot be allocated" in done.stdout), done.output
    wrong = done.stderr
    assert command != "validate" or wrong.endswith(" checked, no problems\n")
    expected = SHOWN.get((command, name), "")
    assert wrong.startswith(expected)
    assert wrong.count("\n") == (1 if expected or command == "validate" else 0), done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_list_from_standard_input_is_read_as_files_are(command: str) -> None:
    objects = example(FIRST, "claim.yaml", "pod.yaml", "policy.yaml", "topology.yaml")
    interface = ["data0"] if command == "explain" else []
    files = call(command, *interface, FIRST)
    done = call(command, *interface, FIRST / "inventory.yaml", "-", text=json.dumps(listed(*objects)))
    assert (done.exit_code, done.stdout, done.stderr) == (0, files.stdout, files.stderr)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_kind_is_reported_once_and_the_rest_is_read(command: str, tmp_path: Path) -> None:
    write(
        tmp_path / "unknown.yaml",
        manifest("NetworkTopologie", "a"),
        manifest("NetworkTopologie", "b"),
        manifest("NetworkTopologie", "c"),
        manifest("ResourceClam", "d"),
        manifest("DeviceTaintRule", "e") | {"apiVersion": "resource.k8s.io/v1"},
        {"name": "values"},
        {"name": "values"},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}},
    )
    interface = ["data0"] if command == "explain" else []
    done = call(command, *interface, FIRST, tmp_path)
    assert done.exit_code == (1 if command == "validate" else 0)
    lines = [line for line in done.output.splitlines() if str(tmp_path) in line]
    assert len(lines) == 3
    assert "NetworkTopologie" in lines[0]
    assert 'did you mean "NetworkTopology"?' in lines[0]
    assert 'did you mean "ResourceClaim"?' in lines[1]
    assert 'the field "kind" is missing' in lines[2]
    if command != "validate":
        assert lines[0].startswith(f"netdra: {tmp_path}/unknown.yaml, document 1 (and 2 more documents): ignored: ")


def test_an_apiversion_that_is_almost_the_kind_s_is_an_error(tmp_path: Path) -> None:
    wrong = manifest("NetworkTopology", "a") | {"apiVersion": "networking.dra/v1alpha1"}
    done = call("graph", write(tmp_path / "a.yaml", wrong))
    assert 'document 1: NetworkTopology does not exist in apiVersion "networking.dra/v1alpha1"' in told(done)
    assert 'did you mean "networking.dra.io/v1alpha1"?' in told(done)


def test_folders_inside_a_folder_are_read_and_hidden_ones_are_not(tmp_path: Path) -> None:
    for folder in (tmp_path / "a" / "b", tmp_path / ".hidden"):
        folder.mkdir(parents=True)
    (tmp_path / "a" / "b" / "t.yaml").write_text((FIRST / "topology.yaml").read_text())
    (tmp_path / ".hidden" / "bad.yaml").write_text("{")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert call("graph", tmp_path).stdout == call("graph", FIRST).stdout


def test_a_file_that_several_options_name_is_read_once() -> None:
    done = call("simulate", FIRST, "--slices", FIRST / "claim.yaml", "--claims", FIRST)
    assert (done.exit_code, done.stdout) == (0, call("simulate", FIRST).stdout)


def test_simulate_takes_every_kind_from_any_of_its_options(tmp_path: Path) -> None:
    slices = write(tmp_path / "slices.yaml", *yaml.safe_load_all(call("plan", FIRST).stdout))
    expected = call("simulate", FIRST).stdout
    for arguments in (
        ["--slices", slices, FIRST / "claim.yaml", FIRST / "topology.yaml"],
        ["--claims", slices, "--slices", FIRST / "claim.yaml", FIRST / "topology.yaml"],
        [slices, FIRST / "claim.yaml", FIRST / "topology.yaml"],
    ):
        assert call("simulate", *arguments).stdout == expected


def test_policies_select_by_the_labels_of_nodes_in_the_input(tmp_path: Path) -> None:
    (policy,) = example(FIRST, "policy.yaml")
    policy["spec"]["nodeSelector"] = {"matchLabels": {"rack": "a"}}
    path = write(tmp_path / "policy.yaml", policy)
    node = write(tmp_path / "node.yaml", manifest("Node", "worker-1"))
    assert "no devices are offered" in call("plan", path, FIRST / "inventory.yaml", node).stderr
    labelled = manifest("Node", "worker-1") | {"metadata": {"name": "worker-1", "labels": {"rack": "a"}}}
    write(node, labelled)
    assert call("plan", path, FIRST / "inventory.yaml", node).stdout == call("plan", FIRST).stdout


def test_several_inventories_are_several_nodes_and_node_chooses_one(tmp_path: Path) -> None:
    (inventory,) = example(FIRST, "inventory.yaml")
    inventory["node"]["name"] = "worker-2"
    other = write(tmp_path / "other.yaml", inventory)

    def nodes(*arguments: str) -> set[str]:
        slices = yaml.safe_load_all(call("plan", FIRST, other, *arguments).stdout)
        return {item["spec"]["nodeName"] for item in slices}

    assert nodes() == {"worker-1", "worker-2"}
    assert nodes("--node", "worker-2") == {"worker-2"}
    assert nodes("--inventory", str(other)) == {"worker-2"}
    assert "select one with --node" in told(call("explain", "data0", FIRST, other))
    assert call("explain", "data0", FIRST, other, "--node", "worker-2").exit_code == 0
    assert "the inventories are of worker-1, worker-2" in told(call("plan", FIRST, other, "--node", "worker-3"))


def slice_of(name: str, **of_nodes: Any) -> dict[str, Any]:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return manifest("ResourceSlice", name, {"driver": "d", "pool": pool, "devices": [{"name": "x"}], **of_nodes})


def claim_for(device_class: str) -> list[dict[str, Any]]:
    request = {"name": "r", "exactly": {"deviceClassName": device_class}}
    return [
        manifest("DeviceClass", "any", {"selectors": [{"cel": {"expression": "true"}}]}),
        manifest("ResourceClaim", "c", {"devices": {"requests": [request]}}),
    ]


SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["b"]}]}]}
NODES = [
    manifest("Node", "n1") | {"metadata": {"name": "n1", "labels": {"rack": "a"}}},
    manifest("Node", "n2") | {"metadata": {"name": "n2", "labels": {"rack": "b"}}},
]


@pytest.mark.parametrize(
    ("of_nodes", "node"), [({"allNodes": True}, "n1"), ({"nodeSelector": SELECTOR}, "n2"), ({"nodeName": "n2"}, "n2")]
)
def test_simulate_places_claims_on_the_nodes_of_the_input(of_nodes: Any, node: str, tmp_path: Path) -> None:
    path = write(tmp_path / "all.yaml", slice_of("s", **of_nodes), *claim_for("any"), listed(*NODES))
    done = call("simulate", path)
    assert (done.exit_code, done.stdout.splitlines()[1].split()[:3]) == (0, ["c", "allocated", node])


def test_simulate_without_nodes_reports_that_they_are_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "all.yaml", slice_of("s", nodeSelector=SELECTOR), *claim_for("any"))
    assert "the input does not contain a Node, and no ResourceSlice refers to a node; add the Nodes" in told(
        call("simulate", path)
    )
    done = call("simulate", path, "--node", "n2")
    assert done.exit_code == 1
    assert 'ResourceSlice "s": its nodeSelector is compared only with the names of nodes; add the Nodes' in done.stderr


def test_a_node_without_labels_has_the_one_of_its_name(tmp_path: Path) -> None:
    requirement = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n3"]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    objects = [slice_of("s", nodeSelector=selector), *claim_for("any"), manifest("Node", "n3")]
    assert "n3" in call("simulate", write(tmp_path / "all.yaml", *objects)).stdout


def test_render_shows_the_steps_of_classes_without_a_topology() -> None:
    folder = EXAMPLES / "cookbook" / "1-sriov-vfs"
    done = call("render", folder, "-o", "json")
    calls = json.loads(done.stdout)
    assert [(entry["claim"], entry["type"]) for entry in calls] == [
        ("team/web", "sriov"),
        ("team/twice", "sriov"),
        ("team/twice", "sriov"),
    ]
    assert (calls[0]["stdin"]["trust"], calls[0]["device"]["device"]) == ("on", "enp3s0f0v0")


def test_render_chooses_the_claims_of_its_option(tmp_path: Path) -> None:
    folder = EXAMPLES / "cookbook" / "1-sriov-vfs"
    _, twice = example(folder, "claims.yaml")
    chosen = write(tmp_path / "twice.yaml", twice | {"metadata": {"name": "other", "namespace": "team"}})
    calls = json.loads(call("render", folder, "--claim", chosen, "-o", "json").stdout)
    assert [entry["claim"] for entry in calls] == ["team/other", "team/other"]


def test_render_reports_a_class_that_is_not_in_the_input(tmp_path: Path) -> None:
    folder = EXAMPLES / "cookbook" / "1-sriov-vfs"
    claims = folder / "claims.yaml"
    message = told(call("render", claims))
    assert 'claim "team/' in message
    assert 'DeviceClass "sriov-vf" is not in the input; add a PATH with the DeviceClass' in message
    other = write(tmp_path / "other.yaml", claim_for("absent")[1])
    done = call("render", folder, other)
    assert done.exit_code == 0
    assert 'netdra: claim "c": DeviceClass "absent" is not in the input; add a PATH' in done.stderr


class FakeCluster:
    """An API server of lists, some of which are forbidden."""

    def __init__(self, folder: Path) -> None:
        self.objects: list[dict[str, Any]] = []
        self.forbidden: set[str] = set()
        self.methods: set[str] = set()
        self.folder = folder

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        plural = path.rsplit("/", 1)[1]
        if plural in self.forbidden:
            return 403, {"code": 403, "reason": "Forbidden", "message": f"{plural} is forbidden"}
        items = [item for item in self.objects if _plural(item["kind"]) == plural]
        return 200, {"metadata": {"resourceVersion": "1"}, "items": items}

    @property
    def options(self) -> list[str]:
        return ["--cluster", "--kubeconfig", str(self.folder / "config")]


def _plural(kind: str) -> str:
    special = {"DeviceClass": "deviceclasses", "DeviceExposurePolicy": "deviceexposurepolicies"}
    special["NetworkTopology"] = "networktopologies"
    return special.get(kind, f"{kind.lower()}s")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    fake = FakeCluster(tmp_path)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.methods.add(self.command)
            code, body = fake.answer(urlsplit(self.path).path)
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    config = {
        "clusters": [{"name": "a", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "team"}}],
        "users": [{"name": "a", "user": {}}],
        "current-context": "a",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    yield fake
    server.shutdown()
    thread.join()
    server.server_close()


def first_pod(*names: str) -> list[Any]:
    return example(FIRST, *(f"{name}.yaml" for name in names))


def test_graph_reads_the_topologies_of_a_cluster_and_paths_override_them(cluster: FakeCluster, tmp_path: Path) -> None:
    (topology,) = first_pod("topology")
    cluster.objects = [topology, topology | {"metadata": {"name": "other"}}]
    done = call("graph", *cluster.options)
    assert [line for line in done.stdout.splitlines() if line in {"data", "other"}] == ["data", "other"]
    changed = json.loads(json.dumps(topology))
    changed["spec"]["steps"][1]["name"] = "renamed"
    path = write(tmp_path / "t.yaml", changed)
    shown = call("graph", path, *cluster.options, "--topology", "data").stdout
    assert "renamed" in shown
    assert "size" not in shown


def test_simulate_lets_the_claims_of_a_cluster_hold_their_devices(cluster: FakeCluster, tmp_path: Path) -> None:
    slices = [*yaml.safe_load_all(call("plan", FIRST).stdout)]
    topology, claim = first_pod("topology", "claim")
    claim["metadata"]["namespace"] = "team"
    allocated = json.loads(call("simulate", FIRST, "-o", "json").stdout)["claims"][0]["allocation"]
    held = [
        claim | {"metadata": {"name": f"held-{at}", "namespace": "x"}, "status": {"allocation": allocated}}
        for at in range(8)
    ]
    for at, entry in enumerate(held):
        results = [
            result | {"shareID": f"00000000-0000-0000-0000-00000000000{at}"}
            for result in allocated["devices"]["results"]
        ]
        entry["status"] = {"allocation": allocated | {"devices": allocated["devices"] | {"results": results}}}
    cluster.objects = [*slices, topology, *held[:7], manifest("Node", "worker-1")]
    path = write(tmp_path / "c.yaml", *first_pod("claim"))
    done = call("simulate", path, *cluster.options)
    assert (done.exit_code, [line.split()[0] for line in done.stdout.splitlines()[:2]]) == (0, ["CLAIM", "data"])
    cluster.objects.append(held[7])
    assert call("simulate", path, *cluster.options).exit_code == 1
    cluster.objects.append(claim)
    assert call("simulate", *cluster.options).exit_code == 1
    assert cluster.methods == {"GET"}


def test_a_missing_right_is_reported_and_the_rest_goes_on(cluster: FakeCluster, tmp_path: Path) -> None:
    slices = [*yaml.safe_load_all(call("plan", FIRST).stdout)]
    cluster.objects = [*slices, *first_pod("topology", "claim")]
    cluster.forbidden = {"deviceclasses", "nodes"}
    done = call("simulate", *cluster.options)
    assert done.exit_code == 0
    role = 'request a ClusterRoleBinding to the ClusterRole "netdra-reader"'
    assert sorted(done.stderr.splitlines()) == [
        f"netdra: the cluster does not allow you to list deviceclasses; {role}",
        f"netdra: the cluster does not allow you to list nodes; {role}",
    ]
    cluster.forbidden = {"resourceslices"}
    done = call("simulate", *cluster.options)
    assert isinstance(done.exception, InvalidInputError)
    assert "the cluster does not allow you to list resourceslices" in done.stderr
    assert done.exception.what == "the cluster: ResourceSlice not found"
    assert "request the permission to list resourceslices" in done.exception.hint


def test_explain_reads_policies_and_labels_of_a_cluster(cluster: FakeCluster) -> None:
    cluster.objects = first_pod("policy")
    done = call("explain", "data0", FIRST / "inventory.yaml", *cluster.options)
    assert (done.exit_code, done.stdout) == (0, call("explain", "data0", FIRST).stdout)
    cluster.forbidden = {"deviceexposurepolicies"}
    assert "DeviceExposurePolicy not found" in told(
        call("explain", "data0", FIRST / "inventory.yaml", *cluster.options)
    )


def test_render_reads_classes_and_slices_of_a_cluster(cluster: FakeCluster) -> None:
    folder = EXAMPLES / "cookbook" / "1-sriov-vfs"
    cluster.objects = [*yaml.safe_load_all(call("plan", folder).stdout), *example(folder, "classes.yaml")]
    claims = folder / "claims.yaml"
    done = call("render", claims, *cluster.options)
    assert (done.exit_code, done.stdout) == (0, call("render", folder).stdout)


def test_validate_checks_files_together_with_the_objects_of_a_cluster(cluster: FakeCluster, tmp_path: Path) -> None:
    topology, claim = first_pod("topology", "claim")
    wrong = example(EXAMPLES / "mistakes", "wrong.yaml")
    cluster.objects = [topology, *wrong]
    claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "data-lam"
    path = write(tmp_path / "c.yaml", claim)
    done = call("validate", path, *cluster.options)
    assert "data-lan" in done.output
    assert 'NetworkTopology "wrong"' not in done.output
    assert "1 object checked" in done.stderr
    whole = call("validate", *cluster.options)
    assert whole.exit_code == 1
    assert 'the cluster: NetworkTopology "wrong", step "size": dependOn names "lam"' in whole.stdout
    fixed = json.loads(json.dumps(wrong[0]))
    fixed["spec"] = topology["spec"]
    assert call("validate", write(tmp_path / "fixed.yaml", fixed), *cluster.options).exit_code == 0


@pytest.mark.parametrize("name", FOLDERS)
def test_validate_finds_nothing_wrong_in_a_cluster_with_sound_objects(name: str, cluster: FakeCluster) -> None:
    written = [
        item
        for file in sorted(FOLDERS[name].rglob("*.yaml"))
        for item in yaml.safe_load_all(file.read_text())
        if "kind" in item and item["kind"] not in {"ResourceSlice", "Service", "Pod", "StatefulSet", "Job"}
    ]
    stored = {"uid": "1", "resourceVersion": "2", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    cluster.objects = [item | {"metadata": stored | item["metadata"]} for item in written]
    done = call("validate", *cluster.options)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"netdra: {len(written)} objects checked, no problems\n"


def test_plan_compares_with_a_cluster_and_needs_its_reports(cluster: FakeCluster) -> None:
    cluster.objects = [manifest("Node", "n1")]
    done = call("plan", FIRST / "policy.yaml", *cluster.options)
    assert (done.exit_code, "n1: no report" in done.stderr) == (0, True)
    cluster.forbidden = {"nodenetworks"}
    done = call("plan", FIRST / "policy.yaml", *cluster.options)
    assert told(done).startswith("the cluster does not allow you to list nodenetworks; ")
    assert isinstance(done.exception, InvalidInputError)


def test_validate_follows_facts_for_the_devices_and_nodes_of_a_cluster(cluster: FakeCluster) -> None:
    folder = EXAMPLES / "rails"
    slices = [*yaml.safe_load_all(call("plan", folder).stdout)]
    cluster.objects = [*slices, *example(folder, "policies.yaml"), manifest("Node", "gpu-1")]
    done = call("validate", folder / "topology.yaml", *cluster.options)
    assert done.exit_code == 0
    assert 'warning: NetworkTopology "rails", step "rail", device "enp' in done.stdout
    assert 'node "gpu-1" does not have a label "example.com/rack"' in done.stdout
    assert "kubectl label node gpu-1 example.com/rack=<value>" in done.stdout
    cluster.forbidden = {"resourceslices"}
    done = call("validate", folder / "topology.yaml", *cluster.options)
    assert (done.exit_code, "device " in done.stdout.replace("devices", "")) == (0, False)
    assert "the cluster does not allow you to list resourceslices" in done.stderr
