"""What the runtime tells of pod sandboxes, and who wants to know.

`netdra.node.nri` calls a `SandboxHooks`; the daemon's attachments are one. Hooks are called at least once: two daemons
during a rolling update, a reconnect or a retry of the runtime call them again for the same sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's sandbox as the runtime knows it. A pod may have several over its life, an old and a new one at once.

    Attributes:
        id: the runtime's id of it, which keys everything that netdra keeps of a pod's network.
        name: the pod's name.
        namespace: the pod's namespace.
        uid: the pod's uid.
        netns: the path of its network namespace. "" for a pod on the host's network and for one that has stopped, or,
            as of CRI-O, a path of the host's and one at which there is nothing any more.
        pid: a process in it; 0 once it has stopped, and always where a sandbox has no process of its own.
    """

    id: str
    name: str
    namespace: str
    uid: str
    netns: str = ""
    pid: int = 0

    def is_of_pod_of(self, other: Sandbox) -> bool:
        """Whether two sandboxes are of one pod: a uid alone may be given to a sandbox by whoever may make one."""
        return (self.namespace, self.name, self.uid) == (other.namespace, other.name, other.uid)


class SandboxHooks(Protocol):
    """Who acts when a sandbox begins, stops and goes."""

    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        """All sandboxes that the runtime has, stopped ones too: after each (re)connection, before any other call.

        It answers at once and works afterwards: the runtime gives all plugins together one request timeout for it.
        """

    async def run(self, sandbox: Sandbox, budget: float) -> None:
        """A sandbox has its namespace and its eth0, and no container yet.

        Args:
            sandbox: the pod's.
            budget: seconds until the answer must be there, what has to be undone included. Past it the runtime lets
                the pod go on without us, so this raises in time instead.

        Raises:
            NetdraError: the pod must not start; the runtime tears the sandbox down and the kubelet tries anew.
        """

    async def stop(self, sandbox: Sandbox, budget: float) -> None:
        """A sandbox's containers have ended and its namespace goes next; may come late, again, or without one.

        Raises:
            NetdraError: something could not be undone yet. The runtime goes on all the same.
        """

    async def remove(self, sandbox: Sandbox) -> None:
        """A sandbox is gone for good; whatever is left of it is cleaned.

        Raises:
            NetdraError: something could not be undone yet.
        """
