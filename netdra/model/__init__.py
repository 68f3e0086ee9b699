"""The frozen types of the domain, their names, units and errors. Imports nothing of netdra; everything imports it.

`inventory` facts about interfaces · `policy` DeviceExposurePolicy · `device` what exposure decides · `resource` the
resource.k8s.io/v1 objects · `topology` NetworkTopology · `plan` and `result` what a chain runs and yields ·
`custom_device` CustomDevice · `cni_plugin` CNIPlugin · `kinds`, `crd`, `openapi` ours in Kubernetes ·
`names`, `quantity`, `errors`, `documents` what all of them are written with.

The modules of types that most commands read lack `from __future__ import annotations`: of annotations that are texts,
msgspec compiles each when a type is first read, which takes a tenth of `netdra validate`.
"""
