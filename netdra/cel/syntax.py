"""An expression as its author wrote it: a tree in which every part knows where in the text it stands.

The engine hands out its own tree only with macros expanded, and without the ends of parts, so nothing could be written
back from it. Read by `netdra.cel.guards`, for expressions that compile. Follows the grammar of the CEL language
definition (cel-spec, doc/langdef.md) with optional values.
"""

from __future__ import annotations

from typing import NamedTuple

from netdra.cel.source import Token, tokens
from netdra.model.errors import InvalidInputError

MAX_DEPTH = 250
"""Levels of parentheses, calls and the like; the engine takes far fewer."""


class Leaf(NamedTuple):
    """A literal or a variable."""

    start: int
    end: int
    text: str
    is_name: bool


class Chain(NamedTuple):
    """Parts joined by `&&` or by `||`."""

    start: int
    end: int
    operator: str
    parts: tuple[Node, ...]


class Not(NamedTuple):
    """`!part`."""

    start: int
    end: int
    part: Node


class Choice(NamedTuple):
    """`condition ? yes : no`."""

    start: int
    end: int
    condition: Node
    yes: Node
    no: Node


class FieldAccess(NamedTuple):
    """`operand.field`, or `operand.?field`."""

    start: int
    end: int
    operand: Node
    field: str
    optional: bool


class Index(NamedTuple):
    """`operand[key]`, or `operand[?key]`."""

    start: int
    end: int
    operand: Node
    key: Node
    optional: bool


class Invocation(NamedTuple):
    """`target.function(arguments)`, or without a target. Macros look like calls."""

    start: int
    end: int
    target: Node | None
    function: str
    arguments: tuple[Node, ...]


class Parenthesized(NamedTuple):
    """A part in parentheses."""

    start: int
    end: int
    part: Node


class Other(NamedTuple):
    """A comparison, arithmetic, a list, a map: all of its parts are always evaluated."""

    start: int
    end: int
    parts: tuple[Node, ...]


Node = Leaf | Chain | Not | Choice | FieldAccess | Index | Invocation | Parenthesized | Other

_LEVELS: tuple[frozenset[str], ...] = (
    frozenset({"<", "<=", ">", ">=", "==", "!=", "in"}),
    frozenset({"+", "-"}),
    frozenset({"*", "/", "%"}),
)


def parse(expression: str) -> Node:
    """The tree of an expression.

    Raises:
        InvalidInputError: it breaks the grammar, or is nested too deep.
    """
    reader = _Reader(expression)
    tree = reader.expression()
    reader.end()
    return tree


def _broken(at: int) -> InvalidInputError:
    return InvalidInputError(f"CEL expression has a syntax error at character {at + 1}", code="ND1555")


class _Reader:
    """A place among the tokens of an expression, and how deep that is."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = tokens(expression)
        self._at = 0
        self._depth = 0

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise self._broken()

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidInputError(f"CEL expression is nested deeper than {MAX_DEPTH} levels", code="ND1556")
        condition = self._chain("||")
        if self._take("?"):
            yes = self.expression()
            self._need(":")
            no = self.expression()
            condition = Choice(condition.start, no.end, condition, yes, no)
        self._depth -= 1
        return condition

    def _chain(self, operator: str) -> Node:
        parts = [self._part_of(operator)]
        while self._take(operator):
            parts.append(self._part_of(operator))
        return parts[0] if len(parts) == 1 else Chain(parts[0].start, parts[-1].end, operator, tuple(parts))

    def _part_of(self, operator: str) -> Node:
        return self._chain("&&") if operator == "||" else self._operation(0)

    def _operation(self, level: int) -> Node:
        """Comparisons, sums or products, depending on the level; they bind to the left."""
        if level == len(_LEVELS):
            return self._unary()
        parts = [self._operation(level + 1)]
        while self._peek() in _LEVELS[level]:
            self._at += 1
            parts.append(self._operation(level + 1))
        return parts[0] if len(parts) == 1 else Other(parts[0].start, parts[-1].end, tuple(parts))

    def _unary(self) -> Node:
        begun = self._at
        while self._peek() in {"!", "-"}:
            self._at += 1
        signs = self._tokens[begun : self._at]
        operand = self._member()
        for sign in reversed(signs):
            operand = (
                Not(sign.start, operand.end, operand)
                if sign.text == "!"
                else Other(sign.start, operand.end, (operand,))
            )
        return operand

    def _member(self) -> Node:
        node = self._primary()
        while True:
            if self._take("."):
                optional = self._take("?")
                name = self._next()
                if name.kind not in {"name", "quoted"}:
                    raise self._broken()
                if not optional and name.kind == "name" and self._take("("):
                    arguments = self._listed(")")
                    node = Invocation(node.start, self._end, node, name.text, arguments)
                else:
                    node = FieldAccess(node.start, name.end, node, name.text.strip("`"), optional)
            elif self._take("["):
                optional = self._take("?")
                key = self.expression()
                self._need("]")
                node = Index(node.start, self._end, node, key, optional)
            elif self._peek() == "{" and isinstance(node, Leaf | FieldAccess):
                self._at += 1  # a message: its fields are names
                values = self._entries()[1::2]
                node = Other(node.start, self._end, values)
            else:
                return node

    def _primary(self) -> Node:
        token = self._next()
        if token.kind == "string":
            return Leaf(token.start, token.end, token.text, is_name=False)
        if token.text == "(":
            part = self.expression()
            self._need(")")
            return Parenthesized(token.start, self._end, part)
        if token.text == "[":
            parts = self._listed("]")
            return Other(token.start, self._end, parts)
        if token.text == "{":
            parts = self._entries()
            return Other(token.start, self._end, parts)
        if token.text == "." and self._kind() == "name":
            name = self._next()
            return self._named(token.start, name)
        if token.kind == "name":
            return self._named(token.start, token)
        if token.kind == "number":
            return Leaf(token.start, token.end, token.text, is_name=False)
        raise self._broken(-1)

    def _named(self, start: int, name: Token) -> Node:
        if self._take("("):
            arguments = self._listed(")")
            return Invocation(start, self._end, None, name.text, arguments)
        return Leaf(start, name.end, name.text, is_name=name.text not in {"true", "false", "null"})

    def _listed(self, closing: str) -> tuple[Node, ...]:
        """Expressions between commas, up to the closing bracket; a list may end in a comma."""
        nodes: list[Node] = []
        while not self._take(closing):
            self._take("?")
            nodes.append(self.expression())
            if self._peek() != closing:
                self._need(",")
        return tuple(nodes)

    def _entries(self) -> tuple[Node, ...]:
        """Keys and values in turn, up to the closing brace."""
        nodes: list[Node] = []
        while not self._take("}"):
            self._take("?")
            nodes.append(self.expression())
            self._need(":")
            nodes.append(self.expression())
            if self._peek() != "}":
                self._need(",")
        return tuple(nodes)

    @property
    def _end(self) -> int:
        """Where the last token ended."""
        return self._tokens[self._at - 1].end

    def _kind(self) -> str:
        return self._tokens[self._at].kind if self._at < len(self._tokens) else ""

    def _peek(self) -> str:
        """The next token's text; "" at the end and for a string, whose content is not an operator."""
        return self._tokens[self._at].symbol if self._at < len(self._tokens) else ""

    def _next(self) -> Token:
        if self._at == len(self._tokens):
            raise self._broken()
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, text: str) -> bool:
        if self._peek() != text:
            return False
        self._at += 1
        return True

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise self._broken()

    def _broken(self, back: int = 0) -> InvalidInputError:
        at = self._at + back
        return _broken(self._tokens[at].start if at < len(self._tokens) else len(self._expression))
