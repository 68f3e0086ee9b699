"""The API server's limits on claims and classes (resource.k8s.io/v1, types.go of Kubernetes 1.37), as a check.

The API server applies them before it asks a webhook, so nothing larger ever comes from there. Another client that
reaches the webhook's port is held to them before the rest of a claim is read: what follows compares requests with
configurations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized

import msgspec

from netdra.model.claim import DeviceClaim, DeviceClassSpec, OpaqueDeviceConfiguration

MAX_REQUESTS = MAX_CONSTRAINTS = MAX_CONFIGS = MAX_SELECTORS = 32
"""DeviceRequestsMaxSize, DeviceConstraintsMaxSize, DeviceConfigMaxSize, DeviceSelectorsMaxSize."""
MAX_ALTERNATIVES = 8
"""FirstAvailableDeviceRequestMaxSize."""
MAX_NAMED = 2 * MAX_REQUESTS * MAX_ALTERNATIVES
"""How many requests a configuration or a constraint names: no more than there are names of requests."""
MAX_PARAMETERS = 10 * 1024
"""Bytes of opaque parameters (OpaqueParametersMaxLength), which are measured without the spaces of their author."""


def is_claim_within(wanted: DeviceClaim) -> bool:
    """Whether a claim is one that the API server takes, as far as numbers go. Linear in the claim's size."""
    few = (
        (wanted.requests, MAX_REQUESTS),
        (wanted.constraints, MAX_CONSTRAINTS),
        (wanted.config, MAX_CONFIGS),
    )
    if any(len(items) > most for items, most in few):
        return False
    exact = (request.exactly.selectors for request in wanted.requests if request.exactly is not None)
    alternatives = [request.first_available for request in wanted.requests]
    if not _all_within(exact, MAX_SELECTORS) or not _all_within(alternatives, MAX_ALTERNATIVES):
        return False
    return (
        _all_within((choice.selectors for choices in alternatives for choice in choices), MAX_SELECTORS)
        and _all_within((config.requests for config in wanted.config), MAX_NAMED)
        and _all_within((constraint.requests for constraint in wanted.constraints), MAX_NAMED)
        and _are_small(config.opaque for config in wanted.config)
    )


def is_class_within(spec: DeviceClassSpec) -> bool:
    """Whether a class is one that the API server takes, as far as numbers go. Linear in the class's size."""
    return (
        len(spec.selectors) <= MAX_SELECTORS
        and len(spec.config) <= MAX_CONFIGS
        and _are_small(config.opaque for config in spec.config)
    )


def _all_within(every: Iterable[Sized], most: int) -> bool:
    return all(len(items) <= most for items in every)


def _are_small(configurations: Iterable[OpaqueDeviceConfiguration | None]) -> bool:
    return all(
        len(msgspec.json.encode(opaque.parameters)) <= MAX_PARAMETERS for opaque in configurations if opaque is not None
    )
