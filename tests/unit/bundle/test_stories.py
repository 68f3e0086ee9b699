"""A story that is read from a bundle is that of the cluster, also through an anonymous one and its mapping."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from netdra.bundle import archive, mapping
from netdra.bundle.anonymity import Anonymizer
from netdra.bundle.archive import MIB, LeftOut, Manifest
from netdra.bundle.content import Collected, content
from netdra.bundle.recorded import VERSIONS, RecordedClient, objects_file
from netdra.cli.main import cli
from netdra.cli.support_objects import KINDS
from netdra.cli.why import lines
from netdra.cluster import reading
from netdra.cluster.objects import ClusterState
from netdra.kube.client import Selection
from netdra.model.scheduler_version import NEWEST_SCHEDULER, SchedulerVersion
from netdra.story.pods import pod_story
from testbed import yaml
from tests.unit.story.making import NODES, TOPOLOGY, claim, cluster, event, pod, report, slices

DECISION = "0/2 nodes are available: 1 cannot allocate all claims, 1 node(s) had untolerated taint(s)."
FIELDS = {resource.plural: field for field, resource in reading._WIDE} | {
    "pods": "pods",
    "resourceslices": "slices",
    "nodenetworks": "node_networks",
    "neutronports": "ports",
    "podaddresses": "addresses",
    "events": "events",
}


def scene() -> ClusterState:
    status = f"""conditions:
  - {{type: PodScheduled, status: 'False', message: '{DECISION}', lastTransitionTime: '2026-11-27T10:00:01Z'}}"""
    return cluster(
        TOPOLOGY,
        NODES,
        report("worker-1"),
        report("worker-2"),
        slices("eth0", "eth1"),
        claim("web-1-net", "eth0"),
        claim("web-2-net", "eth1"),
        claim("db-0-net"),
        pod("db-0", "db-0-net", status=status),
        event("FailedScheduling", DECISION, time="2026-11-27T10:00:01Z"),
    )


def collected(state: ClusterState, **changes: Any) -> Collected:
    objects: dict[str, Sequence[Any]] = {
        kind.plural: [*getattr(state, FIELDS[kind.plural])] for kind in KINDS if kind.plural in FIELDS
    }
    objects["events"] = [
        msgspec.structs.replace(entry, metadata={"name": f"e-{number}", "namespace": "apps"})
        for number, entry in enumerate(state.events)
    ]
    return msgspec.structs.replace(Collected(objects=objects, namespace="apps"), **changes)


def packed(found: Collected, anonymizer: Anonymizer | None = None, most: int = MIB) -> bytes:
    made = content(found, anonymizer, most)
    manifest = Manifest(
        bundle=1,
        netdra="1.0",
        created="2026-11-27T10:00:05Z",
        of="cluster",
        namespace=made.namespace,
        left_out=made.left_out,
    )
    return archive.pack(manifest, made.files)


def printed(state: ClusterState) -> str:
    return "".join(f"{line}\n" for line in lines(pod_story(state, "apps", "db-0")))


def ask(path: Path, *arguments: str) -> str:
    done = CliRunner().invoke(cli, ["why", "--bundle", str(path), *arguments])
    assert done.exit_code == 1, done.output
    return done.stdout


def test_the_story_of_a_bundle_is_that_of_the_cluster(tmp_path: Path) -> None:
    state = scene()
    (tmp_path / "b").write_bytes(packed(collected(state)))
    assert ask(tmp_path / "b", "pod", "apps/db-0") == printed(state)
    assert ask(tmp_path / "b", "pod", "db-0") == printed(state)  # in the namespace of the context
    assert "Affects Pod apps/db-0" in ask(tmp_path / "b")


def test_the_story_of_an_anonymous_bundle_is_the_same_with_its_mapping(tmp_path: Path) -> None:
    state, anonymizer = scene(), Anonymizer()
    (tmp_path / "b").write_bytes(packed(collected(state), anonymizer))
    mapping.write_file(tmp_path / "m", anonymizer.mapping)
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o600
    events = asyncio.run(
        RecordedClient(archive.read_file(tmp_path / "b")).list(
            reading.EVENTS, Selection(anonymizer.name("apps"), f"involvedObject.name={anonymizer.name('db-0')}")
        )
    )
    assert [entry.reason for entry in events] == ["FailedScheduling"]
    told = ask(tmp_path / "b", "pod", "apps/db-0", "--mapping", str(tmp_path / "m"))
    assert told == printed(state)
    assert ask(tmp_path / "b", "pod", "db-0", "--mapping", str(tmp_path / "m")) == told  # in the context's namespace
    name = anonymizer.name("apps/db-0")
    without = ask(tmp_path / "b", "pod", name)
    assert without.splitlines()[0] == f"Pod {name} is not scheduled."
    assert "apps" not in without


def test_names_in_an_anonymous_bundle_with_its_mapping_are_similar_as_in_the_cluster(tmp_path: Path) -> None:
    anonymizer = Anonymizer()
    (tmp_path / "b").write_bytes(packed(collected(cluster(TOPOLOGY, NODES, claim("payroll"))), anonymizer))
    mapping.write_file(tmp_path / "m", anonymizer.mapping)
    assert 'did you mean "payroll"?' in ask(tmp_path / "b", "claim", "apps/payrol", "--mapping", str(tmp_path / "m"))


def test_a_kind_that_could_not_be_read_is_unread_in_the_story(tmp_path: Path) -> None:
    left_out = [LeftOut(part=objects_file("nodes"), reason="you are not allowed to read this part", code=403)]
    state = collected(scene(), left_out=left_out)
    del state.objects["nodes"]
    (tmp_path / "b").write_bytes(packed(state))
    assert "Not read: the cluster does not allow you to list nodes; " in ask(tmp_path / "b", "pod", "apps/db-0")


def test_objects_over_the_limit_are_named(tmp_path: Path) -> None:
    state = scene()
    whole = content(collected(state), None, MIB)
    size = sum(map(len, whole.files.values()))
    for most in range(0, size, 97):
        made = content(collected(state), None, most)
        assert sum(map(len, made.files.values())) <= most + len(b'{"items":[]}\n') * len(KINDS)
        assert made.left_out
    (tmp_path / "b").write_bytes(packed(collected(state), most=size - 40))
    assert "Not read: objects/events.json: 1 of 1 objects: over the limit of" in ask(tmp_path / "b", "pod", "apps/db-0")


def test_a_log_over_the_limit_keeps_its_last_lines() -> None:
    lines_of_log = [f"2026-11-21T12:00:{second:02}.000Z INFO netdra.node: ready" for second in range(60)]
    made = content(Collected(logs={("logs", "p", "node.log"): "\n".join(lines_of_log)}), None, 600)
    kept = made.files["logs/p/node.log"].decode().splitlines()
    assert kept == lines_of_log[-len(kept) :]
    assert 0 < len(kept) < 60
    assert made.left_out[0].reason.startswith(f"the first {60 - len(kept)} of 60 lines: over the limit of")


def test_selections_of_a_bundle_are_those_of_the_api_server(tmp_path: Path) -> None:
    """The driver's pods are selected by labels, slices and events by fields."""
    driver = yaml.safe_load(
        """
metadata: {name: netdra-node-x, namespace: netdra, labels: {app.kubernetes.io/part-of: netdra,
  app.kubernetes.io/component: node}}
spec: {nodeName: worker-1}
"""
    )
    state = scene()
    found = collected(state)
    found.objects["pods"] = [*found.objects["pods"], msgspec.convert(driver, reading.PODS.type)]
    (tmp_path / "b").write_bytes(packed(found))
    read = asyncio.run(reading.read(RecordedClient(archive.read_file(tmp_path / "b")), reading.Scope(node="worker-1")))
    assert [entry.metadata.name for entry in read.drivers] == ["netdra-node-x"]
    assert [entry.name for entry in read.node_networks] == ["worker-1"]
    assert {entry.spec.node_name for entry in read.slices} == {"worker-1"}


@pytest.mark.parametrize(
    ("versions", "expected"),
    [({"kubernetes": "v1.38.0-beta.0"}, SchedulerVersion(1, 38)), ({"kubernetes": 7}, NEWEST_SCHEDULER)],
)
def test_story_of_a_bundle_has_the_version_of_its_cluster(
    tmp_path: Path, versions: Any, expected: SchedulerVersion
) -> None:
    for name, data, version in (("b", {(VERSIONS,): versions}, expected), ("without", {}, NEWEST_SCHEDULER)):
        (tmp_path / name).write_bytes(packed(collected(scene(), data=data)))
        client = RecordedClient(archive.read_file(tmp_path / name))
        state = asyncio.run(reading.read(client, reading.Scope(node="worker-1")))
        assert state.version == version


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--mapping", "m"), "--mapping belongs to an anonymous bundle: specify --bundle"),
        (("--bundle", "b", "--kubeconfig", "k"), "omit --kubeconfig and --context"),
        (("--bundle", "b", "--watch"), "--watch follows a cluster"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(arguments: tuple[str, ...], text: str) -> None:
    done = CliRunner().invoke(cli, ["why", "pod", "a/b", *arguments])
    assert done.exit_code == 2
    assert text in done.output
