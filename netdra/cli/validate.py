"""`netdra validate`: all that is wrong with topologies, policies, plugin schemas, classes and claims in files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import click
import msgspec

from netdra.cli import forecasts, inputs, marks, objects, shared, terminal
from netdra.model import documents, workload
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.core import ClusterNode
from netdra.model.custom_device import CustomDevice
from netdra.model.documents import Document
from netdra.model.errors import InvalidInputError, sentence, with_code
from netdra.model.findings import Finding, Path, about_object
from netdra.model.inventory import Inventory
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice
from netdra.model.schema import CNIPluginSchema
from netdra.model.service import NETWORK_LABEL, Service
from netdra.model.topology import NetworkTopology
from netdra.model.workload import Workload
from netdra.rules.taken_ranges import TakenRange
from netdra.rules.workloads import IN_FILES, Wrong

if TYPE_CHECKING:
    from netdra.cli.cluster_objects import ClusterObjects

Kind = TypeVar("Kind")
_MANY = 200
"""Files or objects from which on progress is shown."""
_CLUSTER = "the cluster"
"""The file of its objects, in problems."""
_OWN_KINDS: tuple[type[Document], ...] = (
    NetworkTopology,
    DeviceExposurePolicy,
    CNIPluginSchema,
    CustomDevice,
    PodNetwork,
)
_KINDS: tuple[type[Document], ...] = (
    *_OWN_KINDS,
    DeviceClass,
    ResourceClaimTemplate,
    ResourceClaim,
)
"""What is read of the cluster."""


Severity = Literal["error", "warning"]


class FileProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One error or warning as it is printed in JSON and YAML; `path` is the place in the object."""

    file: str
    line: int
    message: str
    path: str = ""
    hint: str = ""
    severity: Severity = "error"
    code: str = ""

    @property
    def text(self) -> str:
        """The problem in the form that editors and CI know from compilers; further lines are indented."""
        first, *rest = sentence(self.message, self.hint).splitlines()
        place = f" [{self.path}]" if self.path else ""
        severity = "" if self.severity == "error" else "warning: "
        line = f":{self.line}" if self.line else ""
        lines = [f"{self.file}{line}: {severity}{first}{place}", *(f"    {line}" for line in rest)]
        return with_code("\n".join(lines), self.code)


class _Node(msgspec.Struct, frozen=True):
    """A node of a file: its Node, or its inventory."""

    value: ClusterNode | Inventory


class _Pods(msgspec.Struct, frozen=True):
    """A workload of a file, with the document that has its lines."""

    file: str
    marked: marks.Document
    value: Workload

    def problem(self, wrong: Wrong) -> FileProblem:
        """The errors in it, at its place."""
        return _problem(self.file, self.marked, wrong.finding, "error" if wrong.certain else "warning")


class _Service(msgspec.Struct, frozen=True):
    """A Service of a file, with the document that has its lines."""

    file: str
    marked: marks.Document
    value: Service


class _Object(msgspec.Struct, frozen=True):
    """An object of a file, with the document that has its lines."""

    file: str
    marked: marks.Document
    value: Document
    told: tuple[Path, ...] = ()
    """Where the object does not fit its kind."""

    @property
    def key(self) -> tuple[str, str, str]:
        """The object's kind, namespace and name."""
        metadata = self.value.metadata
        return self.value.kind, metadata.namespace, metadata.name

    def problem(self, finding: Finding, severity: Severity = "error") -> FileProblem:
        """A finding at its place."""
        return _problem(self.file, self.marked, finding, severity)


@click.command(name="validate")
@objects.options()
@shared.output("table", "json", "yaml")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.pass_context
def command(context: click.Context, given: objects.InputOptions, output: str, strict: bool) -> None:
    """Validate topologies, policies, plugin schemas, DeviceClasses, claims, templates, and the pods that use them.

    PATHs are files, directories, or "-". All files are validated together: plugin schemas in the files override
    built-in schemas, claims are validated against the topologies, and Pods, Deployments and other workloads against the
    claims and classes. Services are validated if they name a PodNetwork. Other objects of other API groups are ignored.

    With --cluster, the objects of the PATHs are validated together with those of the cluster, as if they were applied;
    without PATHs, those of the cluster are validated. Kinds that you cannot read are listed.

    The exit code is 1 if there is a problem, and 2 if a file cannot be read. Warnings, which are those of the webhook,
    do not change it without --strict. It is 3 if no problem was found, but objects of the cluster were not checked
    because you cannot read their kind; with PATHs only if --strict is set.
    """
    given.check()
    checked = _read_files(given.paths, "" if given.of_cluster else IN_FILES)
    files = list(checked.files)
    slices = [value for _, value in _of(checked.items, ResourceSlice)]
    unread: tuple[str, ...] = ()
    if given.of_cluster:
        cluster = _of_cluster(given)
        unread = tuple(sorted(cluster.refused()))
        checked.items.extend([*_not_overridden(cluster, checked.items)])
        checked = checked._replace(where=IN_FILES if cluster.refusals else "")
        if _of(checked.items, PodNetwork):
            checked.taken.extend(_taken(given))
        of_nodes = forecasts.of_cluster(given, [value for _, value in _of(checked.items, NetworkTopology)])
        slices += of_nodes[0]
        checked.nodes.extend(of_nodes[1])
        files = files or [_CLUSTER]
    problems = [problem for problem in _all_problems(checked, slices) if problem.file in files]
    if strict:
        problems = [msgspec.structs.replace(problem, severity="error") for problem in problems]
    problems = sorted(dict.fromkeys(problems), key=lambda problem: (files.index(problem.file), problem.line))
    makers = {id(item.marked) for item in checked.workloads}  # a JobSet has several pod specs, and is one object
    count = sum(item.file in files for item in checked.items) + len(makers) + len(checked.services)
    if output == "table":
        _print(problems, count, unread)
    else:
        terminal.print_data({"problems": problems, "objects": count} | ({"unread": unread} if unread else {}), output)
    is_partial = bool(unread) and (strict or not given.paths)
    context.exit(1 if any(problem.severity == "error" for problem in problems) else 3 if is_partial else 0)


_Entry = _Object | _Pods | _Service | _Node


class _Checked(NamedTuple):
    """The contents of files."""

    items: list[_Object]
    workloads: list[_Pods]
    services: list[_Service]
    problems: list[FileProblem]
    files: list[str]
    nodes: list[ClusterNode | Inventory]
    taken: list[TakenRange]
    where: str
    """What the objects are, as messages name it; "" if they are all that the cluster has."""

    def take(self, path: str, unknown: objects.UnknownKinds) -> None:
        """Read a file."""
        self.files.append(inputs.name(path) if path == "-" else terminal.path(path))
        for item in _read(path, self.files[-1], unknown):
            if isinstance(item, FileProblem):
                self.problems.append(item)
            elif isinstance(item, _Pods):
                self.workloads.append(item)
            elif isinstance(item, _Service):
                self.services.append(item)
            elif isinstance(item, _Node):
                self.nodes.append(item.value)
            else:
                self.items.append(item)


@contextlib.contextmanager
def _progress(label: str, total: int, unit: str) -> Iterator[Callable[[], None]]:
    """The progress of work that takes long; a few objects take a moment, and have none."""
    if total < _MANY:
        yield lambda: None
        return
    with terminal.progress(label, total, unit) as advance:
        yield advance


def _read_files(paths: Sequence[str], where: str) -> _Checked:
    """The contents of files; `where` names the place of the objects in messages."""
    checked = _Checked([], [], [], [], [], [], [], where)
    unknown, once = objects.UnknownKinds(), list(inputs.once(paths))
    with _progress("Reading", len(once), "files") as advance:
        for path in once:
            checked.take(path, unknown)
            advance()
    return checked


def _all_problems(checked: _Checked, slices: Sequence[ResourceSlice]) -> Iterator[FileProblem]:
    """The problems of the objects, by themselves and with the devices of slices."""
    yield from _problems(checked)
    values = {id(item.value): item for item in checked.items}
    written = [item.value for item in checked.items]
    for key, finding in forecasts.findings(written, slices, checked.nodes):
        yield values[key].problem(finding, "warning")
    for key, finding, severity in forecasts.rdma_modes(written, checked.nodes):
        yield values[key].problem(finding, severity)


def _problems(checked: _Checked) -> Iterator[FileProblem]:
    """All that is wrong with the objects, each by itself and all together."""
    from netdra.review import objects as reviews
    from netdra.review.world import world_of

    items = checked.items
    taken = tuple(checked.taken)
    world = world_of((item.value for item in items), taken=taken, offline=True, where=checked.where)
    yield from checked.problems
    yield from _duplicates(items)
    of = {id(item.value): item for item in items}
    with _progress("Checking for errors", len(items), "objects") as advance:
        errors = reviews.errors([item.value for item in items], world, advance)
        wrong = [(of[id(value)], finding) for value, finding in errors]
    wrong += [*_by_definition(items, wrong)]
    yield from (item.problem(finding) for item, finding in wrong)
    refused = {id(item) for item, _ in wrong}
    accepted = [item.value for item in items if id(item) not in refused]
    with _progress("Checking for warnings", len(accepted), "objects") as advance:
        for value, finding in reviews.warnings(accepted, world, advance):
            yield of[id(value)].problem(finding, "warning")
    yield from _slices(items)
    yield from _scoped(items)
    yield from _workloads(items, checked.workloads, checked.where)
    yield from _services(items, checked.services, checked.where)


def _of_cluster(given: objects.InputOptions) -> ClusterObjects:
    """The cluster's objects.

    Raises:
        InvalidInputError: the user may read no kind of them, or without PATHs no kind of netdra.
    """
    from netdra.cli import cluster_objects

    cluster = cluster_objects.read(given.cluster, _KINDS)
    if not cluster.objects or not (given.paths or any(kind in cluster.objects for kind in _OWN_KINDS)):
        raise InvalidInputError(
            "no objects of netdra in the cluster can be read",
            hint='request a ClusterRoleBinding to the ClusterRole "netdra-reader", or install netdra',
            code="ND4062",
        )
    return cluster


def _not_overridden(cluster: ClusterObjects, written: Sequence[_Object]) -> Iterator[_Object]:
    """The cluster's objects but for those that files override."""
    overridden = {(item.value.kind, *cluster.key(item.value)) for item in written}
    for kind in _KINDS:
        for value in cluster.of(kind):
            if (value.kind, *cluster.key(value)) not in overridden:
                yield _Object(_CLUSTER, marks.Document(documents.plain(value), None), value)


def _taken(given: objects.InputOptions) -> Iterator[TakenRange]:
    """The ranges that the cluster and its cloud use."""
    from netdra.cli import cluster_objects

    return cluster_objects.taken(given.cluster)


def _read(path: str, file: str, unknown: objects.UnknownKinds) -> Iterator[_Entry | FileProblem]:
    """The objects of a file, and the problems of its other documents; `file` is the path as it is shown."""
    try:
        text = inputs.text(path)
    except inputs.NoTextError as problem:
        what = problem.what.removeprefix(f"{file}: ")
        yield FileProblem(file=file, line=0, message=what, hint=problem.hint, code=problem.code)
        return
    for marked in marks.read(text):
        if isinstance(marked, marks.UnreadableDocument):
            yield FileProblem(file=file, line=marked.line, message=marked.what, hint=marked.hint, code=marked.code)
            continue
        try:
            yield from _examine(file, marked, unknown)
        except InvalidInputError as problem:
            what = problem.what.removeprefix(f"{file}: ")
            yield _problem(file, marked, Finding(what, problem.hint, problem.path, code=problem.code))


_OF_MULTUS = Finding(
    "NetworkAttachmentDefinitions are not checked: Multus reads them, and netdra does not",
    "docs/from-multus.md shows the NetworkTopology that replaces one",
    code="ND4063",
)


def _examine(file: str, marked: marks.Document, unknown: objects.UnknownKinds) -> Iterator[_Entry | FileProblem]:
    """A document's object, and the errors in its fields; only the first for an unknown kind.

    Raises:
        InvalidInputError: it is not an object, or of no kind that is known.
    """
    value = marked.value
    kind = objects.kind_of(value, file)
    if kind == objects.INVENTORY:
        wrong = documents.examine_inventory(value)
        yield from (_problem(file, marked, finding) for finding in wrong)
        yield from () if wrong else [_Node(documents.inventory_of(value, file))]
    elif kind == objects.NODE:
        with contextlib.suppress(InvalidInputError):  # Kubernetes' own, and checked by its API server
            yield _Node(documents.convert(value, ClusterNode, file))
    elif isinstance(kind, Finding):
        if unknown.add(value, kind, file):
            yield _problem(file, marked, kind)
    elif kind is None or kind not in documents.KINDS:
        yield from _foreign(file, marked, unknown)
    else:
        document, findings = documents.examine(value, file)
        if document is None and kind == ResourceSlice.__name__:
            from netdra.slices.written import unreadable

            findings = tuple(unreadable(value, findings))
        yield from (_problem(file, marked, finding) for finding in findings)
        if document is not None:
            yield _Object(file, marked, document, tuple(finding.path for finding in findings))


def _foreign(file: str, marked: marks.Document, unknown: objects.UnknownKinds) -> Iterator[_Entry | FileProblem]:
    """The Service, or the pods, of a document of another API group.

    Raises:
        InvalidInputError: a Service does not fit its kind.
    """
    value = marked.value
    if value.get("kind") == "NetworkAttachmentDefinition" and unknown.add(value, _OF_MULTUS, file):
        terminal.tell(f"{file}: {_OF_MULTUS.text}")
    if (service := _service(value, file)) is not None:
        yield _Service(file, marked, service)
    for pods, findings in workload.examine(value):
        yield from (_problem(file, marked, finding) for finding in findings)
        yield from () if pods is None else [_Pods(file, marked, pods)]


def _problem(file: str, marked: marks.Document, finding: Finding, severity: Severity = "error") -> FileProblem:
    """A finding about a document at its place."""
    return FileProblem(
        file=file,
        line=marked.line(finding.path),
        message=finding.what,
        path=finding.place,
        hint=finding.hint,
        severity=severity,
        code=finding.code,
    )


def _workloads(objects: Sequence[_Object], workloads: Sequence[_Pods], where: str) -> Iterator[FileProblem]:
    """The errors in Pods, Deployments and the like, with the claims and classes of all files."""
    from netdra.rules.workloads import check, check_together, known_objects

    known = msgspec.structs.replace(known_objects(item.value for item in objects), where=where)
    for item in workloads:
        yield from (item.problem(wrong) for wrong in check(item.value, known))
    places = {id(item.value): item for item in workloads}
    for value, wrong in check_together([item.value for item in workloads], known):
        yield places[id(value)].problem(wrong)


def _service(value: Mapping[str, object], file: str) -> Service | None:
    """A Service that names a PodNetwork.

    Raises:
        InvalidInputError: it does not fit its kind.
    """
    if (value.get("apiVersion"), value.get("kind")) != ("v1", "Service"):
        return None
    metadata = value.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    is_named = isinstance(labels, dict) and NETWORK_LABEL in labels
    return documents.convert(value, Service, file) if is_named else None


def _services(objects: Sequence[_Object], services: Sequence[_Service], where: str) -> Iterator[FileProblem]:
    """The errors in Services that name a PodNetwork, and warnings for PodNetworks that do not exist."""
    from netdra.rules.pod_networks import absent
    from netdra.services.check import LABEL_PATH, errors, warnings

    networks = {network.name: network for _, network in _of(objects, PodNetwork)}
    for item in services:
        yield from (_problem(item.file, item.marked, finding) for finding in errors(item.value))
        if item.value.network and item.value.network not in networks:
            what, hint = absent(item.value.network, networks, where)
            finding = Finding(f'Service "{item.value.metadata.name}": {what}', hint, LABEL_PATH, code="ND4064")
            yield _problem(item.file, item.marked, finding, "warning")
        elif item.value.network:
            for finding in warnings(item.value, networks[item.value.network]):
                yield _problem(item.file, item.marked, finding, "warning")


def _duplicates(objects: Iterable[_Object]) -> Iterator[FileProblem]:
    first: dict[tuple[str, str, str], _Object] = {}
    for item in objects:
        other = first.setdefault(item.key, item)
        if other is not item:
            kind, _, name = item.key
            line = f":{other.marked.line()}" if other.marked.line() else ""
            what = f'{kind} "{name}" is already at {other.file}{line}'
            yield item.problem(Finding(what=what, hint="remove one of them", path=("metadata", "name"), code="ND4065"))


def _of(objects: Iterable[_Object], kind: type[Kind]) -> list[tuple[_Object, Kind]]:
    return [(item, item.value) for item in objects if isinstance(item.value, kind)]


def _slices(objects: Sequence[_Object]) -> Iterator[FileProblem]:
    """The errors of slices by the API server's rules, and the parts of slices and claims that netdra does not read."""
    from netdra.slices.written import faults, misread

    for item in objects:
        if isinstance(item.value, ResourceSlice | ResourceClaim | ResourceClaimTemplate):
            for finding, unknown in misread(item.marked.value):
                yield item.problem(_about(item, finding), "error" if unknown else "warning")
    slices = {id(value): item for item, value in _of(objects, ResourceSlice)}
    for value, finding in faults(value for _, value in _of(objects, ResourceSlice)):
        yield slices[id(value)].problem(_about(slices[id(value)], finding))


def _about(item: _Object, finding: Finding) -> Finding:
    return about_object(item.value.kind, item.value.metadata.name, finding)


def _by_definition(
    objects: Sequence[_Object], wrong: Sequence[tuple[_Object, Finding]]
) -> Iterator[tuple[_Object, Finding]]:
    """The errors by the CustomResourceDefinitions alone, unless that place has an error already."""
    from netdra.model import crd_check

    told: dict[int, set[Path]] = {id(item): set(item.told) for item in objects}
    for item, finding in wrong:
        told[id(item)].add(finding.path)
    for item in objects:
        for finding in crd_check.findings(item.marked.value):
            places = told[id(item)]
            entry = finding.path[:-1]  # a parameter of a schema is one finding
            known = entry in places and entry[-1:] and isinstance(entry[-1], int)
            if not known and not any(path[: len(finding.path)] == finding.path for path in places):
                yield item, _about(item, finding)


def _scoped(objects: Sequence[_Object]) -> Iterator[FileProblem]:
    """Warnings for namespaces of objects that are in none; the API server takes such an object and drops it."""
    from netdra.model import kinds

    namespaced = {kind.type.__name__ for kind in kinds.KINDS if kind.namespaced}
    for item in objects:
        kind, namespace, name = item.key
        if namespace and kind not in namespaced | {ResourceClaim.__name__, ResourceClaimTemplate.__name__}:
            what = f'{kind} "{name}" is cluster-scoped and must not have a namespace'
            finding = Finding(what=what, hint="remove its namespace", path=("metadata", "namespace"), code="ND4066")
            yield item.problem(finding, "warning")


def _print(problems: Sequence[FileProblem], objects: int, unread: Sequence[str]) -> None:
    for problem in problems:
        click.echo(terminal.printable(problem.text))
    checked = f"{objects} object{'s' * (objects != 1)} checked"
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    wrong = f"{errors} problem{'s' * (errors != 1)}" if errors else "no problems"
    if warnings:
        wrong += f", {warnings} warning{'s' * (warnings != 1)}"
    if not objects and not problems:
        wrong = "the files do not contain objects of netdra's kinds"
    without = f"; could not be read, and not checked: {', '.join(unread)}" if unread else ""
    terminal.tell(f"{checked}, {wrong}{without}")
