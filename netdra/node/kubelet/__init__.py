"""The kubelet's side of the driver: its gRPC services, and the sockets on which it finds them.

`plugin` starts and stops all of it. `services` prepares and unprepares claims through a `handler.ClaimHandler`,
`health` tells of devices, `registration` says to the kubelet what there is. Messages are in `netdra.node.wire`.
"""
