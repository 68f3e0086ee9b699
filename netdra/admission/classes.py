"""A DeviceClass that is about to be written, as far as it says something to netdra.

Classes are every driver's, so what cannot be read is let through: the API server itself judges that.
"""

from __future__ import annotations

import msgspec

from netdra.admission.messages import ALLOWED, AdmissionRequest, Verdict
from netdra.model.claim import DeviceClass
from netdra.topology.class_check import check_class

_CLASS = msgspec.json.Decoder(DeviceClass)


def review(request: AdmissionRequest) -> Verdict:
    """What stands against a class."""
    try:
        found = _CLASS.decode(request.object)
    except msgspec.DecodeError:
        return ALLOWED
    return Verdict(tuple(finding.text for finding in check_class(found)))
