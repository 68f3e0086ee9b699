"""Support bundles: netdra's view of a cluster or a node in one file, anonymous if that is wanted, and its reader.

`netdra support-bundle` writes them, `netdra why --bundle` reads them.
"""
