"""What a container sees of its claims' devices: device files, environment, and metadata files, by way of CDI.

`spec` renders what a chain made of the devices, `files` writes and removes it.
docs/containers.md tells what containers get.
"""
