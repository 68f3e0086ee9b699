"""The device registry: what programs on the node state of its devices, for as long as their leases last (decision D47).

`table` the registrations with their rules, leases and damping; publishing reads them there · `journal` the file by
which they outlive a restart · `callers` a caller's owner name · `connections` bounds for callers · `service` the gRPC
service on its socket.
"""
