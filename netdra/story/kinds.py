"""The kinds of objects that have a story. By itself, so that the help of a command needs no rules."""

KINDS = ("pod", "claim", "device", "topology", "network")
"""The kinds that have a story."""
CLUSTER_WIDE = {"topology": "NetworkTopology", "network": "PodNetwork"}
"""Those whose objects have no namespace and no node, with their names in Kubernetes."""
