"""DeviceExposurePolicies and interfaces → devices and counter sets, with the reason for each decision. Pure.

`expose` for one pass (the command line), `Exposer` for many (the daemon), `check` for a policy by itself (the
webhook). `netdra.slices` packs the result into ResourceSlices.
"""

from netdra.exposure.check import check
from netdra.exposure.expose import Exposer, expose

__all__ = ["Exposer", "check", "expose"]
