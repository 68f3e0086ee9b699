"""A NetworkTopology compiled to a graph that can be run: the first thing that happens to every topology.

`compile_topology` checks all that can be known from the topology alone (names, dependencies, references, types) and
orders the steps. Everything after it (`interfaces`, `netdra.rules`, `classes`, `bind`) takes the `Graph` and relies
on it. Called at admission, by the controller, at Prepare and by the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from netdra.model import names, suggestions
from netdra.model.findings import Finding, Path, about, dotted, of_step, quoted, refuse
from netdra.model.topology import MAX_ROOTS, MAX_STEPS, DeclaredParameter, NetworkTopology, Step
from netdra.topology import facts, neutron_request, parameters, references, values
from netdra.topology.references import Reference
from netdra.topology.step_check import examine_step, shown_name
from netdra.topology.values import ConfigError

References = tuple[tuple[Path, Reference], ...]
"""References of a config, each with the path of its value."""


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """A topology with a valid structure; only `compile_topology` makes one.

    Attributes:
        topology: the topology's name.
        steps: in the order in which they run: ancestors first, and as declared among those that could run.
        levels: the same steps' names in groups; those of one group do not depend on each other.
        ancestors: step -> all steps that it depends on, directly or not.
        references: step -> the references to other steps in its config, with the value's path in the config.
        parameters: what claims may give, as declared.
        asked: step -> the references to parameters in it, with the value's path in the step.
        facts: step -> the references to facts in its config, with the value's path in the config.
        positions: step -> its place in `spec.steps`, for pointing at it.
    """

    topology: str
    steps: tuple[Step, ...]
    levels: tuple[tuple[str, ...], ...]
    ancestors: Mapping[str, frozenset[str]]
    references: Mapping[str, References]
    positions: Mapping[str, int]
    parameters: tuple[DeclaredParameter, ...] = ()
    asked: Mapping[str, References] = {}
    facts: Mapping[str, References] = {}

    @property
    def roots(self) -> tuple[Step, ...]:
        """The steps that are allocated devices, as declared."""
        return tuple(sorted((step for step in self.steps if step.is_root), key=lambda step: self.positions[step.name]))

    def roots_of(self, step: str) -> tuple[str, ...]:
        """The steps whose allocated devices a step stands on; a root step itself."""
        return tuple(root.name for root in self.roots if root.name == step or root.name in self.ancestors[step])

    def about(self, step: str, what: str, *, hint: str = "", path: Path = (), code: str = "") -> Finding:
        """A finding about one of the steps."""
        return about(
            self.topology, step, what, hint=hint, path=("spec", "steps", self.positions[step], *path), code=code
        )

    def of_step(self, step: str, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Findings about parts of a step, in which their paths begin, as findings about the topology."""
        return of_step(findings, self.topology, step, "spec", "steps", self.positions[step])


def compile_topology(topology: NetworkTopology) -> Graph:
    """The topology's graph.

    Raises:
        InvalidInputError: its structure is unsound; the text states everything that is wrong with it.
    """
    graph, findings = examine(topology)
    refuse(findings)
    assert graph is not None
    return graph


def examine(topology: NetworkTopology) -> tuple[Graph | None, tuple[Finding, ...]]:
    """The topology's graph, or all that is wrong with its structure and no graph."""
    name, steps = shown_name(topology.name), topology.spec.steps
    findings = [
        *_topology(topology),
        *parameters.examine(topology),
        *(finding for at, step in enumerate(steps) for finding in examine_step(name, at, step)),
    ]
    findings += _dependencies(name, steps)
    if findings:
        return None, tuple(findings)
    order = _order(steps)
    if len(order) < len(steps):
        return None, (_cycle(name, steps, order),)
    ancestors = _ancestors(order)
    by_step, findings = _references(name, steps, ancestors)
    requests, wrong = _requests(name, steps)
    asked = {
        step: (*((("config", *path), entry) for path, entry in every if entry.is_parameter), *requests.get(step, ()))
        for step, every in by_step.items()
    }
    findings += [*wrong, *_parameters(topology, asked)]
    if findings:
        return None, tuple(findings)
    graph = Graph(
        topology=name,
        steps=order,
        levels=_levels(order),
        ancestors=ancestors,
        references={step: tuple(entry for entry in every if entry[1].is_of_result) for step, every in by_step.items()},
        positions={step.name: at for at, step in enumerate(steps)},
        parameters=topology.spec.parameters,
        asked=asked,
        facts={step: tuple(entry for entry in every if entry[1].fact is not None) for step, every in by_step.items()},
    )
    wrong = [*_facts(graph)]
    return (None, tuple(wrong)) if wrong else (graph, ())


def _topology(topology: NetworkTopology) -> Iterator[Finding]:
    name, steps = topology.name, topology.spec.steps
    if not names.is_subdomain(name):
        yield Finding(
            what=f"NetworkTopology {quoted(name)}: the name is not a DNS subdomain",
            hint="use lower-case letters, digits, dashes and dots",
            path=("metadata", "name"),
            code="ND1278",
        )
    if not 1 <= len(steps) <= MAX_STEPS:
        yield Finding(
            what=f"NetworkTopology {quoted(name)}: {len(steps)} steps, of which there may be 1 to {MAX_STEPS}",
            path=("spec", "steps"),
            code="ND1279",
        )
    roots = [step for step in steps if step.is_root]
    if len(roots) > MAX_ROOTS:
        yield Finding(
            what=f"NetworkTopology {quoted(name)}: {len(roots)} root steps; a claim has up to {MAX_ROOTS} requests",
            hint="split it into two topologies",
            path=("spec", "steps"),
            code="ND1280",
        )
    if bare := [step.name for step in roots if not step.extended_resource_name]:
        for at, step in enumerate(steps):
            if step.extended_resource_name and step.is_root:
                yield about(
                    topology.name,
                    step.name,
                    "extendedResourceName: a pod that requests it gets no device for root step"
                    f"{'s' if len(bare) > 1 else ''} {suggestions.listed(map(quoted, map(shown_name, bare)))}",
                    hint="set extendedResourceName on every root step, or on none",
                    path=("spec", "steps", at, "extendedResourceName"),
                    code="ND1281",
                )


def _dependencies(topology: str, steps: Sequence[Step]) -> Iterator[Finding]:
    """Names that appear twice, and edges that lead nowhere."""
    seen: set[str] = set()
    hints: dict[str, str] = {}
    everyone = {step.name for step in steps}
    for at, step in enumerate(steps):
        path, shown = ("spec", "steps", at), shown_name(step.name)
        if step.name in seen:
            yield about(topology, shown, "the name appears twice", path=(*path, "name"), code="ND1282")
        seen.add(step.name)
        named: set[str] = set()
        for place, dependency in enumerate(step.depend_on):
            if problem := _edge(step.name, dependency, everyone, named):
                # A hostile topology has a name a hundred thousand times: its hint is searched once.
                if dependency not in hints:
                    hints[dependency] = "" if dependency in everyone else _near(dependency, everyone)
                hint = hints[dependency]
                yield about(topology, shown, problem, hint=hint, path=(*path, "dependOn", place), code="ND1283")
            named.add(dependency)


def _near(word: str, steps: Iterable[str]) -> str:
    """A hint at the step that may be meant by a name that no step has, or at all steps."""
    return suggestions.hint(word, map(shown_name, sorted(steps)), "its steps are")


def _edge(step: str, dependency: str, everyone: set[str], named: set[str]) -> str:
    """The errors in a dependency; `named` are the dependencies before it."""
    if dependency == step:
        return "dependOn names the step itself"
    if dependency not in everyone:
        return f"dependOn names {quoted(dependency)}, which is not a step of this topology"
    return f'dependOn names "{dependency}" twice' if dependency in named else ""


def _order(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps that can run, each after its dependencies, as declared among those that are ready."""
    done: dict[str, Step] = {}
    waiting = {step.name: step for step in steps}
    while (ready := next((step for step in waiting.values() if done.keys() >= set(step.depend_on)), None)) is not None:
        done[ready.name] = waiting.pop(ready.name)
    return tuple(done.values())


def _cycle(topology: str, steps: Sequence[Step], order: Sequence[Step]) -> Finding:
    """The first cycle among the steps that cannot be ordered."""
    ordered = {step.name for step in order}
    waiting = {step.name: step for step in steps if step.name not in ordered}
    way: list[str] = []
    name = next(iter(waiting))
    while name not in way:
        way.append(name)
        name = next(dependency for dependency in waiting[name].depend_on if dependency in waiting)
    cycle = [*way[way.index(name) :], name]
    at = [step.name for step in steps].index(name)
    return about(
        topology,
        name,
        f"dependOn goes in a circle: {' -> '.join(cycle)}",
        hint="a step can only depend on steps that do not depend on it",
        path=("spec", "steps", at, "dependOn"),
        code="ND1284",
    )


def _ancestors(order: Sequence[Step]) -> dict[str, frozenset[str]]:
    by_step: dict[str, frozenset[str]] = {}
    for step in order:
        by_step[step.name] = frozenset(step.depend_on).union(*(by_step[name] for name in step.depend_on))
    return by_step


def _levels(order: Sequence[Step]) -> tuple[tuple[str, ...], ...]:
    depth: dict[str, int] = {}
    for step in order:
        depth[step.name] = 1 + max((depth[name] for name in step.depend_on), default=-1)
    groups: list[list[str]] = [[] for _ in range(1 + max(depth.values()))]
    for step in order:
        groups[depth[step.name]].append(step.name)
    return tuple(tuple(group) for group in groups)


def _references(
    topology: str, steps: Sequence[Step], ancestors: Mapping[str, frozenset[str]]
) -> tuple[dict[str, tuple[tuple[Path, Reference], ...]], list[Finding]]:
    """The references of every step, and those that cannot be resolved because of where they point."""
    by_step: dict[str, tuple[tuple[Path, Reference], ...]] = {}
    findings: list[Finding] = []
    for at, step in enumerate(steps):
        top: Path = ("spec", "steps", at, "config")
        try:
            by_step[step.name] = tuple(references.find(step.config))
        except ConfigError as problem:
            findings.append(about(topology, step.name, problem.what, hint=problem.hint, path=top, code=problem.code))
            continue
        findings += [
            about(
                topology,
                step.name,
                f"{dotted(path)}: {reference} {_why_not(reference.step, step, ancestors)}",
                hint=_instead(reference.step, step, ancestors),
                path=(*top, *path),
                code="ND1285",
            )
            for path, reference in by_step[step.name]
            if reference.is_of_result and reference.step not in ancestors[step.name]
        ]
    return by_step, findings


def _requests(topology: str, steps: Sequence[Step]) -> tuple[dict[str, References], list[Finding]]:
    """The references in steps' requests to Neutron, with paths in the step, and those that cannot be resolved there."""
    by_step: dict[str, References] = {}
    findings: list[Finding] = []
    for at, step in enumerate(steps):
        if step.neutron is None:
            continue
        top: Path = ("spec", "steps", at, "neutron")
        try:
            every = neutron_request.find(step.neutron)
        except ConfigError as problem:
            findings.append(about(topology, step.name, problem.what, hint=problem.hint, path=top, code=problem.code))
            continue
        findings += [
            about(
                topology,
                step.name,
                f"{dotted(path, 'neutron')}: {reference} is {_too_late(reference)}",
                hint=f"write the value, or {{{{ {references.PARAMETERS}.<name> }}}} for one that claims give",
                path=(*top, *path),
                code="ND1286",
            )
            for path, reference in every
            if not reference.is_parameter
        ]
        by_step[step.name] = tuple((("neutron", *path), entry) for path, entry in every if entry.is_parameter)
    return by_step, findings


def _parameters(topology: NetworkTopology, asked: Mapping[str, References]) -> Iterator[Finding]:
    """References to parameters that are not declared, or that stand where no claim may decide."""
    declared = {parameter.name: parameter for parameter in topology.spec.parameters}
    for at, step in enumerate(topology.spec.steps):
        texts = dict(values.strings(step.config)) if asked.get(step.name) else {}
        for (top, *inside), reference in asked.get(step.name, ()):
            path = tuple(inside)
            what, hint = "", ""
            if reference.field not in declared:
                what = "names no parameter of this topology"
                hint = parameters.undeclared(reference.field, declared, path)
            elif top == "neutron":
                hint = neutron_request.misfit(path, declared[reference.field].type)
                what = f"is of type {declared[reference.field].type}" if hint else ""
            elif problem := parameters.misplaced(path):
                what, hint = "stands where no parameter may", problem
            elif declared[reference.field].type == "[]string" and len(references.parse(texts[path])) > 1:
                what, hint = "is a list inside of a text", "let it be the whole value"
            if what:
                place: Path = ("spec", "steps", at, top, *path)
                shown = dotted(path, str(top))
                yield about(
                    topology.name, step.name, f"{shown}: {reference} {what}", hint=hint, path=place, code="ND1287"
                )
        if step.extended_resource_name and (needed := [entry for entry in declared if declared[entry].default is None]):
            yield about(
                topology.name,
                step.name,
                f"extendedResourceName: who asks for it can give no value for {', '.join(needed)}",
                hint="give each parameter a default, or leave extendedResourceName out",
                path=("spec", "steps", at, "extendedResourceName"),
                code="ND1288",
            )


def _too_late(reference: Reference) -> str:
    if reference.is_of_result:
        return "the result of a step, and Neutron is asked before any runs"
    return "known on the node, and Neutron is asked before a node prepares the claim"


def _facts(graph: Graph) -> Iterator[Finding]:
    """References to facts where none may stand, or of a device that is not one alone."""
    for step in graph.steps:
        texts = dict(values.strings(step.config)) if graph.facts[step.name] else {}
        for path, reference in graph.facts[step.name]:
            what, hint = "", ""
            fact = reference.fact
            is_whole = len(references.parse(texts[path])) == 1
            roots = graph.roots_of(step.name)
            if problem := facts.misplaced(path):
                what, hint = f"stands where no fact may: {problem}", "write the value"
            elif path in _NAMES and is_whole and fact is not None and fact.kind in ("integer", "boolean"):
                what = f"is {fact.described}, and an interface's name is text"
                hint = f'write text beside it: "net{reference}"'
            elif reference.step == facts.DEVICE and len(roots) > 1:
                what = f"is not clear: the step stands on the devices of {suggestions.listed(map(quoted, roots))}"
                hint = "refer to the device in its own step, and to that step's result here"
            if what:
                shown = f"{dotted(path)}: {reference} {what}"
                yield graph.about(step.name, shown, hint=hint, path=("config", *path), code="ND1289")


_NAMES = {("name",), ("dev",)}


def _why_not(named: str, step: Step, ancestors: Mapping[str, frozenset[str]]) -> str:
    if named not in ancestors:
        return "names no step of this topology"
    if named == step.name:
        return "names the step itself, which has no result yet"
    return f'names a step that "{step.name}" does not depend on'


def _instead(named: str, step: Step, ancestors: Mapping[str, frozenset[str]]) -> str:
    if named not in ancestors:
        return _near(named, ancestors.keys() - {step.name})
    if named == step.name or step.name in ancestors[named]:
        return "only the results of steps that ran before can be referenced"
    return f'add "{named}" to dependOn'
