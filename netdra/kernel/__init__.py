"""The only code that talks to the kernel: netlink, namespaces, sysfs, ethtool, RDMA, PCI driver binding.

Used by `netdra.discovery` (reads and events), `netdra.steps` and `netdra.chain` (changes), `netdra.lab`. Imports the
model alone. `netlink` carries the messages · `link`, `kinds`, `vf`, `address`, `route` are rtnetlink · `genetlink`,
`ethtool`, `devlink` generic netlink · `rdma` its own family · `monitor` events · `netns` namespaces · `sysfs`, `pci`
files, always below a root that the caller names.
"""
