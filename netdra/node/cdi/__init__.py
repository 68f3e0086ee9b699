"""The parts of a claim's devices that a container gets through CDI: device files, environment, and metadata files.

`spec` renders the outcomes of a chain, `files` writes and removes them. docs/containers.md describes the content.
"""
