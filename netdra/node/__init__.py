"""The node daemon: publishes the node's devices, prepares claims, attaches pods, reports.

`daemon` starts and stops its parts · `publishing` keeps the ResourceSlices · `kubelet` answers the kubelet · `nri`
answers the container runtime · `view` is what the parts know of each other.
"""
