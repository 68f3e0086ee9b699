"""The messages of the node's sockets, generated from `protos/` by `make protos`; not to be edited."""
