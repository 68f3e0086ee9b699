"""What those who write topologies may have of this node: which plugins are run, and which of its folders they name.

Asked at Prepare and before a pod is attached (decision D31): what admission let through, because the webhook was away
or the node is stricter than others, is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from netdra.cni import hostpaths
from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.plan import Plan
from netdra.model.schema import CNIPluginSchema
from netdra.topology import confine, shipped
from netdra.topology.findings import refuse
from netdra.topology.schema_check import check_programs


@dataclass(frozen=True)
class NodePermits:
    """What this node allows.

    Attributes:
        plugins: the types of plugins that may be run, `*` for all; without any, those with a CNIPluginSchema.
        folders: the folders of the node that a plugin's config may name.
        root: the root of the file system that plugins see.
        schemas: the cluster's CNIPluginSchemas, or None while they are not known.
    """

    plugins: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    root: Path = Path("/")
    schemas: Callable[[], Iterable[CNIPluginSchema] | None] = tuple

    @property
    def described(self) -> frozenset[str]:
        """The plugins that the cluster's own schemas describe."""
        return frozenset(schema.spec.plugin for schema in shipped.own_of(self.schemas() or ()))

    def check(self, plans: Sequence[Plan]) -> None:
        """Refuse plans that name what their authors may not have.

        Raises:
            InvalidInputError: they do; the text says what, and which option of the node's driver allows it.
            TemporaryError: the cluster's schemas are not known yet, and one of them might allow it.
        """
        schemas = self.schemas()
        own = () if schemas is None else tuple(schemas)
        contracts = confine.contracts_of(plans, own)
        permits = confine.Permits(plugins=frozenset(self.plugins), allows=self._why_not)
        try:
            refuse((*confine.check(plans, contracts, permits, allocated=True), *check_programs(plans, own)))
        except InvalidInputError as problem:
            if schemas is not None:
                raise
            hint = "the cluster's CNIPluginSchemas are not read yet, and one might allow it"
            raise TemporaryError(problem.what, hint=hint) from None

    def _why_not(self, path: str) -> str:
        if hostpaths.lies_in(path, map(str, self.folders), str(self.root)):
            return ""
        allowed = ", ".join(map(str, self.folders))
        return f"this node allows only {allowed}" if allowed else "this node allows none"


EVERYTHING = NodePermits(plugins=(confine.ANY_PLUGIN,), folders=(Path("/"),))
"""For who is root on the node in any case."""
