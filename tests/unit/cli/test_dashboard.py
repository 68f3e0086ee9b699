"""The dashboard of `netdra top --watch`: every screen fits its terminal, and keys lead to each cause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.cli.dashboard import VIEWS, DashboardData, Screen, entries, press, render
from netdra.cli.top_watch import keys, picture
from netdra.console.fleet import NodeCounts
from netdra.console.troubles import ClusterExamination, ClusterTrouble, TroubleSubject
from tests.unit.console import gallery
from tests.unit.console.scene import HOSTILE

KEYS = (*"123jkq/x", "up", "down", "pageup", "pagedown", "home", "end", "enter", "escape", "backspace", "tab")


def _shot() -> DashboardData:
    return DashboardData(gallery.fleet(), gallery.examination(), gallery.cluster().networks, gallery.NOW)


def _after(*pressed: str) -> Screen:
    screen = Screen()
    for key in pressed:
        screen = press(screen, key, len(entries(screen, _shot())))
    return screen


def _text(screen: Screen, columns: int = 80, lines: int = 24) -> str:
    return "\n".join(line.text for line in render(screen, _shot(), columns, lines))


@given(
    pressed=st.lists(st.sampled_from(KEYS), max_size=30),
    columns=st.integers(1, 200),
    lines=st.integers(1, 60),
)
def test_every_screen_fits_its_terminal(pressed: list[str], columns: int, lines: int) -> None:
    made = render(_after(*pressed), _shot(), columns, lines)
    assert len(made) == lines
    assert all(len(line.text) <= columns for line in made)
    assert sum(line.style == "selected" for line in made) <= 1


def test_80_by_24_shows_the_trouble_with_its_numbers_and_keys() -> None:
    first, second, columns, *rows, last = _text(Screen()).splitlines()
    assert first == "netdra  11 causes  9/25 pods stuck  3/12 nodes in trouble  34/192 devices used"
    assert second.startswith("[1 Trouble]   2 Nodes    3 Networks ")
    assert second.endswith("checked 12 s ago")
    assert columns.split() == ["OBJECTS", "CAUSE", "TEXT"]
    assert rows[0].startswith("! 4 pods         StepFailed           device ")
    assert last.startswith("1-3 view")


def test_keys_lead_to_the_cause_its_next_step_and_its_objects() -> None:
    details = _text(_after("down", "up", "enter"))
    words = " ".join(details.split())
    assert gallery.FAILURE in words
    assert "Next: correct what the text names" in words
    assert "shop/api-3" in words
    assert not _after("enter", "escape").is_open
    assert _after("q").has_ended


@pytest.mark.parametrize(
    ("pressed", "words"),
    [
        (("2",), "worker-10                    ............      0/16      3        0       8"),
        (("3",), "lan                      Full         ############       4        2         0"),
        (("2", "/", *"12", "enter"), "filter: 12"),
        (("2", "/", *"nowhere"), 'no row contains "nowhere"'),
        (("2", "/", *"worker-12", "enter", "enter"), "DriverMissing"),
        (("tab", "tab", "end", "enter"), "PodNetwork storage: Ready"),
    ],
)
def test_views_are_filtered_and_opened(pressed: tuple[str, ...], words: str) -> None:
    assert words in _text(_after(*pressed))


def test_without_trouble_the_screen_states_it_only_after_a_check() -> None:
    for found, words in (
        (ClusterExamination(checked=gallery.NOW), "Nothing is wrong."),
        (ClusterExamination(), "is being checked"),
    ):
        made = render(Screen(), DashboardData(found=found, now=gallery.NOW), 80, 24)
        assert words in "\n".join(line.text for line in made)


def test_names_of_others_do_not_move_the_cursor() -> None:
    trouble = ClusterTrouble("pods", True, HOSTILE, HOSTILE, HOSTILE, (TroubleSubject("pods", HOSTILE, HOSTILE),), 1)
    shot = DashboardData([NodeCounts(HOSTILE, 1)], ClusterExamination((trouble,)), (), gallery.NOW, HOSTILE)
    for view in VIEWS:
        for is_open in (False, True):
            for line in render(Screen(view=view, is_open=is_open), shot, 80, 24):
                assert line.text.isprintable()


def test_keys_are_read_as_terminals_send_them() -> None:
    assert [*keys("\x1b[A\x1bOBj\x1b[5~\r\x7f\x1b[9\x1b")] == [
        "up",
        "down",
        "j",
        "pageup",
        "enter",
        "backspace",
        "escape",
    ]
    assert picture(render(Screen(), _shot(), 80, 24), has_colors=True).count("\x1b[K") == 24
