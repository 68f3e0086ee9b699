"""The validating webhook `validate.networking.dra.io`: what breaks a rule is refused when it is written.

`messages` what the API server sends and wants back · `review` one request -> a verdict, by `topologies`, `policies`,
`schemas`, `custom_devices` and `claims`, all pure · `copy` the cluster's objects that verdicts stand on, `cluster` what
of them a review needs · `workers` where untrusted expressions are compiled, in time and memory that are limited ·
`server` HTTPS · `serving` its TLS and certificates that it is given · `certificates` and `keeper` those that it makes
itself.
"""
