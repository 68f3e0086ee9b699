"""The CNI protocol, in the order of its specification (1.1.0): find a plugin, speak its version, run its verbs.

`protocol` has the verbs and is what callers use: `netdra.chain` for steps that are binaries, `netdra.steps` for the
IPAM plugins that built-in steps delegate to. Under it: `plugins` finds binaries, `process` runs them, `config` and
`results` write and read what goes through their pipes, `errors` states what went wrong.
"""
