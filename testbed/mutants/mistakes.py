"""The mutants of a module: its text with one small mistake, such as `<=` in place of `<` or a removed statement.

Pure. Called by `python -m testbed.mutants`. Assertions, annotations, decorators and texts are not mutated.
"""

from __future__ import annotations

import ast
import copy
import difflib
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from pathlib import PurePath
from typing import NamedTuple

PACKAGES = tuple(f"netdra/{name}" for name in ("exposure", "slices", "topology", "rules", "chain", "node/claims"))
_COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_REMOVED = ast.Raise | ast.AugAssign | ast.Delete | ast.Continue | ast.Break
_NOT_MUTATED = ast.JoinedStr | ast.Assert
_NOT_ENTERED = {"annotation", "returns", "decorator_list"}
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_NEAREST = 2


@dataclass(frozen=True)
class Mutant:
    """A mistake.

    Attributes:
        module: the file, relative to the checkout.
        line: of the mistake, counted from 1.
        kind: the kind of the change, in a word or two.
        begin: the first byte of the source that is replaced.
        end: the byte after the last one.
        new: the source in its place.
    """

    module: str
    line: int
    kind: str
    begin: int
    end: int
    new: str

    @property
    def package(self) -> str:
        """The package of the module, as in `PACKAGES`; of other modules the folder."""
        return next(
            (name for name in PACKAGES if self.module.startswith(f"{name}/")), str(PurePath(self.module).parent)
        )

    def apply(self, source: str) -> str:
        """The text of the module with the mistake."""
        content = source.encode()
        return (content[: self.begin] + self.new.encode() + content[self.end :]).decode()

    def diff(self, source: str) -> str:
        """The lines that differ: those of the module after `-`, those of the mutant after `+`."""
        lines = difflib.unified_diff(source.splitlines(), self.apply(source).splitlines(), n=0, lineterm="")
        return "\n".join(line for line in list(lines)[2:] if not line.startswith("@@"))


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """All mutants of a module, in the order of its syntax tree."""
    starts = list(accumulate((len(line) for line in source.encode().splitlines(keepends=True)), initial=0))
    for node in _nodes(ast.parse(source)):
        for kind, old, new in _mistakes(node):
            begin = starts[old.lineno - 1] + old.col_offset
            end = starts[(old.end_lineno or old.lineno) - 1] + (old.end_col_offset or 0)
            yield Mutant(module, old.lineno, kind, begin, end, new)


class Place(NamedTuple):
    """The lines of the statement with a mistake, without the statements in it, and whether it is in a function."""

    lines: range
    in_function: bool


def place(mutant: Mutant, source: str) -> Place:
    """The statement with a mistake: only a test that executes it can notice the mistake."""
    around = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt) and node.lineno <= mutant.line <= (node.end_lineno or node.lineno)
    ]
    inner = max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)))
    parts = [*getattr(inner, "body", [])[:1], *(case.pattern for case in getattr(inner, "cases", [])[:1])]
    end = max(inner.lineno + 1, min([(inner.end_lineno or inner.lineno) + 1, *(part.lineno for part in parts)]))
    lines = range(inner.lineno, end) if mutant.line < end else range(mutant.line, mutant.line + 1)
    return Place(lines, any(isinstance(node, _FUNCTION) for node in around if node is not inner))


def sample(all_mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """At most `count` random mutants, in turn of each package; the same ones for the same seed."""
    draw = random.Random(seed)
    packages: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in all_mutants:
        packages[mutant.package].append(mutant)
    for members in packages.values():
        draw.shuffle(members)
    turns = zip_longest(*packages.values())
    return [mutant for turn in turns for mutant in turn if mutant is not None][:count]


def importing_tests(modules: Iterable[str], dependents: Mapping[str, set[str]], level: str) -> dict[str, int]:
    """The tests of a level that import one of the modules -> the imports between them.

    Args:
        modules: their files.
        dependents: file -> the files that import it.
        level: the folder of the tests.
    """
    distances = dict.fromkeys(modules, 0)
    left = list(distances)
    for name in left:
        for importing in sorted(dependents.get(name, set()) - distances.keys()):
            distances[importing] = distances[name] + 1
            left.append(importing)
    return {
        name: distance
        for name, distance in distances.items()
        if name.startswith(f"{level}/") and PurePath(name).name.startswith("test_")
    }


def nearest_tests(mutant: Mutant, dependents: Mapping[str, set[str]], level: str = "tests/unit") -> list[str]:
    """The tests that can notice a mutant, the most probable first.

    They are the tests of the package, and those with the fewest imports between them and the module, of two distances.
    Tests named after the module are first.

    Args:
        mutant: the mistake.
        dependents: file -> the files that import it.
        level: the folder of the tests.
    """
    tests = importing_tests([mutant.module], dependents, level)
    near = sorted(set(tests.values()))[:_NEAREST]
    folder = mutant.package.replace("netdra", level, 1)
    named = f"test_{PurePath(mutant.module).stem}"
    return sorted(
        (name for name, distance in tests.items() if distance in near or name.startswith(f"{folder}/")),
        key=lambda name: (PurePath(name).stem != named, tests[name], not name.startswith(f"{folder}/"), name),
    )


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree that may be mutated."""
    if isinstance(node, _NOT_MUTATED):
        return
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in _NOT_ENTERED:
                yield from _nodes(child)


def _mistakes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """The mistakes at a node: the kind, the expression or statement that is replaced, the source in its place."""
    for test in _conditions(node):
        if not isinstance(test, ast.UnaryOp) and (
            not isinstance(test, ast.Compare) or isinstance(test.ops[0], _ORDERS)
        ):
            yield "negated condition", test, f"(not ({ast.unparse(test)}))"
    if isinstance(node, ast.expr):
        yield from ((kind, node, f"({ast.unparse(new)})") for kind, new in _expressions(node))
    elif isinstance(node, ast.stmt) and _is_removable(node):
        yield "removed statement", node, "pass"
    elif isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
        yield "removed result", node, "return None"


def _is_removable(node: ast.stmt) -> bool:
    """Whether the other statements are correct without it: an assignment to a name is needed by them."""
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    return isinstance(node, _REMOVED)


def _conditions(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.comprehension):
        return node.ifs
    if isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Constant):
        return [node.test]
    return [node.guard] if isinstance(node, ast.match_case) and node.guard else []


def _expressions(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    new = copy.copy(node)
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            changed = copy.copy(node)
            changed.ops = [*node.ops[:index], _COMPARISONS[type(operator)](), *node.ops[index + 1 :]]
            yield "comparison", changed
    elif isinstance(new, ast.BoolOp):
        new.op = ast.And() if isinstance(new.op, ast.Or) else ast.Or()
        yield "and/or", new
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "dropped not", node.operand
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "number", ast.Constant(node.value + 1)
    elif isinstance(new, ast.Call) and isinstance(new.func, ast.Name) and new.func.id in _FUNCTIONS:
        new.func = ast.Name(_FUNCTIONS[new.func.id])
        yield "min/max, any/all", new
