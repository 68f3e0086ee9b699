"""Support bundles: what netdra knows of a cluster or a node in one file, anonymous if that is wanted, and its reader.

`netdra support-bundle` writes them, `netdra why --bundle` reads them.
"""
