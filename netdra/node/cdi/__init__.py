"""What a container sees of its claims' devices: device files, environment, and metadata files, by way of CDI.

`outcome` says what a device became, `spec` renders it, `files` writes and removes; all but the last touch nothing.
docs/containers.md tells what containers get.
"""
