"""The results of selectors on an interface, kept until it changes: a changed policy evaluates its own selector only.

Asked by `netdra.exposure.resolve`; kept by `netdra.exposure.expose`. A node may have thousands of policies, and an
answer takes as long as ten other steps of a pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache

import msgspec

from netdra.cel import CelEvaluationError, CompiledSelector, SelectorIndex, device_variables
from netdra.model import names
from netdra.model.inventory import AttributeValue


class Answers(msgspec.Struct, frozen=True):
    """The answers for one interface: those selectors of `asked` are false that are neither of the others."""

    asked: AbstractSet[CompiledSelector] = frozenset()
    matching: AbstractSet[CompiledSelector] = frozenset()
    failing: Mapping[CompiledSelector, CelEvaluationError] = {}


NOTHING_ASKED = Answers()
_FEW = 4
"""As many selectors are asked one by one."""


@lru_cache(maxsize=4)
def _index(selectors: frozenset[CompiledSelector]) -> SelectorIndex:
    return SelectorIndex(selectors)


def ask(
    facts: Mapping[str, AttributeValue], selectors: AbstractSet[CompiledSelector], before: Answers = NOTHING_ASKED
) -> Answers:
    """The answers of selectors.

    Args:
        facts: an interface's attributes under qualified names.
        selectors: to be asked.
        before: the answers for the same facts so far.
    """
    if selectors is before.asked:
        return before
    left = set(selectors - before.asked)
    matching = set(before.matching & selectors)
    failing = {selector: failure for selector, failure in before.failing.items() if selector in selectors}
    if left:
        device = device_variables(names.DRIVER, facts)
        if device.longer is None and len(left) > _FEW:
            left &= _index(frozenset(selectors)).candidates(facts)
        for selector in left:
            try:
                if selector.matches(device):
                    matching.add(selector)
            except CelEvaluationError as failure:
                failing[selector] = failure
    return Answers(selectors, frozenset(matching), failing)
