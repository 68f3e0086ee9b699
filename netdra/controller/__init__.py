"""The controller: DeviceClasses of topologies, shipped schemas, and what is said in the statuses of netdra's kinds.

`classes`, `schemas` and `status` say what should be, and are pure · `state` is the cluster as it is, and puts
what changed on a work queue · `controller` compares, and has `writing` write what differs · `daemon` one of several at
a time.
It keeps nothing: a new leader finds everything in the cluster.
"""
