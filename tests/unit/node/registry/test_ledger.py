"""Who may say what, for how long and how often: rules and limits as values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netdra.model.registration import Registration
from netdra.model.resource import DeviceAttribute
from netdra.node.registry.journal import Journal, line
from netdra.node.registry.ledger import (
    BURST,
    CHANGE_SECONDS,
    MAX_TTL,
    OWNED_SECONDS,
    Entry,
    Ledger,
    Limits,
    RefusedRegistrationError,
    Shown,
)

ROOT, OTHER = "uid:0", "uid:1000"


def said(value: int = 1, provider: str = "bctl", device: str = "eth7", **more: Any) -> Registration:
    return Registration(provider=provider, device=device, attributes={"a": DeviceAttribute(int_=value)}, **more)


class TestRules:
    @pytest.mark.parametrize(
        ("registration", "ttl", "message"),
        [
            (said(device=""), 60, "no name of a device"),
            (said(device="a/b"), 60, "no name of a device"),
            (said(device="x" * 64), 60, "no name of a device"),
            (said(device="a\x00b"), 60, "no name of a device"),
            (said(provider="k8s.io"), 60, "not for providers"),
            (Registration(provider="bctl", device="eth7"), 60, "says nothing"),
            (said(adds=True, device_file="/etc/passwd"), 60, "device_file: .* not an absolute path below /dev"),
            (said(adds=True, device_file="/dev/../etc/passwd"), 60, 'or ".."'),
            (said(device_file="/dev/fpga0"), 60, "only RegisterDevice takes one"),
            (said(), 0, "not from 1 to"),
            (said(), MAX_TTL + 1, "not from 1 to"),
        ],
    )
    def test_what_breaks_one_changes_nothing(self, registration: Registration, ttl: float, message: str) -> None:
        ledger = Ledger()
        with pytest.raises(RefusedRegistrationError, match=message):
            ledger.register(registration, ROOT, ttl, 0.0)
        assert (len(ledger), ledger.owners, ledger.next_end) == (0, {}, None)

    def test_a_file_is_one_device_until_that_is_taken_back_or_has_another(self) -> None:
        ledger = Ledger()
        ledger.register(said(device="fpga0", adds=True, device_file="/dev/fpga0"), ROOT, 60, 0.0)
        twin = said(provider="aaa", device="twin", adds=True, device_file="/dev/fpga0")
        with pytest.raises(RefusedRegistrationError, match='"/dev/fpga0" is device "fpga0" of provider "bctl"'):
            ledger.register(twin, ROOT, 60, 1.0)
        ledger.register(said(device="fpga0", adds=True, device_file="/dev/fpga1"), ROOT, 60, 1.0)
        ledger.register(twin, ROOT, 10, 2.0)
        with pytest.raises(RefusedRegistrationError, match='of provider "aaa"'):
            ledger.register(said(device="fpga0", adds=True, device_file="/dev/fpga0"), ROOT, 60, 3.0)
        assert [entry.registration.device for entry in ledger.expire(20.0)] == ["twin"]
        ledger.register(said(device="fpga0", adds=True, device_file="/dev/fpga0"), ROOT, 60, 21.0)
        assert ledger.deregister("bctl", "", ROOT, 22.0)
        ledger.register(twin, ROOT, 60, 23.0)

    def test_a_providers_name_is_whose_it_was_first(self) -> None:
        ledger = Ledger()
        ledger.register(said(), OTHER, 60, 0.0)
        with pytest.raises(RefusedRegistrationError, match='"bctl" belongs to uid:1000, not to uid:0'):
            ledger.register(said(), ROOT, 60, 1.0)
        with pytest.raises(RefusedRegistrationError, match="belongs to"):
            ledger.deregister("bctl", "", "uid:7", 1.0)
        assert len(ledger.expire(60.0)) == 1
        with pytest.raises(RefusedRegistrationError, match="belongs to"):
            ledger.register(said(), ROOT, 60, OWNED_SECONDS)
        ledger.expire(60.0 + OWNED_SECONDS)
        ledger.register(said(), ROOT, 60, 60.0 + OWNED_SECONDS)

    def test_root_takes_back_what_others_said_and_sets_the_name_free(self) -> None:
        ledger = Ledger()
        ledger.register(said(), OTHER, 60, 0.0)
        assert len(ledger.deregister("bctl", "", ROOT, 1.0, anyone=True)) == 1
        ledger.register(said(), "uid:7", 60, 2.0)

    def test_a_name_can_be_given_to_one_for_good(self) -> None:
        ledger = Ledger({"bctl": OTHER})
        with pytest.raises(RefusedRegistrationError, match="belongs to uid:1000"):
            ledger.register(said(), ROOT, 60, 0.0)
        ledger.register(said(), OTHER, 60, 0.0)

    def test_one_interface_is_registered_as_a_device_by_one_provider(self) -> None:
        ledger = Ledger()
        ledger.register(said(adds=True), ROOT, 60, 0.0)
        with pytest.raises(RefusedRegistrationError, match='registered as a device of provider "bctl"'):
            ledger.register(said(provider="x", adds=True), ROOT, 60, 0.0)
        ledger.register(said(provider="x"), ROOT, 60, 0.0)
        ledger.deregister("bctl", "eth7", ROOT, 0.0)
        ledger.register(said(provider="x", adds=True), ROOT, 60, 0.0)

    def test_it_is_bounded_and_what_is_there_can_still_be_renewed(self) -> None:
        ledger = Ledger(limits=Limits(providers=2, of_provider=3, registrations=4, size=100_000))
        for at in range(3):
            ledger.register(said(device=f"e{at}"), ROOT, 60, 0.0)
        with pytest.raises(RefusedRegistrationError, match="speaks of 3 devices"):
            ledger.register(said(device="e3"), ROOT, 60, 0.0)
        ledger.register(said(provider="x"), ROOT, 60, 0.0)
        with pytest.raises(RefusedRegistrationError, match="takes 4 registrations"):
            ledger.register(said(provider="x", device="e9"), ROOT, 60, 0.0)
        with pytest.raises(RefusedRegistrationError, match="takes 2 providers"):
            ledger.register(said(provider="y"), ROOT, 60, 0.0)
        ledger.register(said(2, device="e0"), ROOT, 60, 5.0)
        assert len(ledger) == 4

    def test_a_million_devices_are_refused_in_little_memory(self) -> None:
        ledger = Ledger()
        taken = 0
        for at in range(20_000):
            try:
                ledger.register(said(device=f"e{at}"), ROOT, 60, 0.0)
                taken += 1
            except RefusedRegistrationError:
                continue
        assert taken == len(ledger) == 2048

    @given(
        st.lists(
            st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(1, 20), st.integers(0, 3)), max_size=30
        )
    )
    @settings(deadline=None)
    def test_exactly_what_has_not_ended_holds(self, steps: list[tuple[str, str, int, int]]) -> None:
        ledger, expected, now = Ledger(), dict[tuple[str, str], float](), 0.0
        for provider, device, ttl, pause in steps:
            now += pause
            ledger.expire(now)
            expected = {key: end for key, end in expected.items() if end > now}
            ledger.register(said(provider=provider, device=device), ROOT, ttl, now)
            expected[provider, device] = now + ttl
            assert {entry.key: entry.ends for entry in ledger.entries} == expected
            assert ledger.next_end == min(expected.values())
        ledger.expire(now + 21)
        assert len(ledger) == 0
        assert [*map(ledger.of_device, "xyz")] == [(), (), ()]


class TestShown:
    def test_the_first_and_the_last_are_shown_at_once_and_values_after_a_while(self) -> None:
        shown = Shown()
        assert shown.follow("eth7", (said(1),), 0.0)
        for second in range(1, 10):
            assert not shown.follow("eth7", (said(second),), float(second))
        assert shown.registrations == (said(1),)
        assert shown.due() == CHANGE_SECONDS
        assert shown.release(CHANGE_SECONDS)
        assert shown.registrations == (said(9),)
        assert shown.due() is None
        assert shown.follow("eth7", (), 10.5)
        assert not shown.registrations

    def test_a_value_that_comes_back_is_no_change(self) -> None:
        shown = Shown()
        shown.follow("eth7", (said(1),), 0.0)
        shown.follow("eth7", (said(2),), 1.0)
        assert not shown.follow("eth7", (said(1),), 2.0)
        assert shown.due() is None

    def test_the_same_object_is_given_while_nothing_changes(self) -> None:
        shown = Shown()
        shown.follow("eth7", (said(1),), 0.0)
        before = shown.registrations
        assert not shown.follow("eth7", (said(1),), 30.0)
        assert shown.registrations is before

    def test_who_comes_and_goes_without_end_is_damped_too(self) -> None:
        shown, changes = Shown(), 0
        for tenth in range(1000):
            changes += shown.follow("eth7", (said(),) if tenth % 2 else (), tenth / 10)
            changes += shown.release(tenth / 10)
        assert BURST < changes <= BURST + 100 / CHANGE_SECONDS + 2

    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8)), max_size=40))
    @settings(deadline=None)
    def test_the_last_word_is_always_shown_in_the_end_and_never_too_often(self, steps: list[tuple[int, int]]) -> None:
        shown, now, last = Shown(), 0.0, float("-inf")
        wanted: tuple[Registration, ...] = ()
        for value, pause in steps:
            now += pause
            shown.release(now)
            wanted = (said(value),) if value else ()
            before = shown.registrations
            if shown.follow("eth7", wanted, now) and before and wanted:
                assert now - last >= CHANGE_SECONDS or now == last
            if shown.registrations != before:
                last = now
        for _ in range(len(steps) + 1):
            now += 5 * CHANGE_SECONDS
            shown.release(now)
        assert shown.registrations == wanted


class TestJournal:
    def entry(self, ends: float = 1e12, **more: Any) -> Entry:
        return Entry(said(**more), OTHER, 60.0, ends)

    def test_what_was_granted_is_read_back_and_what_was_taken_back_is_not(self, folder: Path) -> None:
        journal = Journal(folder / "r")
        journal.write([self.entry()], {})
        journal.append(line(granted=self.entry(device="eth8")) + line(ended=("bctl", "eth7")))
        entries, owners = Journal(folder / "r").read()
        assert [*entries] == [("bctl", "eth8")]
        assert owners["bctl"].name == OTHER

    @given(st.integers(0, 400), st.binary(max_size=6))
    @example(54, b'\x80"')
    @settings(deadline=None, max_examples=60)
    def test_a_file_that_was_cut_or_damaged_stops_nothing(self, at: int, put: bytes) -> None:
        from tempfile import TemporaryDirectory

        with TemporaryDirectory() as name:
            path = Path(name) / "r"
            journal = Journal(path)
            journal.write([self.entry(device=f"e{number}") for number in range(3)], {})
            journal.close()
            whole = path.read_bytes()
            path.write_bytes(whole[:at] + put)
            entries, _ = Journal(path).read()
            intact = [f"e{number}" for number in range(3) if f'"device":"e{number}"' in whole[:at].decode()]
            assert len(entries) >= len(intact) - 1 or not path.exists()

    def test_a_file_of_another_version_is_put_aside(self, folder: Path) -> None:
        (folder / "r").write_text('{"version":2}\n{"granted":{}}\n')
        assert Journal(folder / "r").read() == ({}, {})
        assert [path.name for path in folder.iterdir()] == ["r.unknown-0"]

    def test_two_daemons_do_not_write_one_file(self, folder: Path) -> None:
        first, second = Journal(folder / "r"), Journal(folder / "r")
        assert first.lock()
        assert not second.lock()
        first.release()
        assert second.lock()
        second.release()

    def test_a_clock_that_was_ahead_gives_no_longer_lease(self) -> None:
        ledger = Ledger()
        ledger.restore([self.entry(ends=9e9), self.entry(ends=99.0, device="gone")], {}, 100.0)
        assert [(entry.key[1], entry.ends) for entry in ledger.entries] == [("eth7", 160.0)]
        assert ledger.owners["bctl"].name == OTHER
