"""The default thresholds of `netdra preset --health` are those of the page, and every preset is valid with them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from netdra.cli.main import cli
from netdra.health.defaults import RULES
from netdra.model.policy import DeviceExposurePolicy
from testbed import yaml

PAGE = Path(__file__).parents[3] / "docs" / "health.md"


def test_the_page_lists_each_default_with_its_threshold_effect_and_source() -> None:
    rows = re.findall(
        r"^\| `([a-z-]+)` \| `(\w+)` (?:for )?(?:(\d+) in )?.*? \| `(\w+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE
    )
    assert [row[:2] for row in rows] == [(rule.name, rule.counter) for rule in RULES]
    for (_, _, most, effect, source), rule in zip(rows, RULES, strict=True):
        assert (int(most or 1), effect) == (rule.at_least, rule.effect)
        assert len(source) > 20


@pytest.mark.parametrize("name", ["shared", "pooled-vfs"])
def test_a_preset_with_health_is_a_valid_policy_with_these_rules(name: str) -> None:
    done = CliRunner().invoke(cli, ["preset", name, "--health"])
    assert done.exit_code == 0, done.output
    policy = msgspec.convert(yaml.safe_load(done.output), DeviceExposurePolicy)
    assert policy.spec.exposure is not None
    assert policy.spec.exposure.health == RULES
    assert len({rule.name for rule in RULES}) == len(RULES)
