"""The allocation that kube-scheduler would make, and why a claim does not fit.

`Allocator` takes slices, classes and allocated claims and gives unallocated ones their devices. Inside: `wishes`
(claims checked) and `pools` (slices judged) meet in `search` (first fit with backtracking), which takes devices in a
`trial`; `allocator` writes the answer, `ledger` remembers it, `explain` states why none exists.
`worst_case` foresees searches that the scheduler does not finish.
"""

from netdra.slices.allocator.allocator import Allocation, Allocator, Refusal
from netdra.slices.allocator.explain import Explanation, NodeExplanation, Obstacle, RequestReport
from netdra.slices.allocator.wishes import claim_key, shown
from netdra.slices.allocator.worst_case import MOST_VISITS, Outlook
from netdra.slices.nodes import SchedulerNode, named

__all__ = [
    "MOST_VISITS",
    "Allocation",
    "Allocator",
    "Explanation",
    "NodeExplanation",
    "Obstacle",
    "Outlook",
    "Refusal",
    "RequestReport",
    "SchedulerNode",
    "claim_key",
    "named",
    "shown",
]
