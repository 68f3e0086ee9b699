"""How long pods without claims wait while other pods begin whose plugins never answer.

A runtime calls its plugins for one sandbox after the other: what netdra waits for in a hook, every pod of the node
waits for. So the wait of one hook cannot be avoided, and all further ones are.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence

import pytest

from testbed.pace import measured
from testbed.pods import is_running
from testbed.recorder import Recorder
from tests.cluster.pods import witness
from tests.cluster.pods.stage import Stage
from tests.cluster.pods.test_measured import samples

PLAIN = 6
HOOK_SECONDS = 1.75
"""What a hook takes at most of the two seconds that the runtime waits (docs/nri.md)."""
WINDOW = 8.0
"""Seconds in which plugins that hung, or are not known to answer, are not tried again."""


@pytest.fixture
def hanging(stage: Stage) -> Iterator[list[Recorder]]:
    """Plugins that never answer; at the end they do."""
    plugins = [stage.driver.recorder(f"slow-{uuid.uuid4().hex[:6]}") for _ in range(4)]
    for plugin in plugins:
        plugin.does("ADD", "exec sleep 600")
        plugin.does("DEL", "exec sleep 600")
    yield plugins
    for plugin in plugins:
        plugin.prints("ADD", {})
        plugin.does("DEL", "exit 0")
    stage.driver.restart()


def in_hooks(stage: Stage) -> float:
    """Seconds that the runtime has waited for hooks so far."""
    found = samples(stage.driver)
    return sum(value for name, value in found.items() if name.startswith("netdra_nri_hook_duration_seconds_sum"))


def last_begins(stage: Stage, base: str, count: int) -> float:
    """Begin pods without claims at once; seconds until the last one runs."""
    began = time.monotonic()
    names = [f"{base}-{number}" for number in range(count)]
    for name in names:
        witness.add(stage.pods, name)
    for name in names:
        stage.pods.wait(name, is_running)
    return time.monotonic() - began


def begin(stage: Stage, plugins: Sequence[Recorder], count: int) -> None:
    """Begin pods whose plugins hang, of each plugin about as many."""
    claims = [stage.claim(f"c-{number}", plugins[number % len(plugins)].name) for number in range(count)]
    for number, claim in enumerate(claims):
        witness.add(stage.pods, f"hangs-{number}", claim)


@pytest.mark.parametrize(("pods", "types"), [(1, 1), (4, 1), (8, 1), (8, 4)])
def test_pods_without_claims_wait_for_one_hook_of_those_whose_plugins_hang(
    stage: Stage, hanging: list[Recorder], pods: int, types: int
) -> None:
    usual = last_begins(stage, "usual", PLAIN)
    with measured() as pace:
        before = in_hooks(stage)
        until = time.monotonic() + WINDOW
        begin(stage, hanging[:types], pods)
        took = last_begins(stage, "plain", PLAIN)
        time.sleep(max(0.0, until - time.monotonic()))
        waited = in_hooks(stage) - before
    print(f"{pods} pods, {types} plugins: hooks {waited:.2f} s, plain pods {usual:.2f} -> {took:.2f} s, {pace}")
    assert any(plugin.calls() for plugin in hanging), "a plugin was tried"
    assert waited < HOOK_SECONDS + 0.25 * pace.slowness, "more than one hook waited in vain"
    assert took < usual * 2 + HOOK_SECONDS + pace.slowness
