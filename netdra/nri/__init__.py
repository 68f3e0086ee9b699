"""NRI's wire, as a library: frames, and calls both ways on one socket. See README.md beside this file.

`connection` serves the runtime's requests and calls the runtime, over `framing`, which does no I/O. The messages are
generated from `protos/` by `make protos`. `netdra.node.nri` handles each event of a pod.
"""
