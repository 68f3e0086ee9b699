"""netdra: Kubernetes network devices for the scheduler, and a pod's whole network from one declarative graph.

The packages are the architecture: `model` holds the types, `exposure`, `slices` and `topology` are pure functions on
them, `kernel` and `cni` touch the machine, `discovery`, `steps` and `chain` put these to work, `lab` and `cli` show it.
"""

__version__ = "0.3.0.dev0"
