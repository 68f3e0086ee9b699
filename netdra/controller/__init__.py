"""The controller: DeviceClasses of topologies, CNI plugins, NeutronPorts, statuses of netdra's kinds.

`classes`, `schemas`, `installers`, `neutron_ports` and `status` work out the desired state, and are pure · `state` is
the cluster as it is, and puts changed objects on a work queue · `controller`, `plugins` and `neutron` compare, and
have `writing` write the differences · `checks` has a `worker` check expressions · `running` looks whether netdra runs ·
`uninstall` takes netdra off a cluster · `daemon` is the process, one of several at a time. It stores nothing: a new
leader finds everything in the cluster.
"""
