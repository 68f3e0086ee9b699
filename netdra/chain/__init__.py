"""Run the plans of one pod in its network namespace, undo them, and check them.

`attach`, `detach` and `check` are called by the node daemon, the lab and the command line. `checkpoint` records the
data for undoing, `order` runs a graph forwards and backwards, `execute` does one step and `step_check` checks it,
`shares` watches the devices that several pods have, `report` states what was done, and `outcome` what each device
became.
"""
