"""The publishing half of the node daemon: what the node offers, kept in ResourceSlices as the kernel changes.

`interfaces` follows the kernel · `reconcile` decides which slices to write · `publish` writes a pool · `publisher`
keeps the slices as they should be · `service` runs all of it.
"""
