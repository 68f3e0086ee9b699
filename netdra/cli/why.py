"""`netdra why`: the story of an object of the cluster, and the cause where it is stuck; or all that is in trouble."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from netdra.cli import shared, terminal
from netdra.cli.shared import ClusterAccess
from netdra.model.errors import InvalidInputError
from netdra.story.kinds import CLUSTER_WIDE, KINDS

if TYPE_CHECKING:
    from netdra.bundle.recorded import RecordedClient
    from netdra.cluster.objects import ClusterState
    from netdra.cluster.reading import Scope
    from netdra.kube.client import Client
    from netdra.story.overview import Overview
    from netdra.story.statement import Statement, Story

_MARKS = {"ok": "✓", "info": "·", "warning": "!", "error": "✗"}
_SHOWN = 10
"""How many objects of a cause are named."""
_TIME_WIDTH = len("2026-11-27T10:00:00Z")


_ALSO = {
    "pod": ("pods", "po"),
    "claim": ("claims", "resourceclaim", "resourceclaims"),
    "device": ("devices",),
    "topology": ("topologies", "networktopology", "networktopologies", "ntopo"),
    "network": ("networks", "podnetwork", "podnetworks", "pnet"),
    "deployment": ("deployments", "deploy"),
    "statefulset": ("statefulsets", "sts"),
    "daemonset": ("daemonsets", "ds"),
    "replicaset": ("replicasets", "rs"),
    "job": ("jobs",),
}
"""Other names of the kinds, as kubectl takes them."""
_BY_NAME = {name: kind for kind, others in _ALSO.items() for name in (kind, *others)}


_WORKLOADS = tuple(kind for kind in _ALSO if kind not in KINDS)


def _kind(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str:
    """The kind of any of its names, and with `/NAME` behind it also the object.

    Raises:
        click.BadParameter: no kind has the name.
    """
    if value is None:
        return ""
    kind, slash, name = value.partition("/")
    known = _BY_NAME.get(kind.lower())
    if known is None:
        from netdra.model import suggestions

        raise click.BadParameter(f'"{kind}" has no story; {suggestions.hint(kind, tuple(_ALSO), "kinds:")}')
    return f"{known}{slash}{name}"


def _kinds(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [kind for kind in _ALSO if kind.startswith(incomplete)]


class Subject(NamedTuple):
    """The object of the story; `place` is its namespace, or its node."""

    kind: str
    place: str
    name: str

    def story(self, cluster: ClusterState) -> Story:
        """The story of the object; a missing object has a story too, with the error as its cause."""
        from netdra.story.overview import object_story

        return object_story(cluster, self.kind, self.place, self.name)


class StorySource(NamedTuple):
    """Where the objects of a story are read: a cluster, or a support bundle in its place."""

    cluster: ClusterAccess
    bundle: RecordedClient | None

    def namespace(self) -> str:
        """The namespace of names without one: that of the context in which the command runs, or wrote the bundle.

        Raises:
            InvalidInputError: the cluster cannot be found.
        """
        return self.cluster.config().namespace if self.bundle is None else self.bundle.manifest.namespace

    def client(self) -> Client:
        """Reads the objects, to be entered.

        Raises:
            InvalidInputError: the cluster cannot be found.
        """
        return self.cluster.client() if self.bundle is None else self.bundle

    async def read(self, client: Client, scope: Scope) -> ClusterState:
        """The objects, with a note on those that the bundle's limit left out."""
        import msgspec

        from netdra.cluster import reading

        cluster = await reading.read(client, scope)
        left_out = {} if self.bundle is None else self.bundle.left_out
        return msgspec.structs.replace(cluster, unread={**cluster.unread, **left_out})


def _source(cluster: ClusterAccess, path: Path | None, mapping: Path | None) -> StorySource:
    """The cluster, or the bundle that takes its place.

    Raises:
        click.UsageError: options contradict each other.
        InvalidInputError: the bundle cannot be read.
    """
    if path is None and mapping is not None:
        raise click.UsageError("--mapping belongs to an anonymous bundle: specify --bundle")
    if path is None:
        return StorySource(cluster, None)
    if cluster.is_given:
        raise click.UsageError("--bundle takes the place of a cluster: omit --kubeconfig and --context")
    from netdra.bundle import recorded

    return StorySource(cluster, recorded.read_cluster(path, mapping))


@click.command(name="why")
@click.argument("kind", required=False, callback=_kind, shell_complete=_kinds)
@click.argument("name", required=False)
@click.option("--namespace", "-n", metavar="NAME", help="The namespace; by default the context's.")
@click.option("--all-namespaces", "-A", is_flag=True, help="Without KIND: all namespaces.")
@shared.cluster()
@shared.option("--bundle", "FILE", "Read a support bundle in place of a cluster.", "bundle_path", type=shared.PATH)
@shared.option(
    "--mapping",
    "FILE",
    "The mapping of an anonymous bundle: names are given and printed as in the cluster.",
    "mapping_path",
    type=shared.PATH,
)
@click.option("--watch", is_flag=True, help="Print the story again when it has changed, until Ctrl-C.")
@shared.output("text", "json", "yaml")
def command(
    kind: str,
    name: str | None,
    namespace: str | None,
    all_namespaces: bool,
    cluster: ClusterAccess,
    bundle_path: Path | None,
    mapping_path: Path | None,
    watch: bool,
    output: str,
) -> None:
    """Show why a pod, claim, device, topology or PodNetwork does not work: the cause first, then the whole story.

    Without KIND, all that is in trouble is shown, by its cause, the cause of the most objects first: the pods of the
    namespace, the topologies and the PodNetworks. For a deployment, statefulset, daemonset, replicaset or job, only its
    pods are.

    KIND is pod, claim, device, topology or network, or another name that kubectl takes (po, resourceclaim, pnet ...).
    NAME is [NAMESPACE/]NAME of a pod, a claim or a workload, NODE/NAME of a device or an interface, and NAME of a
    topology or a PodNetwork (network). KIND/NAME is one argument, as for kubectl.

    The first line is the object's state, the second the cause, the third the next step. Then follows each step in its
    order: the claims, the scheduler's decision and why devices do not fit, the allocation, ports, preparation, each
    step in the pod with its addresses, drift, and the last events. The cluster is read with your rights; kinds that
    you cannot read are listed, and the rest is shown. Nothing is written.

    With --bundle, the answer is that of the cluster at the time when `netdra support-bundle` wrote the file.

    The exit code is 1 if the story has an error.
    """
    kind, _, joined = kind.partition("/")
    if all_namespaces and (kind or namespace):
        raise click.UsageError("--all-namespaces is for netdra why without KIND and --namespace")
    if kind and bool(joined) == (name is not None):
        raise click.UsageError(f"specify the name of one {kind}: {_FORMS[kind]}")
    is_of_many = not kind or kind in _WORKLOADS
    if watch and is_of_many:
        raise click.UsageError("--watch follows one object: specify its kind and name")
    if watch and bundle_path is not None:
        raise click.UsageError("--watch follows a cluster, and a bundle does not change: omit --watch")
    source = _source(cluster, bundle_path, mapping_path)
    if kind:
        subject = _subject(kind, name or joined, namespace, source)
    else:
        subject = Subject("", "" if all_namespaces else namespace or source.namespace(), "")
    if is_of_many:
        _show_overview(source, subject, output)
        return
    try:
        story = shared.run(_follow(source, subject, output, watch=watch))
    except KeyboardInterrupt:
        if not watch:
            raise
        return
    if not story.is_fine:
        sys.exit(1)


def _subject(kind: str, name: str, namespace: str | None, source: StorySource) -> Subject:
    place, slash, last = name.rpartition("/")
    if not last or "/" in place or (slash and not place):
        raise InvalidInputError(f'"{name}" is not a valid name of a {kind}', hint=_FORMS[kind], code="ND4067")
    if kind in CLUSTER_WIDE and place:
        raise InvalidInputError(
            f'{CLUSTER_WIDE[kind]} "{name}": the kind has no namespace', hint=_FORMS[kind], code="ND4068"
        )
    if kind == "device" and not place:
        raise InvalidInputError(f'device "{name}": the node is required', hint=_FORMS[kind], code="ND4069")
    if kind in ("pod", "claim", *_WORKLOADS):
        if place and namespace and place != namespace:
            raise InvalidInputError(
                f'"{name}" is not in namespace "{namespace}"', hint="give one namespace", code="ND4070"
            )
        place = place or namespace or source.namespace()
    return Subject(kind, place, last)


_FORMS = {
    "pod": "write [NAMESPACE/]NAME",
    "claim": "write [NAMESPACE/]NAME",
    "device": "write NODE/NAME, e.g. worker-1/enp3s0f0v2",
    "topology": "write its name",
    "network": "write the name of the PodNetwork",
    **dict.fromkeys(_WORKLOADS, "write [NAMESPACE/]NAME"),
}


def _show_overview(source: StorySource, of: Subject, output: str) -> None:
    """Print the causes of all pods of a workload, of a namespace, or of all namespaces: a subject without a place."""
    from netdra.cluster import reading
    from netdra.story.overview import overview

    async def read() -> Overview:
        async with source.client() as client:
            cluster = await source.read(client, reading.Scope(namespace=of.place, every=True))
            if not of.kind:
                subject = f"Namespace {of.place}" if of.place else "The cluster"
                return overview(cluster, subject, cluster.pods, whole=True)
            pods = await reading.pods_of(client, of.kind, of.place, of.name, cluster)
            return overview(cluster, f"{of.kind.capitalize()} {of.place}/{of.name}", pods, whole=False)

    found = shared.run(read())
    if output == "text":
        click.echo(terminal.printable("\n".join(_overview_lines(found))))
    else:
        terminal.print_data(found, output)
    if not found.is_fine:
        sys.exit(1)


def _overview_lines(found: Overview) -> Iterator[str]:
    from netdra.model.suggestions import listed

    checked = f"{found.examined} of {found.pods} pods with claims were checked"
    if not found.troubles:
        yield f"{found.subject}: no problem was found; {checked}."
    else:
        affected = sum(len(trouble.subjects) for trouble in found.troubles)
        yield f"{found.subject}: {affected} objects have a problem; {checked}."
    for trouble in found.troubles:
        yield ""
        subjects, cause = trouble.subjects, trouble.cause
        yield f"{_MARKS[cause.severity]} {_one_line(cause.coded)}"
        if cause.next_step:
            yield f"  Next: {_one_line(cause.next_step)}"
        yield f"  Affects {listed(subjects, _SHOWN)}"
    if found.unread:
        yield ""
        yield from (f"Not read: {text}" for text in found.unread)


async def _follow(source: StorySource, subject: Subject, output: str, *, watch: bool) -> Story:
    """Print the story, and with `watch` each further one that differs."""
    from netdra.cluster import reading, watching

    scope = reading.scope_of(subject.kind, subject.place, subject.name)
    former = None
    async with source.client() as client:
        while True:
            since = await watching.versions(client, scope) if watch else ()
            story = subject.story(await source.read(client, scope))
            if story != former:
                show(story, output, again=former is not None)
                sys.stdout.flush()
            if not watch:
                return story
            former = story
            await watching.wait_change(client, since)


def show(story: Story, output: str, *, again: bool = False) -> None:
    """Print a story in one of the output formats; `again` separates it from the one before."""
    if output == "text":
        if again:
            click.echo()
        click.echo(terminal.printable("\n".join(lines(story))))
    elif output == "yaml":
        if again:
            click.echo("---")
        terminal.print_data(story, output, apart=False)
    else:
        terminal.print_data(story, output)


def lines(story: Story) -> Iterator[str]:
    """A story in lines: the state, the cause, the next step; then every statement."""
    yield f"{story.subject} {story.state}."
    if story.cause is None:
        yield "No problem was found."
    else:
        yield f"{'Cause' if not story.is_fine else 'Warning'}: {_one_line(story.cause.coded)}"
        yield f"Next: {_one_line(story.cause.next_step)}" if story.cause.next_step else "Next: see the story below"
    yield ""
    for statement in story.statements:
        yield from _statement(statement, story.subject)
    if story.unread:
        yield ""
        yield from (f"Not read: {text}" for text in story.unread)


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def _statement(statement: Statement, subject: str) -> Iterator[str]:
    about = "" if statement.object == subject else f"{statement.object}: "
    yield f"{statement.time:<{_TIME_WIDTH}}  {_MARKS[statement.severity]} {about}{_one_line(statement.coded)}"
    indent = " " * (_TIME_WIDTH + 4)
    for line in statement.details:
        yield f"{indent}{'; '.join(line.splitlines())}"
    if statement.next_step and statement.is_problem:
        yield f"{indent}Next: {_one_line(statement.next_step)}"
