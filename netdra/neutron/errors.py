"""Why a request to Neutron fails, each with one word for conditions, metrics and administrators.

A `reason` is the word; `what` and `hint` state it in words. Nothing of a password, a secret or a token is in any of
them.
"""

from __future__ import annotations

from typing import ClassVar

from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError


class NeutronError(NetdraError):
    """Neutron or Keystone refused a request.

    Attributes:
        reason: why, in one word.
    """

    reason: ClassVar[str] = "Refused"


class UnreachableError(NeutronError, TemporaryError):
    """Neutron or Keystone does not answer in time, or answers with an error of its own."""

    reason = "Unreachable"


class UnauthorizedError(NeutronError, TemporaryError):
    """The credentials are not taken; another secret may have been written by the next time."""

    reason = "Unauthorized"


class ForbiddenError(NeutronError, TemporaryError):
    """The user lacks a role, which an administrator may give at any time."""

    reason = "Forbidden"


class QuotaError(NeutronError, TemporaryError):
    """The project's quota is used up."""

    reason = "Quota"


class NoAddressError(NeutronError, TemporaryError):
    """The subnet has no address left, or not the one that is asked for."""

    reason = "NoAddress"


class NoAgentError(NeutronError, TemporaryError):
    """The port is there and not bound: no NIC switch agent lives on the host for the physical network."""

    reason = "NoAgent"


class NoNetworkError(NeutronError, TemporaryError):
    """No such network, subnet or policy, as far as the user may see exists."""

    reason = "NoNetwork"


class NoPortError(NeutronError, TemporaryError):
    """No such port, as far as the user may see exists."""

    reason = "NoPort"


class SlotTakenError(NeutronError, TemporaryError):
    """The VF has another port, which Neutron does not mind; it may be one that is being deleted."""

    reason = "SlotTaken"


class OtherProjectError(NeutronError, TemporaryError):
    """It belongs to another project, which neither shares it with netdra's nor is allowed by an administrator."""

    reason = "OtherProject"


class UnknownProjectError(NeutronError, TemporaryError):
    """Neutron does not answer with the project that it belongs to."""

    reason = "UnknownProject"


class OtherClusterError(NeutronError, TemporaryError):
    """Another cluster with the same uid looks after the ports: a copy of this one, or the one that it is a copy of."""

    reason = "OtherCluster"


class NetworkMovedError(NeutronError, PermanentError):
    """The name leads to another network than the one that the cluster's ports of it are in."""

    reason = "NetworkMoved"


class AmbiguousError(NeutronError, PermanentError):
    """Several objects match, and Neutron is not asked to choose."""

    reason = "Ambiguous"


class WrongPhysnetError(NeutronError, PermanentError):
    """The network is of another physical network than the device."""

    reason = "WrongPhysnet"


class LostError(NeutronError, PermanentError):
    """The port is gone from Neutron though its claim has it."""

    reason = "Lost"


class NeutronRefusedError(NeutronError, PermanentError):
    """Neutron refuses for another reason, which is in its own words."""


class ChangedError(NeutronRefusedError):
    """The object was changed since it was read."""


class CloudsError(InvalidInputError):
    """clouds.yaml cannot be used.

    Attributes:
        reason: as of a `NeutronError`.
    """

    reason: ClassVar[str] = "BadClouds"
