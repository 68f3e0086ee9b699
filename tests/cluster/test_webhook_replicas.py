"""A replica of the webhook whose machine has something broken, beside a healthy one: no write is refused for it."""

from __future__ import annotations

import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.objects import manifest
from testbed.process import Ports, answers
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.daemons import CONFIGURATION, SECRET, Webhook, bundle_of, running_webhook, steps
from tests.cluster.identities import NETDRA

TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
SECONDS = 8.0
"""Long enough for several attempts of a replica that does not succeed."""

NO_DISK = "for f in /tmp /var/tmp /dev/shm; do mount --bind $f $f && mount -o remount,bind,ro $f; done; cd /proc"
FULL_DISK = """mkdir -p /run/full && mount -t tmpfs -o size=4k tmpfs /run/full && head -c 4096 /dev/zero >/run/full/all
export TMPDIR=/run/full; cd /proc"""
MACHINES = {
    "read-only": NO_DISK,
    "full": FULL_DISK,
    **{f"{count}-files": f"ulimit -n {count}" for count in (9, 12, 16, 20, 26)},
}


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Webhook]:
    with running_webhook(control_plane, api) as running:
        yield running


def test_a_replica_with_a_broken_machine_changes_nothing_and_no_write_is_refused(
    control_plane: ControlPlane, workspace: Workspace, webhook: Webhook
) -> None:
    api, names = workspace.api, [each["metadata"]["name"] for each in webhook.configurations]
    secret = api.get(SECRET, "netdra-webhook", NETDRA)["metadata"]["resourceVersion"]
    bundles = [bundle_of(api.get(CONFIGURATION, name)) for name in names]
    with closing(Ports("127.0.0.1")) as ports:
        served = {name: ports.take() for name in MACHINES}
        processes = [
            control_plane.run(
                f"netdra-webhook-{name}",
                [
                    *("unshare", "--mount", "--propagation=private", "sh", "-c", f'{break_it}; exec "$@"', "sh"),
                    *(sys.executable, "-m", "netdra", "webhook", "--host=127.0.0.1", "--address=127.0.0.1"),
                    f"--port={served[name]}",
                    f"--kubeconfig={identities.kubeconfig(control_plane, api, 'netdra-webhook')}",
                ],
                lambda: True,
            )
            for name, break_it in MACHINES.items()
        ]
        trust = ssl.create_default_context(cadata=bundles[0].decode())
        for name in ("read-only", "full"):
            until(answers(f"https://127.0.0.1:{served[name]}/readyz", trust), f"the replica with {name} to be ready")
        end, writes = time.monotonic() + SECONDS, 0
        while time.monotonic() < end:
            api.create(manifest(TOPOLOGY, workspace.name(f"written-{writes}"), spec=steps("vf0")), dry_run=True)
            writes += 1
        assert writes > 0
        assert api.get(SECRET, "netdra-webhook", NETDRA)["metadata"]["resourceVersion"] == secret
        assert [bundle_of(api.get(CONFIGURATION, name)) for name in names] == bundles
        for process in processes:
            process.kill()
