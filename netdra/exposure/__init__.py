"""DeviceExposurePolicies and interfaces → devices and counter sets, with the reason for each decision. Pure.

`expose` for one pass (the command line), `Exposer` for many (the daemon), `check` for a policy by itself (the
webhook). What comes out is packed into ResourceSlices by `netdra.slices`.
"""

from netdra.exposure.check import check
from netdra.exposure.expose import Exposer, expose

__all__ = ["Exposer", "check", "expose"]
