"""The network interfaces of this machine with their facts: the kernel's answers as an `Inventory`.

Used by the command line and the lab, and by the daemon to keep its ResourceSlices current. `live` and `recorded` read
the kernel, or a recorded sysfs tree, into the same `facts`; `assemble` makes interfaces of them; `scan` does both once,
`watch` keeps an inventory current by events; `capture` writes one as text. Facts that cannot be read are absent and
counted: one interface never hides another (decision D14).
"""
