"""Checks the English of netdra with Vale and the style in styles/Netdra: `python -m testbed.prose`, in `make lint`.

Vale reads the pages as they are. Texts inside other files are copied to a temporary folder first, one paragraph each:
the messages of the code (`testbed.messages`), docstrings, comments, the descriptions of the CustomResourceDefinitions
and of the charts' values, and the entries of CHANGELOG.md. Comments of tests and their data are not checked.
"""

from __future__ import annotations

import ast
import io
import itertools
import json
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed import yaml
from testbed.build import BuildError, program
from testbed.messages import ROOT, Reader, messages

ELSEWHERE = ("docs/fields.md", "docs/messages.md", "CHANGELOG.md")
"""Pages whose texts are checked where they are written, or entry by entry."""
SOURCES = ("netdra", "testbed", "tests", "bench", "image", "release")
"""The folders with docstrings."""
TOOLS = ("testbed", "bench", "image", "release")
"""The folders with messages of the project's own tools."""
_NOT_OURS = ("build", "dist")
_COMMENTED = (".yaml", ".yml", ".tpl", ".toml", ".sh", "Makefile", "Containerfile", ".py")
"""How the names of files with comments end."""
_GENERATED = ("_pb2.py", "charts/netdra/values.yaml", "charts/cni-plugins/values.yaml")
_COMMENT = re.compile(r"^\s*#+(?!!) ?(.*)$")
_OF_TOOLS = re.compile(r"noqa\b|type:|pragma:|fmt:|mypy:|yaml-language-server:")
"""A comment for a program."""
_HELP = re.compile(r"^[\w-]+:.*?## (.*)$", re.MULTILINE)
"""The help of a target in the Makefile."""
_NO_ENGLISH = re.compile(r'[\[=(] ?"|\{\{|:x:')
"""A text of a tool in another language: CEL, TOML, a Corefile, /etc/passwd."""
_NAMED = re.compile(r"^( +)(\w+):", re.MULTILINE)
"""An argument or attribute in a docstring."""
_VALUE = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True, order=True)
class Text:
    """A text to be checked.

    Attributes:
        file: the file that contains it, from the top of the repository.
        place: where it is in the file: a line, a function or the path of a field.
        text: the text itself.
    """

    file: str
    place: str
    text: str


@dataclass(frozen=True, order=True)
class Remark:
    """A finding of Vale: where it is and which rule the text breaks."""

    file: str
    place: str
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}: {self.place}: {self.text} ({self.rule})"


def pages() -> list[Path]:
    """The pages that are checked as they are: every Markdown file of the repository."""
    return [path for path in _files(".md") if str(path.relative_to(ROOT)) not in ELSEWHERE]


def _files(*endings: str) -> list[Path]:
    """The repository's files whose names end so. Folders of tools are not searched."""
    tops = (path for path in ROOT.iterdir() if path.name == ".github" or not path.name.startswith("."))
    below = (top.rglob("*") if top.is_dir() else (top,) for top in tops if top.name not in _NOT_OURS)
    return sorted(path for path in itertools.chain(*below) if path.name.endswith(endings) and path.is_file())


def texts() -> Iterator[Text]:
    """The texts inside other files."""
    for message in messages():
        yield Text(f"netdra/{message.path}", message.function, _VALUE.sub("{}", message.text))
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from _docstrings(ast.parse(_read(path)), str(path.relative_to(ROOT)))
    for path in sorted((ROOT / "charts" / "netdra" / "files" / "crds").glob("*.yaml")):
        yield from _descriptions(yaml.safe_load(_read(path)), str(path.relative_to(ROOT)), "")
    for path in sorted((ROOT / "charts").glob("*/values.schema.json")):
        yield from _descriptions(json.loads(_read(path)), str(path.relative_to(ROOT)), "")
    for path in sorted((ROOT / "charts").glob("*/templates/NOTES.txt")):
        yield Text(str(path.relative_to(ROOT)), "", _VALUE.sub("", _read(path)))
    yield from _entries(_read(ROOT / "CHANGELOG.md"))
    yield from (Text("Makefile", "help", text) for text in _HELP.findall(_read(ROOT / "Makefile")))
    yield from _of_tools()
    yield from _all_comments()


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _of_tools() -> Iterator[Text]:
    """The messages of the project's own tools."""
    for path in (path for folder in TOOLS for path in sorted((ROOT / folder).rglob("*.py"))):
        for message in Reader(str(path.relative_to(ROOT))).read(ast.parse(_read(path))):
            if not _NO_ENGLISH.search(message.text):
                yield Text(message.path, message.function, _VALUE.sub("{}", message.text))


def _all_comments() -> Iterator[Text]:
    """The comments of all files but those of tests, and generated ones."""
    for path in _files(*_COMMENTED):
        file = str(path.relative_to(ROOT))
        if not file.startswith("tests/") and not file.endswith(_GENERATED):
            yield from comments(_read(path), file)


def comments(text: str, file: str) -> Iterator[Text]:
    """The comments of a file, with their first lines: consecutive ones are one text, one after code is a text alone."""
    found: list[str] = []
    first = 0
    for line, comment, is_alone in _python_comments(text) if file.endswith(".py") else _plain_comments(text):
        if found and (line != first + len(found) or not is_alone or not comment):
            yield Text(file, f"line {first}", " ".join(found))
            found = []
        if comment and is_alone:
            first = first if found else line
            found.append(comment)
        elif comment:
            yield Text(file, f"line {line}", comment)
    if found:
        yield Text(file, f"line {first}", " ".join(found))


def _plain_comments(text: str) -> Iterator[tuple[int, str, bool]]:
    """Comments on lines of their own: the line's number, the comment, and True."""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _COMMENT.match(line):
            yield number, match[1].strip(), True


def _python_comments(text: str) -> Iterator[tuple[int, str, bool]]:
    """Comments of Python for people: the line's number, the comment, and whether the line has no code."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        comment = token.string.lstrip("#").strip()
        if token.type == tokenize.COMMENT and not _OF_TOOLS.match(comment):
            yield token.start[0], comment, not token.line[: token.start[1]].strip()


def _docstrings(tree: ast.Module, file: str) -> Iterator[Text]:
    """The docstrings of a module, with the class or function of each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield Text(
                    file, getattr(node, "name", "module"), _NAMED.sub(r"\1`\2`:", text).replace("None", "`None`")
                )


def _descriptions(value: Any, file: str, place: str) -> Iterator[Text]:
    """The descriptions in a schema, with the path of the field that each describes."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            if name == "description" and isinstance(below, str):
                yield Text(file, place, below)
            else:
                hidden = (
                    name in {"spec", "schema", "openAPIV3Schema", "properties", "versions"} and "spec." not in place
                )
                yield from _descriptions(below, file, place if hidden else f"{place}.{name}".strip("."))
    elif isinstance(value, list):
        for below in value:
            yield from _descriptions(below, file, place)


def _entries(changelog: str) -> Iterator[Text]:
    _, *sections = changelog.split("\n## ")
    for section in sections:
        for entry in re.split(r"\n(?=- )", section.partition("\n")[2].strip()):
            yield Text("CHANGELOG.md", f"{entry[:40].splitlines()[0]} …" if entry else "", entry)


def check(paths: Iterable[Path], copied: Iterable[Text]) -> list[Remark]:
    """The findings in pages and in texts.

    Raises:
        BuildError: Vale is not built, or failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        places: dict[str, list[Text]] = {}
        for number, (file, found) in enumerate(_by_file(copied).items()):
            path = Path(folder) / f"{number}-{Path(file).stem}.md"
            path.write_text("".join(f"{_paragraph(each.text)}\n\n" for each in found), encoding="utf-8")
            places[str(path)] = found
        found_by_vale = _vale([*map(str, paths), *places])
    return sorted(_remark(file, alert, places.get(file)) for file, alerts in found_by_vale.items() for alert in alerts)


def _by_file(copied: Iterable[Text]) -> Mapping[str, list[Text]]:
    grouped: dict[str, list[Text]] = {}
    for each in copied:
        grouped.setdefault(each.file, []).append(each)
    return grouped


def _paragraph(text: str) -> str:
    """A text on one line, so that the line of a finding reports which text it is in; not read as other Markdown."""
    line = " ".join(text.split()).replace("<", "\\<").replace("|", "\\|")
    return line.removeprefix("- ").lstrip("#>+*=~ ") or "-"


def _vale(paths: Sequence[str]) -> Mapping[str, list[dict[str, Any]]]:
    command = (str(program("vale")), "--config", str(ROOT / ".vale.ini"), "--output=JSON", "--no-exit", *paths)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"vale failed:\n{done.stdout}{done.stderr}")
    alerts: Mapping[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return alerts


def _remark(file: str, alert: Mapping[str, Any], copied: Sequence[Text] | None) -> Remark:
    if copied is None:
        return Remark(str(Path(file).relative_to(ROOT)), f"line {alert['Line']}", alert["Check"], alert["Message"])
    source = copied[(alert["Line"] - 1) // 2]
    return Remark(source.file, source.place, alert["Check"], f"{alert['Message']} in: {source.text}")


def main() -> int:
    """Print the findings, and return the exit code."""
    try:
        remarks = check(pages(), texts())
    except BuildError as problem:
        print(f"prose: {problem}", file=sys.stderr)
        return 1
    print(*remarks, f"prose: {len(remarks)} findings", sep="\n")
    return 1 if remarks else 0


if __name__ == "__main__":
    sys.exit(main())
