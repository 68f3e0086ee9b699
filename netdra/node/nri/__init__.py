"""The container runtime's side of a pod: when its sandbox begins, stops and goes (NRI).

`hooks` is what the rest of the daemon sees of it.
"""
