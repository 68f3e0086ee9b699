"""Between the runtime and the chain: whose claims a pod has, its network attached and undone, and what is told of it.

`tracker` knows the pods' claims; `attachments` is what the runtime's hooks call; `guard` keeps a claim's CDI
specification only while it is true; `status` and `writer` tell the claim; `reconcile` and `orphans` mend what happened
while nobody was here; `service` puts them together for the daemon. docs/lifecycle.md has the whole.
"""
