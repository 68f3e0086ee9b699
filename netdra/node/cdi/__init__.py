"""What a container sees of its claims' devices: device files, environment, and metadata files, through CDI.

`spec` renders the outcomes of a chain, `files` writes and removes them. docs/containers.md has what containers get.
"""
