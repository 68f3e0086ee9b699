"""Codes of errors: every place of the code has one, none has another's, and the list for users is up to date."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import netdra
from netdra.cli.codes import FILE, ErrorCodes, every, read
from netdra.model.errors import NetdraError
from testbed.codes import collected, free, written
from testbed.codes_pages import TITLES, coded_parts, page_of_codes
from testbed.messages import PACKAGE

WITHOUT = frozenset({"AttachError", "AttachPermanentError", "AttachTemporaryError", "KernelError"})
"""Errors that take the code of another error, or that of a number."""


DIAGNOSES = {"_finding": 1, "_in_cluster": 0}
"""The functions of `netdra.doctor` that make findings, and the place of the level among their arguments."""


QUOTED = frozenset({"coded", "what", "seen"})
"""The attributes whose texts end with the code of an error that is quoted."""


def errors() -> Iterator[type[NetdraError]]:
    """All classes of netdra's errors."""
    for module in pkgutil.walk_packages(netdra.__path__, "netdra."):
        importlib.import_module(module.name)
    waiting = [NetdraError]
    while waiting:
        yield (kind := waiting.pop())
        waiting += kind.__subclasses__()


def coded() -> frozenset[str]:
    """The names of everything with a code: errors, and the functions that make findings."""
    taking = {kind.__name__ for kind in errors() if "code" in inspect.signature(kind).parameters}
    return frozenset({*taking, "Finding", "about", "wrong"}) - WITHOUT


def test_the_list_of_codes_is_that_of_the_code() -> None:
    assert FILE.read_text() == written(collected(read())), "make docs writes it"


def test_every_finding_of_the_doctor_that_is_not_well_has_a_code() -> None:
    calls = [
        node
        for path in sorted((PACKAGE / "doctor").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _called(node) in DIAGNOSES
    ]
    assert len(calls) > 150
    for call in calls:
        level, seen = call.args[(place := DIAGNOSES[_called(call)])], call.args[place + 1]
        is_well = isinstance(level, ast.Constant) and level.value == "ok"
        is_quoted = isinstance(seen, ast.Attribute) and seen.attr in QUOTED
        codes = [keyword for keyword in call.keywords if keyword.arg == "code"]
        assert bool(codes) != (is_well or is_quoted), ast.unparse(call)


def test_every_error_and_finding_has_a_code() -> None:
    names = coded()
    assert {"InvalidInputError", "PermanentError", "TemporaryError", "CloudsError"} <= names
    missing = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _called(node) in names and _has_text(node):
                stated = {keyword.arg for keyword in node.keywords}
                if "code" not in stated and None not in stated:
                    missing.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)[:80]}")
    assert missing == [], "python -m testbed.codes next FAMILY"


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _has_text(node: ast.Call) -> bool:
    """Whether the call makes an error, and is not, e.g., `index.about(device)`."""
    return len(node.args) + len(node.keywords) > (1 if _called(node) == "about" else 0)


def test_a_code_of_two_places_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.codes.PACKAGE", tmp_path)
    (tmp_path / "a.py").write_text('def f() -> None:\n    raise InvalidInputError("it is wrong", code="ND1001")\n')
    assert [code.texts for code in collected(ErrorCodes()).codes] == [("it is wrong",)]
    (tmp_path / "b.py").write_text('FOUND = Finding("that is wrong", "mend it", code="ND1001")\n')
    with pytest.raises(ValueError, match=r"ND1001 is in a\.py and in b\.py"):
        collected(ErrorCodes())


def test_a_retired_code_does_not_come_back() -> None:
    known = read()
    gone = ErrorCodes(codes=known.codes, retired=(known.codes[0].code,))
    with pytest.raises(ValueError, match=re.escape(f"{known.codes[0].code}: retired, and in the code again")):
        collected(gone)


def test_a_code_that_is_gone_stays_retired_and_is_not_given_again() -> None:
    known = read()
    last = known.codes[-1]
    former = ErrorCodes(codes=(*known.codes, type(last)(f"{last.code[:3]}998", file="gone.py")))
    now = collected(former)
    assert now.retired == (f"{last.code[:3]}998",)
    assert free(last.code[2], now) == f"{last.code[:3]}999"


def test_every_code_is_on_a_page_once() -> None:
    pages = {part: page_of_codes(part) for part in coded_parts()}
    assert pages.keys() == TITLES.keys()
    sections = [code for page in pages.values() for code in re.findall(r"^## (ND\d{4})$", page, re.MULTILINE)]
    assert sorted(sections) == sorted(every())
