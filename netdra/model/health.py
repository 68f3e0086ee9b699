"""Health rules of a DeviceExposurePolicy: thresholds over the counters and facts of an interface.

Evaluated by `netdra.health.watch` on each node; docs/health.md explains them.
"""

from typing import Annotated, Literal

import msgspec

MAX_RULES = 16
MAX_SECONDS = 86_400
HealthEffect = Literal["Report", "NoSchedule", "NoExecute"]
LINK_FLAPS = "link_flaps"
PCIE_DEGRADED = "pcie_link_degraded"
RDMA = "rdma_"
"""The beginning of the names of RDMA ports' counters: `rdma_symbol_error` is `symbol_error` in sysfs."""
LINK_COUNTERS = (
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "rx_length_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "tx_aborted_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
)
"""The error counters of every link (struct rtnl_link_stats64)."""
COUNTERS = (*LINK_COUNTERS, LINK_FLAPS, PCIE_DEGRADED)
"""The counters and facts beside those of RDMA ports."""
_PATTERN = "^[a-z][a-z0-9_]{0,79}$"


def is_known(counter: str) -> bool:
    """Whether a counter can be read; the names of RDMA ports' counters are their drivers'."""
    return counter in COUNTERS or (counter.startswith(RDMA) and counter != RDMA)


class HealthRule(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """A threshold over a counter of the device's interface.

    Attributes:
        name: The rule's name in reports and taints, e.g. `crc-errors`; a DNS label.
        counter: The counter or fact, e.g. `rx_crc_errors`. An error counter of the kernel's link statistics;
            `link_flaps`, how often the link lost its carrier; `rdma_` and the name of a counter of the RDMA device's
            port, e.g. `rdma_symbol_error`; or `pcie_link_degraded`, which is 1 while the PCIe link is slower or
            narrower than the device and its slot support.
        at_least: The increase of the counter within the window from which the device counts as faulty, e.g. `100`. For
            `pcie_link_degraded` its value, `1`.
        within_seconds: The length of the window in seconds, e.g. `3600`.
        for_seconds: How long the increase must stay at or above `atLeast` before the device counts as faulty, in
            seconds, e.g. `60`. 0: at once.
        recover_below: The increase within the window below which the device can recover, e.g. `10`; at most `atLeast`.
            If absent, `atLeast`.
        recover_after_seconds: How long the increase must stay below `recoverBelow` before the device counts as healthy
            again, in seconds, e.g. `1800`.
        effect: The effect of the fault, e.g. `NoSchedule`. `Report`: the NodeNetwork and an event. `NoSchedule`: the
            device is also tainted, and new claims get other devices. `NoExecute`: the pods that have it are evicted,
            too, unless their claims tolerate the taint.
    """

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    counter: Annotated[str, msgspec.Meta(pattern=_PATTERN)]
    at_least: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    within_seconds: Annotated[int, msgspec.Meta(ge=10, le=MAX_SECONDS)] = 3600
    for_seconds: Annotated[int, msgspec.Meta(ge=0, le=MAX_SECONDS)] = 0
    recover_below: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    recover_after_seconds: Annotated[int, msgspec.Meta(ge=0, le=MAX_SECONDS)] = 1800
    effect: HealthEffect = "Report"

    @property
    def is_level(self) -> bool:
        """Whether its value counts itself, not its increase."""
        return self.counter == PCIE_DEGRADED

    @property
    def low(self) -> int:
        """The value below which a device can recover."""
        return self.at_least if self.recover_below is None else min(self.recover_below, self.at_least)
