"""The rights of providers, the length of leases and the rate of calls: rules and limits as values."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netdra.model.registration import Registration
from netdra.model.resource import DeviceAttribute
from netdra.node.registry import journal
from netdra.node.registry.journal import Grant, JournalLine, RegistrationJournal
from netdra.node.registry.owners import ANY_ROOT, MOST_NAMES, OWNED_NAMES, OWNED_SECONDS
from netdra.node.registry.owners import ROOT as NODE_ROOT
from netdra.node.registry.shares import (
    LEAST_SHARE,
    MAX_BYTES,
    MAX_PROVIDERS,
    MAX_REGISTRATIONS,
    RefusedRegistrationError,
    RegistryLimits,
)
from netdra.node.registry.table import BURST, CHANGE_SECONDS, MAX_TTL, RegistrationTable

ROOT, OTHER = "uid:0", "uid:1000"
ACCOUNT = "system:serviceaccount:net:probe"
NOWHERE = Path("/nonexistent/registry.jsonl")


class Table(RegistrationTable):
    """A table whose clock the test has."""

    def __init__(self, path: Path = NOWHERE, *, at: float = 0.0, **options: Any) -> None:
        self.now = at
        super().__init__(path, **{"wall": lambda: self.now} | options, clock=lambda: self.now, tick=lambda: self.now)

    def register_at(self, now: float, registration: Registration, owner: str = ROOT, ttl: float = 60) -> None:
        self.now = now
        self.put(registration, owner, ttl)

    def remove_at(self, now: float, device: str = "", owner: str = ROOT, *, anyone: bool = False) -> int:
        self.now = now
        return len(self.remove("bctl", device, owner, anyone=anyone))

    def sweep_at(self, now: float) -> float | None:
        """Returns when the next pass is due."""
        self.now = now
        wait = self.sweep()
        return None if wait is None else now + wait

    def say(self, now: float, value: int) -> bool:
        """Give eth7 a value, or 0 for none; returns whether something else is published."""
        before = self.registrations
        if value:
            self.register_at(now, said(value), ttl=10_000)
        else:
            self.remove_at(now)
        return self.registrations != before


def said(value: int = 1, provider: str = "bctl", device: str = "eth7", **more: Any) -> Registration:
    return Registration(provider=provider, device=device, attributes={"a": DeviceAttribute(int_=value)}, **more)


class TestRules:
    @pytest.mark.parametrize(
        ("registration", "ttl", "message"),
        [
            (said(device=""), 60, "is not a valid device or interface name"),
            (said(device="a/b"), 60, "is not a valid device or interface name"),
            (said(device="x" * 64), 60, "is not a valid device or interface name"),
            (said(device="a\x00b"), 60, "is not a valid device or interface name"),
            *((said(device=f"a{mark}b"), 60, f"a.u{ord(mark):04x}b") for mark in "\u202e\u2066\u200f\u061c"),
            (said(provider="k8s.io"), 60, "is reserved"),
            (Registration(provider="bctl", device="eth7"), 60, "attributes or capacity is required"),
            (said(adds=True, device_file="/etc/passwd"), 60, "device_file: .* not an absolute path below /dev"),
            (said(adds=True, device_file="/dev/../etc/passwd"), 60, 'or ".."'),
            (said(device_file="/dev/fpga0"), 60, "only RegisterDevice takes one"),
            (said(), 0, "not from 1 to"),
            (said(), MAX_TTL + 1, "not from 1 to"),
        ],
    )
    def test_an_invalid_registration_is_rejected_and_changes_nothing(
        self, registration: Registration, ttl: float, message: str
    ) -> None:
        table = Table()
        with pytest.raises(RefusedRegistrationError, match=message):
            table.register_at(0.0, registration, ROOT, ttl)
        assert (len(table), table.owners, table.sweep()) == (0, {}, None)

    def test_a_file_is_one_device_until_that_is_taken_back_or_has_another(self) -> None:
        table = Table()
        table.register_at(0.0, said(device="fpga0", adds=True, device_file="/dev/fpga0"), ROOT, 60)
        twin = said(provider="aaa", device="twin", adds=True, device_file="/dev/fpga0")
        with pytest.raises(RefusedRegistrationError, match='"/dev/fpga0" is device "fpga0" of provider "bctl"'):
            table.register_at(1.0, twin, ROOT, 60)
        table.register_at(1.0, said(device="fpga0", adds=True, device_file="/dev/fpga1"), ROOT, 60)
        table.register_at(2.0, twin, ROOT, 10)
        with pytest.raises(RefusedRegistrationError, match='of provider "aaa"'):
            table.register_at(3.0, said(device="fpga0", adds=True, device_file="/dev/fpga0"), ROOT, 60)
        table.sweep_at(20.0)
        assert [grant.registration.device for grant in table.grants] == ["fpga0"]
        table.register_at(21.0, said(device="fpga0", adds=True, device_file="/dev/fpga0"), ROOT, 60)
        assert table.remove_at(22.0)
        table.register_at(23.0, twin, ROOT, 60)

    def test_a_providers_name_is_whose_it_was_first(self) -> None:
        table = Table()
        table.register_at(0.0, said(), OTHER, 60)
        with pytest.raises(RefusedRegistrationError, match='"bctl" belongs to uid:1000, not to uid:0'):
            table.register_at(1.0, said(), ROOT, 60)
        with pytest.raises(RefusedRegistrationError, match="belongs to"):
            table.remove_at(1.0, owner="uid:7")
        table.sweep_at(60.0)
        assert len(table) == 0
        with pytest.raises(RefusedRegistrationError, match="belongs to"):
            table.register_at(OWNED_SECONDS, said(), ROOT, 60)
        table.sweep_at(60.0 + OWNED_SECONDS)
        assert table.owners == {}
        table.register_at(60.0 + OWNED_SECONDS, said(), ROOT, 60)

    def test_root_removes_a_foreign_registration_and_frees_its_provider_name(self) -> None:
        table = Table()
        table.register_at(0.0, said(), OTHER, 60)
        assert table.remove_at(1.0, anyone=True) == 1
        table.register_at(2.0, said(), "uid:7", 60)

    def test_a_name_can_be_given_to_one_for_good(self) -> None:
        table = Table(pinned={"bctl": OTHER})
        with pytest.raises(RefusedRegistrationError, match="belongs to uid:1000"):
            table.register_at(0.0, said(), ROOT, 60)
        table.register_at(0.0, said(), OTHER, 60)
        pinned = Table(pinned={"bctl": ANY_ROOT, "mine": NODE_ROOT})
        pinned.register_at(0.0, said(), ANY_ROOT, 60)
        pinned.register_at(0.0, said(), NODE_ROOT, 60)
        with pytest.raises(RefusedRegistrationError, match="belongs to root"):
            pinned.register_at(0.0, said(provider="mine"), ANY_ROOT, 60)

    def test_one_interface_is_registered_as_a_device_by_one_provider(self) -> None:
        table = Table()
        table.register_at(0.0, said(adds=True), ROOT, 60)
        with pytest.raises(RefusedRegistrationError, match='registered as a device of provider "bctl"'):
            table.register_at(0.0, said(provider="x", adds=True), ROOT, 60)
        table.register_at(0.0, said(provider="x"), ROOT, 60)
        assert table.remove_at(0.0, "eth7") == 1
        table.register_at(0.0, said(provider="x", adds=True), ROOT, 60)

    def test_the_table_is_bounded_and_existing_registrations_can_still_be_renewed(self) -> None:
        table = Table(limits=RegistryLimits(providers=4, of_provider=3, registrations=8, size=100_000))
        for at in range(3):
            table.register_at(0.0, said(device=f"e{at}"), ROOT, 60)
        with pytest.raises(RefusedRegistrationError, match='"bctl" has 3 registrations'):
            table.register_at(0.0, said(device="e3"), ROOT, 60)
        for number, provider in enumerate("xyz"):
            table.register_at(0.0, said(provider=provider), f"uid:{number}", 60)
        with pytest.raises(RefusedRegistrationError, match="takes 4 providers"):
            table.register_at(0.0, said(provider="v"), "uid:9", 60)
        table.register_at(5.0, said(2, device="e0"), ROOT, 60)
        assert len(table) == 6
        full = Table(limits=RegistryLimits(registrations=4))
        for at in range(5):
            with nullcontext() if at < 4 else pytest.raises(RefusedRegistrationError, match="takes 4 registrations"):
                full.register_at(0.0, said(provider=f"p{at}", device=f"e{at}"), f"uid:{at}", 60)

    @pytest.mark.parametrize("unit", ["providers", "registrations", "bytes"])
    def test_one_owner_cannot_use_it_up(self, unit: str) -> None:
        """Each owner takes what it gets; the next one still gets half of the rest, and more than nothing."""
        table, taken = Table(), list[int]()

        def registration(owner: int, number: int) -> Registration:
            name = f"p{owner}-{number if unit == 'providers' else number // 1500}"
            text = {f"a{at}": DeviceAttribute(string="x" * 64) for at in range(16 if unit == "bytes" else 1)}
            return Registration(provider=name, device=f"e{number}", attributes=text)

        for owner in range(1, 5):
            rule = ""
            for number in range(MAX_REGISTRATIONS):
                try:
                    table.put(registration(owner, number), f"uid:{owner}", 60)
                except RefusedRegistrationError as problem:
                    rule = str(problem)
                    taken.append(number)
                    break
            assert re.match(f"uid:{owner} would use .* {unit}, .* more than is free", rule), rule
        total = {"providers": MAX_PROVIDERS, "registrations": MAX_REGISTRATIONS, "bytes": MAX_BYTES / 1536}[unit]
        assert taken == [pytest.approx(total / 2**owner, abs=1) for owner in range(1, 5)]
        assert taken[-1] >= total // LEAST_SHARE - 1
        for owner, count in enumerate(taken, 1):
            table.put(registration(owner, count - 1), f"uid:{owner}", 60)

    def test_registrations_within_their_share_are_read_back_in_any_order(self, folder: Path) -> None:
        limits = RegistryLimits(registrations=8)
        table = Table(limits=limits)
        for owner, count in (("uid:1", 4), ("uid:2", 2)):
            for number in range(count):
                table.register_at(0.0, said(provider=f"p{owner[-1]}", device=f"e{number}"), owner)
        RegistrationJournal(folder / "r").write(reversed(tuple(table.grants)), table.owners)
        assert len(Table(folder / "r", limits=limits)) == 6

    def test_names_without_registrations_are_few_and_their_time_is_short(self) -> None:
        table = Table()
        table.register_at(0.0, said(provider="kept"), OTHER, 10)
        for number in range(500):
            for owner in ("uid:7", f"uid:{1000 + number}"):
                name = f"n{number}-{owner[4:]}"
                table.register_at(0.0, said(provider=name), owner, MAX_TTL)
                table.remove(name, "", owner)
        assert len([1 for owner in table.owners.values() if owner.name == "uid:7"]) <= OWNED_NAMES
        assert len(table.owners) <= MOST_NAMES + 1
        assert "kept" in table.owners, "it has a registration"
        table.sweep_at(11.0)
        table.sweep_at(OWNED_SECONDS + 12.0)
        assert table.owners == {}

    def test_a_better_identity_than_container_root_takes_over_the_provider_name(self, folder: Path) -> None:
        for better in (ACCOUNT, NODE_ROOT):
            table = Table()
            table.register_at(0.0, said(device="eth8"), ANY_ROOT, 60)
            with pytest.raises(RefusedRegistrationError, match="belongs to uid:0"):
                table.register_at(0.0, said(), "uid:7", 60)
            table.register_at(0.0, said(), better, 60)
            assert [grant.owner for grant in table.grants] == [better]
            assert [grant.registration.device for grant in table.grants] == ["eth7"]
            assert table._rewrite, "what was taken is gone from the file as well"
            for worse in (ANY_ROOT, "uid:7", *({ACCOUNT, NODE_ROOT} - {better})):
                with pytest.raises(RefusedRegistrationError, match=f"belongs to {better}"):
                    table.register_at(0.0, said(), worse, 60)
                with pytest.raises(RefusedRegistrationError, match=f"belongs to {better}"):
                    table.remove_at(0.0, owner=worse)

    def test_a_million_devices_are_refused_in_little_memory(self) -> None:
        table = Table()
        taken = 0
        for at in range(20_000):
            try:
                table.register_at(0.0, said(device=f"e{at}"), ROOT, 60)
                taken += 1
            except RefusedRegistrationError:
                continue
        assert taken == len(table) == 2048

    @given(
        st.lists(
            st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(1, 20), st.integers(0, 3)), max_size=30
        )
    )
    @settings(deadline=None)
    def test_exactly_the_unexpired_registrations_apply_at_any_time(
        self, steps: list[tuple[str, str, int, int]]
    ) -> None:
        table, expected, now = Table(), dict[tuple[str, str], float](), 0.0
        for provider, device, ttl, pause in steps:
            now += pause
            table.sweep_at(now)
            expected = {key: end for key, end in expected.items() if end > now}
            table.register_at(now, said(provider=provider, device=device), ROOT, ttl)
            expected[provider, device] = now + ttl
            assert {grant.key: grant.ends for grant in table.grants} == expected
            waiting = [device.due for device in table._devices.values() if device.due is not None]
            assert table.sweep_at(now) == min(*expected.values(), *waiting, now + 1e9)
        table.sweep_at(now + 21)
        assert len(table) == 0
        for _ in range(2):
            table.sweep_at(now + 1e3)
        assert (table.registrations, table._devices, table._files) == ((), {}, {})
        shares = table._shares
        assert not any((shares.of_provider, shares._owners, shares._registrations, shares._bytes))


class TestDamping:
    def test_the_first_and_the_last_are_published_at_once_and_values_after_a_while(self) -> None:
        table = Table()
        assert table.say(0.0, 1)
        for second in range(1, 10):
            assert not table.say(float(second), second)
        assert table.registrations == (said(1),)
        assert table.sweep_at(9.0) == CHANGE_SECONDS
        table.sweep_at(CHANGE_SECONDS)
        assert table.registrations == (said(9),)
        assert table.sweep_at(CHANGE_SECONDS) == 10_009.0, "when the lease ends"
        assert table.say(10.5, 0)
        assert not table.registrations

    def test_a_value_reverted_while_withheld_publishes_no_change(self) -> None:
        table = Table()
        table.say(0.0, 1)
        table.say(1.0, 2)
        assert not table.say(2.0, 1)
        assert table.sweep_at(2.0) == 10_002.0, "when the lease ends"

    def test_the_same_object_is_given_while_nothing_changes(self) -> None:
        table = Table()
        table.say(0.0, 1)
        before = table.registrations
        assert not table.say(30.0, 1)
        assert table.registrations is before

    def test_endless_registering_and_deregistering_is_damped_too(self) -> None:
        table, changes = Table(), 0
        for tenth in range(1000):
            changes += table.say(tenth / 10, tenth % 2)
            before = table.registrations
            table.sweep_at(tenth / 10)
            changes += table.registrations != before
        assert BURST < changes <= BURST + 100 / CHANGE_SECONDS + 2

    def test_devices_that_come_and_go_without_end_are_remembered_in_bounds(self) -> None:
        table = Table(limits=RegistryLimits(registrations=8))
        for number in range(3 * MAX_REGISTRATIONS):
            table.register_at(0.0, said(device=f"e{number}"))
            table.remove_at(0.0, f"e{number}")
            if number % 1000 == 0:
                table.sweep_at(0.0)
        table.sweep_at(0.0)
        assert len(table._devices) == MAX_REGISTRATIONS
        table.sweep_at(CHANGE_SECONDS)
        assert table._devices == {}

    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8)), max_size=40))
    @settings(deadline=None)
    def test_the_last_word_is_always_published_in_the_end_and_never_too_often(
        self, steps: list[tuple[int, int]]
    ) -> None:
        table, now, last = Table(), 0.0, float("-inf")
        wanted: tuple[Registration, ...] = ()
        for value, pause in steps:
            now += pause
            table.sweep_at(now)
            wanted = (said(value),) if value else ()
            before = table.registrations
            if table.say(now, value) and before and wanted:
                assert now - last >= CHANGE_SECONDS or now == last
            if table.registrations != before:
                last = now
        for _ in range(len(steps) + 1):
            now += 5 * CHANGE_SECONDS
            table.sweep_at(now)
        assert table.registrations == wanted


class TestJournal:
    def grant(self, ends: float = 1e12, **more: Any) -> Grant:
        return Grant(said(**more), OTHER, 60.0, ends)

    def test_granted_registrations_are_read_back_and_ended_ones_are_not(self, folder: Path) -> None:
        written = RegistrationJournal(folder / "r")
        written.write([self.grant()], {})
        granted, ended = JournalLine(granted=self.grant(device="eth8")), JournalLine(ended=("bctl", "eth7"))
        written.append([granted, ended])
        table = Table(folder / "r")
        assert [grant.key for grant in table.grants] == [("bctl", "eth8")]
        assert table.owners["bctl"].name == OTHER

    def test_the_order_of_first_registration_survives_renewal_and_restart(self, folder: Path) -> None:
        came = [said(provider=name) for name in ("z", "a", "m", "z")]
        table = Table()
        for at, each in enumerate(came):
            table.register_at(at, each)
        assert [each.provider for each in table.registrations] == ["z", "a", "m"]
        written = RegistrationJournal(folder / "r")
        written.write([self.grant(provider="z")], {})
        written.append([JournalLine(granted=self.grant(provider=each.provider)) for each in came[1:]])
        assert [each.provider for each in Table(folder / "r").registrations] == ["z", "a", "m"]
        written.append([JournalLine(ended=("z", "eth7")), JournalLine(granted=self.grant(provider="z"))])
        assert [each.provider for each in Table(folder / "r").registrations] == ["a", "m", "z"]

    def test_a_file_of_the_first_release_is_read(self, folder: Path) -> None:
        (folder / "r").write_text(
            '{"version":1}\n{"provider":"x","owner":{"name":"uid:7","until":200.0}}\n'
            '{"granted":{"registration":{"provider":"bctl","device":"eth7","adds":true,'
            '"attributes":{"a":{"int":3}},"capacity":{"bandwidth":{"value":"4096"}}},'
            '"owner":"uid:1000","ttl":60.0,"ends":150.0}}\n'
            '{"granted":{"registration":{"provider":"bctl","device":"fpga0","adds":true,"deviceFile":"/dev/fpga0"},'
            '"owner":"uid:1000","ttl":60.0,"ends":99.0}}\n'
            '{"granted":{"registration":{"provider":"bctl","device":"eth8","adds":true},'
            '"owner":"uid:1000","ttl":60.0,"ends":150.0}}\n{"ended":["bctl","eth8"]}\n'
        )
        table = Table(folder / "r", at=100.0)
        (kept,) = table.registrations
        assert (kept.device, kept.adds, kept.attributes["a"].int_, kept.capacity["bandwidth"].value) == (
            "eth7",
            True,
            3,
            "4096",
        )
        assert {name: owner.name for name, owner in table.owners.items()} == {"x": "uid:7", "bctl": "uid:1000"}

    @given(st.integers(0, 400), st.binary(max_size=6))
    @example(54, b'\x80"')
    @settings(deadline=None, max_examples=60)
    def test_a_file_that_was_cut_or_damaged_stops_nothing(self, at: int, put: bytes) -> None:
        with TemporaryDirectory() as name:
            path = Path(name) / "r"
            written = RegistrationJournal(path)
            written.write([self.grant(device=f"e{number}") for number in range(3)], {})
            written.close()
            whole = path.read_bytes()
            path.write_bytes(whole[:at] + put)
            lines = RegistrationJournal(path).read()
            intact = [f"e{number}" for number in range(3) if f'"device":"e{number}"' in whole[:at].decode()]
            assert len(lines) >= len(intact) - 1 or not path.exists()

    def test_a_file_of_another_version_is_put_aside(self, folder: Path) -> None:
        (folder / "r").write_text('{"version":2}\n{"granted":{}}\n')
        assert RegistrationJournal(folder / "r").read() == []
        assert [path.name for path in folder.iterdir()] == ["r.unknown-0"]

    def test_two_daemons_do_not_write_one_file(self, folder: Path) -> None:
        first, second = RegistrationJournal(folder / "r"), RegistrationJournal(folder / "r")
        assert first.lock()
        assert not second.lock()
        first.release()
        assert second.lock()
        second.release()

    @given(st.integers(1, 3600), st.integers(0, 7200), st.integers(-100_000, 100_000), st.booleans())
    @example(120, 60, 3600, False)  # all leases ended
    @example(120, 60, -3600, False)  # 120 s became 3720 s
    @settings(deadline=None, max_examples=50)
    def test_a_step_of_the_wall_clock_changes_no_lease(self, ttl: int, pause: int, step: int, reboots: bool) -> None:
        """After a reboot only the wall clock is available, and a lease gets no longer than requested."""
        began, up = 1_700_000_000.0, 500.0
        with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
            path = Path(name) / "r"
            first = Table(path, at=up, wall=lambda: began + up)
            first.register_at(up, said(), ttl=ttl)
            first._journal.write(tuple(first.grants), first.owners)
            now = up + pause
            wall = began + now + step
            if reboots:
                patch.setattr(journal, "boot_id", lambda: "of-another-boot")
                now = 7.0
            next_ = Table(path, at=now, wall=lambda: wall)
            left = ttl - pause - (step if reboots else 0)
            assert [next_.left(grant) for grant in next_.grants] == ([min(left, ttl)] if left > 0 else [])

    def test_a_clock_that_was_ahead_gives_no_longer_lease(self, folder: Path) -> None:
        RegistrationJournal(folder / "r").write([self.grant(ends=9e9), self.grant(ends=99.0, device="gone")], {})
        table = Table(folder / "r", at=100.0)
        assert [(grant.key[1], grant.ends) for grant in table.grants] == [("eth7", 160.0)]
        assert table.owners["bctl"].name == OTHER
