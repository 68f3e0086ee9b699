"""References `{{ step.field }}` in a step's config: found before anything runs, resolved just before the step does.

Not a language: a reference names a step and one of its result's fields, a parameter, or a fact of the device, the node
or the pod, and nothing else is possible between the braces. A string that is one reference becomes the field's value
with its type (a list stays a list); inside a longer text the value becomes text (decision D9). `find` serves `graph`
and the checks, `put` puts in parameters and facts when a claim is bound, `resolve` serves `netdra.chain`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from netdra.model import suggestions
from netdra.model.findings import Path, dotted, quoted
from netdra.model.result import StepResult
from netdra.topology import facts, values
from netdra.topology.facts import Fact
from netdra.topology.values import ConfigError

MAX_REFERENCES = 1024
MAX_RESOLVED = 1024 * 1024
# The key of a label has up to 317 characters.
_MAX_LENGTH = 384

PARAMETERS = "params"
"""The word in a step's place that means the topology's parameters: `{{ params.address }}`."""

_INSIDE = r"[ \t]*([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)\.([A-Za-z][A-Za-z0-9]*)(?:\[(\d{1,3})\]\.([a-z]+))?[ \t]*\Z"
_FACT = (
    rf"[ \t]*({'|'.join(facts.ROOTS)})\.([A-Za-z]+)"
    r"(?:\.([A-Za-z_][A-Za-z0-9_]*)|\[(?:\"([^\"\]]*)\"|'([^'\]]*)')\])?[ \t]*\Z"
)
# A pair of signs that look like the braces but are others would silently stay text.
_LOOK_ALIKE = "[{\uff5b\ufe5b\u2774\u2983\u3010][\uff5b\ufe5b\u2774\u2983\u3010]|[\uff5b\ufe5b\u2774\u2983\u3010]{"


_MEANT = dict.fromkeys(("ip", "ips", "address", "addresses"), 'did you mean "ips[0].address"?')
_MEANT |= dict.fromkeys(("name", "ifName", "interface", "dev"), 'did you mean "interfaceName"?')
_MEANT |= {"hwaddr": 'did you mean "mac"?', "pciBusID": 'did you mean "pciAddress"?'}
"""Words that are used elsewhere for some of the fields."""


class BadReferenceError(ConfigError):
    """A text between `{{` and `}}` is not a reference, or names something that is not there."""


class Reference(msgspec.Struct, frozen=True):
    """One field of one step's result, `index` counts only for `ips`; or, of the step `params`, one parameter.

    A fact's `step` is `device`, `node` or `pod`; `key` is the name of the device's attribute or of the node's label. No
    result has a field of a fact's name, so a step may be called so.
    """

    step: str
    field: str
    index: int = 0
    key: str = ""

    @property
    def is_parameter(self) -> bool:
        """Whether it is replaced when a claim is bound, and not when its step runs."""
        return self.step == PARAMETERS

    @property
    def fact(self) -> Fact | None:
        """The fact of the device, the node or the pod that it stands for, known when a claim is bound; None if none."""
        return facts.of(self.step, self.field, self.key)

    @property
    def is_of_result(self) -> bool:
        """Whether it is replaced when its step runs: it names the result of another step."""
        return not self.is_parameter and self.fact is None

    def __str__(self) -> str:
        """The reference as it is written."""
        if self.key:
            is_plain = self.step == facts.DEVICE and "/" not in self.key
            key = f".{self.key}" if is_plain else f'["{self.key}"]'
            return f"{{{{ {self.step}.{self.field}{key} }}}}"
        field = f"ips[{self.index}].address" if self.field == "ips" and not self.is_parameter else self.field
        return f"{{{{ {self.step}.{field} }}}}"

    @property
    def is_list(self) -> bool:
        """Whether the field of a result is a list: `interfaces` or `deviceNodes`."""
        return self.field in _LISTS and self.is_of_result

    @property
    def described(self) -> str:
        """Its value, in words."""
        if (fact := self.fact) is not None:
            return fact.described
        return _SAMPLES.get(self.field, ("", "a list"))[1]


def _last(entries: tuple[Any, ...], attribute: str) -> Any:
    """The attribute of the last entry that has it, or None."""
    return next((value for entry in reversed(entries) if (value := getattr(entry, attribute))), None)


def _of_last_interface(attribute: str) -> Callable[[StepResult], Any]:
    return lambda result: getattr(result.interfaces[-1], attribute) if result.interfaces else None


# `mac` and `interfaceName` are the last interface's alone; a path or an address is that of the last entry that has one.
_FIELDS: dict[str, Callable[[StepResult], Any]] = {
    "interfaceName": _of_last_interface("name"),
    "mac": _of_last_interface("mac"),
    "sandbox": lambda result: _last(result.interfaces, "sandbox"),
    "interfaces": lambda result: list(msgspec.to_builtins(result.interfaces)) or None,
    "pciAddress": lambda result: _last(result.devices, "pci_address") or _last(result.interfaces, "pci_id"),
    "iommuGroup": lambda result: _last(result.devices, "iommu_group"),
    "deviceNodes": lambda result: list(_last(result.devices, "device_nodes") or ()) or None,
    "rdmaDevice": lambda result: _last(result.devices, "rdma_device"),
}
FIELDS: tuple[str, ...] = (*_FIELDS, "ips[N].address")
"""All fields that can be referenced, as they are written."""


_LISTS = frozenset({"interfaces", "deviceNodes"})
# A sample of each field's value, and its name. Addresses: RFC 5737.
_SAMPLES: Mapping[str, tuple[str, str]] = {
    "interfaceName": ("net1", "an interface's name"),
    "mac": ("02:00:00:00:00:01", "a MAC address"),
    "sandbox": ("/var/run/netns/pod", "the path of a network namespace"),
    "ips": ("192.0.2.1/24", "an address with its prefix length"),
    "pciAddress": ("0000:00:00.0", "a PCI address"),
    "iommuGroup": ("0", "the number of an IOMMU group"),
    "rdmaDevice": ("rdma0", "the name of an RDMA device"),
}


def samples(parts: Sequence[str | Reference]) -> tuple[str, ...]:
    """Examples of the values of a text with references, in the right form; more than one only with facts."""
    known = [part.fact if isinstance(part, Reference) else None for part in parts]
    count = max((len(fact.samples) for fact in known if fact is not None), default=1)
    return tuple(
        "".join(_sample(part, fact, at) for part, fact in zip(parts, known, strict=True)) for at in range(count)
    )


def _sample(part: str | Reference, fact: Fact | None, at: int) -> str:
    if isinstance(part, str):
        return part
    return fact.samples[at % len(fact.samples)] if fact is not None else _SAMPLES.get(part.field, ("", ""))[0]


def parse(text: str) -> tuple[str | Reference, ...]:
    """A text as the literal parts and references that it is made of, in order; linear in its length.

    Raises:
        BadReferenceError: the text between braces is not a reference, or the braces are not closed.
    """
    parts: list[str | Reference] = []
    position = 0
    while (opening := text.find("{{", position)) >= 0:
        closing = text.find("}}", opening + 2, opening + _MAX_LENGTH)
        if closing < 0:
            raise BadReferenceError(
                f"{quoted(text[opening:])} opens a reference that is not closed",
                hint=_closed(text[opening + 2 : opening + _MAX_LENGTH]),
                code="ND1338",
            )
        if opening > position:
            parts.append(text[position:opening])
        parts.append(_reference(text[opening + 2 : closing]))
        position = closing + 2
    if not text.isascii() and re.search(_LOOK_ALIKE, text):
        raise BadReferenceError(
            f"{quoted(text)} has signs that look like {{{{ but are others",
            hint="write the braces of ASCII",
            code="ND1339",
        )
    if position < len(text):
        parts.append(text[position:])
    return tuple(parts)


def find(config: Mapping[str, Any]) -> list[tuple[Path, Reference]]:
    """All references in a config, with the path of the value that they are in.

    Raises:
        ConfigError: the config or a reference in it is malformed; the text names the path.
    """
    pairs: list[tuple[Path, Reference]] = []
    for path, text in values.strings(config):
        pairs += [(path, part) for part in _parse_at(path, text) if isinstance(part, Reference)]
        if len(pairs) > MAX_REFERENCES:
            raise BadReferenceError(
                f"{dotted(path)}: the config has more than {MAX_REFERENCES} references", code="ND1340"
            )
    return pairs


def find_facts(config: Mapping[str, Any]) -> list[tuple[Path, Reference]]:
    """The references of a config to facts of the device, the node and the pod, with the path of their value.

    Raises:
        ConfigError: as `find`.
    """
    return [entry for entry in find(config) if entry[1].fact is not None]


def made_of(pairs: Sequence[tuple[Path, Reference]], place: Path) -> str:
    """A hint at the facts that a value of a config is made of, or ""; `pairs` is as of `find`."""
    texts = [str(reference) for path, reference in pairs if path == place[: len(path)] or place == path[: len(place)]]
    return f"correct the value of {' or '.join(dict.fromkeys(texts))}, or the text around it" if texts and place else ""


def resolve(
    config: Mapping[str, Any], results: Mapping[str, StepResult], addresses: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A copy of a config with every reference replaced by its value.

    Args:
        config: a step's config.
        results: the results of the step's ancestors, by step.
        addresses: the PCI addresses of their allocated devices, by step. Few plugins have the address in their result.

    Raises:
        ConfigError: the config or a reference is malformed, a step has no result or its result lacks the field, or
            the resolved values are larger than `MAX_RESOLVED` bytes of JSON.
    """
    looked_up: dict[Reference, tuple[Any, int]] = {}
    left = [MAX_REFERENCES, MAX_RESOLVED]

    def value_of(path: Path, reference: Reference) -> Any:
        if reference not in looked_up:
            value = _look_up(path, reference, results, addresses or {})
            looked_up[reference] = (value, len(msgspec.json.encode(value)))
        value, size = looked_up[reference]
        left[0] -= 1
        left[1] -= size
        if min(left) < 0:
            raise BadReferenceError(
                f"{dotted(path)}: references resolve to more than {MAX_RESOLVED} bytes "
                f"or are more than {MAX_REFERENCES}",
                code="ND1341",
            )
        return value

    def resolved(path: Path, text: str) -> Any:
        parts = _parse_at(path, text)
        if len(parts) == 1 and isinstance(parts[0], Reference):
            return value_of(path, parts[0])
        return "".join(_as_text(value_of(path, part)) if isinstance(part, Reference) else part for part in parts)

    copied: dict[str, Any] = values.copy(dict(config), resolved)
    return copied


def fill(config: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a config in which the parameters that have a value are replaced; all else stays as it is.

    Args:
        config: a step's config.
        given: checked values by parameter; no text of them holds a brace or is empty (`netdra.topology.parameters`).

    Raises:
        ConfigError: the config or a reference is malformed.
    """
    return put(config, {Reference(PARAMETERS, name): value for name, value in given.items()})


def put(config: Mapping[str, Any], given: Mapping[Reference, Any]) -> dict[str, Any]:
    """A copy of a config in which the references that have a value are replaced; all else stays as it is.

    Raises:
        ConfigError: the config or a reference is malformed.
    """

    def filled(path: Path, text: str) -> Any:
        parts = _parse_at(path, text)
        has = [isinstance(part, Reference) and part in given for part in parts]
        if has == [True]:
            return given[parts[0]]  # type: ignore[index]
        if not any(has):
            return text
        return "".join(
            str(part) if isinstance(part, str) or part not in given else _as_text(given[part]) for part in parts
        )

    copied: dict[str, Any] = values.copy(dict(config), filled)
    return copied


def _reference(inside: str) -> Reference:
    if (fact := _fact(inside)) is not None:
        return fact
    parts = re.match(_INSIDE, inside)
    if parts is None:
        raise BadReferenceError(
            f"{quoted('{{' + inside + '}}')} is not a reference",
            hint=_rewritten(inside) or f"write {{{{ step.field }}}} with a step's name and one of {', '.join(FIELDS)}",
            code="ND1342",
        )
    step, field, index, subfield = parts.groups()
    if step == PARAMETERS and index is None:
        return Reference(step, field)
    if field == "ips" and index is not None and subfield == "address":
        return Reference(step, field, int(index))
    if field not in _FIELDS or index is not None:
        hint = _MEANT.get(field) or suggestions.hint(field, _FIELDS, "fields:")
        hint = hint if hint.startswith("did") else f"fields: {', '.join(FIELDS)}"
        if step in facts.ROOTS:
            hint = facts.near(step, field)
        if step != PARAMETERS and suggestions.closest(step, [PARAMETERS], _LIKE_PARAMETERS):
            hint = f'did you mean "{{{{ {PARAMETERS}.{field} }}}}"?'
        raise BadReferenceError(f"{quoted('{{' + inside + '}}')}: a result has no such field", hint=hint, code="ND1343")
    return Reference(step, field)


def _closed(inside: str) -> str:
    """A hint for a text after two braces that are not closed: the reference that it is if they are."""
    try:
        return f"write {_reference(inside.strip().rstrip('} '))}"
    except BadReferenceError:
        return "write {{ step.field }}; a literal {{ is not supported"


def _fact(inside: str) -> Reference | None:
    """The reference to a fact between two braces; None if it may be another one.

    Raises:
        BadReferenceError: it is of a fact, and not written as one.
    """
    parts = re.match(_FACT, inside)
    if parts is None:
        return None
    root, field, plain, *keys = parts.groups()
    key = next((text for text in (plain, *keys) if text is not None), None)
    shown = quoted("{{" + inside + "}}")
    if not facts.is_keyed(root, field):
        if key is None and facts.of(root, field) is not None:
            return Reference(root, field)
        if key is not None or field not in _FIELDS:
            what = f"{shown}: a {root} has no such fact"
            raise BadReferenceError(what, hint=facts.near(root, field, key or ""), code="ND1344")
        return None
    if not key or (plain and root == facts.NODE):
        whole = facts.written(root, key or "")
        raise BadReferenceError(f"{shown} names no {field[:-1]}", hint=f"write {{{{ {whole} }}}}", code="ND1345")
    if not facts.is_key(root, key):
        kind = "the key of a label" if root == facts.NODE else "the name of an attribute"
        example = 'node.labels["example.com/rack"]' if root == facts.NODE else "device.attributes.rail"
        raise BadReferenceError(
            f"{shown}: {quoted(key)} is not {kind}", hint=f"write e.g. {{{{ {example} }}}}", code="ND1346"
        )
    return Reference(root, field, key=key)


_LIKE_PARAMETERS = 0.8
_KEYS = {
    facts.DEVICE: r"\bdevices?\.attributes?\.([A-Za-z_]\w*)",
    facts.NODE: r"\bnodes?\.labels?\[[\"']([^\"'\]]+)[\"']\]",
}
"""By root, the attribute or the label in a text that is almost a reference."""


def _rewritten(inside: str) -> str:
    """A hint for a text that is not a reference: the most similar one."""
    for root, pattern in _KEYS.items():
        if (found := re.search(pattern, inside)) is not None:
            return f"write {{{{ {facts.written(root, found[1])} }}}}, and nothing else between the braces"
    for root in facts.ROOTS:
        if re.search(rf"\b{root}s?\.", inside):
            return f"write one of {', '.join(facts.of_root(root))}, and nothing else between the braces"
    parts = [part.partition("[")[0] for part in inside.strip(" \t").removeprefix("steps.").split(".")]
    if len(parts) > 1 and re.match(_INSIDE, f"{parts[0]}.mac"):
        if parts[1] in ("ip", "ips", "address", "addresses"):
            return f'did you mean "{{{{ {parts[0]}.ips[0].address }}}}"?'
        if parts[-1] in _FIELDS:
            return f'did you mean "{{{{ {parts[0]}.{parts[-1]} }}}}"?'
    return ""


def _parse_at(path: Path, text: str) -> tuple[str | Reference, ...]:
    try:
        return parse(text)
    except BadReferenceError as problem:
        raise BadReferenceError(f"{dotted(path)}: {problem.what}", hint=problem.hint, code=problem.code) from None


def _look_up(path: Path, reference: Reference, results: Mapping[str, StepResult], addresses: Mapping[str, str]) -> Any:
    result = results.get(reference.step)
    if reference.is_parameter:
        raise BadReferenceError(
            f"{dotted(path)}: {reference} has no value",
            hint="make the plan of a claim that gives it: netdra render",
            code="ND1347",
        )
    if reference.fact is not None:
        what = f"{dotted(path)}: {reference} has no value"
        raise BadReferenceError(
            what, hint="write the value into the plan, or let a node prepare the claim", code="ND1348"
        )
    if result is None:
        raise BadReferenceError(
            f'{dotted(path)}: {reference} names step "{reference.step}", which has no result', code="ND1349"
        )
    if reference.field == "ips":
        value = result.ips[reference.index].address if reference.index < len(result.ips) else None
    else:
        value = _FIELDS[reference.field](result)
    if reference.field == "pciAddress" and not value:
        value = addresses.get(reference.step)
    if value is None or value == "":
        raise BadReferenceError(
            f'{dotted(path)}: {reference}: the result of step "{reference.step}" has no such value '
            f"({len(result.interfaces)} interfaces, {len(result.ips)} ips, {len(result.devices)} devices)",
            code="ND1350",
        )
    return value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
