"""The forecast: the devices that change when a policy is written, requested by a form with YAML. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from netdra.console.frame import field, link, note, page, table
from netdra.console.markup import Markup, PageAddress, element
from netdra.model import documents
from netdra.model.errors import InvalidInputError
from netdra.model.names import is_subdomain
from netdra.model.policy import DeviceExposurePolicy

MAX_YAML = 64 * 1024
"""Bytes of the form's YAML."""
MAX_POLICIES = 8
_NOBODY = "-"
EXAMPLE = """\
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: vfs}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
"""


class ForecastDevice(NamedTuple):
    """A device that the policies change: the policy that offers it now and after, "" if none does."""

    node: str
    device: str
    now: str
    after: str
    allocated: bool


class Forecast(NamedTuple):
    """The result of the policies.

    Attributes:
        hidden, offered, moved: the number of devices that would no longer be published, that would be published, and
            that another policy would offer.
        in_use: how many of the hidden devices claims have.
        nodes: the number of nodes with a change.
        devices: the first of these devices.
        notes: problems of the policies, and nodes of which too little is known.
    """

    hidden: int
    offered: int
    moved: int
    in_use: int
    nodes: int
    devices: Sequence[ForecastDevice]
    notes: Sequence[str] = ()


def policies_of(text: str, node: str = "") -> list[DeviceExposurePolicy]:
    """The policies of a form that names a node, or none.

    Raises:
        InvalidInputError: the text is not YAML of policies, or is too long; the node's name is not valid.
    """
    if node and not is_subdomain(node):
        raise InvalidInputError(f'"{node}" is not a valid name of a node', code="ND4089")
    if len(text.encode(errors="replace")) > MAX_YAML:
        raise InvalidInputError(
            f"the YAML is longer than {MAX_YAML} bytes", hint="use netdra plan --cluster", code="ND4090"
        )
    found: list[DeviceExposurePolicy] = []
    for entry in documents.read(text, "form"):
        if not isinstance(entry, DeviceExposurePolicy):
            raise InvalidInputError(
                "the form takes DeviceExposurePolicies only", hint="remove the other objects", code="ND4091"
            )
        found.append(entry)
    if not 0 < len(found) <= MAX_POLICIES:
        raise InvalidInputError(f"the form takes 1 to {MAX_POLICIES} policies: {len(found)} found", code="ND4092")
    return found


def forecast_page(text: str, node: str, forecast: Forecast | None = None, problem: str = "") -> bytes:
    """The form, with the result if there is one.

    Args:
        text: the YAML of the form.
        node: the only node that is read, "" for all.
        forecast: the result.
        problem: why none exists.
    """
    content = (_result(forecast) if forecast is not None else None, note(problem, "problem") if problem else None)
    form = policy_form(text or EXAMPLE, node)
    return page("Try a policy", (content, form), here="Try a policy")


def policy_form(text: str, node: str) -> Markup:
    """The form with the YAML of policies, and a node or "" for all."""
    rows = min(max(len(text.splitlines()) + 2, 8), 24)
    return element(
        "form",
        element("p", "Shows the devices that change if these policies are written. Nothing is written."),
        element("label", "Policies, as YAML", for_="policies"),
        element(
            "textarea",
            text,
            id="policies",
            name="policies",
            rows=rows,
            cols=90,
            maxlength=MAX_YAML,
            spellcheck="false",
        ),
        field("Node", "node", node, "Empty for all nodes."),
        element("button", "Show the result", type="submit"),
        action=PageAddress("what-if", "result"),
        method="post",
    )


def _result(forecast: Forecast) -> Markup:
    in_use = f" ({forecast.in_use} in use)" if forecast.in_use else ""
    many = f"on {forecast.nodes} node{'s' * (forecast.nodes != 1)}"
    text = f"{forecast.hidden} hidden{in_use}, {forecast.offered} offered, {forecast.moved} by another policy, {many}."
    rows = [
        (
            link(entry.device, "devices", entry.node, entry.device),
            link(entry.node, "nodes", entry.node),
            entry.now or _NOBODY,
            entry.after or _NOBODY,
            "yes" if entry.allocated else "",
        )
        for entry in forecast.devices
    ]
    left = forecast.hidden + forecast.offered + forecast.moved - len(rows)
    return element(
        "section",
        element("h2", "Result"),
        element("p", text if forecast.nodes else "Nothing changes.", class_="lead"),
        (note(entry, "warning") for entry in forecast.notes),
        table("Devices that change", ("Device", "Node", "Now", "After", "In use"), rows) if rows else None,
        note(f"{left} more devices are not shown.") if left else None,
    )
