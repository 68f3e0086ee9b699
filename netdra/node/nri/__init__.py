"""The container runtime's side of a pod: when its sandbox begins, stops and goes (NRI).

`plugin` keeps netdra registered with the runtime and calls the `hooks`, which the rest of the daemon answers, in time.
The wire below it is `netdra.nri`.
"""
