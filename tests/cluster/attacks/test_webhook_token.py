"""With the webhook's stolen token, an attacker can neither redirect Secrets to it nor become another account.

The webhook may write the CA that the API server trusts into its configuration, and store its certificate. RBAC gives
the whole object for that; an admission policy (`certificate-keeper.yaml` of the chart) restricts it to the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.kubectl import denial, kubectl
from testbed.objects import manifest
from testbed.waiting import until
from tests.cluster import identities
from tests.cluster.daemons import CONFIGURATION, SECRET, running_webhook
from tests.cluster.identities import NETDRA

BOUNDED = "whom the API server trusts for it (clientConfig.caBundle), and nothing else"
SECRETS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["secrets"]}


@pytest.fixture(scope="module")
def stolen(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Path]:
    """The webhook's token, while the webhook runs with it, and the policies are heeded."""
    with running_webhook(control_plane, api):
        token = identities.kubeconfig(control_plane, api, "netdra-webhook")
        until(lambda: BOUNDED in refused(token, lambda each: each.update(timeoutSeconds=30)), "the policy to be heeded")
        yield token


def refused(token: Path, change: Callable[[dict[str, Any]], Any]) -> str:
    """Why a webhook of the configuration cannot be changed, or ""."""
    configuration = json.loads(kubectl(token, "get", "validatingwebhookconfigurations", "netdra", "-o", "json"))
    change(configuration["webhooks"][0])
    patch = json.dumps({"webhooks": configuration["webhooks"]})
    return denial(
        token, "patch", "validatingwebhookconfigurations", "netdra", "--dry-run=server", "--type=merge", "-p", patch
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda each: each.update(rules=[SECRETS]),
        lambda each: each["rules"].append(SECRETS),
        lambda each: each["rules"][0].update(resources=["*"], apiGroups=["*"]),
        lambda each: each["clientConfig"].update(url="https://attacker.example.com/"),
        lambda each: each.update(failurePolicy="Ignore"),
        lambda each: each.update(timeoutSeconds=30),
        lambda each: each.update(matchConditions=[{"name": "always", "expression": "true"}]),
        lambda each: each.update(namespaceSelector={"matchLabels": {"a": "b"}}),
        lambda each: each.update(objectSelector={"matchLabels": {"a": "b"}}),
        lambda each: each.update(matchPolicy="Exact"),
        lambda each: each.update(sideEffects="NoneOnDryRun"),
    ],
    ids=[
        *("other rules", "one more rule", "rules for all", "another server", "ignored failures", "a longer time"),
        *("other conditions", "other namespaces", "other objects", "another match", "side effects"),
    ],
)
def test_nothing_of_its_configuration_but_the_bundle_can_be_changed(stolen: Path, change: Callable[[Any], Any]) -> None:
    assert BOUNDED in refused(stolen, change)


def test_a_webhook_cannot_be_added_or_left_out(stolen: Path) -> None:
    for webhooks in ("[]", None):
        found = json.loads(kubectl(stolen, "get", "validatingwebhookconfigurations", "netdra", "-o", "json"))
        added = [*found["webhooks"], {**found["webhooks"][0], "name": "spy.example.com", "rules": [SECRETS]}]
        patch = f'{{"webhooks": {webhooks or json.dumps(added)}}}'
        arguments = ("patch", "validatingwebhookconfigurations", "netdra", "--type=merge", "-p", patch)
        assert BOUNDED in denial(stolen, *arguments)


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_its_labels_stay(stolen: Path, field: str) -> None:
    patch = json.dumps({"metadata": {field: {"argocd.argoproj.io/ignore": "true"}}})
    arguments = ("patch", "validatingwebhookconfigurations", "netdra", "--type=merge", "-p", patch)
    assert BOUNDED in denial(stolen, *arguments)


def test_the_webhook_token_can_set_and_remove_the_ca_bundle(stolen: Path) -> None:
    bundle = json.loads(kubectl(stolen, "get", "validatingwebhookconfigurations", "netdra", "-o", "json"))
    bundle = bundle["webhooks"][0]["clientConfig"]["caBundle"]
    assert refused(stolen, lambda each: each["clientConfig"].update(caBundle=bundle)) == ""
    assert refused(stolen, lambda each: each["clientConfig"].pop("caBundle")) == ""


def test_the_configuration_cannot_be_deleted_nor_another_one_made(stolen: Path) -> None:
    assert "cannot delete" in denial(stolen, "delete", "validatingwebhookconfigurations", "netdra")
    mine: Object = manifest(CONFIGURATION, "netdra-spy", webhooks=[])
    assert "cannot create" in denial(stolen, "create", "-f", "-", text=yaml.safe_dump(mine))


def secret(name: str, kind: str) -> str:
    of = {"kubernetes.io/service-account.name": "netdra-controller"}
    made = manifest(SECRET, name, NETDRA, type=kind)
    made["metadata"]["annotations"] = of
    if kind == "kubernetes.io/tls":
        made["data"] = {"tls.crt": "", "tls.key": ""}
    return yaml.safe_dump(made)


def test_no_secret_can_be_made_that_becomes_the_token_of_another_account(stolen: Path, api: Api) -> None:
    """The webhook may read the Secret of its name; one of another type there is filled with a token by Kubernetes."""
    token = "kubernetes.io/service-account-token"
    for name, kind in (("netdra-webhook", token), ("other", token), ("other", "kubernetes.io/tls")):
        told = denial(stolen, "create", "--dry-run=server", "-f", "-", text=secret(name, kind))
        assert "and no other Secret" in told, (name, kind)
    assert "cannot get" in denial(stolen, "-n", "kube-system", "get", "secret", "netdra-webhook")
    assert "cannot list" in denial(stolen, "-n", NETDRA, "get", "secrets")
