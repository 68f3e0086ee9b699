"""Claims that the kubelet prepares: read, checked against the node's state, recorded, and released again.

`handler` is the `ClaimHandler` · `prepare` the story of Prepare · `reading` the claim and its pods · `checks` the
reasons to refuse a claim · `ports` waits for ports in Neutron, `assigned` for addresses · `store` the prepared claims
on disk · `lookup` the plans for hooks · `release` ends claims. docs/claims.md has every refusal.
"""
