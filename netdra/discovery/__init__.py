"""What network interfaces this machine has, and what each of them is: the kernel's facts as an `Inventory`.

Used by the command line and the lab, and by the daemon to keep its ResourceSlices current. `live` and `recorded` read
the kernel, or a recorded sysfs tree, into the same `facts`; `assemble` makes interfaces of them; `scan` does both once,
`watch` keeps an inventory current by events; `capture` writes one down for others. What cannot be read is absent and
counted: one interface never hides another (decision D14).
"""
