"""The controller: DeviceClasses of topologies, and what is said in the status of topologies, policies and schemas.

`classes` and `status` say what should be, and are pure · `state` is the cluster as it is · `work` what is to be looked
at again, and when · `controller` compares, and has `writing` write what differs · `daemon` one of several at a time.
It keeps nothing: whoever is elected finds everything in the cluster.
"""
