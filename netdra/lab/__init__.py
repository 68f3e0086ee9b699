"""A node and its pods without a cluster: real namespaces, links and steps, with the allocator as scheduler.

`isolation` gives a process namespaces of its own, `node` builds the machine in them, `scenario` chooses what is run,
`pod` looks into a pod, `plugin` is a CNI plugin for machines without any, `demo` runs the whole path and `chapters`
describe it.
"""
