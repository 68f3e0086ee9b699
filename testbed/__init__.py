"""The test bed: real Kubernetes components, built from the Go module proxy and started on loopback.

`components` states what exists in which version, `build` makes it once per machine, `control_plane` starts it.
Only the standard library is used here, so that a build can begin before anything is installed.
"""
