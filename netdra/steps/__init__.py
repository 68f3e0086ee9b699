"""Step types that netdra has built in: sriov, host-device, bond, vlan, tuning, vfio-pci, rdma (decision D7).

`builtin` is what `netdra.chain` calls; it knows the types and adds IPAM to each. A step is three acts, so that it can
be undone from what was written down before it acted, wherever it was cut off: `prepare` checks its config and touches
nothing, `observe` states what the device is, `apply` acts, and `undo` gives back what `observe` saw. `contract` defines
them, `identity`, `moving` and `addressing` are what the steps share.
"""
