"""Claims that the kubelet prepares: read, checked against the node's state, recorded, and released again.

`prepare` is the `ClaimHandler` · `checks` the reasons to refuse a claim · `ports` waits for ports in Neutron · `store`
the prepared claims on disk. docs/claims.md has every refusal.
"""
