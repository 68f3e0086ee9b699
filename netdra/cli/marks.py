"""YAML with line numbers: documents as plain values, and the line of any place in them. Used by `netdra validate`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import yaml

from netdra.model import documents, yaml_text
from netdra.model.errors import InvalidInputError

_BOUNDARY = re.compile(r"---(\s|\Z)")
_ON_LINE = re.compile(r"(?<=already )on line (\d+)\Z")
_NO_CONTENT = re.compile(r"\s*(#|\Z)|---\s*(#|\Z)")


class Document(msgspec.Struct, frozen=True):
    """One document of a file, or one item of a list in it: its value, and the YAML node that has its lines.

    An object of a cluster, or of a long JSON file, has no node.

    Attributes:
        offset: the lines of the file before the text that the node was read from.
    """

    value: Any
    node: Any
    offset: int = 0

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
        return int(line) + 1 + self.offset


class UnreadableDocument(msgspec.Struct, frozen=True):
    """A document that is not YAML, or not what is read: where, and why."""

    line: int
    what: str
    hint: str = ""
    code: str = ""


def read(text: str) -> Iterator[Document | UnreadableDocument]:
    """The documents of a text; lists are opened and empty documents skipped, as `netdra.model.documents` does.

    A document that cannot be read does not keep those after it from being read.
    """
    if len(text) > yaml_text.MAX_YAML:
        yield from _without_lines(text)
        return
    if yaml_text.nests_too_deeply(text):
        yield UnreadableDocument(1, "nested more deeply than the limit")
        return
    if places := yaml_text.json_stream(text):
        for first, end in places:
            for found in _documents(text[first:end], text.count("\n", 0, first)):
                yield from [found] if isinstance(found, UnreadableDocument) else _opened(found)
        return
    begun = 0
    for found in _documents(text, 0):
        if isinstance(found, UnreadableDocument):
            break
        begun = found.node.end_mark.line
        yield from _opened(found)
    else:
        return
    # The reader cannot continue after a mistake, which may also reach into the documents that follow: each is read
    # alone.
    lines = text.splitlines(keepends=True)
    for first, last in _segments(lines, begun):
        for found in _documents("".join(lines[first:last]), first):
            yield from [found] if isinstance(found, UnreadableDocument) else _opened(found)


def _without_lines(text: str) -> Iterator[Document | UnreadableDocument]:
    """The documents of a long JSON text: lines would need its YAML nodes, which take ten times its memory."""
    try:
        for value, _ in documents.values(text, "the file"):
            yield Document(value, None)
    except InvalidInputError as problem:
        yield UnreadableDocument(1, problem.what.removeprefix("the file: "), problem.hint, problem.code)


def _segments(lines: Sequence[str], begun: int) -> Iterator[tuple[int, int]]:
    """The lines of each document from a line on, as the first and the one after the last."""
    first, has_content = begun, False
    for at in range(begun, len(lines)):
        if _BOUNDARY.match(lines[at]) and has_content:
            yield first, at
            first, has_content = at, False
        has_content = has_content or _NO_CONTENT.match(lines[at]) is None
    yield first, len(lines)


def _documents(text: str, offset: int) -> Iterator[Document | UnreadableDocument]:
    """The documents of a text up to the first that cannot be read; `offset` is the number of lines before it."""
    loader: Any = yaml_text.StrictLoader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            value = loader.construct_document(node)
            yaml_text.refuse_many_values(value, "the document")
            yield Document(value, node, offset)
    except yaml_text.KeyProblem as problem:
        what = _ON_LINE.sub(lambda at: f"on line {int(at[1]) + offset}", str(problem))
        yield UnreadableDocument(problem.line + offset, what, problem.hint, "ND4061")
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        at = mark.line if mark is not None else 0
        written = text.splitlines()[at : at + 1]
        hint = yaml_text.syntax_hint(*written) if written else yaml_text.SYNTAX
        yield UnreadableDocument(at + 1 + offset, f"not YAML: {problem.problem or problem.context}", hint, "ND4100")
    except InvalidInputError as problem:
        yield UnreadableDocument(1 + offset, problem.what, problem.hint, problem.code)
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        yield UnreadableDocument(1 + offset, f"not YAML: {yaml_text.described(problem)}", yaml_text.SYNTAX, "ND4101")
    finally:
        loader.dispose()


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


def _opened(document: Document) -> Iterator[Document | UnreadableDocument]:
    value = document.value
    if value is None:
        return
    try:
        items = documents.list_items(value)
    except InvalidInputError as problem:
        yield UnreadableDocument(document.line(("items",)), problem.what, problem.hint, problem.code)
        return
    if items is None:
        yield document
        return
    listed = _step(document.node, "items")
    if listed is not None and isinstance(listed[1], yaml.SequenceNode):
        for item, node in zip(items, listed[1].value, strict=True):
            if item is not None:
                yield Document(item, node, document.offset)
