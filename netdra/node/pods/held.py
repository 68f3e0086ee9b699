"""Which devices are held: by claims that are prepared here, by sandboxes that are attached or could not be undone.

The `Holder` of `netdra.node.view`: the publishing half keeps such devices published, and taints those in trouble.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from netdra.chain.checkpoint import Saved
from netdra.node.pods.network import Network, Undone
from netdra.node.view import HeldDevice
from netdra.topology.devices import DeviceKey


@dataclass(frozen=True)
class Held:
    """The devices that are held, read from the disk: what another daemon of this node wrote counts at once.

    Attributes:
        network: where checkpoints and prepared claims are.
        troubles: what could not be given back yet, by sandbox; kept by `netdra.node.pods.attachments`.
    """

    network: Network
    troubles: dict[str, Undone] = field(default_factory=dict)

    @property
    def held(self) -> Sequence[HeldDevice]:
        """Each device once for each claim that has it."""
        found: dict[tuple[DeviceKey, str], str] = {}
        for key, claim, trouble in (*self._prepared(), *self._attached()):
            found[key, claim] = found.get((key, claim), "") or trouble
        return tuple(HeldDevice(key=key, claim=claim, trouble=trouble) for (key, claim), trouble in found.items())

    def _prepared(self) -> Iterator[tuple[DeviceKey, str, str]]:
        for claim in self.network.guard.prepared.all():
            yield from ((each.key, claim.claim.uid, "") for each in claim.devices if not each.admin_access)

    def _attached(self) -> Iterator[tuple[DeviceKey, str, str]]:
        for saved in self.network.checkpoints():
            yield from _of_checkpoint(saved, self._trouble(saved.header.pod.sandbox))

    def _trouble(self, sandbox: str) -> str:
        undone = self.troubles.get(sandbox)
        return undone.trouble if undone is not None else ""


def _of_checkpoint(saved: Saved, trouble: str) -> Iterator[tuple[DeviceKey, str, str]]:
    for plan in saved.header.plans:
        for step in plan.steps:
            if step.device is not None:
                yield (step.device.pool, step.device.device), plan.claim.uid, trouble
