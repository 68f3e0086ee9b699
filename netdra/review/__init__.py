"""One review of an object: the rules for its kind, their order, and the other objects that they need.

The webhook, the controller, `netdra validate`, `why` and `doctor` ask here, and differ only in the world that they give
(a copy of the cluster, files) and in how they show the findings. The rules themselves are in `netdra.rules`. Pure.
"""
