"""Between the runtime and the chain: a pod's claims, its network attached and undone, its claims' statuses, its events.

`table` has every sandbox with its phase, and with it the claims' CDI specifications · `tracker` the pods' claims ·
`attachments` answers the runtime's hooks, `network` acts on a sandbox, which `namespaces` holds · `circuits` leaves
plugins alone that do not answer · `status` and `writer` write claims' statuses, `events` events · `reconcile` and
`orphans` mend what happened while no daemon ran · `service` puts them together. docs/lifecycle.md has the whole.
"""
