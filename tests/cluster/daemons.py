"""netdra's controller and webhook as processes beside the shared control plane, with the rights of their accounts only.

The API server reaches the webhook on loopback, by the certificate that it made itself.
"""

from __future__ import annotations

import base64
import itertools
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from testbed.api import Api, ApiError, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, manifest
from testbed.process import Ports, Process, answers
from testbed.waiting import until
from tests.cluster import identities
from tests.cluster.identities import NETDRA

POLICY = "networking.dra.io/v1alpha1/DeviceExposurePolicy"
CONFIGURATION = "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"
SECRET = "v1/Secret"
PATIENCE = 10  # seconds: a claim that the webhook has not judged in time is let through, on a busy machine too
DENIED = 'admission webhook "validate.networking.dra.io" denied the request: '
WRONG_POLICY = manifest(POLICY, "asked", spec={"selector": {"cel": "device.driver =="}})
_OPAQUE = {"driver": "dra.networking", "parameters": {"networkTopologyRef": {"name": "x"}, "step": "a"}}
_REQUESTS = [{"name": "a", "exactly": {"deviceClassName": "x-a"}}]
WRONG_CLAIM = manifest(
    CLAIM, "asked", "default", spec={"devices": {"requests": _REQUESTS, "config": [{"opaque": _OPAQUE}]}}
)
_NUMBERS = itertools.count(1)


def start_controller(plane: ControlPlane, api: Api, *arguments: str) -> Process:
    """A controller, with further arguments; it is ready when it leads."""
    identity = f"controller-{next(_NUMBERS)}"
    account = identities.kubeconfig(plane, api, "netdra-controller")
    command = [
        *(sys.executable, "-m", "netdra", "controller"),
        *(f"--kubeconfig={account}", f"--identity={identity}"),
        *arguments,
    ]

    def leads() -> bool:
        held = api.list("coordination.k8s.io/v1/Lease", NETDRA, fields="metadata.name=netdra-controller")
        return any(each["spec"].get("holderIdentity") == identity for each in held)

    return plane.run("netdra-controller", command, leads)


@contextmanager
def running_controller(plane: ControlPlane, api: Api, *arguments: str) -> Iterator[Process]:
    """The controller, installed and at work, with further arguments."""
    identities.install(api)
    process = start_controller(plane, api, *arguments)
    try:
        yield process
    finally:
        plane.processes["netdra-controller"].stop()


@dataclass
class Webhook:
    """The webhook's process, and the API server's configuration for it."""

    process: Process
    configurations: list[Object]


@contextmanager
def running_webhook(plane: ControlPlane, api: Api, *arguments: str) -> Iterator[Webhook]:
    """The webhook, installed and asked by the API server, with further arguments."""
    identities.install(api)
    configurations = identities.template("webhook-rules.yaml")
    with closing(Ports("127.0.0.1")) as ports:
        port = ports.take()
        command = [
            *(sys.executable, "-m", "netdra", "webhook", "--host=127.0.0.1", "--address=127.0.0.1", f"--port={port}"),
            f"--kubeconfig={identities.kubeconfig(plane, api, 'netdra-webhook')}",
            *arguments,
        ]
        unverified = ssl._create_unverified_context()
        for each in configurations:
            for one in each["webhooks"]:
                one["timeoutSeconds"] = PATIENCE
                one["clientConfig"] = {"url": f"https://127.0.0.1:{port}/validate"}
            api.create(each)
        process = plane.run("netdra-webhook", command, answers(f"https://127.0.0.1:{port}/readyz", unverified))
        try:
            until_asked(api)
            yield Webhook(process, configurations)
        finally:
            process.stop()
            for each in configurations:
                api.delete(CONFIGURATION, each["metadata"]["name"])
            api.delete(SECRET, "netdra-webhook", NETDRA)


def until_asked(api: Api) -> None:
    """Wait until the API server asks the webhook, of both configurations, and trusts it; that cannot be watched."""
    for each in (WRONG_POLICY, WRONG_CLAIM):
        until_refused(api, each)


def until_refused(api: Api, wrong: Object, by: str = DENIED) -> None:
    """Wait until the webhook refuses something; the API server reads its configuration a moment later."""

    def refused() -> bool:
        return refusal(partial(api.create, wrong, dry_run=True)).startswith(by)

    until(refused, "the API server to ask the webhook")


def bundle_of(found: Object | None) -> bytes:
    """The authorities that a configuration trusts."""
    config = found["webhooks"][0]["clientConfig"] if found else {}
    return base64.b64decode(config.get("caBundle", ""))


def refusal(write: Callable[[], Any]) -> str:
    """Why the API server refuses a write, or ""."""
    try:
        write()
    except ApiError as problem:
        return problem.message
    return ""


def steps(*names: str, **more: Any) -> Object:
    """A topology's spec of root steps alone."""
    return {"steps": [{"name": name, "type": "sriov", "selector": {"cel": "true"}, **more} for name in names]}
