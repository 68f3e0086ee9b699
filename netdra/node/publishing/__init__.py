"""The publishing half of the node daemon: what the node offers, kept in ResourceSlices as the kernel changes.

`interfaces` follows the kernel · `offering` works out what is to be published, with `facts` of what is away and
`retain` of what must stay · `reconcile` decides which slices to write · `publisher` keeps the slices as they should
be · `reports` and `reporter` say so in the NodeNetwork, `announce` elsewhere · `service` runs all of it.
"""
