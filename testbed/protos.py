"""`python -m testbed.protos`: write `netdra/node/wire/` from `protos/`, each message with its type stub.

Called by `make protos`, and by the unit test that keeps both alike. The services in a file have no code made: a server
names its methods itself, since what grpcio's generator writes has no types.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "protos"
PACKAGE = "netdra/node/wire"


def generate(into: Path) -> list[Path]:
    """Write the code of every file in `protos/` to `into`/`PACKAGE`.

    Returns:
        What was written: `NAME_pb2.py` and `NAME_pb2.pyi` for each `NAME.proto`.

    Raises:
        subprocess.CalledProcessError: a file is no valid protobuf; the compiler has said on stderr why.
    """
    names = sorted(source.stem for source in SOURCES.glob("*.proto"))
    outputs = [f"--python_out={into}", f"--pyi_out={into}"]
    # The directory stands for the package, so that a file that imports another one finds its module there.
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PACKAGE}={SOURCES}", *outputs]
    subprocess.run([*command, *(f"{PACKAGE}/{name}.proto" for name in names)], check=True)
    return [into / PACKAGE / f"{name}_pb2.{suffix}" for name in names for suffix in ("py", "pyi")]


if __name__ == "__main__":
    for written in generate(ROOT):
        print(written.relative_to(ROOT))
