"""The node daemon: publishes the node's devices, prepares claims, attaches pods, reports.

`reconcile` decides which ResourceSlices to write · `publish` writes them and keeps them as they should be.
"""
