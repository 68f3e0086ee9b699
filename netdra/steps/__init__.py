"""Step types that netdra has built in: sriov, host-device, bond, vlan, vrf, tuning, vfio-pci, rdma (decision D7).

`builtin` is what `netdra.chain` calls; it knows the types and adds IPAM to each. A step is three acts, so that it can
be undone from the record written before it acted, even if it was interrupted anywhere: `prepare` checks its config and
touches nothing, `observe` reads the device's state, `apply` acts, and `undo` restores the state of `observe`.
`contract` defines them, `identity`, `moving` and `addressing` are what the steps share.
"""
