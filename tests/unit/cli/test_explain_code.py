"""`netdra explain-code`: causes, next steps and examples; codes of the kernel, the API server and plugins."""

from __future__ import annotations

import errno
import json
from http import HTTPStatus

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from netdra.cli.codes import every, find, spelled
from netdra.cli.explain_code import command
from netdra.cni.errors import KINDS, PluginFailure, PluginPermanentError
from netdra.kernel.errors import kernel_error
from netdra.kube.errors import Status, api_error
from netdra.model.errors import (
    InvalidInputError,
    NetdraError,
    PermanentError,
    code_of,
    with_code,
    without_code,
    without_hint,
)


def explained(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


@pytest.mark.parametrize("written", ["ND1285", "nd1285", "1285", "(ND1285)"])
def test_a_code_is_explained_with_cause_next_step_and_example(written: str) -> None:
    shown = explained(written).output
    assert shown.startswith("ND1285: an object or its values\n")
    assert all(f"\n{title}:\n" in shown for title in ("Cause", "Next step", "Example", "In the code"))
    assert "does not depend on" in shown
    assert "netdra/topology/graph.py" in shown


def test_several_codes_in_json() -> None:
    first, second = json.loads(explained("ND8403", "ND9016", "--output", "json").output)
    assert first == {"code": "ND8403", "texts": ["403 Forbidden"]}
    assert (second["code"], second["texts"]) == ("ND9016", ["EBUSY: Device or resource busy"])


def test_all_codes_are_listed_without_an_argument() -> None:
    listed = explained().output
    assert all(code in listed for code in every())


@pytest.mark.parametrize("wrong", ["ND0000", "ND7099", "foo", "ND12345", ""])
def test_another_text_is_an_error_with_the_next_step(wrong: str) -> None:
    with pytest.raises(NetdraError, match=r"explain-code|as in ND1024") as raised:
        command.main([wrong], standalone_mode=False)
    assert raised.value.code == "ND4099"


@given(st.sampled_from(sorted(errno.errorcode)))
def test_every_error_of_the_kernel_is_explained(number: int) -> None:
    problem = kernel_error(number, "cannot set link up")
    assert problem.code == f"ND9{number:03}"
    assert (code := find(problem.code)) is not None
    assert errno.errorcode[number] in code.texts[0] or number == errno.EOPNOTSUPP
    assert code.hints == ((problem.hint,) if problem.hint else ())


@given(st.integers(0, 4095))
def test_every_number_of_the_kernel_and_status_of_the_api_server_is_explained(number: int) -> None:
    code = kernel_error(number or errno.EIO, "x").code
    assert spelled(code) == code
    assert find(code) is not None
    if not number or 400 <= number < 600:
        assert find(api_error("x", Status(code=number)).code) is not None


def test_statuses_of_the_api_server_have_their_phrase() -> None:
    for status in (each for each in HTTPStatus if each >= HTTPStatus.BAD_REQUEST):
        code = find(api_error("create pods", Status(code=status)).code)
        assert code is not None
        assert code.texts == (f"{status.value} {status.phrase}",)


def test_every_failure_of_a_plugin_is_explained() -> None:
    failures = [PluginFailure(plugin="x", verb="ADD", kind=kind, message="m") for kind in KINDS]
    failures += [PluginFailure(plugin="x", verb="ADD", kind="error", message="m", code=code) for code in range(200)]
    codes = [PluginPermanentError(failure).code for failure in failures]
    assert all(find(code) is not None for code in codes)
    assert len(set(codes[: len(KINDS)])) == len(KINDS)


@given(st.text(min_size=1), st.text())
def test_a_code_is_put_in_once_and_found_again(what: str, hint: str) -> None:
    inner = PermanentError(what, hint=hint, code="ND2001")
    outer = PermanentError(f"outside: {inner}", code="ND2002")
    assert code_of(str(inner)) == code_of(str(outer)) == inner.code == outer.code == "ND2001"
    assert str(outer).count("(ND2001)") == 1
    assert without_code(with_code("a\nb", "ND2001")) == "a\nb"


@given(st.from_regex(r"[a-z ]* \(ND[0-9]{4}\)", fullmatch=True))
def test_a_value_of_a_user_is_no_code(value: str) -> None:
    problem = InvalidInputError(f'mode "{value}" is unknown', hint="write another one", code="ND1042")
    assert problem.code == code_of(str(problem)) == "ND1042"
    assert f'"{value}"' in without_code(str(problem))


def test_the_hint_is_cut_off_and_the_code_stays() -> None:
    problem = PermanentError("it is broken", hint="mend it", code="ND2001")
    assert without_hint(str(problem), problem.hint) == "it is broken (ND2001)"
    assert without_hint("it is broken", "mend it") == "it is broken"
