"""NetworkTopology -> graph -> DeviceClasses and plans. Pure: no I/O, no clock.

In the order in which a topology meets them: `graph` compiles it, `interfaces` names what its steps make, `classes`
generates its DeviceClasses, `bind` turns an allocated claim into a plan, `references` and `merge` carry results from
step to step while `netdra.chain` runs it. The errors in all this, `netdra.rules` finds.
"""
