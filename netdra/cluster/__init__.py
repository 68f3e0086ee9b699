"""A cluster as people's commands read it: the objects, the ways to read them, and their changes.

Used by `why`, `get`, `top`, `console`, `doctor`, `support-bundle`, and by all commands with `--cluster`. A kind that
the user has no right to read is noted and left out. `objects`, `devices`, `fleet` and
`wanted` are pure.
"""
