"""The messages of the node's gRPC sockets, generated from `protos/` by `make protos`; not to be edited."""
