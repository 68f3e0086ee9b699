"""In which form nodes publish supportedCNIs, so that DeviceClasses ask for it in that form (decision D6).

Asked by `netdra.controller.controller` at its start and when slices change. It looks at a few slices at most: all
nodes ask one API server.
"""

from __future__ import annotations

from collections.abc import Iterable

from netdra.kube.client import Client
from netdra.kube.errors import NotFoundError
from netdra.kube.resources import RESOURCE_SLICES
from netdra.model import names, report
from netdra.model.device import Features
from netdra.model.resource import ResourceSlice

SAMPLE = 20


async def published(client: Client, slices: Iterable[report.ReportedSlice]) -> Features | None:
    """The form that the first slice with devices has it in; None if none of the sample has any.

    Raises:
        ApiError: they cannot be read just now.
    """
    for name in candidates(slices)[:SAMPLE]:
        try:
            found = _form(await client.get(RESOURCE_SLICES, name))
        except NotFoundError:
            continue
        if found is not None:
            return found
    return None


def candidates(slices: Iterable[report.ReportedSlice]) -> list[str]:
    """The slices by name, those first that are likely to have devices: half of them may be counter sets alone.

    Those that report devices have some; of the others a pool's last one has, for counter sets come first in a pool.
    """
    found = [(_is_reporting(one), one.metadata.name) for one in slices]
    return [name for _, name in sorted(found, reverse=True)]


def _is_reporting(one: report.ReportedSlice) -> bool:
    return '"devices":' in one.metadata.annotations.get(report.ANNOTATION, "")


def _form(found: ResourceSlice) -> Features | None:
    attribute = names.qualified(names.SUPPORTED_CNIS)
    for device in found.spec.devices:
        if attribute in device.attributes:
            return Features(list_attributes=device.attributes[attribute].strings is not None)
    return None
