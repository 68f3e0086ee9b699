"""The container runtime's side of a pod: when its sandbox begins, stops and goes (NRI).

`plugin` keeps netdra registered with the runtime and calls the `hooks`, which the rest of the daemon answers. Below it
are `service` (requests → hooks), `runner` (answers in time), `connection` (calls both ways), and, without I/O,
`messages`, `ttrpc` and `mux`.
"""
