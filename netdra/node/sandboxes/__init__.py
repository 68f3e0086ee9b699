"""Between the runtime and the chain: a pod's claims, its network attached and undone, its claims' statuses, its events.

`table` has every sandbox with its phase, and with it the claims' CDI specifications · `tracker` the pods' claims ·
`hooks` answers the runtime, `network` acts on a sandbox, which `namespaces` holds · `circuits` leaves plugins alone
that do not answer · `status` and `writer` write claims' statuses, `events` events · `carriers` announces addresses, and
reports interfaces that have no carrier · `recover` finishes what began and gives back what ended while no daemon ran ·
`examiner` searches what pods left on returned devices.
`netdra.node.parts` puts them together. docs/lifecycle.md has the whole.
"""
