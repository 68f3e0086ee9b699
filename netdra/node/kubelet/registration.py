"""The registration service: by its socket the kubelet finds the driver, and by its answers the DRA service.

Started by `plugin` after the DRA service. Follows k8s.io/kubelet/pkg/apis/pluginregistration v1.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from netdra.model import names
from netdra.node.kubelet.server import Methods, unary
from netdra.node.metrics import REGISTRATIONS
from netdra.node.wire import kubelet_pb2 as wire

log = logging.getLogger(__name__)

_SERVICE = "/pluginregistration.Registration"
_DRA_PLUGIN = "DRAPlugin"


class Registration:
    """What the kubelet is told of the driver, and what it said to that.

    Attributes:
        registered: whether the kubelet has last said that it took the driver.
        problem: why it did not, "" where it did or has not said anything yet.
        times: how often it took it; once more after each restart of the kubelet.
    """

    def __init__(self, endpoint: str, versions: Sequence[str]) -> None:
        """Begin.

        Args:
            endpoint: the path of the DRA service's socket, as the kubelet sees it.
            versions: the services there, as the kubelet calls them.
        """
        self.registered, self.problem, self.times = False, "", 0
        self._info = wire.PluginInfo(
            type=_DRA_PLUGIN, name=names.DRIVER, endpoint=endpoint, supported_versions=versions
        )

    def methods(self) -> Methods:
        """The service as the server takes it."""
        return {
            f"{_SERVICE}/GetInfo": unary(wire.InfoRequest, wire.PluginInfo, self._get_info),
            f"{_SERVICE}/NotifyRegistrationStatus": unary(
                wire.RegistrationStatus, wire.RegistrationStatusResponse, self._notify
            ),
        }

    async def _get_info(self, _: wire.InfoRequest) -> wire.PluginInfo:
        return self._info

    async def _notify(self, status: wire.RegistrationStatus) -> wire.RegistrationStatusResponse:
        self.registered, self.problem = status.plugin_registered, status.error
        if status.plugin_registered:
            self.times += 1
            REGISTRATIONS.labels("ok").inc()
            log.info("registered with the kubelet as %s", names.DRIVER)
        else:
            REGISTRATIONS.labels("permanent").inc()
            log.error("the kubelet does not take the driver: %s", status.error)
        return wire.RegistrationStatusResponse()
