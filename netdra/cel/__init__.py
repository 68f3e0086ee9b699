"""CEL as Kubernetes speaks it for devices: compile a selector once, ask it of many devices.

The only importer of the CEL engine. Used by `netdra.exposure` (policies), `netdra.slices` (the allocator) and
`netdra.topology` (device classes).
"""

from netdra.cel.engine import CompiledSelector, DeviceVariables, compile_selector, device_variables, load_all
from netdra.cel.errors import CelCompileError, CelEvaluationError
from netdra.cel.guards import guarded, joined
from netdra.cel.index import SelectorIndex
from netdra.cel.values import Version

__all__ = [
    "CelCompileError",
    "CelEvaluationError",
    "CompiledSelector",
    "DeviceVariables",
    "SelectorIndex",
    "Version",
    "compile_selector",
    "device_variables",
    "guarded",
    "joined",
    "load_all",
]
