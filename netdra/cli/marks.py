"""YAML with line numbers: documents as plain values, and the line of any place in them. Used by `netdra validate`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import yaml

from netdra.model import documents, yaml_text
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Path

_PART = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")


class Document(msgspec.Struct, frozen=True):
    """One document of a file, or one item of a list in it: its value, and the YAML node that has its lines.

    An object of a cluster has no node.
    """

    value: Any
    node: Any

    def line(self, path: Sequence[str | int] = ()) -> int:
        """The line, from 1, of a path's place, or of the nearest place around it that is there; 0 without a file."""
        if self.node is None:
            return 0
        node, line = self.node, self.node.start_mark.line
        for part in path:
            inner = _step(node, part)
            if inner is None:
                break
            line, node = inner
        return int(line) + 1


def read(text: str) -> Iterator[Document]:
    """The documents of a text; lists are opened and empty documents passed over, as `netdra.model.documents` does.

    Raises:
        InvalidInputError: the text is no YAML; the message is YAML's own, with the line.
    """
    if len(text) > yaml_text.MAX_TEXT or yaml_text.nests_too_deeply(text):
        raise InvalidInputError("larger or nested deeper than is read")
    loader: Any = yaml_text.StrictLoader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            value = loader.construct_document(node)
            yaml_text.refuse_many_values(value, f"line {node.start_mark.line + 1}")
            yield from _opened(Document(value, node))
    except yaml_text.KeyProblem as problem:
        raise InvalidInputError(f"line {problem.line}: {problem}", hint=problem.hint) from None
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line = f"line {mark.line + 1}: " if mark is not None else ""
        what = f"{line}not YAML: {problem.problem or problem.context}"
        raise InvalidInputError(what, hint=yaml_text.SYNTAX) from None
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise InvalidInputError(f"not YAML: {yaml_text.described(problem)}", hint=yaml_text.SYNTAX) from None
    finally:
        loader.dispose()


def parsed(path: str) -> Path:
    """A path as errors write it (`$.spec.steps[2].name`, `spec.selector.cel`) in its parts."""
    parts: list[str | int] = []
    for part in _PART.finditer(path.removeprefix("$")):
        if part[1] is not None:
            parts.append(part[1])
        elif part[2] is not None:
            parts.append(int(part[2]))
        else:
            break
    return tuple(parts)


def _step(node: Any, part: str | int) -> tuple[int, Any] | None:
    """The line of a part of a node, and the part."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        return item.start_mark.line, item
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == part:
                return key.start_mark.line, value
    return None


def _opened(document: Document) -> Iterator[Document]:
    value = document.value
    if value is None:
        return
    try:
        items = documents.list_items(value)
    except InvalidInputError as problem:
        raise InvalidInputError(f"line {document.line(('items',))}: {problem.what}", hint=problem.hint) from None
    if items is None:
        yield document
        return
    listed = _step(document.node, "items")
    if listed is not None and isinstance(listed[1], yaml.SequenceNode):
        yield from (Document(item, node) for item, node in zip(items, listed[1].value, strict=True) if item is not None)
