"""Between the runtime and the chain: whose claims a pod has, its network attached and undone, and what is told of it.

`table` has every sandbox with its phase, and with it the claims' CDI specifications; `tracker` knows the pods' claims;
`attachments` is what the runtime's hooks call, `network` what is done to a sandbox; `status` and `writer` tell the
claim; `reconcile` and `orphans` mend what happened while nobody was here; `service` puts them together for the daemon.
docs/lifecycle.md has the whole.
"""
