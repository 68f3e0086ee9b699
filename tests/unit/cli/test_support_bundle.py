"""`netdra support-bundle` reads logs and metrics of netdra's pods alone, and continues without a right."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
import pytest
from click.testing import CliRunner

from netdra.bundle import archive
from netdra.bundle.archive import Manifest
from netdra.bundle.recorded import RecordedClient, objects_file
from netdra.cli.main import cli
from netdra.cli.support_objects import KINDS, MOST_LOGS, ClusterReading
from netdra.cluster.reading import WORKLOADS
from netdra.kube.errors import Status, UnavailableError, api_error, no_answer


class Answering(RecordedClient):
    """Objects of a record, and logs and metrics of pods, some of which are refused."""

    def __init__(self, objects: Mapping[str, list[object]], refused: str = "no path") -> None:
        manifest = Manifest(bundle=1, netdra="1", created="2026-11-27T10:00:05Z", of="cluster")
        listed = {objects_file(kind.plural): objects.get(kind.plural, []) for kind in (*KINDS, *WORKLOADS.values())}
        files = {name: msgspec.json.encode({"items": items}) for name, items in listed.items()}
        super().__init__(archive.read(io.BytesIO(archive.pack(manifest, files)), "record"))
        self.refused = refused
        self.asked: list[str] = []

    async def read(self, path: str, what: str, parameters: Mapping[str, str] | None = None) -> bytes:
        self.asked.append(path + "".join(f"?{name}" for name in parameters or () if name == "previous"))
        if self.refused in path:
            raise api_error(f"get {what}", Status(code=HTTPStatus.FORBIDDEN, message="names of users"))
        return b'{"gitVersion": "v1.37.2"}' if path == "/version" else path.encode()


def pod(name: str, part: str, *, ready: bool = True, restarted: bool = False) -> object:
    labels = {"app.kubernetes.io/part-of": "netdra", "app.kubernetes.io/component": part}
    last = {"terminated": {"exitCode": 1}} if restarted else {}
    return {
        "metadata": {"name": name, "namespace": "netdra", "labels": labels},
        "spec": {"containers": [{"name": part}]},
        "status": {
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": part, "lastState": last}],
        },
    }


def reading(client: Answering) -> ClusterReading:
    made = ClusterReading(client, "netdra", lambda: None)
    asyncio.run(made.read())
    return made


def test_logs_of_restarted_containers_and_metrics_of_other_pods_than_drivers_are_read() -> None:
    other = {"metadata": {"name": "app", "namespace": "netdra"}, "spec": {"containers": [{"name": "c"}]}}
    pods = [pod("driver", "node", restarted=True), pod("controller", "controller"), other]
    collected = reading(Answering({"pods": pods})).collected
    assert list(collected.logs) == [
        ("logs", "controller", "controller.log"),
        ("logs", "driver", "node.log"),
        ("logs", "driver", "node.previous.log"),
    ]
    assert collected.texts == {
        ("metrics", "controller.txt"): "/api/v1/namespaces/netdra/pods/controller:metrics/proxy/metrics"
    }
    assert collected.left_out == []


def test_a_refused_log_is_noted_without_the_text_of_the_api_server() -> None:
    collected = reading(Answering({"pods": [pod("driver", "node")]}, refused="/log")).collected
    (entry,) = collected.left_out
    assert (entry.part, entry.code) == ("logs/driver/node.log", 403)
    assert entry.reason == "you are not allowed to read this part"


def test_of_many_pods_the_logs_of_those_are_read_that_are_not_ready() -> None:
    pods = [pod(f"driver-{number}", "node", ready=number != 77) for number in range(100)]
    collected = reading(Answering({"pods": [*pods, pod("webhook", "webhook")]})).collected
    assert len(collected.logs) == MOST_LOGS
    assert list(collected.logs)[:2] == [("logs", "webhook", "webhook.log"), ("logs", "driver-77", "node.log")]
    assert collected.left_out[0].reason == "the logs of 61 of 101 pods: over the limit of 40 pods"


def test_owners_of_pods_with_claims_are_read_up_to_the_deployment() -> None:
    def owned(name: str, kind: str, owner: str) -> dict[str, object]:
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "u"}
        return {"name": name, "namespace": "apps", "ownerReferences": [reference]}

    objects: dict[str, list[object]] = {
        "pods": [{"metadata": owned("web-1-x", "ReplicaSet", "web-1"), "spec": {"resourceClaims": [{"name": "net"}]}}],
        "replicasets": [{"metadata": owned("web-1", "Deployment", "web")}],
        "deployments": [{"metadata": {"name": "web", "namespace": "apps"}}],
    }
    collected = reading(Answering(objects)).collected
    assert [entry.metadata.name for entry in collected.objects["deployments"]] == ["web"]


def test_an_api_server_that_does_not_answer_is_an_error() -> None:
    class Silent(Answering):
        async def read(self, path: str, what: str, parameters: Mapping[str, str] | None = None) -> bytes:
            raise no_answer(what, "connection refused")

    with pytest.raises(UnavailableError, match="connection refused"):
        reading(Silent({}))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--mapping", "m"), "--mapping keeps the names of an anonymous bundle: specify --anonymize"),
        (("--node", "--kubeconfig", "k"), "--node reads this machine alone"),
        (("--most", "0"), "0 is not in the range 1<=x<=1024"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(arguments: tuple[str, ...], text: str) -> None:
    done = CliRunner().invoke(cli, ["support-bundle", "bundle.tar.gz", *arguments])
    assert done.exit_code == 2
    assert text in done.output


def test_the_help_has_examples() -> None:
    text = CliRunner().invoke(cli, ["support-bundle", "--help"]).output
    assert "netdra support-bundle bundle.tar.gz --anonymize --mapping names.json\n" in text
