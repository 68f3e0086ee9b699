"""The ledgers of all PodNetworks, each made when it is first needed.

Kept by `netdra.controller.addresses.pod_addresses`, used by `netdra.controller.addresses.assigning` and
`netdra.controller.addresses.shares`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from netdra.kube.store import Store
from netdra.model.findings import Finding
from netdra.model.pod_address import AddressOwner, Family, PodAddress, WatchedPodAddress, address_named
from netdra.model.pod_network import PodNetwork
from netdra.networks.ledger import NetworkLedger
from netdra.rules import pod_addresses, pod_networks


class NetworkLedgers:
    """The ledgers of a cluster's PodNetworks."""

    def __init__(
        self,
        networks: Store[PodNetwork],
        addresses: Store[WatchedPodAddress],
        of_network: Mapping[str, Mapping[str, PodAddress]],
        unassigned: Callable[[str], Iterable[str]],
    ) -> None:
        """Begin without any.

        Args:
            of_network: the PodAddresses of each network, by name.
            unassigned: the addresses of a network that nodes report as their pods'.
        """
        self._networks, self._addresses, self._of_network = networks, addresses, of_network
        self._unassigned = unassigned
        self._ledgers: dict[str, NetworkLedger | None] = {}
        self._findings: dict[str, tuple[Finding, ...]] = {}
        self._withheld: dict[str, PodAddress] = {}

    def made(self, name: str) -> NetworkLedger | None:
        """The ledger of a network, if it was made."""
        return self._ledgers.get(name)

    def findings(self, name: str) -> tuple[Finding, ...]:
        """The errors of a network whose ledger was needed."""
        return self._findings[name]

    def forget(self, name: str) -> None:
        """A network has another spec."""
        self._ledgers.pop(name, None)
        self._findings.pop(name, None)

    def withhold(self, address: PodAddress) -> None:
        """Keep an address for its owner: its PodAddress was deleted by hand."""
        ledger = self.known(address.spec.network)
        if ledger is not None:
            self._withheld[address.name] = address
            ledger.withhold(address)

    def stop_withholding(self, name: str) -> str:
        """Another owner may get an address that was withheld; returns its network, "" if it was not withheld."""
        address = self._withheld.pop(name, None)
        if address is None:
            return ""
        ledger = self._ledgers.get(address.spec.network)
        if ledger is not None:
            ledger.stop_withholding(address)
        return address.spec.network

    def withheld_elsewhere(self, network: str, owner: AddressOwner, family: Family, node: str) -> PodAddress | None:
        """An address that is withheld for an interface, and that a pod on another node may have."""
        return next(
            (
                address
                for address in self._withheld.values()
                if (address.spec.network, address.spec.owner, address.family) == (network, owner, family)
                and address.spec.node_name != node
            ),
            None,
        )

    def of(self, network: str) -> NetworkLedger:
        """The addresses of a network.

        Raises:
            NoPodNetworkError: it does not exist, or its spec cannot be used.
        """
        ledger = self.known(network)
        if ledger is None:
            pod_addresses.check_usable(network, self._networks.objects.get(network), self._findings.get(network, ()))
        assert ledger is not None
        return ledger

    def known(self, name: str) -> NetworkLedger | None:
        """The addresses of a network; None if it does not exist, or its spec cannot be used."""
        network = self._networks.objects.get(name)
        if network is None:
            return None
        if name not in self._ledgers:
            self._findings[name] = findings = pod_networks.check(network)
            addresses = self._of_network.get(name, {}).values()
            ledger = None if findings else NetworkLedger(network, addresses)
            self._ledgers[name] = ledger
            withheld = [address for address in self._withheld.values() if address.spec.network == name]
            if ledger is not None:
                for address in withheld:
                    ledger.withhold(address)
            self.hold(name)
        return self._ledgers[name]

    def hold(self, name: str) -> None:
        """Have the ledger of a network count the addresses that nodes report as their pods', and unreadable ones."""
        ledger = self._ledgers.get(name)
        if ledger is not None:
            unreadable = (address_named(key, name) for key in self._addresses.unreadable)
            ledger.hold((*self._unassigned(name), *filter(None, unreadable)))
