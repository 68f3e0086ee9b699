"""The health rules that `netdra preset --health` adds to a policy. docs/health.md has the source of each threshold."""

from __future__ import annotations

from netdra.model.health import LINK_FLAPS, PCIE_DEGRADED, RDMA, HealthRule

_HOUR = 3600

RULES = (
    # A bit error rate of 1e-12, the limit of InfiniBand, is some 120 symbols an hour of a fully used link.
    HealthRule(
        name="symbol-errors", counter=f"{RDMA}symbol_error", at_least=120, recover_below=12, effect="NoSchedule"
    ),
    # The port had to train its link again: connections on it are lost each time.
    HealthRule(name="link-downed", counter=f"{RDMA}link_downed", at_least=3, recover_below=1, effect="NoSchedule"),
    # The port has counted more errors than its hardware's limit within one interval.
    HealthRule(name="link-integrity", counter=f"{RDMA}local_link_integrity_errors", at_least=1, within_seconds=_HOUR),
    HealthRule(name="recoveries", counter=f"{RDMA}link_error_recovery", at_least=5, within_seconds=60),
    HealthRule(name="flaps", counter=LINK_FLAPS, at_least=3, recover_below=1, effect="NoSchedule"),
    # A bit error rate of 1e-12, the limit of Ethernet's physical layers, is 360 an hour at 100 Gbit/s.
    HealthRule(name="crc-errors", counter="rx_crc_errors", at_least=360, recover_below=36),
    # Some devices lower their link's speed while they are idle, so it must last.
    HealthRule(name="pcie", counter=PCIE_DEGRADED, at_least=1, for_seconds=600, recover_after_seconds=60),
)
