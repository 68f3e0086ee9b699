"""The rows of `tests/promises`: promise, test, and the edits that break the promise; and the record of proven rows.

Pure but for the files that are read. Used by the command, by `testbed.promises.trial`, and by `tests/unit/docs`.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

from testbed import yaml

FOLDER = Path("tests/promises")
PROVEN = FOLDER / "proven.json"
_WHOLE_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
_CODE = re.compile(r',?\s*\bcode=(?:"ND\d{4}"|[\w.\[\]]+\.code)')
_LEVELS = {
    "tests/unit/": "unit",
    "tests/kernel/": "kernel",
    "tests/hardware/": "hardware",
    "tests/testbed/": "machine",
    "tests/upgrade/": "upgrade",
    "tests/cluster/pods/": "pods",
    "tests/cluster/install/": "pods",
    "tests/cluster/": "cluster",
}


class MutationError(Exception):
    """A mutation or a test does not fit the files of the checkout; the text names the file and the problem."""


@dataclass(frozen=True)
class Edit:
    """Whole lines of a file that are replaced by others. Their common indentation does not count.

    Attributes:
        file: relative to the checkout.
        old: lines that occur exactly once in the file.
        new: the lines in their place; none at all if it is empty.
    """

    file: str
    old: str
    new: str

    def apply(self, text: str) -> str:
        """The file's text after the edit.

        Raises:
            MutationError: the lines do not occur, or occur more than once.
        """
        begin, end = self.place(text)
        lines = text.splitlines(keepends=True)
        margin = lines[begin][: len(lines[begin]) - len(lines[begin].lstrip())]
        shift = margin.removesuffix(_margin(self.old))
        new = indent(self.new.rstrip("\n") + "\n", shift) if self.new else ""
        return "".join((*lines[:begin], new, *lines[end:]))

    def place(self, text: str) -> tuple[int, int]:
        """The first of the lines, and the line after the last one, counted from 0.

        Raises:
            MutationError: the lines do not occur, or occur more than once.
        """
        wanted, lines = dedent(self.old).splitlines(), text.splitlines()
        count = len(wanted)
        places = [
            begin
            for begin in range(len(lines) - count + 1)
            if wanted[0] in lines[begin] and dedent("\n".join(lines[begin : begin + count])).splitlines() == wanted
        ]
        if len(places) != 1:
            raise MutationError(f"{self.file} contains these lines {len(places)} times, not once:\n{self.old}")
        return places[0], places[0] + count


@dataclass(frozen=True)
class Promise:
    """A promise and the mistake that breaks it.

    Attributes:
        page: the page with the promise, relative to the checkout.
        text: the first cell of the page's row.
        test: the test that must fail, as a node id of pytest.
        mistake: the effect of the edits, in plain words.
        edits: the changes of the code.
    """

    page: str
    text: str
    test: str
    mistake: str
    edits: tuple[Edit, ...]

    @property
    def key(self) -> str:
        """Its name in the record."""
        return f"{self.page}: {self.text}"

    @property
    def level(self) -> str:
        """The level of its test, a name of `testbed.suite.levels.LEVELS`.

        Raises:
            MutationError: the test is in no level's folder.
        """
        for folder, level in _LEVELS.items():
            if self.test.startswith(folder):
                return level
        raise MutationError(f"{self.test} is not in a folder of a level: {', '.join(_LEVELS)}")


def read(root: Path) -> list[Promise]:
    """The rows of all pages, in their order."""
    return [row for path in sorted((root / FOLDER).glob("*.yaml")) for row in _rows(path.read_text(encoding="utf-8"))]


def _rows(text: str) -> Iterator[Promise]:
    content = yaml.safe_load(text)
    for row in content["promises"]:
        edits = tuple(Edit(edit["file"], edit["from"], edit["to"] or "") for edit in row["edits"])
        yield Promise(content["page"], row["promise"], row["test"], row["mistake"], edits)


def chosen(promises: Sequence[Promise], words: Sequence[str]) -> list[Promise]:
    """The rows whose promise, page or test contains each of the words, in upper or lower case."""
    return [row for row in promises if all(word.casefold() in f"{row.key} {row.test}".casefold() for word in words)]


def mutated(edits: Sequence[Edit], root: Path) -> Mapping[str, str]:
    """File -> its text after the edits.

    Raises:
        MutationError: a file does not exist, or an edit does not fit it.
    """
    texts: dict[str, str] = {}
    for edit in edits:
        texts[edit.file] = edit.apply(texts[edit.file] if edit.file in texts else _text(root / edit.file))
    return texts


def digest(promise: Promise, root: Path) -> str:
    """A digest of the mutation, of the test's function, and of the functions that the mutation changes.

    Unrelated changes of the same files leave it as it is; so do changes of the test's fixtures and helpers, and of the
    code's format, comments, docstrings and codes of errors.

    Raises:
        MutationError: the mutation does not fit, or the test does not exist.
    """
    parts = [promise.test, _function(promise.test, root)[1]]
    for edit in promise.edits:
        parts += [edit.file, edit.old, edit.new, _surroundings(edit, _text(root / edit.file))]
    return hashlib.sha256("\0".join(map(_bare, parts)).encode()).hexdigest()[:16]


def _bare(source: str) -> str:
    """Source without what the formatter decides, and without codes of errors."""
    return "".join(_CODE.sub("", source).split()).replace(",)", ")").replace(",]", "]").replace(",}", "}")


def unproven(promises: Sequence[Promise], root: Path) -> list[Promise]:
    """The rows whose digest differs from the recorded one.

    Raises:
        MutationError: a row does not fit the checkout.
    """
    record = recorded(root)
    return [row for row in promises if record.get(row.key) != digest(row, root)]


def recorded(root: Path) -> Mapping[str, str]:
    """Key of a row -> its digest when its test noticed the mistake."""
    try:
        content: dict[str, str] = json.loads((root / PROVEN).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return content


def record(promise: Promise, root: Path) -> None:
    """Write that the test of a row notices the mistake; rows that no longer exist are removed."""
    keys = {row.key for row in read(root)}
    content = {key: value for key, value in recorded(root).items() if key in keys} | {
        promise.key: digest(promise, root)
    }
    (root / PROVEN).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _margin(text: str) -> str:
    """The indentation of the first line."""
    return text[: len(text) - len(text.lstrip())]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MutationError(f"{path} does not exist") from None


def node_id(test: str, root: Path) -> str:
    """A test as pytest names it: with its class, which pages leave out.

    Raises:
        MutationError: the test does not exist.
    """
    file, _, name = test.partition("::")
    classes, _ = _function(test, root)
    return "::".join((file, *classes, name))


def _function(test: str, root: Path) -> tuple[tuple[str, ...], str]:
    """The class of a test's function, if it has one, and the function's source."""
    file, _, name = test.partition("::")
    text = _text(root / file)
    module = ast.parse(text)
    bodies = {(): module.body} | {(node.name,): node.body for node in module.body if isinstance(node, ast.ClassDef)}
    for classes, body in bodies.items():
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name.partition("[")[0]:
                return classes, _source([node], text)
    raise MutationError(f"{file} does not have a test {name!r}")


def _surroundings(edit: Edit, text: str) -> str:
    """The source of the functions, or of the other statements, that an edit touches; all of a file of another kind."""
    begin, end = edit.place(text)
    if not edit.file.endswith(".py"):
        return _WHOLE_COMMENT.sub("", text)
    return _source(list(_touched(ast.parse(text).body, begin + 1, end)), text)


def _touched(body: Sequence[ast.stmt], first: int, last: int) -> Iterator[ast.stmt]:
    """The statements of a module with lines from the first to the last, and of a class those of its body."""
    for node in body:
        if node.lineno <= last and first <= (node.end_lineno or node.lineno):
            within = list(_touched(node.body, first, last)) if isinstance(node, ast.ClassDef) else []
            yield from within or [node]


def _without_comments(text: str) -> list[str]:
    """The lines of a module without its comments."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = lines[token.start[0] - 1][: token.start[1]]
    return lines


def _source(nodes: Sequence[ast.stmt], text: str) -> str:
    """The lines of statements with their decorators, without comments and docstrings."""
    lines = _without_comments(text)
    for node in (each for top in nodes for each in ast.walk(top)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node):
            first, last = node.body[0].lineno, node.body[0].end_lineno or node.body[0].lineno
            lines[first - 1 : last] = [""] * (last - first + 1)
    firsts = [min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]) for node in nodes]
    return "\n".join(
        line for first, node in zip(firsts, nodes, strict=True) for line in lines[first - 1 : node.end_lineno]
    )
