"""The story of a pod, a claim, a device or a topology: each step on its way, the cause where it is stuck, what to do.

Called by `netdra why`, `netdra get` and `netdra top`, which read the objects. Pure: `objects` are the types that are
read, `statement` the values that are returned; `pods`, `claims`, `placement`, `shortage`, `nodes`, `devices` and
`topologies` make stories, and `usage` counts.
"""
