"""What the kube-scheduler would allocate, and why a claim does not fit.

`Allocator` takes slices, classes and allocated claims and gives unallocated ones their devices. Inside: `wishes`
(claims checked) and `pools` (slices judged) meet in `search` (first fit with backtracking), which takes devices in a
`trial`; `allocator` writes the answer, `ledger` remembers it, `explain` says why there is none.
"""

from netdra.slices.allocator.allocator import Allocation, Allocator, Refusal
from netdra.slices.allocator.explain import Explanation, NodeExplanation, Obstacle, RequestReport
from netdra.slices.allocator.wishes import claim_key, shown
from netdra.slices.nodes import SchedulerNode, named

__all__ = [
    "Allocation",
    "Allocator",
    "Explanation",
    "NodeExplanation",
    "Obstacle",
    "Refusal",
    "RequestReport",
    "SchedulerNode",
    "claim_key",
    "named",
    "shown",
]
