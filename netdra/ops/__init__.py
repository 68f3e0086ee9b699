"""How a daemon is operated: metrics, logs, health, an end in good order.

Used by every process that runs for long (`netdra controller`, `netdra webhook`, `netdra node`). Knows nothing of
Kubernetes or the kernel: the packages that do the work define the metrics and checks.
"""
