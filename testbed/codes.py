"""Collects the codes of errors from netdra's code: `python -m testbed.codes` prints netdra/cli/codes.json.

Called by `make docs`; a test compares the file with the code. `python -m testbed.codes next FAMILY` prints a code that
was never used. A code that disappears from the code stays in the file, as retired, and is not used again.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from netdra.cli.codes import FILE, ErrorCode, ErrorCodes, Example, read
from testbed import yaml
from testbed.messages import HINT_PLACES, HINTS, PACKAGE, ROOT, text_of

CODE = re.compile(r"ND[1-5]\d{3}\Z")
MISTAKES = ROOT / "tests" / "mistakes"
_SAID = re.compile(r"(?:\d+: )?(?:warning: )?(?P<text>.*?)(?: \[[^ ]*\])? \((?P<code>ND\d{4})\)\Z")
_Named = Mapping[str, ast.AST]
"""A name, or a function's name with `()` -> the values that it may have."""
_DEEPEST = 3
_TEXTS = frozenset({"what", "text", "problem", "why", "fault", "missing", "consequence"})
_DIAGNOSES: Mapping[str, tuple[int | str, int, int]] = {
    "_finding": (0, 2, 3),
    "_in_cluster": ("ports of Neutron", 1, 2),
    "Shortcoming": ("container runtimes", 4, 5),
    "_AddressTrouble": ("addresses of PodNetworks", 0, 1),
    "_Mismatch": ("NIC switch agents", 1, 2),
    "_PortTrouble": ("ports of Neutron", 1, 4),
    "UsageKind": ("", 0, 1),
}
"""What makes findings of `netdra.doctor` and kinds of wrong usage: the check, or its place among the arguments, and the
places of state and next step."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def collected(former: ErrorCodes) -> ErrorCodes:
    """All codes of the code, and the retired ones of the file before.

    Raises:
        ValueError: two places have one code, or one has a retired code.
    """
    examples = dict(_examples())
    found: dict[str, ErrorCode] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for code in _Sites(path.relative_to(PACKAGE).as_posix()).read(path.read_text(encoding="utf-8")):
            if code.code in found:
                raise ValueError(f"{code.code} is in {found[code.code].file} and in {code.file}")
            found[code.code] = msgspec.structs.replace(code, example=examples.get(code.code))
    if back := sorted(found.keys() & set(former.retired)):
        raise ValueError(
            f"{', '.join(back)}: retired, and in the code again; `python -m testbed.codes next` has others"
        )
    gone = {code.code for code in former.codes} - found.keys()
    return ErrorCodes(
        codes=tuple(found[code] for code in sorted(found)), retired=tuple(sorted({*former.retired, *gone}))
    )


def free(family: str, known: ErrorCodes) -> str:
    """The first code of a family (its digit) after all that were ever used."""
    used = [code for code in (*(each.code for each in known.codes), *known.retired) if code[2] == family]
    return f"ND{family}{max((int(code[3:]) for code in used), default=0) + 1:03}"


def written(codes: ErrorCodes) -> str:
    """The file: one code a line."""
    lines = ",\n".join(msgspec.json.encode(code, order="deterministic").decode() for code in codes.codes)
    return f'{{"codes": [\n{lines}\n],\n"retired": {msgspec.json.encode(codes.retired).decode()}}}\n'


class _Sites:
    """The places of one module that have a code."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._given: dict[str, list[ast.expr]] = {}

    def read(self, text: str) -> Iterator[ErrorCode]:
        module = ast.parse(text)
        self._given = {each.name: _answers(each) for each in ast.walk(module) if isinstance(each, _FUNCTIONS)}
        called = {f"{name}()": ast.Tuple(answers) for name, answers in self._given.items()}
        named = dict(itertools.chain.from_iterable(map(_given, module.body)))
        yield from self._below(module, {**named, **called})

    def _below(self, node: ast.AST, named: _Named) -> Iterator[ErrorCode]:
        for child in ast.iter_child_nodes(node):
            inner = {**named, **self._assigned(child)} if isinstance(child, _FUNCTIONS) else named
            if isinstance(child, ast.Call) and (code := _code(child)):
                texts, hints = _texts(child, inner)
                texts = texts or _prose([each for each in ast.walk(node) if isinstance(each, ast.JoinedStr)], inner)
                yield ErrorCode(code=code, file=self._file, texts=texts, hints=hints)
            yield from self._below(child, inner)

    def _assigned(self, function: ast.AST) -> dict[str, ast.AST]:
        """Each name of a function -> a tuple of all values that it may have there."""
        found: dict[str, list[ast.expr]] = {}
        for node in ast.walk(function):
            for name, value in _given(node):
                found.setdefault(name, []).append(value)
            if isinstance(node, ast.For | ast.comprehension | ast.Assign) and (called := _callee(node)):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                for answer in self._given.get(called, ()):
                    for name, value in _pairs(target, answer):
                        found.setdefault(name, []).append(value)
        return {name: ast.Tuple(values) for name, values in found.items()}


def _answers(function: ast.AST) -> list[ast.expr]:
    """The values that a function returns or yields."""
    found = [node.value for node in ast.walk(function) if isinstance(node, ast.Return | ast.Yield)]
    return [value for value in found if value is not None]


def _callee(node: ast.For | ast.comprehension | ast.Assign) -> str:
    """The function that a loop goes through, or that an assignment calls; "" if none."""
    value = node.value if isinstance(node, ast.Assign) else node.iter
    return value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""


def _code(call: ast.Call) -> str:
    """The code that a call states; "" if none."""
    values = [keyword.value for keyword in call.keywords if keyword.arg == "code"]
    values += call.args[-1:]  # of a record
    return next((str(v.value) for v in values if isinstance(v, ast.Constant) and CODE.match(str(v.value))), "")


def _given(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The names that a statement gives a value, and the values."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    if isinstance(node, ast.NamedExpr):
        yield node.target.id, node.value


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=False):
            yield from _pairs(one, its)


def _texts(call: ast.Call, named: _Named) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The texts of a call and its next steps, with those of the names that it uses."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if (places := _DIAGNOSES.get(name)) is not None:
        return _of_diagnosis(call, places, {key: _before(call, value) for key, value in named.items()})
    place = HINT_PLACES.get(name)
    by_place = call.args[place : place + 1] if place is not None else []
    hints = [*by_place, *(each.value for each in call.keywords if each.arg in HINTS)]
    causes: Sequence[ast.expr] = [arg for arg in call.args if arg not in hints]
    causes = [*causes, *(each.value for each in call.keywords if each.arg == "what")]
    return _prose(causes, named), _prose(hints, named)


def _of_diagnosis(
    call: ast.Call, places: tuple[int | str, int, int], named: _Named
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The states of a finding of the doctor, each after its check, and the next steps."""
    check, state, step = places
    fixes = [*call.args[step : step + 1], *(each.value for each in call.keywords if each.arg == "fix")]
    about = check if isinstance(check, str) else _name_of(call.args[check], named)
    states = _prose([call.args[state]], named) or (_name_of(call.args[state], named),)
    return tuple(f"{about}: {text}" if about else text for text in states), _prose(fixes, named)


def _name_of(node: ast.expr, named: _Named) -> str:
    """A check or a state of one word: its text, that of its name, or its name."""
    for _ in range(_DEEPEST):
        if isinstance(node, ast.Name) and node.id in named:
            node = next(iter(_elements(named[node.id])), node)
    return text_of(node) or str(text_of(ast.JoinedStr([ast.FormattedValue(node, -1)])))


def _before(call: ast.Call, value: ast.AST) -> ast.AST:
    """Of the values that a name has in a function, the last one before a call."""
    values = sorted(value.elts, key=lambda each: each.lineno) if isinstance(value, ast.Tuple) else []
    former = [each for each in values if each.lineno < call.lineno]
    return ast.Tuple(former[-1:]) if former else value


def _prose(nodes: Iterable[ast.expr], named: _Named, depth: int = 0) -> tuple[str, ...]:
    """Texts with at least two words in the order of the code; a name stands for its values."""
    found: list[str] = []
    for node in nodes:
        if (text := text_of(node)) is not None:
            found += [text.lstrip(":, ")] if " " in text else []
            found += _prose(_inserted(node), named, depth)
        elif isinstance(node, ast.Name) and node.id in named and depth < _DEEPEST:
            found += _prose(_elements(named[node.id]), named, depth + 1)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and depth < _DEEPEST:
            found += _prose(_elements(named.get(f"{node.func.id}()", ast.Tuple([]))), named, depth + 1)
        elif isinstance(node, ast.Name) and depth < _DEEPEST:
            found += _prose(_elements(named.get(f"{node.id}()", ast.Tuple([]))), named, depth + 1)
        elif isinstance(node, ast.IfExp | ast.BoolOp | ast.BinOp | ast.Tuple | ast.Lambda):
            found += _prose(_elements(node), named, depth)
    return tuple(dict.fromkeys(found))


def _inserted(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of a text that are texts themselves."""
    for value in node.values if isinstance(node, ast.JoinedStr) else ():
        inner = value.value if isinstance(value, ast.FormattedValue) else None
        if isinstance(inner, ast.Name) and inner.id in _TEXTS:
            yield inner


def _elements(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Lambda):
        return [node.body]
    return node.elts if isinstance(node, ast.Tuple) else [node] if isinstance(node, ast.expr) else []


def _examples() -> Iterator[tuple[str, Example]]:
    """Code -> a mistake of a user that has it, with the line of `netdra validate`: of several the first."""
    for path in sorted(MISTAKES.glob("*.yaml"), reverse=True):
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        mistakes = content["mistakes"] if isinstance(content, dict) and "mistakes" in content else []
        for mistake in reversed(mistakes):
            for said in reversed(mistake["says"]) if "write" in mistake else []:
                if (found := _SAID.match(said)) is not None:
                    yield found["code"], Example(right=mistake["write"], wrong=mistake["as"], said=found["text"])


def main(arguments: Sequence[str]) -> str:
    """The output for the arguments of the command line."""
    if arguments:
        return "".join(f"{free(family, read())}\n" for family in itertools.islice(arguments, 1, None))
    return written(collected(read() if FILE.exists() else ErrorCodes()))


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]))
