"""The node daemon: publishes the node's devices, prepares claims, attaches pods, reports.

`daemon` starts and stops its parts · `publishing` keeps the ResourceSlices · `kubelet` answers the kubelet · `nri`
answers the container runtime · `view` is the parts' view of each other.
"""
