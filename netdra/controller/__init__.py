"""The controller: DeviceClasses of topologies, shipped schemas, and what is said in the statuses of netdra's kinds.

`classes`, `schemas` and `status` say what should be, and are pure · `state` is the cluster as it is · `work` what is to
be looked at again, and when · `controller` compares, and has `writing` write what differs · `daemon` one of several at
a time.
It keeps nothing: whoever is elected finds everything in the cluster.
"""
