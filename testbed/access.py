"""Access to an API server: its address, and the authority that signs its clients' certificates.

`ControlPlane` is one that it has started itself; `joined` finds one that another process has, as the tests in the
SR-IOV machine do, whose control plane runs outside.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from testbed.api import TIMEOUT, Api
from testbed.certificates import Authority, KeyPair, existing_authority
from testbed.kubectl import kubectl

ADMIN = "kubernetes-admin"
ADMIN_GROUPS = ("system:masters",)
_FILE = "access.json"


class Access:
    """Clients of an API server, for the administrator and for other users.

    Attributes:
        server: the API server's URL.
        authority: signs the servers' and all clients' certificates.
        feature_gates: those that differ from the release's, for each component that joins.
        patience: seconds that clients wait for a condition by default.
    """

    server: str
    authority: Authority
    feature_gates: Mapping[str, bool] = MappingProxyType({})
    patience: float = TIMEOUT

    def client(self, user: str = ADMIN, groups: Iterable[str] = ADMIN_GROUPS) -> Api:
        """An API client for the administrator, or for a user with their groups."""
        pair = self.authority.client(user, groups)
        return Api(self.server, self.authority.own.certificate, pair, patience=self.patience)

    def kubeconfig(self, user: str = ADMIN, groups: Iterable[str] = ADMIN_GROUPS) -> Path:
        """A kubeconfig file for the administrator, or for a user: `kubeconfig("system:node:n1", ["system:nodes"])`."""
        pair = self.authority.client(user, groups)
        path = pair.certificate.with_suffix(".kubeconfig")
        path.write_text(_kubeconfig(self.server, self.authority.own.certificate, user, pair))
        return path

    def kubectl(self, *arguments: str, text: str = "") -> str:
        """Run kubectl as the administrator and return what it printed; `text` is its standard input.

        Raises:
            KubectlError: it ended with another code than 0.
        """
        return kubectl(self.kubeconfig(), *arguments, text=text)

    def share(self, folder: Path, server: str) -> None:
        """Write down how another process that sees the folder, and the authority's, can join under a URL of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _FILE).write_text(json.dumps({"server": server, "authority": str(self.authority.folder)}))


def joined(folder: Path) -> Access:
    """The way to the API server that another process has shared in a folder.

    Raises:
        FileNotFoundError: none is shared there.
    """
    shared = json.loads((folder / _FILE).read_text())
    found = Access()
    found.server = shared["server"]
    found.authority = existing_authority(Path(shared["authority"]))
    return found


def _kubeconfig(server: str, authority: Path, user: str, pair: KeyPair) -> str:
    """The text of a kubeconfig file: JSON, which every reader of YAML reads."""
    cluster = {"server": server, "certificate-authority": str(authority)}
    identity = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": cluster}],
            "users": [{"name": user, "user": identity}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
            "current-context": "testbed",
        },
        indent=1,
    )
