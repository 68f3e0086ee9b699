"""The errors in users' objects and with pods' plans, as findings. Pure: no I/O, no clock.

Admission, `netdra validate` and the node ask the same rules: `topologies`, `claims` and `classes` check an object as it
is written, `plans` what a pod would run. All share `schemas` (with `config` and `flow`), `pod`, `values`, `confine`.
`contract` compiles a CNIPluginSchema; `shipped` alone reads: the plugin schemas that are part of this package.
"""
