"""gRPC's server side, on HTTP/2 of our own: what the kubelet and programs of the node call, in the event loop.

`frames` has the wire, `connection` the state of one connection, `calls` what a method sees, `server` the socket.
"""
