"""Follows a hint of `netdra why`: a cluster, its story, and the cluster after the hint was followed.

`tests/troubles/clusters` has objects by name in `objects.yaml`; each other file is a list: the object whose story is
printed (`why`), the objects of the cluster (`in`, by name, and further ones in `also`, without those in `without`), and
the problem with its next step and code (`says`). Then come the acts that the next step names, with those of controllers
that follow them: `add` (objects of `objects.yaml`), `change` (objects that are created, or fields that are merged into
existing ones), `delete`, and `ask` (the object that is named instead). `leaves` are codes that take the place of the
problem's. If the next step is another `netdra why`, the cause of that story must have a next step, too.

A bundle takes the place of the cluster, so that a case runs the same code as the command.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner

from netdra.bundle import archive
from netdra.bundle.archive import Manifest
from netdra.bundle.recorded import RecordedClient, objects_file
from netdra.cli.main import cli
from netdra.cli.support_objects import KINDS
from netdra.cluster import reading
from netdra.cluster.reading import Scope
from netdra.kube import resources
from netdra.model.errors import code_of, sentence, with_code, without_code
from netdra.model.topology import NetworkTopology
from netdra.story.plugins import plugin_story
from netdra.story.policies import policy_story
from netdra.story.statement import Statement, Story
from netdra.topology.classes import device_classes
from testbed import yaml

TROUBLES = Path(__file__).parent / "troubles" / "clusters"
Object = dict[str, Any]
Objects = dict[str, Object]
"""The objects of a cluster by `Kind namespace/name`, or `Kind name`."""


class TroubledCluster(msgspec.Struct, frozen=True, rename={"cluster": "in"}):
    """A problem, and the act that its next step names."""

    why: str
    says: str
    cluster: tuple[str, ...] = ()
    also: str = ""
    without: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    change: str = ""
    delete: tuple[str, ...] = ()
    ask: str = ""
    leaves: tuple[str, ...] = ()

    @property
    def before(self) -> Objects:
        """The cluster with the problem."""
        found = changed({}, _read(*(_SHARED[name] for name in self.cluster), self.also))
        return {key: value for key, value in compiled(found).items() if key not in self.without}

    @property
    def after(self) -> Objects:
        """The cluster after the next step."""
        kept = {key: value for key, value in self.before.items() if key not in self.delete}
        return compiled(changed(kept, _read(*(_SHARED[name] for name in self.add), self.change)))


def _read(*texts: str) -> Iterator[Object]:
    return (document for text in texts for document in yaml.safe_load_all(text) if document)


def troubles() -> Iterator[tuple[str, TroubledCluster]]:
    """The file and the content of each case."""
    for path in sorted(TROUBLES.glob("*.yaml")):
        for entry in yaml.safe_load(path.read_text()) if path.name != "objects.yaml" else ():
            yield path.stem, msgspec.convert(entry, TroubledCluster)


def said() -> Iterator[str]:
    """The problems with their next steps, in the form of a line of `netdra validate`."""
    return (line for _, trouble in troubles() for line in lines_of(trouble.says))


def lines_of(says: str) -> Iterator[str]:
    """A problem in the form of a line of `netdra validate`; a next step that ends with a list also without the list."""
    yield f"1: {says}"
    begin, _, _ = without_code(says).rpartition(": ")
    yield f"1: {with_code(f'{begin}:', code_of(says))}"


_SHARED: Mapping[str, str] = yaml.safe_load((TROUBLES / "objects.yaml").read_text())


def changed(objects: Objects, documents: Iterable[Object]) -> Objects:
    """The objects with others, each merged into that of its name as by `kubectl apply`."""
    found = dict(objects)
    for document in documents:
        key = key_of(document)
        found[key] = merged(found.get(key, {}), document)
    return found


def compiled(objects: Objects) -> Objects:
    """The objects with the DeviceClasses that netdra's controller writes for topologies that are Ready."""
    found = dict(objects)
    for value in objects.values():
        if value["kind"] == "NetworkTopology" and _is_ready(value):
            for entry in device_classes(msgspec.convert(value, NetworkTopology)):
                plain: Object = msgspec.to_builtins(entry)
                found.setdefault(key_of(plain), plain)
    return found


def _is_ready(value: Object) -> bool:
    conditions = (value.get("status") or {}).get("conditions", ())
    return any((entry["type"], entry["status"]) == ("Ready", "True") for entry in conditions)


def merged(value: Any, patch: Any) -> Any:
    """A value after a merge patch (RFC 7386): null removes a field, a list takes the place of the former one."""
    if not isinstance(patch, dict):
        return patch
    found = dict(value) if isinstance(value, dict) else {}
    for key, part in patch.items():
        if part is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), part)
    return found


def key_of(value: Object) -> str:
    """The key of an object in `Objects`."""
    metadata = value["metadata"]
    place = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    return f"{value['kind']} {place}{metadata['name']}"


def write_bundle(path: Path, objects: Objects) -> None:
    """Write the cluster as a support bundle of namespace `apps`."""
    by_kind: dict[str, list[Object]] = {kind.plural: [] for kind in KINDS}
    for value in objects.values():
        by_kind[_plural(value["kind"])].append(value)
    files = {objects_file(plural): msgspec.json.encode({"items": items}) for plural, items in by_kind.items()}
    time = "2026-11-27T10:00:30Z"
    manifest = Manifest(bundle=archive.VERSION, netdra="1.0", created=time, of="cluster", namespace="apps")
    path.write_bytes(archive.pack(manifest, files))


def _plural(kind: str) -> str:
    name = kind.lower()
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}es" if name.endswith("s") else f"{name}s"


def story(path: Path, subject: str) -> Story:
    """The story of a bundle: that of `netdra why`, or that of the console for kinds that only the console shows."""
    kind, name = subject.split()
    if kind in ("plugin", "policy"):
        return asyncio.run(_shown(path, kind, name))
    done = CliRunner().invoke(cli, ["why", kind, name, "--bundle", str(path), "--output", "json"])
    assert done.exit_code in (0, 1), done.output or done.exception
    return msgspec.json.decode(done.stdout, type=Story)


async def _shown(path: Path, kind: str, name: str) -> Story:
    client = RecordedClient(archive.read_file(path))
    cluster = msgspec.structs.replace(
        await reading.read(client, Scope()),
        plugins=await client.list(resources.CNI_PLUGINS),
        rollouts=await client.list(resources.POLICY_ROLLOUTS),
    )
    return plugin_story(cluster, name) if kind == "plugin" else policy_story(cluster, name)


def text_of(statement: Statement) -> str:
    """A problem with its next step and its code on one line."""
    return with_code(" ".join(sentence(statement.text, statement.next_step).split()), statement.code)


_COMMAND = re.compile(r"netdra why (?P<subject>(?:pod|claim|device|topology|network) \S+)")


def subject_named(says: str) -> str:
    """The object whose story the next step of a problem names; "" for another next step."""
    found = _COMMAND.search(says)
    return found["subject"] if found is not None else ""
