"""The publishing half of the node daemon: the devices that the node offers, in ResourceSlices that follow the kernel.

`interfaces` follows the kernel · `plugins` the CNI path · `registered` the providers · `offering` works out the slices
to publish, with `facts` for interfaces that are away and `retain` for devices that must stay · `reconcile` decides
which slices to write · `publisher` writes them · `reports` and `reporter` keep the NodeNetwork, `announce` writes
events and informs the kubelet · `service` runs all of it.
"""
