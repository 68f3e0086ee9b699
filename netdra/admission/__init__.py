"""The validating webhook `validate.networking.dra.io`: an object that breaks a rule is refused when it is written.

`messages` requests and answers of the API server · `review` one request -> a verdict, by `topologies`, `policies`,
`schemas`, `custom_devices` and `claims`, all pure · `copy` the cluster's objects, `nodes` the nodes' reports, `reports`
their form in memory, `cluster` the part of them that a review needs · `workers` compile untrusted expressions, in
limited time and memory · `server` HTTPS, `door` its connections · `serving` its TLS and mounted certificates ·
`certificates` and `keeper` certificates that it makes itself.
"""
