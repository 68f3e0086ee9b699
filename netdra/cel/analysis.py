"""Errors in selectors that compile: names that no device has, and values that can never be equal.

Asked at admission and by `netdra validate`, of policies and of topologies alike. Kubernetes compiles `device` as a map
of anything, so `ifNmae` or `numaNode == "0"` is legal CEL: the first fails on every device, the second is true for
none. Here the expression's tree is checked against the known names (`netdra.cel.vocabulary`). Parts that cannot be
known, for instance a computed key, are accepted. Pure, and linear in the expression's length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from netdra.cel import kinds, source, tree
from netdra.cel.engine import compile_selector
from netdra.cel.errors import marked
from netdra.cel.kinds import BOOL, OPTIONAL, QUANTITY, TEXT, UNKNOWN
from netdra.cel.vocabulary import Kinds, KnownValues, Vocabulary
from netdra.model.errors import sentence

ATTRIBUTES, CAPACITY = "attributes", "capacity"
_MAX_SHOWN = 40


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """One thing about an expression.

    Attributes:
        text: what is the matter, on one line.
        hint: what to do, or "".
        wrong: whether the expression must be rejected; if not, the author is warned.
        line: from 1; `column` likewise, in characters.
        expression: what it is about.
    """

    text: str
    hint: str = ""
    wrong: bool = True
    line: int
    column: int
    expression: str

    @property
    def what(self) -> str:
        """All of it in words: a refusal shows the expression, a warning has one line."""
        said = f"at line {self.line}, column {self.column}: {sentence(self.text, self.hint)}"
        if not self.wrong:
            return f"CEL expression {said}"
        return f"CEL expression is wrong {said}\n{marked(self.expression, self.line, self.column)}"


class Meaning(NamedTuple):
    """The static knowledge of a part of the expression.

    Attributes:
        kinds: of its value; none if they are not known.
        called: how the author wrote it, "" if that would be too long.
        place: where in `device` it is: (), ("device",), ("attributes",) or ("attributes", a domain).
        items: of a list that is written out.
        within: of an optional value, its value if present.
        text: a string that is written out.
        values: of an attribute, the texts that it can have, if they are not any.
    """

    kinds: Kinds = UNKNOWN
    called: str = ""
    place: tuple[str, ...] = ()
    items: tuple[Meaning, ...] = ()
    within: Meaning | None = None
    text: str | None = None
    values: KnownValues | None = None


Scope = Mapping[str, Meaning]
_NOTHING = Meaning()
_DEVICE = Meaning(("map",), "device", ("device",))
_FIELDS: Scope = {
    "driver": Meaning(TEXT, "device.driver"),
    "allowMultipleAllocations": Meaning(BOOL, "device.allowMultipleAllocations"),
    ATTRIBUTES: Meaning(("map",), "device.attributes", (ATTRIBUTES,)),
    CAPACITY: Meaning(("map",), "device.capacity", (CAPACITY,)),
}


def examine(expression: str, vocabulary: Vocabulary) -> tuple[Remark, ...]:
    """The errors in an expression that compiles, and warnings for its author, in the order of the text.

    Args:
        expression: a selector.
        vocabulary: the names that it may use.

    Raises:
        CelCompileError: it does not compile.
    """
    selector = compile_selector(expression)
    walk = _Walk(expression, vocabulary)
    try:
        walk.condition(walk.meaning(tree.read(selector.serialized()), {}), 0)
    except RecursionError:  # pragma: no cover - the engine takes 32 levels, which are far fewer than Python's
        return ()
    return walk.told()


class _Walk:
    """One way through a tree, and the remarks on it."""

    def __init__(self, expression: str, vocabulary: Vocabulary) -> None:
        self._expression = expression
        self._vocabulary = vocabulary
        self._remarks: dict[str, Remark] = {}
        self._foreign: dict[str, str] = {}
        self._tested: set[str] = set()
        only = KnownValues(known=(vocabulary.driver,), others=False)
        self._driver = _FIELDS["driver"]._replace(values=only)

    def told(self) -> tuple[Remark, ...]:
        """The remarks; those on other providers' domains only if the expression does not test for the domain first."""
        guarded = {text for text, domain in self._foreign.items() if domain in self._tested}
        remarks = (remark for text, remark in self._remarks.items() if text not in guarded)
        return tuple(sorted(remarks, key=lambda remark: (remark.line, remark.column)))

    def meaning(self, node: tree.Node, scope: Scope) -> Meaning:
        """The meaning of a node; remarks on it are recorded."""
        if isinstance(node, tree.Call):
            return self._call(node, scope)
        if isinstance(node, tree.Select):
            return self._selected(node, scope)
        if isinstance(node, tree.Fold):
            return self._fold(node, scope)
        if isinstance(node, tree.Name):
            return scope.get(node.name, _DEVICE if node.name == "device" else _NOTHING)
        if isinstance(node, tree.Literal):
            text = node.value if isinstance(node.value, str) and node.kind == "string" else None
            return Meaning(UNKNOWN if node.kind == "null" else (node.kind,), _written(node), text=text)
        parts = tuple(self.meaning(item, scope) for item in node.items)
        return Meaning(("list",), items=parts) if isinstance(node, tree.Items) else Meaning(("map",))

    def condition(self, meaning: Meaning, at: int) -> None:
        """Hold something against what a condition must be."""
        if not kinds.fits(meaning.kinds, BOOL):
            self._wrong(
                at, f"{_subject(meaning)} is {kinds.word(meaning.kinds)}, not true or false", "compare it with a value"
            )

    def _selected(self, node: tree.Select, scope: Scope) -> Meaning:
        own = self.meaning(node.operand, scope)
        member = self._member(own, node.field, self._at(node.field, node.at), tested=node.test)
        return Meaning(BOOL) if node.test else member

    def _fold(self, node: tree.Fold, scope: Scope) -> Meaning:
        start = self.meaning(node.start, scope)
        around = self.meaning(node.range, scope)
        if node.is_binding:
            return self.meaning(node.parts[2], {**scope, node.result_name: start})
        element = _NOTHING
        if around.place:
            element = Meaning(TEXT)
        elif around.items:
            element = Meaning(kinds.joined(item.kinds for item in around.items))
        elif not kinds.fits(around.kinds, ("list", "map")):
            self._wrong(
                node.at, f"{_subject(around)} is {kinds.word(around.kinds)}; only lists and maps can be iterated"
            )
        first, *others = node.variables
        inner = {**scope, first: element, **dict.fromkeys(others, _NOTHING), node.result_name: Meaning(start.kinds)}
        *_, result = (self.meaning(part, inner) for part in node.parts)
        return Meaning(result.kinds)

    def _call(self, node: tree.Call, scope: Scope) -> Meaning:
        if node.function in {"_[_]", "_[?_]", "_?._"}:
            return self._looked_up(node, scope)
        given = [self.meaning(part, scope) for part in node.given]
        if node.function == "@in":
            return self._within(node, *given)
        if node.function in kinds.EQUALITY or node.function in kinds.ORDER:
            return self._compared(node, *given)
        if node.function in kinds.LOGIC:
            for part in given:
                self.condition(part, node.at)
            return Meaning(BOOL)
        if node.function == "_?_:_":
            self.condition(given[0], node.at)
            return Meaning(kinds.joined(part.kinds for part in given[1:]))
        if node.function in kinds.ARITHMETIC:
            return self._counted(node, given)
        if node.function in {"optional.of", "optional.ofNonZeroValue"}:
            return Meaning(OPTIONAL, within=given[0])
        signature = kinds.SIGNATURES.get(node.function)
        return self._applied(node, signature, given) if signature is not None and given else _NOTHING

    def _looked_up(self, node: tree.Call, scope: Scope) -> Meaning:
        own, key = node.arguments
        holder, index = self.meaning(own, scope), self.meaning(key, scope)
        holder = holder.within or holder
        member = _NOTHING
        if isinstance(key, tree.Literal) and isinstance(key.value, str):
            at = self._at(key.value, key.at)
            member = self._member(holder, key.value, at, tested=node.function != "_[_]")
        elif holder.place and not kinds.fits(index.kinds, TEXT):
            self._wrong(node.at, f"{_subject(index)} is {kinds.word(index.kinds)}, but keys are strings")
        return member if node.function == "_[_]" else Meaning(OPTIONAL, member.called, within=member)

    def _applied(self, node: tree.Call, signature: kinds.Signature, given: list[Meaning]) -> Meaning:
        own, *others = given
        shown = f"{node.function}()"
        if not kinds.fits(own.kinds, signature.receiver):
            hint = "use .? to read it" if signature.receiver == OPTIONAL else ""
            self._wrong(node.at, f"{_subject(own)} is {kinds.word(own.kinds)} and does not support {shown}", hint)
        elif signature.receiver == OPTIONAL:
            return self._unwrapped(node, own, others)
        for other in others:
            taken = signature.arguments
            if node.function in {"isGreaterThan", "isLessThan", "compareTo"} and own.kinds:
                taken = own.kinds
            if not kinds.fits(other.kinds, taken):
                what = f"{shown} requires {kinds.word(taken)}, but {_subject(other)} is {kinds.word(other.kinds)}"
                self._wrong(node.at, what, _as_quantity(other) if taken == QUANTITY else "")
        if node.function == "includes" and "list" not in own.kinds and others and own.kinds:
            self._equal(node.at, own, others[0], "never true")
        return Meaning(signature.result)

    def _unwrapped(self, node: tree.Call, own: Meaning, others: list[Meaning]) -> Meaning:
        inner = own.within or _NOTHING
        if node.function == "hasValue":
            return Meaning(BOOL)
        if node.function == "or":
            return Meaning(OPTIONAL)
        if others and not inner.place:
            values = inner.values if others[0].text == "" else None
            return Meaning(kinds.joined((inner.kinds, others[0].kinds)), inner.called, values=values)
        return inner

    def _within(self, node: tree.Call, own: Meaning, holder: Meaning) -> Meaning:
        written = node.arguments[0]
        if holder.place and isinstance(written, tree.Literal) and isinstance(written.value, str):
            self._member(holder, written.value, self._at(written.value, written.at), tested=True)
        elif not kinds.fits(holder.kinds, ("list", "map")):
            self._wrong(
                node.at, f"{_subject(holder)} is {kinds.word(holder.kinds)}; the operator in requires a list or a map"
            )
        elif holder.items and not any(kinds.agree(own.kinds, item.kinds) for item in holder.items):
            self._equal(node.at, own, holder.items[0], "never true")
        for item in holder.items:
            self._possible(node.at, own, item, "always false")
        return Meaning(BOOL)

    def _compared(self, node: tree.Call, left: Meaning, right: Meaning) -> Meaning:
        if node.function in kinds.EQUALITY:
            self._equal(node.at, left, right, kinds.EQUALITY[node.function])
        elif not kinds.ordered(left.kinds, right.kinds):
            what = f"{_subject(left)} is {kinds.word(left.kinds)} and {_subject(right)} {kinds.word(right.kinds)}"
            hint = _rewritten(left, right)
            if QUANTITY in (left.kinds, right.kinds):
                hint = "compare quantities with isGreaterThan(), isLessThan() or compareTo()"
            self._wrong(node.at, f"{what}; they cannot be ordered", hint)
        return Meaning(BOOL)

    def _equal(self, at: int, left: Meaning, right: Meaning, consequence: str) -> None:
        if not kinds.agree(left.kinds, right.kinds):
            what = f"{_subject(left)} is {kinds.word(left.kinds)} and {_subject(right)} {kinds.word(right.kinds)}"
            self._wrong(at, f"{what}, so this is {consequence}", _rewritten(left, right))
        self._possible(at, left, right, consequence)
        self._possible(at, right, left, consequence)

    def _possible(self, at: int, own: Meaning, other: Meaning, consequence: str) -> None:
        """Refuse a value that an attribute is compared with and can never have."""
        if own.values is None or other.text is None:
            return
        shown = _cut(other.text)
        if not own.values.is_possible(other.text):
            what = f'{own.called} is never "{shown}", so this is {consequence}'
            self._wrong(self._at(other.text, at), what, own.values.hint(other.text))
        elif own.values.known and other.text and other.text not in own.values.known:
            what = f'{own.called} "{shown}" is unknown to netdra'
            self._remark(self._at(other.text, at), what, "`netdra discover` shows the values of a node", wrong=False)

    def _counted(self, node: tree.Call, given: list[Meaning]) -> Meaning:
        taken = kinds.ARITHMETIC[node.function]
        for part in given:
            if not kinds.fits(part.kinds, taken):
                self._wrong(node.at, f"{_subject(part)} is {kinds.word(part.kinds)}; arithmetic is not supported")
                return _NOTHING
        if not all(kinds.agree(given[0].kinds, part.kinds) for part in given):
            what = f"{_subject(given[0])} is {kinds.word(given[0].kinds)} and {_subject(given[1])} "
            self._wrong(node.at, f"{what}{kinds.word(given[1].kinds)}; arithmetic on both is not supported")
            return _NOTHING
        return Meaning(kinds.joined(part.kinds for part in given))

    def _member(self, own: Meaning, name: str, at: int, *, tested: bool) -> Meaning:
        """The meaning of `own.name`, or `own["name"]`."""
        if own.place == ("device",):
            return self._driver if name == "driver" else _FIELDS.get(name, _NOTHING)
        if own.place == (ATTRIBUTES,) or own.place == (CAPACITY,):
            return self._domain(own.place[0], name, at, tested=tested)
        if own.place:
            field, domain = own.place
            if tested:
                self._tested.add(domain)
            if not self._is_given(domain):
                return _NOTHING
            return self._attribute(domain, name, at) if field == ATTRIBUTES else self._amount(domain, name, at)
        if own.kinds and not kinds.fits(own.kinds, ("map", "list", "optional")):
            shown = _cut(name)
            hint = f'{own.called} is the value itself: remove "{shown}"' if own.called else ""
            self._wrong(at, f'{_subject(own)} is {kinds.word(own.kinds)} and does not have a field "{shown}"', hint)
        return _NOTHING

    def _domain(self, field: str, domain: str, at: int, *, tested: bool) -> Meaning:
        """The meaning of `device.attributes[domain]`."""
        if tested:
            self._tested.add(domain)
        shown = _cut(domain)
        path, _, name = domain.rpartition("/")
        if self._is_given(domain):
            return Meaning(("map",), place=(field, domain))
        if own := self._vocabulary.domain_of(name) if not path or self._vocabulary.is_own(path) else "":
            what = f'"{shown}" is not a domain; device.{field} is a map of domains'
            self._wrong(at, what, f'write device.{field}["{own}"].{name}')
        elif near := self._vocabulary.nearest_domain(domain):
            self._wrong(at, f'devices do not have {field} of domain "{shown}"', f'did you mean "{near}"?')
        else:
            if not tested:
                text = f'{field} of domain "{shown}" are not set on any device yet; the selector fails on every device'
                if not self._vocabulary.of_devices:
                    text = f'interfaces do not have {field} of domain "{shown}" when policies are evaluated'
                self._remark_on_name(
                    domain, at, text, "test it with has() if some devices will not have it", wrong=False
                )
            return Meaning(("map",), place=(field, domain))
        return _NOTHING

    def _is_given(self, domain: str) -> bool:
        """Whether devices have attributes or capacities of a domain."""
        capacity = self._vocabulary.added.capacity
        return domain in self._vocabulary.domains or any(name.startswith(f"{domain}/") for name in capacity)

    def _attribute(self, domain: str, name: str, at: int) -> Meaning:
        """The meaning of `device.attributes[domain].name`."""
        vocabulary, qualified, shown = self._vocabulary, f"{domain}/{name}", _cut(name)
        given = vocabulary.kinds(qualified)
        if given is not None and (vocabulary.of_devices or qualified in vocabulary.facts):
            return Meaning(given, name, values=vocabulary.values.get(qualified))
        near = vocabulary.nearest(domain, name)
        if qualified in vocabulary.withheld:
            text = f'"{shown}" is known for interfaces but not published; only policies can select by it'
            self._wrong(at, text, "add an attribute to the policy that selects by it")
        elif given is not None:
            text = f'"{shown}" is added to devices after policies select interfaces; interfaces do not have it'
            self._remark_on_name(
                domain, at, text, "select by an attribute of the interface", wrong=vocabulary.is_own(domain)
            )
        elif vocabulary.is_own(domain) and (near or not vocabulary.of_devices):
            meant = near or vocabulary.likely(domain, name)
            hint = f'did you mean "{meant}"?' if meant else "`netdra discover` shows the attributes of interfaces"
            self._wrong(at, f'interfaces do not have an attribute "{shown}" of domain {domain}', hint)
        else:
            text = (
                f'attribute "{shown}" of domain {domain} is not set on any device yet; the selector does '
                "not match any device"
            )
            hint = "a policy can set it with additionalAttributes"
            if qualified in vocabulary.added.capacity:
                hint = f'did you mean device.capacity["{domain}"].{name}?'
            elif meant := vocabulary.likely(domain, name):
                hint = f'did you mean "{meant}"?'
            self._remark_on_name(domain, at, text, hint, wrong=False)
        return _NOTHING

    def _amount(self, domain: str, name: str, at: int) -> Meaning:
        """The meaning of `device.capacity[domain].name`."""
        vocabulary, qualified, shown = self._vocabulary, f"{domain}/{name}", _cut(name)
        if not vocabulary.of_devices:
            text = (
                f'interfaces do not have a capacity "{shown}"; policies add capacities to devices after '
                "they select interfaces"
            )
            self._remark_on_name(domain, at, text, "select by attributes", wrong=vocabulary.is_own(domain))
        elif qualified in vocabulary.added.capacity or qualified in vocabulary.capacity:
            return Meaning(QUANTITY, name)
        elif vocabulary.kinds(qualified) is not None:
            text = f'"{shown}" is an attribute, not a capacity'
            self._wrong(at, text, f'write device.attributes["{domain}"].{name}')
        else:
            text = (
                f'capacity "{shown}" of domain {domain} is not set on any device yet; the selector does '
                "not match any device"
            )
            self._remark_on_name(domain, at, text, "a policy can set it with exposure.capacity", wrong=False)
        return _NOTHING

    def _remark_on_name(self, domain: str, at: int, text: str, hint: str, *, wrong: bool) -> None:
        """Keep a remark on a name, with its domain if that is not netdra's."""
        if not wrong and not self._vocabulary.is_own(domain):
            self._foreign[text] = domain
        self._remark(at, text, hint, wrong=wrong)

    def _wrong(self, at: int, text: str, hint: str = "") -> None:
        self._remark(at, text, hint, wrong=True)

    def _remark(self, at: int, text: str, hint: str, *, wrong: bool) -> None:
        line, column = source.position(self._expression, at)
        remark = Remark(text=text, hint=hint, wrong=wrong, line=line, column=column, expression=self._expression)
        self._remarks.setdefault(text, remark)

    def _at(self, name: str, after: int) -> int:
        """Where a name is written that belongs to a node; the node's own place if it is written in another way."""
        place = self._expression.find(name, after)
        return place if place >= 0 else after


def _written(node: tree.Literal) -> str:
    """A literal as the author may have written it."""
    if isinstance(node.value, bool):
        return "true" if node.value else "false"
    if isinstance(node.value, str):
        return f'"{_cut(node.value)}"'
    return str(node.value) if isinstance(node.value, int | float) else ""


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _subject(meaning: Meaning) -> str:
    return meaning.called or "this value"


def _rewritten(left: Meaning, right: Meaning) -> str:
    """How two values that do not agree could be made to, as a hint."""
    for own, other in ((left, right), (right, left)):
        written = other.called.strip('"')
        if own.kinds == QUANTITY:
            return _as_quantity(other)
        if own.kinds == kinds.VERSION and other.kinds == TEXT:
            return f'write semver("{written}")'
        if own.kinds == OPTIONAL:
            return f"add .orValue() after {own.called or 'it'}"
        if other.kinds == TEXT and other.called.startswith('"'):
            if (own.kinds == ("int",) and _is_number(written)) or (own.kinds == BOOL and written in {"true", "false"}):
                return f"write {written} without quotes"
        elif own.kinds == TEXT and own.called and not own.called.startswith('"') and written:
            return f'write "{written}"'
    return ""


def _as_quantity(meaning: Meaning) -> str:
    written = meaning.called.strip('"')
    return f'write quantity("{written}")' if meaning.kinds and written else "write quantity()"


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
