"""Which programs of the CNI path topologies may run: the node's list, and the meaning of its word `default`.

Decision D66. Asked by `netdra.rules.confine` for plans, by the node for the programs that it asks for their version,
and by the controller and `netdra doctor` for topologies that are stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from netdra.model import suggestions
from netdra.model.findings import Finding, Path, within
from netdra.model.policy import DeviceExposurePolicy, Exposure
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import BUILTIN_TYPES, NetworkTopology, described
from netdra.rules import shipped
from netdra.rules.contract import Contract, examine
from netdra.topology import needed

ANY_PLUGIN = "*"
"""In a node's list: every program."""
DEFAULT = "default"
"""In a node's list: the plugins of the default list. A list without entries is the default list, too."""
IPAM_TYPES = frozenset({"dhcp", "host-local", "static", "whereabouts"})
"""The IPAM plugins that docs/ipam.md describes: they give addresses, and change nothing of the node's network."""
RULE = (
    "the default list contains the programs of netdra's own types, the IPAM plugins "
    f"{', '.join(sorted(IPAM_TYPES))}, and plugins that a DeviceExposurePolicy "
    "(exposure.supportedCNIPlugins) or a CNIPluginSchema of the cluster lists"
)

Contracts = Mapping[str, Sequence[Contract]]
"""By plugin, the contracts whose formats count: the shipped one, and the user's own."""


class NamedPlugins:
    """The plugins that policies name (`exposure.supportedCNIPlugins`), kept current at the cost of the changes."""

    def __init__(self, policies: Iterable[DeviceExposurePolicy] = ()) -> None:
        """Begin with some policies."""
        self._policies: Counter[str] = Counter()
        for policy in policies:
            self.update(None, policy)

    @property
    def names(self) -> frozenset[str]:
        """The plugins that at least one policy names."""
        return frozenset(self._policies)

    def update(self, old: DeviceExposurePolicy | None, new: DeviceExposurePolicy | None) -> bool:
        """Take the change of a policy; returns whether `names` has changed."""
        before = self._policies.keys() & (_named(old) | _named(new))
        for name in _named(old):
            self._policies[name] -= 1
            if not self._policies[name]:
                del self._policies[name]
        self._policies.update(_named(new))
        return before != self._policies.keys() & (_named(old) | _named(new))


def _named(policy: DeviceExposurePolicy | None) -> set[str]:
    exposure = policy.spec.exposure if policy is not None else None
    return {plugin.name for plugin in (exposure or Exposure()).supported_cni_plugins}


def is_allowed(kind: str, contracts: Contracts, listed: Collection[str], named: Collection[str]) -> bool:
    """Whether the program of a type may be run.

    Args:
        kind: the type.
        contracts: as `netdra.rules.confine.contracts_of` finds them.
        listed: the node's list; if it is empty, the default list.
        named: the plugins that policies name.
    """
    if kind in listed or ANY_PLUGIN in listed:
        return True
    if listed and DEFAULT not in listed:
        return False
    ours, own = _described(kind, contracts)
    return own or (ours and (kind in BUILTIN_TYPES or kind in IPAM_TYPES or kind in named))


def why_not(kind: str, contracts: Contracts, listed: Collection[str]) -> Finding:
    """Why the program of a type may not be run, and the setting that allows it."""
    what = f'plugin "{kind}" is not allowed'
    if (
        meant := ""
        if any(_described(kind, contracts))
        else suggestions.closest(kind, sorted(BUILTIN_TYPES | IPAM_TYPES))
    ):
        return Finding(f"{what}: it does not have a CNIPluginSchema", f'did you mean "{meant}"?', code="ND1158")
    others = sorted(set(listed) or {DEFAULT}, key=lambda name: (name != DEFAULT, name))
    options = " ".join(f"--allow-plugin {name}" for name in (*others, kind))
    hint = f"set the chart's value node.allowPlugins to [{', '.join((*others, kind))}] (netdra node {options})"
    if DEFAULT not in others:
        return Finding(f"{what}: node.allowPlugins only contains {', '.join(others)}", hint, code="ND1159")
    if not any(_described(kind, contracts)):
        return Finding(
            f"{what}: it does not have a CNIPluginSchema", f"create a CNIPluginSchema for it, or {hint}", code="ND1160"
        )
    return Finding(f"{what}: {RULE}", hint, code="ND1161")


def check_topology(
    topology: NetworkTopology, schemas: Iterable[CNIPluginSchema], listed: Collection[str], named: Collection[str]
) -> tuple[Finding, ...]:
    """The programs of a stored topology that nodes do not run, each once.

    Args:
        schemas: the cluster's plugin schemas.
        listed: the nodes' list; if it is empty, the default list.
        named: the plugins that policies name.
    """
    named_in = (
        (kind, (at, *path)) for at, step in enumerate(topology.spec.steps) for kind, path in needed.run_by(step)
    )
    programs: dict[str, Path] = {}
    for kind, path in named_in:
        programs.setdefault(kind, path)
    contracts = contracts_of_types(programs, schemas)
    return tuple(
        finding
        for kind, path in sorted(programs.items())
        if not is_allowed(kind, contracts, listed, named)
        for finding in within([why_not(kind, contracts, listed)], "spec", "steps", *path)
    )


def contracts_of_types(kinds: Collection[str], schemas: Iterable[CNIPluginSchema]) -> dict[str, tuple[Contract, ...]]:
    """By type, the shipped contracts and those of a cluster's own schemas, without those that contradict themselves."""
    contracts = {kind: of_netdra for kind in kinds if (of_netdra := shipped.of_type(kind))}
    for schema in shipped.own_of(schemas):
        contract = _contract(schema) if schema.spec.cni_type in kinds else None
        if contract is not None:
            contracts[contract.cni_type] = (*contracts.get(contract.cni_type, ()), contract)
    return contracts


_MOST_COMPILED = 256
_compiled: dict[str, tuple[CNIPluginSchema, Contract | None]] = {}
"""By name, the schema that was compiled last, and its contract: each pod's start asks anew."""


def _contract(schema: CNIPluginSchema) -> Contract | None:
    """A schema's contract; None if it contradicts itself."""
    name = schema.metadata.name
    compiled = _compiled.get(name)
    if compiled is not None and compiled[0] is schema:
        return compiled[1]
    contract, findings = examine(schema)
    if len(_compiled) >= _MOST_COMPILED:
        _compiled.clear()
    _compiled[name] = (schema, None if findings else contract)
    return _compiled[name][1]


def _described(kind: str, contracts: Contracts) -> tuple[bool, bool]:
    """Whether netdra has a schema of the type's program, and whether the cluster has one of its own."""
    program, of_netdra = described(kind, is_builtin=False), shipped.of_type(kind)
    fitting = [contract for contract in contracts.get(kind, ()) if contract.plugin == program]
    is_shipped = [any(contract is entry for entry in of_netdra) for contract in fitting]
    return any(is_shipped), not all(is_shipped)
