"""The health of the node's devices: `sampling` reads counters, `service` reports faults by the rules of policies."""
