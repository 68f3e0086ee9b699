"""NetworkTopology -> graph -> DeviceClasses, checks and plans. Pure: no I/O, no clock.

In the order in which a topology meets them: `graph` compiles it, `interfaces` names what its steps make, `schema_check`
and `checks` find what would fail, `classes` generates its DeviceClasses, `claims` compares claims with it, `bind` turns
an allocated claim into a plan, `references` and `merge` carry results from step to step while `netdra.chain` runs it.
`shipped` alone reads: the plugin schemas that are part of this package.
"""
