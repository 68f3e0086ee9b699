"""`netdra support-bundle`: netdra's view of a cluster or of a node in one file, for people who help."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from netdra import __version__
from netdra.cli import shared, terminal
from netdra.doctor import node_look, node_verdicts
from netdra.model.errors import NetdraError
from netdra.model.meta import time_text

if TYPE_CHECKING:
    from netdra.bundle.anonymity import Anonymizer
    from netdra.bundle.content import Collected

_MOST = 64
_MOST_MIB = 1024


class BundleOptions(NamedTuple):
    """How a bundle is written.

    Attributes:
        anonymous: whether names and addresses are replaced.
        mapping_path: the file for the names behind the pseudonyms.
        most: its size before the compression, in MiB.
    """

    anonymous: bool
    mapping_path: Path | None
    most: int


@click.command(name="support-bundle")
@click.argument("file", metavar="FILE|-")
@click.option("--node", "is_node", is_flag=True, help="The bundle of this node, without objects of the cluster.")
@shared.group(
    "options",
    BundleOptions,
    click.option("--anonymize", "anonymous", is_flag=True, help="Replace names and addresses by made-up ones."),
    shared.option(
        "--mapping",
        "FILE",
        "With --anonymize: keep the names behind the made-up ones in this file; an existing file is continued.",
        "mapping_path",
        type=shared.PATH,
    ),
    shared.option(
        "--most", "MIB", "The size of all files before compression.", type=click.IntRange(1, _MOST_MIB), default=_MOST
    ),
)
@shared.cluster()
@shared.namespace
@shared.name
@shared.places(node_look.Places, "With --node: the node's root filesystem.")
def command(
    file: str,
    is_node: bool,
    options: BundleOptions,
    cluster: shared.ClusterAccess,
    namespace: str,
    name: str,
    places: node_look.Places,
) -> None:
    """Write a support bundle to FILE ("-" is standard output): a tar.gz with JSON and text files, and a manifest.

    Of the cluster it contains the objects that `netdra why` reads, the result of `netdra doctor`, events, versions, and
    the logs and metrics of netdra's pods. It is read with your rights; the parts that you are not allowed to read are
    printed and listed in the manifest. Secrets, environments, command lines, annotations and logs of other programs are
    never part of it. Nothing is written to the cluster.

    With --anonymize, names, namespaces, addresses, MAC addresses and uids are replaced, each by the same pseudonym
    everywhere, so that the bundle still leads to the same cause.

    \b
    Examples:
      netdra support-bundle bundle.tar.gz
      netdra support-bundle bundle.tar.gz --anonymize --mapping names.json
      netdra why --bundle bundle.tar.gz pod apps/db-0
      netdra why --bundle bundle.tar.gz --mapping names.json pod apps/db-0
      kubectl -n netdra exec ds/netdra-node -- netdra support-bundle - --node --host-root /proc/1/root > node.tar.gz
    """  # noqa: D301 (click keeps the lines of a paragraph that begins with this character)
    from netdra.bundle import mapping
    from netdra.bundle.anonymity import Anonymizer

    if options.mapping_path is not None and not options.anonymous:
        raise click.UsageError("--mapping keeps the names of an anonymous bundle: specify --anonymize")
    if is_node and cluster.is_given:
        raise click.UsageError("--node reads this machine alone: omit --kubeconfig and --context")
    known = options.mapping_path is not None and options.mapping_path.exists()
    existing = mapping.read_file(options.mapping_path) if known and options.mapping_path is not None else None
    anonymizer = Anonymizer(existing) if options.anonymous else None
    collected = _of_node(places) if is_node else _of_cluster(cluster, namespace, name)
    _write(file, "node" if is_node else "cluster", collected, anonymizer, options)


def _of_cluster(access: shared.ClusterAccess, namespace: str, name: str) -> Collected:
    from netdra.cli import support_objects
    from netdra.cli.doctor import examine_cluster

    context = access.config().namespace
    with terminal.progress("Reading the cluster", len(support_objects.KINDS) + 2, "parts") as done:
        collected = support_objects.read_cluster(access.client(), namespace, done)
        collected.data["doctor.json",] = examine_cluster(access, namespace, name)
        done()
    collected.namespace = context
    return collected


def _of_node(places: node_look.Places) -> Collected:
    """The state of this node's driver and pods, its interfaces, and the result of `netdra doctor` for it."""
    from netdra.bundle.archive import LeftOut
    from netdra.bundle.content import Collected
    from netdra.chain import checkpoint
    from netdra.discovery.scan import scan
    from netdra.node.claims.store import ClaimStore
    from netdra.ops import probe

    collected, state = Collected(), places.at(places.state_dir)
    with terminal.progress("Reading the node", 5, "parts") as done:
        collected.data["doctor.json",] = node_verdicts.verdicts(node_look.look(places))
        done()
        try:
            collected.data["inventory.json",] = scan()
        except NetdraError as problem:
            collected.left_out.append(LeftOut(part="inventory.json", reason=problem.what))
        done()
        try:
            saved, bad = checkpoint.load_all(state / "sandboxes")
            for entry in saved:
                collected.data["checkpoints", f"{entry.header.pod.sandbox}.json"] = entry
            collected.left_out += [LeftOut(part=f"checkpoints/{path.name}", reason=why.what) for path, why in bad]
        except NetdraError as problem:
            collected.left_out.append(LeftOut(part="checkpoints", reason=problem.what))
        done()
        try:
            prepared, unreadable = ClaimStore.of_state(state).read_all()
            for record in prepared:
                collected.data["claims", f"{record.claim.uid}.json"] = record
            collected.left_out += [LeftOut(part=f"claims/{path.name}", reason=why) for path, why in unreadable]
        except NetdraError as problem:
            collected.left_out.append(LeftOut(part="claims", reason=problem.what))
        done()
        # A driver that is not ready answers with the reasons, and another status.
        _, collected.texts["ready.txt",] = probe.ask(probe.PATHS["ready"], probe.SOCKET)
        answers, text = probe.ask("/metrics", probe.SOCKET)
        if answers:
            collected.texts["metrics.txt",] = text
        else:
            collected.left_out.append(LeftOut(part="metrics.txt", reason=text))
        done()
    return collected


def _write(file: str, of: str, collected: Collected, anonymizer: Anonymizer | None, options: BundleOptions) -> None:
    from netdra.bundle import archive, mapping
    from netdra.bundle.content import content

    made = content(collected, anonymizer, options.most * archive.MIB)
    manifest = archive.Manifest(
        bundle=archive.VERSION,
        netdra=__version__,
        created=time_text(datetime.now(UTC)),
        of=of,
        anonymized=options.anonymous,
        namespace=made.namespace,
        left_out=made.left_out,
    )
    packed = archive.pack(manifest, made.files)
    if anonymizer is not None and options.mapping_path is not None:
        mapping.write_file(options.mapping_path, anonymizer.mapping)
    if file == "-":
        sys.stdout.buffer.write(packed)
    else:
        mapping.write_private(Path(file), packed)
    for entry in made.left_out:
        terminal.tell(f"left out: {entry.part}: {entry.reason}")
    unpacked = sum(map(len, made.files.values()))
    terminal.tell(f"{len(made.files)} files, {len(packed) / 1024:.0f} KiB, {unpacked / 1024:.0f} KiB unpacked")
