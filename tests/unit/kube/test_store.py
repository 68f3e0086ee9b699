"""A store reports exactly the changes to its listeners, after each change."""

import asyncio

import msgspec
import pytest

from netdra.kube.store import Change, Store, key_of
from netdra.model.meta import ObjectMeta, order


class Thing(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


def thing(name: str, version: int) -> Thing:
    return Thing(metadata=ObjectMeta(name=name, resource_version=str(version)))


def test_listeners_hear_of_every_change_once_and_see_it_in_the_store() -> None:
    store: Store[Thing] = Store()
    heard: list[tuple[Change[Thing], bool]] = []

    def listen(change: Change[Thing]) -> None:
        heard.append((change, store.objects.get(change.key) == change.new))

    first, second = thing("a", 1), thing("a", 2)
    with store.following(listen):
        store.put("a", first)
        store.put("a", second)
        store.remove("a")
        store.remove("a")
    store.put("b", first)

    assert heard == [
        (Change("a", None, first), True),
        (Change("a", first, second), True),
        (Change("a", second, None), True),
    ]


def test_an_object_that_became_unreadable_is_gone_until_it_can_be_read() -> None:
    store: Store[Thing] = Store()
    heard: list[Change[Thing]] = []
    with store.following(heard.append):
        store.put("a", thing("a", 1))
        store.put_unreadable("a", "odd")
        assert (dict(store.objects), dict(store.unreadable)) == ({}, {"a": "odd"})
        store.put("a", thing("a", 3))
        assert dict(store.unreadable) == {}
        store.put_unreadable("b", "odd")
        store.remove("b")
        assert dict(store.unreadable) == {}

    assert [change.new is not None for change in heard] == [True, False, True]


def test_a_waiter_wakes_only_when_its_condition_becomes_true() -> None:
    async def story() -> None:
        store: Store[Thing] = Store()
        waiter = asyncio.create_task(store.until(lambda: "b" in store.objects))
        await asyncio.sleep(0)
        store.put("a", thing("a", 1))
        await asyncio.sleep(0)
        assert not waiter.done()
        store.put("b", thing("b", 2))
        await asyncio.wait_for(waiter, 60.0)

    asyncio.run(story())


def test_synced_and_reached_follow_the_version() -> None:
    async def story() -> None:
        store: Store[Thing] = Store()
        assert (store.synced, store.reached("0")) == (False, False)
        waiter = asyncio.create_task(store.wait_synced())
        await asyncio.sleep(0)
        store.advance("9")
        await asyncio.wait_for(waiter, 60.0)
        assert (store.reached("9"), store.reached("10"), store.reached("8")) == (True, False, True)

    asyncio.run(story())


def test_versions_are_numbers_and_keys_have_the_namespace() -> None:
    assert order("10") > order("9") > order("")
    assert (key_of("", "a"), key_of("n", "a")) == ("a", "n/a")


def test_a_defect_of_one_listener_is_logged_and_keeps_no_other_object_back(caplog: pytest.LogCaptureFixture) -> None:
    store: Store[Thing] = Store()
    heard: list[str] = []

    def fail(change: Change[Thing]) -> None:
        if change.key == "a":
            raise ValueError("odd")

    with store.following(fail), store.following(lambda change: heard.append(change.key)):
        store.put("a", thing("a", 1))
        store.put("b", thing("b", 2))

    assert (heard, [*store.objects]) == (["a", "b"], ["a", "b"])
    assert "a: internal error of netdra" in caplog.text
