"""The names of the interfaces that a pod's steps make, settled before anything runs (decision D8).

`assign` gives every step of all topologies of one pod its interface, which becomes CNI_IFNAME. A device's interface is
net1, net2 … unless its config names it. A derived step that makes an interface is named by `config.name`; a step that
changes an interface takes that interface's name from `config.dev` or from its dependencies. Called by `bind` for a
pod's claims, and by the checks for a topology alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from netdra.model import texts
from netdra.model.findings import Finding, Path, about, quoted, refuse
from netdra.model.names import MAX_IF_NAME
from netdra.model.plan import Plan, PlannedStep
from netdra.model.topology import WITHOUT_NETDEV, Step
from netdra.topology import references
from netdra.topology.graph import Graph
from netdra.topology.references import Reference
from netdra.topology.values import ConfigError

MAKERS = frozenset({
    "bond", "bridge", "device-file", "dummy", "host-device", "ib-sriov", "ipoib", "ipvlan", "macvlan",
    "ovn-k8s-cni-overlay", "ovs", "ptp", "rdma", "sriov", "tap", "vfio-pci", "vlan",
})  # fmt: skip
"""Types that bring an interface of their own even when they come after others; all others change what is there."""

_NO_MAKERS = frozenset({"rdma (Binary)"})
"""Programs that make no interface, though netdra's own step of that type does."""

PREDICTABLE = MAKERS | {"bandwidth", "firewall", "portmap", "sbr", "tuning", "vrf"}
"""Types that make no interface that their step does not name."""

DEFAULT_NAMES: Mapping[str, str] = {"bond": "bond0"}
"""The names of interfaces that their steps do not name, by type; others are numbered."""

# "all" and "default" are directories beside the interfaces' under /proc/sys/net (net/ipv4/devinet.c refuses them too).
_TAKEN = frozenset({"lo", "eth0", "all", "default", ".", ".."})
# Signs that dev_valid_name() of net/core/dev.c refuses, and %, which it replaces by a number.
_NEVER = frozenset("/:%")


class Steps(Protocol):
    """The steps of a topology whose interfaces are named: of its graph, or of a plan."""

    @property
    def topology(self) -> str:
        """The topology's name."""

    @property
    def steps(self) -> Sequence[Step | PlannedStep]:
        """In the order in which they run."""

    @property
    def ancestors(self) -> Mapping[str, frozenset[str]]:
        """Step -> all steps that it depends on, directly or not."""

    def about(self, step: str, what: str, *, hint: str = "", path: Path = (), code: str = "") -> Finding:
        """A finding about one of the steps."""


class _PlanSteps:
    """The steps of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.topology, self.steps = plan.topology, plan.steps
        self.ancestors: dict[str, frozenset[str]] = {}
        for step in plan.steps:
            self.ancestors[step.name] = frozenset(step.depend_on).union(*(self.ancestors[at] for at in step.depend_on))

    def about(self, step: str, what: str, *, hint: str = "", path: Path = (), code: str = "") -> Finding:
        place = next(at for at, entry in enumerate(self.steps) if entry.name == step)
        return about(self.topology, step, what, hint=hint, path=("steps", place, *path), code=code)


def compose(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """The plans of all claims of one pod, with interfaces that are numbered over all of them.

    Each claim was bound alone, so its devices are net1, net2 …, independent of other claims of the pod.

    Raises:
        InvalidInputError: interfaces of two claims have one name.
    """
    named = assign([_PlanSteps(plan) for plan in plans])
    replace = msgspec.structs.replace
    return tuple(
        replace(plan, steps=tuple(replace(step, if_name=interfaces[step.name]) for step in plan.steps))
        for plan, interfaces in zip(plans, named, strict=True)
    )


def assign(graphs: Sequence[Steps]) -> tuple[dict[str, str], ...]:
    """The interface of each step, for every graph of one pod in the order in which its claims name them.

    Raises:
        InvalidInputError: a name cannot be an interface's, is not known before the steps run, or is given twice.
    """
    named, findings = examine(graphs)
    refuse(findings)
    return named


def examine(graphs: Sequence[Steps]) -> tuple[tuple[dict[str, str], ...], tuple[Finding, ...]]:
    """As `assign`, but returns the errors beside the names instead of raising them."""
    given = (step.config.get("name") for graph in graphs for step in graph.steps)
    numbers = _numbers({name for name in given if isinstance(name, str)})
    named: tuple[dict[str, str], ...] = tuple({} for _ in graphs)
    findings: list[Finding] = []
    # All devices come first: a derived step of the first claim must not take a number from a device of the second.
    for roots in (True, False):
        for graph, names in zip(graphs, named, strict=True):
            for step in (step for step in graph.steps if step.is_root is roots):
                path: Path = ("config", _key(step) or "name")
                try:
                    names[step.name], problem = _named(step, names, named, numbers)
                except ConfigError as error:
                    names[step.name], problem = next(numbers), ""
                    findings.append(graph.about(step.name, error.what, hint=error.hint, path=path, code=error.code))
                if problem:
                    findings.append(graph.about(step.name, problem, path=path, code="ND1291"))
    return named, tuple(findings or (*_clashes(graphs, named), *_masters(graphs, named)))


def _named(
    step: Step | PlannedStep, names: Mapping[str, str], named: Sequence[Mapping[str, str]], numbers: Iterator[str]
) -> tuple[str, str]:
    """The name of a step's interface, and the error in it.

    Raises:
        ConfigError: the config does not show the name.
    """
    if open_ := _open(step):
        return _apart(open_, step, named), _never_fits(open_)
    given_name = _given(step, names)
    # The name of another step is an error of that step, and is not reported again.
    is_own = bool(given_name) and "{{" not in step.config[_key(step)]
    name = given_name or _default(step, names) or next(numbers)
    return name, unfit(given_name) if is_own and not is_open(given_name) else ""


def makes_interface(step: Step | PlannedStep) -> bool:
    """Whether a step brings an interface of its own even when it comes after others."""
    return step.type in MAKERS and step.plugin not in _NO_MAKERS


def has_interface(step: Step) -> bool:
    """Whether the pod has an interface of a step's name; otherwise the name only identifies the step's result."""
    return step.type not in WITHOUT_NETDEV and (step.plugin != "rdma" or step.is_root)


def text_with_names(text: str, names: Mapping[str, str]) -> str | None:
    """A text with its references to interface names replaced, or None if it depends on results of running steps.

    Raises:
        BadReferenceError: a text in braces is not a reference.
    """
    parts = references.parse(text)
    if any(isinstance(part, Reference) and part.field != "interfaceName" for part in parts):
        return None
    return "".join(names.get(part.step, "") if isinstance(part, Reference) else part for part in parts)


def foreseen(steps: Sequence[PlannedStep]) -> dict[Reference, Any]:
    """The parts of the steps' results that are known before anything runs, by reference.

    These are the names of interfaces, the allocated PCI address, if the plan has it, and the static addresses of a step
    that comes after no other. The interface of a result is its last one: a step that changes another interface passes
    that interface on.
    """
    values: dict[Reference, Any] = {}
    for step in steps:
        name: Any = step.if_name
        if step.depend_on and not makes_interface(step):
            passed = {values.get(Reference(before, "interfaceName")) for before in step.depend_on}
            name = passed.pop() if len(passed) == 1 and step.type in PREDICTABLE else None
        if name:
            values[Reference(step.name, "interfaceName")] = name
        if step.device is not None and step.device.own_pci_address:
            values[Reference(step.name, "pciAddress")] = step.device.own_pci_address
        static = step.port.settings.addresses if step.port is not None else _static(step.config)
        for number, address in enumerate(() if step.depend_on else static):
            values[Reference(step.name, "ips", number)] = address
    return values


def _static(config: Mapping[str, Any]) -> list[str]:
    """The addresses that IPAM will put on the interface, up to the first that is not in plain words."""
    ipam = config.get("ipam")
    if not isinstance(ipam, Mapping) or ipam.get("type") != "static" or config.get("args"):
        return []
    listed = ipam.get("addresses")
    addresses: list[str] = []
    for entry in listed if isinstance(listed, list | tuple) and not config.get("runtimeConfig") else ():
        text = entry.get("address") if isinstance(entry, Mapping) else None
        if not isinstance(text, str) or not texts.fits(text, "cidr"):
            break
        addresses.append(str(ipaddress.ip_interface(text)))
    return addresses


def last_maker(graph: Graph, step: Step) -> str:
    """The step whose interface is the last one in a step's previous result, "" where the graph does not show it.

    Steps that change interfaces pass on their previous result.
    """
    steps = {step.name: step for step in graph.steps}
    while len(step.depend_on) == 1:
        step = steps[step.depend_on[0]]
        if step.is_root or makes_interface(step):
            return step.name
        if step.type not in PREDICTABLE:
            return ""
    return ""


def unfit(name: str) -> str:
    """Why a name cannot be that of a new interface in a pod, or ""."""
    if len(name.encode(errors="replace")) > MAX_IF_NAME:
        return f"interface name {quoted(name)} is longer than {MAX_IF_NAME} bytes; shorten config.name"
    if name in _TAKEN:
        return f"interface name {quoted(name)} is not free in a pod; use another config.name"
    if not name.isascii() or not name.isprintable() or " " in name or _NEVER.intersection(name):
        return f"interface name {quoted(name)} has a sign that the kernel or a reader would take for something else"
    return ""


def _open(step: Step | PlannedStep) -> str:
    """A name in a config that holds a fact, which only binding shows; "" for other names."""
    text = step.config.get(_key(step)) if _key(step) else None
    parts = references.parse(text) if isinstance(text, str) else ()
    has_fact = any(isinstance(part, Reference) and part.fact is not None for part in parts)
    return str(text) if has_fact else ""


def _apart(text: str, step: Step | PlannedStep, named: Sequence[Mapping[str, str]]) -> str:
    """A name with facts in it as it is shown: two steps with the same text do not have the same interface."""
    taken = {name for names in named for name in names.values()}
    shown = (text, f"{text} ({step.name})", *(f"{text} ({step.name}, {at})" for at in range(2, len(taken) + 3)))
    return next(name for name in shown if name not in taken)


def is_open(name: str) -> bool:
    """Whether an interface's name holds facts that are not known yet."""
    return "{{" in name


def _never_fits(text: str) -> str:
    """Why a name with facts cannot be an interface's, with any values of these, or ""."""
    literal = "".join(part if isinstance(part, str) else "1" for part in references.parse(text))
    if len(literal.encode(errors="replace")) > MAX_IF_NAME:
        return f"interface name {quoted(text)} is longer than {MAX_IF_NAME} bytes with any value; shorten config.name"
    return unfit(literal).replace(quoted(literal), quoted(text))


def _numbers(given: set[str]) -> Iterator[str]:
    """net1, net2 … without the names that configs give; a `dev` only refers to an interface and gives none."""
    count = 0
    while True:
        count += 1
        if f"net{count}" not in given:
            yield f"net{count}"


def _keys(step: Step | PlannedStep) -> tuple[str, ...]:
    """The keys of a config that may name the step's interface."""
    return ("name",) if step.is_root or makes_interface(step) else ("dev", "name")


def _key(step: Step | PlannedStep) -> str:
    return next((key for key in _keys(step) if step.config.get(key) is not None), "")


_KINDS: Mapping[type, str] = {
    list: "a list",
    dict: "an object",
    int: "a number",
    float: "a number",
    bool: "true or false",
}


def _given(step: Step | PlannedStep, names: Mapping[str, str]) -> str:
    """The name that the config gives, or ""."""
    key = _key(step)
    if not key:
        return ""
    text = step.config[key]
    if not isinstance(text, str):
        is_several = isinstance(text, list | tuple | dict)
        hint = "write one name" if is_several else "put it in quotes, or write text beside the reference"
        kind = _KINDS.get(type(text), type(text).__name__)
        raise ConfigError(f"config.{key} is {kind}, not an interface's name", hint=hint, code="ND1292")
    name = text_with_names(text, names)
    if not name:
        raise ConfigError(
            f"config.{key} {quoted(text)} is not known before the steps run; "
            "write text and {{ step.interfaceName }} only",
            code="ND1293",
        )
    return name


def _default(step: Step | PlannedStep, names: Mapping[str, str]) -> str:
    """The interface's name without a name in the step's config, or "" if it is to be numbered."""
    if step.is_root:
        return ""
    return DEFAULT_NAMES.get(step.type, "") if makes_interface(step) else names[step.depend_on[-1]]


def _clashes(graphs: Sequence[Steps], named: Sequence[Mapping[str, str]]) -> Iterator[Finding]:
    """Interfaces that two steps make, and steps that change an interface before it is there, or one that never is."""
    owners: dict[str, tuple[str, str]] = {}
    changes: list[tuple[Steps, Step | PlannedStep, str]] = []
    for graph, names in zip(graphs, named, strict=True):
        for step in graph.steps:
            name = names[step.name]
            if is_open(name) and (step.is_root or makes_interface(step) or "dev" in step.config):
                owners.setdefault(name, (graph.topology, step.name))
            elif not _makes(step, name, {names[ancestor] for ancestor in graph.ancestors[step.name]}):
                changes.append((graph, step, name))
            elif name in owners:
                topology, other = owners[name]
                where = "" if topology == graph.topology else f' of NetworkTopology "{topology}"'
                what = f'interface "{name}" is also that of step "{other}"{where}'
                hint = "give one of them another config.name"
                yield graph.about(step.name, what, hint=hint, path=("config", "name"), code="ND1294")
            else:
                owners[name] = (graph.topology, step.name)
    for graph, step, name in changes:
        topology, owner = owners.get(name, (graph.topology, ""))
        may_be = any(map(is_open, owners)) or any(other.type not in PREDICTABLE for other in graph.steps)
        if not owner and not may_be:
            made = ", ".join(sorted(owners)) or "none"
            yield graph.about(
                step.name,
                f'changes interface "{name}", which no step makes',
                hint=f'the steps\' interfaces are {made}: name one as "{{{{ step.interfaceName }}}}"',
                path=("config", _key(step)),
                code="ND1295",
            )
        elif owner and (topology != graph.topology or owner not in graph.ancestors[step.name]):
            what = f'changes interface "{name}" of step "{owner}", which may not have run by then'
            yield graph.about(
                step.name, what, hint=f'add "{owner}" to dependOn', path=("config", _key(step)), code="ND1296"
            )


def _masters(graphs: Sequence[Steps], named: Sequence[Mapping[str, str]]) -> Iterator[Finding]:
    """VLANs on an interface of the pod that no step makes, and that is not the pod's first."""
    made = {name for names in named for name in names.values()}
    listed = ", ".join(sorted(made))
    if any(map(is_open, made)):
        return
    for graph, names in zip(graphs, named, strict=True):
        if any(step.type not in PREDICTABLE for step in graph.steps):
            continue
        for step in graph.steps:
            text = step.config.get("master")
            if step.plugin != "vlan" or step.is_root or not isinstance(text, str):
                continue
            try:
                master = text_with_names(text, names)
            except ConfigError:
                continue  # the check of references reports it
            if master and master not in made and master not in _TAKEN:
                yield graph.about(
                    step.name,
                    f'stands on interface "{master}", which no step makes',
                    hint=f'the steps\' interfaces are {listed}: name one as "{{{{ step.interfaceName }}}}"',
                    path=("config", "master"),
                    code="ND1297",
                )


def _makes(step: Step | PlannedStep, name: str, ancestors: set[str]) -> bool:
    """Whether the step makes the interface, or changes one that its ancestors made."""
    return step.is_root or makes_interface(step) or (name not in ancestors and "dev" not in step.config)
