"""A step of the graph as `netdra.steps` takes it, and as a program does. For `execute`, `preflight` and `collect`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdra.chain.flow import ChainStep
from netdra.cni.config import NetworkConfig
from netdra.model.result import StepResult
from netdra.steps.contract import Order


def order_of(task: ChainStep, config: Mapping[str, Any], previous: StepResult) -> Order:
    """A built-in step as `netdra.steps` takes it."""
    return Order(
        topology=task.topology,
        step=task.step.name,
        type=task.step.type,
        if_name=task.step.if_name,
        network=task.step.network,
        config=config,
        device=task.step.device,
        below=task.below,
        port=task.step.port,
        keep=task.step.kept,
        default_route=task.step.default_route,
        previous=previous,
    )


def network_of(task: ChainStep, config: Mapping[str, Any]) -> NetworkConfig:
    """A step as a binary's network configuration, with its config resolved."""
    device = task.step.device
    return NetworkConfig(
        network=task.step.network,
        type=task.step.type,
        config=config,
        device_id=device.own_pci_address if device is not None else "",
    )
