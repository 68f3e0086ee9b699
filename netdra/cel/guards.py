"""A selector that asks for each key before it reads it, so that it has an answer for every device.

In Kubernetes a selector that reads a key which one device lacks fails the allocation of the whole claim, on all nodes.
Called by `netdra.topology.classes` for the classes that it makes (decision D19). Pure.

The guarded selector is true for exactly those devices for which the given one is true, and false where the given one is
false or fails for want of a key. For that each part is turned into what must hold for it to be true, or to be false:
`!(a == 1)` is no more true of a device without `a` than `a == 1` is, and `a == 1 || b == 2` is true of one without `a`
whose `b` is 2, as CEL has it. Only an expression bound by `cel.bind` needs all of its keys, used or not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from netdra.cel.engine import MAX_EXPRESSION, compile_selector
from netdra.cel.errors import CelCompileError
from netdra.cel.syntax import Chain, Choice, FieldAccess, Index, Invocation, Leaf, Node, Not, Parenthesized, parse
from netdra.model.errors import InvalidInputError

Place = Literal["device", "domains", "keys", ""]
"""What a part is: `device`, its attributes or capacities by domain, those of one domain, or anything else."""

MAX_PARTS = 50_000
"""Steps that are taken for one expression: conditions within conditions grow faster than they look."""
_DOMAINS = frozenset({"attributes", "capacity"})
_LOOPS = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
_OPTIONAL_LOOPS = frozenset({"optMap", "optFlatMap"})
_FALLBACKS = frozenset({"or", "orValue"})


class Is(NamedTuple):
    """A condition as text, no looser than a comparison; `implies` is a condition that follows from it."""

    text: str
    implies: str = ""


class And(NamedTuple):
    """All of it must hold; nothing at all always does."""

    parts: tuple[Formula, ...] = ()


class Or(NamedTuple):
    """Some of it must hold."""

    parts: tuple[Formula, ...]


Formula = Is | And | Or
Scope = Mapping[str, Place]
ALWAYS = And()


def guarded(expression: str, known: Collection[str] = ()) -> str:
    """The selector with its guards; unchanged if it needs none.

    Args:
        expression: a selector.
        known: attributes, as `domain/name`, that no device lacks for which it is evaluated. Where they are read from
            `device.attributes["domain"]` itself, they have no guard.

    Raises:
        CelCompileError: it does not compile.
        InvalidInputError: with its guards it is too long, or nested too deep.
    """
    compile_selector(expression)
    made = _Guards(expression, known)
    try:
        text = _rendered(made.true(parse(expression), {"device": "device"}))
        if not made.reads:
            return expression
        compile_selector(text)
    except (_TooLongError, CelCompileError) as problem:
        why = problem.message if isinstance(problem, CelCompileError) else f"longer than {MAX_EXPRESSION} bytes"
        raise InvalidInputError(
            f"the selector is too complex to guard its map keys: {why}",
            hint="reduce the nesting of conditions",
            code="ND1554",
        ) from None
    return text


def joined(*expressions: str) -> str:
    """One selector that is true where all of these are, evaluated in their order.

    A condition that stands twice is written once, and comments between conditions are left out.

    kube-scheduler copies all attributes of a device for each selector of a class and of a request
    (k8s.io/dynamic-resource-allocation v0.37, cel/compile.go, `DeviceMatches`), so one selector costs half of two. An
    error in one of them is an error of the whole unless another one is false, in any order (CEL's `&&`).

    Raises:
        CelCompileError: together they are too long or nested too deep, or may take too much.
    """
    text = " && ".join(dict.fromkeys(part for expression in expressions for part in _conditions(expression)))
    compile_selector(text)
    return text


class _TooLongError(Exception):
    """More than MAX_PARTS steps."""


class _Guards:
    """One expression's parts, turned into what must hold.

    Attributes:
        reads: whether any key is read that a device may lack.
    """

    def __init__(self, expression: str, known: Collection[str]) -> None:
        self._expression = expression
        parted = (name.partition("/") for name in known)
        self._known = {(f'device.attributes["{domain}"]', f'"{name}"') for domain, _, name in parted}
        self._left = MAX_PARTS
        self.reads = False

    def true(self, node: Node, scope: Scope) -> Formula:
        """The condition for a part to be true."""
        return self._holds(node, scope, wanted=True)

    def false(self, node: Node, scope: Scope) -> Formula:
        """The condition for a part to be false."""
        return self._holds(node, scope, wanted=False)

    def _holds(self, node: Node, scope: Scope, *, wanted: bool) -> Formula:
        self._left -= 1
        if self._left < 0:
            raise _TooLongError
        match node:
            case Parenthesized(part=part):
                return self._holds(part, scope, wanted=wanted)
            case Not(part=part):
                return self._holds(part, scope, wanted=not wanted)
            case Chain(operator=operator, parts=parts):
                held = tuple(self._holds(part, scope, wanted=wanted) for part in parts)
                return _all(held) if (operator == "&&") == wanted else Or(held)
            case Choice(condition=condition, yes=yes, no=no):
                first = _all((self.true(condition, scope), self._holds(yes, scope, wanted=wanted)))
                second = _all((self.false(condition, scope), self._holds(no, scope, wanted=wanted)))
                return Or((first, second))
            case Invocation(function="has", arguments=(FieldAccess() as tested,)):
                guard = self._key(f'"{tested.field}"', tested.operand, scope) if wanted else ()
                text = self._text(node)
                plain = Is(text if wanted else f"!{text}", implies=guard[0].text if guard else "")
                return _all((self.sure(node, scope), plain))
            case Invocation(function="all" | "exists" as loop, arguments=(Leaf() as variable, body)) if node.target:
                other = loop if wanted else {"all": "exists", "exists": "all"}[loop]
                inner = self._holds(body, _bound(scope, variable.text), wanted=wanted)
                text = f"{self._text(node.target)}.{other}({variable.text}, {_rendered(inner)})"
                return _all((self.sure(node.target, scope), Is(text)))
            case Invocation(target=Leaf(text="cel"), function="bind", arguments=(Leaf() as variable, value, body)):
                inner = self._holds(body, _bound(scope, variable.text, self._place(value, scope)), wanted=wanted)
                return _all((self.sure(value, scope), self._bind(variable, value, inner)))
        return _all((self.sure(node, scope), self._plain(node, wanted=wanted)))

    def sure(self, node: Node, scope: Scope) -> Formula:
        """The condition for a part to have a value at all."""
        self._left -= 1
        if self._left < 0:
            raise _TooLongError
        match node:
            case Leaf():
                return ALWAYS
            case Parenthesized(part=part) | Not(part=part):
                return self.sure(part, scope)
            case Chain(parts=parts):
                always = all(self._is_sure(part, scope) for part in parts)
                return ALWAYS if always else Or((self.true(node, scope), self.false(node, scope)))
            case Choice():
                return self._sure_choice(node, scope)
            case FieldAccess(operand=operand, optional=optional):
                guard = () if optional else self._key(f'"{node.field}"', operand, scope)
                return _all((self.sure(operand, scope), *guard))
            case Index(operand=operand, key=key, optional=optional):
                guard = () if optional else self._key(self._operand(key), operand, scope)
                return _all((self.sure(operand, scope), self.sure(key, scope), *guard))
            case Invocation():
                return self._sure_call(node, scope)
        return _all(self.sure(part, scope) for part in node.parts)

    def _sure_choice(self, node: Choice, scope: Scope) -> Formula:
        if self._is_sure(node.yes, scope) and self._is_sure(node.no, scope):
            return self.sure(node.condition, scope)
        first = _all((self.true(node.condition, scope), self.sure(node.yes, scope)))
        return Or((first, _all((self.false(node.condition, scope), self.sure(node.no, scope)))))

    def _sure_call(self, node: Invocation, scope: Scope) -> Formula:
        target, arguments = node.target, node.arguments
        if target is None:
            if node.function == "has" and isinstance(arguments[0], FieldAccess):
                return self.sure(arguments[0].operand, scope)
            return _all(self.sure(argument, scope) for argument in arguments)
        if isinstance(target, Leaf) and (target.text, node.function, len(arguments)) == ("cel", "bind", 3):
            return self._sure_bind(node, scope)
        before = self.sure(target, scope)
        variable = arguments[0] if arguments and isinstance(arguments[0], Leaf) and arguments[0].is_name else None
        if variable is not None and len(arguments) > 1 and node.function in _LOOPS | _OPTIONAL_LOOPS:
            return _all((before, self._sure_loop(node, variable.text, scope)))
        after = _all(self.sure(argument, scope) for argument in arguments)
        if node.function in _FALLBACKS and after != ALWAYS:
            # The fallback is not evaluated if the value exists.
            after = Or((Is(f"{self._text(target)}.hasValue()"), after))
        return _all((before, after))

    def _sure_bind(self, node: Invocation, scope: Scope) -> Formula:
        variable, value, body = node.arguments
        inner = self.sure(body, _bound(scope, self._text(variable), self._place(value, scope)))
        held = ALWAYS if inner == ALWAYS else self._bind(variable, value, inner)
        return _all((self.sure(value, scope), held))

    def _sure_loop(self, node: Invocation, variable: str, scope: Scope) -> Formula:
        """The condition for the rounds of a loop; in `all` and `exists` one decided round makes up for others."""
        within, arguments = _bound(scope, variable), node.arguments
        inner = _all(self.sure(argument, within) for argument in arguments[1:])
        if inner == ALWAYS:
            return ALWAYS
        if node.function in {"all", "exists"}:
            return Or((self.true(node, scope), self.false(node, scope)))
        if node.function == "map" and len(arguments) == 3:
            chosen, result = arguments[1:]
            inner = _all((self.sure(chosen, within), Or((self.false(chosen, within), self.sure(result, within)))))
        assert node.target is not None
        text = self._text(node.target)
        if node.function in _OPTIONAL_LOOPS:
            return Is(f"{text}.optMap({variable}, {_rendered(inner)}).orValue(true)")
        return Is(f"{text}.all({variable}, {_rendered(inner)})")

    def _key(self, key: str, operand: Node, scope: Scope) -> tuple[Is, ...]:
        """That a key is there, if what it is looked up in can lack it; an unknown domain is an empty map."""
        if self._place(operand, scope) != "keys":
            return ()
        if (self._text(operand), key) in self._known:
            return ()
        self.reads = True
        return (Is(f"{key} in {self._text(operand)}"),)

    def _place(self, node: Node, scope: Scope) -> Place:
        match node:
            case Leaf(text=text, is_name=True):
                return scope.get(text, "")
            case Parenthesized(part=part):
                return self._place(part, scope)
            case Choice(yes=yes):
                return self._place(yes, scope)
            case FieldAccess(operand=operand, field=field, optional=False):
                place = self._place(operand, scope)
                return "domains" if place == "device" and field in _DOMAINS else "keys" if place == "domains" else ""
            case Index(operand=operand, optional=False):
                return "keys" if self._place(operand, scope) == "domains" else ""
        return ""

    def _is_sure(self, node: Node, scope: Scope) -> bool:
        return self.sure(node, scope) == ALWAYS

    def _bind(self, variable: Node, value: Node, inner: Formula) -> Is:
        return Is(f"cel.bind({self._text(variable)}, {self._text(value)}, {_rendered(inner)})")

    def _plain(self, node: Node, *, wanted: bool) -> Is:
        text = self._text(node)
        if wanted:
            return Is(text)
        return Is(f"!{text}" if isinstance(node, Leaf | FieldAccess | Index | Invocation) else f"!({text})")

    def _operand(self, node: Node) -> str:
        """A part as the operand of a comparison."""
        return (
            self._text(node)
            if isinstance(node, Leaf | FieldAccess | Index | Invocation | Parenthesized)
            else f"({self._text(node)})"
        )

    def _text(self, node: Node) -> str:
        return self._expression[node.start : node.end]


def _conditions(expression: str) -> Iterator[str]:
    """The conditions that must all hold, as operands of `&&`."""
    node = parse(expression)
    for part in node.parts if isinstance(node, Chain) and node.operator == "&&" else (node,):
        text = expression[part.start : part.end]
        yield f"({text})" if isinstance(part, Choice | Chain) else text


def _bound(scope: Scope, variable: str, place: Place = "") -> Scope:
    """The meaning of names where a variable is bound."""
    return {**scope, variable: place}


def _all(parts: Iterable[Formula]) -> Formula:
    """All of it, as one list."""
    flat: list[Formula] = []
    for part in parts:
        flat += part.parts if isinstance(part, And) else (part,)
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def _rendered(formula: Formula, holding: frozenset[str] = frozenset()) -> str:
    """The formula in CEL; what holds already, because it stands before on the same way, is not repeated."""
    match formula:
        case Is(text=text):
            return text
        case Or(parts=parts):
            return " || ".join(dict.fromkeys(_rendered(part, holding) for part in parts))
    texts: list[str] = []
    for part in formula.parts:
        if isinstance(part, Is):
            if part.text not in holding:
                texts.append(part.text)
            holding |= {part.text, part.implies}
        else:
            texts.append(f"({_rendered(part, holding)})")
    return " && ".join(texts) or "true"
