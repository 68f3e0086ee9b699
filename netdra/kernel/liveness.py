"""Whether something is there, in three results: present, gone, or unknown.

Returned by every read of the kernel that decides whether anything is undone, released or removed (decision D59). A
function that returns the thing itself has the same results: the thing, None, or a KernelError.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Liveness(msgspec.Struct, frozen=True):
    """The result of a look.

    Attributes:
        state: gone only if the kernel reports it.
        reason: why it is unknown, else "".
    """

    state: Literal["present", "gone", "unknown"]
    reason: str = ""

    @property
    def is_present(self) -> bool:
        """Whether the kernel showed the object itself."""
        return self.state == "present"

    @property
    def is_gone(self) -> bool:
        """Whether the kernel reports that it is not there."""
        return self.state == "gone"

    @property
    def is_unknown(self) -> bool:
        """Whether the kernel did not state: nothing may be undone, and the look is repeated."""
        return self.state == "unknown"
