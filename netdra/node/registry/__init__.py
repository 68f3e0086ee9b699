"""The device registry: what programs on the node say of its devices, for as long as their leases last (decision D47).

`ledger` who said what, pure · `journal` the file that it outlives a restart in · `leases` both, kept current; what
publishing asks · `callers` who is calling · `service` the gRPC service on its socket.
"""
