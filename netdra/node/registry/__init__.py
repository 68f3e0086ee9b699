"""The device registry: what programs on the node say of its devices, for as long as their leases last (decision D47).

`ledger` the registrations and their rules, pure · `journal` the file by which they outlive a restart · `leases` both,
kept current; publishing reads them there · `callers` a caller's owner name · `connections` bounds for callers ·
`service` the gRPC service on its socket.
"""
