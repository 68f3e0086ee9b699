"""What is wrong with users' objects and with pods' plans, as findings. Pure: no I/O, no clock.

Admission, `netdra validate` and the node ask the same rules: `topologies`, `claims` and `classes` check an object as it
is written, `plans` checks what a pod would run. They share `schemas` (with `config` and `flow`), `values`, `confine`.
`contract` compiles a CNIPluginSchema; `shipped` alone reads: the plugin schemas that are part of this package.
"""
