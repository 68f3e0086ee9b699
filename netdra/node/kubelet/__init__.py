"""The kubelet's side of a claim: registration, preparing and unpreparing claims, the devices' health (DRA gRPC).

`handler` is what the rest of the daemon sees of it.
"""
