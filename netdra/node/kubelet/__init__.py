"""The kubelet's side of the driver: `plugin` serves `services` on the sockets where the kubelet finds them.

`server` is gRPC itself; messages are in `netdra.node.wire`.
"""
