"""Claims that the kubelet prepares: read, checked against the node as it is, written down, and given up again.

`prepare` is the `ClaimHandler`; `checks` and `exclusion` say why a claim is refused; `store` keeps what was prepared.
docs/claims.md has every refusal.
"""
