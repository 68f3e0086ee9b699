"""`python -m testbed.protos`: write the messages of the node's sockets from `protos/`, each file with its type stub.

Called by `make protos`, and by the unit test that keeps both alike. The services in a file have no code made: a server
names its methods itself, since what grpcio's generator writes has no types.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "protos"
PACKAGES = {
    "netdra/node/wire": ("kubelet", "registry", "device_registry", "quantity", "refusal"),
    "netdra/nri": ("nri", "ttrpc"),
}
"""Where the code of each file goes."""


def generate(into: Path) -> list[Path]:
    """Write the code of every file in `protos/` to its package below `into`.

    Returns:
        Paths below `into` of the written files: `NAME_pb2.py` and `NAME_pb2.pyi` for each `NAME.proto`.

    Raises:
        subprocess.CalledProcessError: a file is not a valid protobuf; the compiler has stated on stderr why.
    """
    written = []
    for package, names in PACKAGES.items():
        outputs = [f"--python_out={into}", f"--pyi_out={into}"]
        # The directory stands for the package, so that a file that imports another one finds its module there.
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{package}={SOURCES}", *outputs]
        subprocess.run([*command, *(f"{package}/{name}.proto" for name in names)], check=True)
        written += [Path(package, f"{name}_pb2.{suffix}") for name in names for suffix in ("py", "pyi")]
    return written


if __name__ == "__main__":
    for path in generate(ROOT):
        print(path)
