"""The permissions of topologies' authors on this node: the plugins that it runs, and its folders that configs may name.

Asked at Prepare, and before a pod is attached if the answer may be another one by then (decisions D31, D52): a topology
that admission let through, because the webhook was away or the node is stricter than others, is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.findings import refuse
from netdra.model.plan import Plan, programs
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.node.settings import NodeSettings
from netdra.rules import confine, runnable
from netdra.rules.plans import CheckedPlans, check, permits_digest, schemas_digest
from netdra.rules.pod import check_plans

MAX_LINKS = 40
"""As many as the kernel follows (include/linux/namei.h, MAXSYMLINKS)."""


@dataclass(frozen=True)
class NodePermits:
    """The permissions of this node.

    Attributes:
        plugins: the list of plugins that may be run (`netdra.rules.runnable`); if empty, the default list.
        folders: the folders of the node that a plugin's config may name.
        root: the root of the file system that plugins see.
        schemas: the cluster's CNIPluginSchemas, or None while they are not known.
        run_plugins: whether plugins may be run at all.
        named: the plugins that policies name, or None while the policies are not known.
    """

    plugins: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    root: Path = Path("/")
    schemas: Callable[[], Iterable[CNIPluginSchema] | None] = tuple
    run_plugins: bool = True
    named: Callable[[], frozenset[str] | None] = frozenset

    def check(
        self,
        plans: Sequence[Plan],
        topologies: Iterable[NetworkTopology] = (),
        *,
        kept: frozenset[str] = frozenset(),
    ) -> CheckedPlans:
        """Check plans by all rules, and for plugins and folders that their authors may not use.

        Args:
            plans: of one claim or one pod.
            topologies: those that the plans were bound from.
            kept: plugins that count as named by a policy, because the plans were checked with them before.

        Raises:
            InvalidInputError: the plans break a rule; the text reports which, and which option of the node's driver
                allows a plugin or folder.
            TemporaryError: the cluster's schemas or policies are not known yet, and one of them might allow it.
        """
        schemas, named = self.schemas(), self.named()
        try:
            return check(plans, schemas or (), self.permits((named or frozenset()) | kept), topologies)
        except InvalidInputError as problem:
            if schemas is not None and named is not None:
                raise
            refuse(check_plans(plans))  # a rule that no schema and no policy changes
            unread = "CNIPluginSchemas" if schemas is None else "DeviceExposurePolicies"
            hint = f"the cluster's {unread} are not read yet, and one might allow it"
            raise TemporaryError(problem.what, hint=hint, code=problem.code) from None

    def confirm(self, checked: CheckedPlans) -> CheckedPlans:
        """Checked plans as they may be run now: checked again if the node's options or the cluster's schemas changed.

        While the schemas are not known, those of the record count: the API server may be down when a pod begins. As
        long as the options are the same, plugins that a policy named at Prepare count as named (decision D66).

        Raises:
            InvalidInputError, TemporaryError: as `check`.
        """
        schemas = self.schemas()
        has_same_schemas = schemas is None or checked.schemas == schemas_digest(schemas)
        has_same_options = checked.permits == self._permits_digest
        if has_same_schemas and has_same_options and not self._has_links:
            return checked
        return self.check(checked.plans, kept=programs(checked.plans) if has_same_options else frozenset())

    def may_run(self, plugin: str) -> bool:
        """Whether the program of a type may be run here, as far as the cluster's schemas are known."""
        return confine.is_runnable(plugin, self.permits(self.named() or frozenset()), self.schemas() or ())

    @cached_property
    def _permits_digest(self) -> str:
        return permits_digest(self.permits(frozenset()))

    @cached_property
    def _has_links(self) -> bool:
        """Whether a path that was allowed may lead elsewhere by now: a link may have been put into a folder."""
        return bool(self.folders) and Path("/") not in self.folders

    def permits(self, named: frozenset[str] = frozenset()) -> confine.Permits:
        """The permissions as the rules read them; `named` are the plugins that policies name."""
        return confine.Permits(
            plugins=frozenset(self.plugins),
            named=named,
            folders=tuple(map(str, self.folders)),
            allows=self._why_not,
            run_plugins=self.run_plugins,
        )

    def _why_not(self, path: str) -> str:
        if lies_in(path, map(str, self.folders), str(self.root)):
            return ""
        allowed = ", ".join(map(str, self.folders))
        return f"this node allows only {allowed}" if allowed else "this node allows none"


def permits_of(
    settings: NodeSettings,
    schemas: Callable[[], Iterable[CNIPluginSchema] | None],
    named: Callable[[], frozenset[str] | None] = frozenset,
) -> NodePermits:
    """The permissions from a driver's options, the cluster's schemas, and the plugins that policies name."""
    return NodePermits(
        settings.allow_plugins, settings.allow_host_paths, settings.cni_root, schemas, settings.run_plugins, named
    )


EVERYTHING = NodePermits(plugins=(runnable.ANY_PLUGIN,), folders=(Path("/"),))
"""For callers that are root on the node in any case."""


def lies_in(path: str, folders: Iterable[str], root: str = "/") -> bool:
    """Whether an absolute path is one of the folders or below one, links of both followed; False if that is unclear.

    Links are followed by hand in the root that plugins see, because what is below `/proc/1/root` has absolute links of
    its own, and because the last parts of a path may not be there yet: a plugin makes its folder.

    Args:
        path: the path in a plugin's config.
        folders: absolute paths.
        root: the root of the file system that plugins see.
    """
    real = resolved(path, root)
    if real is None:
        return False
    allowed = (resolved(folder, root) for folder in folders)
    return any(
        folder is not None and (real == folder or real.startswith(f"{folder.rstrip('/')}/")) for folder in allowed
    )


def resolved(path: str, root: str = "/") -> str | None:
    """The path without links and dots as a process with that root sees it; None if it has too many, or is relative."""
    if not path.startswith("/") or "\0" in path:
        return None
    parts, links, reached = path.split("/")[::-1], 0, ""
    while parts:
        part = parts.pop()
        if part in ("", "."):
            continue
        if part == "..":
            reached = reached.rpartition("/")[0]
            continue
        target = _link(f"{root.rstrip('/')}{reached}/{part}")
        if target is None:
            reached = f"{reached}/{part}"
            continue
        links += 1
        if links > MAX_LINKS:
            return None
        parts += target.split("/")[::-1]
        if target.startswith("/"):
            reached = ""
    return reached or "/"


def _link(path: str) -> str | None:
    """Where a symbolic link leads; None if none exists."""
    try:
        return str(Path(path).readlink())
    except OSError:
        return None
