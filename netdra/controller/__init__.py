"""The controller: DeviceClasses of topologies, and what is said in the status of topologies, policies and schemas.

`classes`, `topology_status`, `policy_status`, `schema_status` say what should be, and are pure · `work` what is to be
looked at again, and when · `controller` compares, and writes what differs · `daemon` one of several at a time.
It keeps nothing: whoever is elected finds everything in the cluster.
"""
