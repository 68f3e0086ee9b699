"""The device registry, called by clients that protoc and grpc-go make of the protos: another implementation of gRPC."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.build import cache_root, component, ensure, go_program, locked
from tests.unit.node.registry.scene import serving

ROOT = Path(__file__).parents[3]
PROTOS = ROOT / "protos"
PACKAGES = {"registry": "registry", "device_registry": "first", "quantity": "quantity"}
"""By proto, the package of the Go code that is made of it: of the service, and of the form that it had first."""
SOURCE = Path(__file__).with_name("registry_client.go")
GO_MOD = """module netdra/client

go 1.25.0

require google.golang.org/grpc v1.82.1

require google.golang.org/protobuf v1.36.12
"""


def client() -> Path:
    """The client, built once for each version of its sources."""
    protos = [(PROTOS / f"{name}.proto").read_bytes() for name in PACKAGES]
    made_of = b"\0".join((*protos, SOURCE.read_bytes(), GO_MOD.encode()))
    target = cache_root() / f"registry-client-{hashlib.sha256(made_of).hexdigest()[:12]}"
    generators = [ensure(component(name)) for name in ("protoc-gen-go", "protoc-gen-go-grpc")]
    with locked("registry-client"):
        if not target.exists():
            _build(target, generators)
    return target


def _build(target: Path, generators: list[Path]) -> None:
    with TemporaryDirectory(prefix="registry-client-") as name:
        folder = Path(name)
        paths = os.environ | {"PATH": os.pathsep.join([*map(str, generators), os.environ["PATH"]])}
        # As `testbed.protos` has it: a file that imports another one finds it below the folder of Python's modules.
        files = {proto: f"netdra/node/wire/{proto}.proto" for proto in PACKAGES}
        places = [f"M{files[proto]}=netdra/client/{package};{package}" for proto, package in PACKAGES.items()]
        outputs = [
            f"--{each}{text}"
            for each in ("go", "go-grpc")
            for text in (f"_out={folder}", "_opt=module=netdra/client", *(f"_opt={place}" for place in places))
        ]
        command = (sys.executable, "-m", "grpc_tools.protoc", f"-Inetdra/node/wire={PROTOS}", *outputs)
        subprocess.run((*command, *files.values()), env=paths, check=True)
        (folder / "go.mod").write_text(GO_MOD)
        (folder / "main.go").write_bytes(SOURCE.read_bytes())
        go = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false", "GOWORK": "off"}
        for arguments in (("mod", "tidy"), ("build", "-trimpath", "-o", str(folder / "client"), ".")):
            subprocess.run((go_program(), *arguments), cwd=folder, env=go, check=True)
        shutil.move(folder / "client", target)


def test_it_registers_is_refused_lists_watches_and_takes_back() -> None:
    program = client()

    async def story(folder: Path) -> str:
        async with serving(folder) as scene:
            process = await asyncio.create_subprocess_exec(program, scene.path, stdout=asyncio.subprocess.PIPE)
            printed, _ = await process.communicate()
            assert process.returncode == 0
            assert not [*scene.table.registrations]
            return printed.decode()

    with TemporaryDirectory(prefix="registry-") as name:
        printed = asyncio.run(story(Path(name)))
    assert printed.splitlines() == [
        "registered: true",
        "refused: InvalidArgument INVALID",
        "unknown: Unimplemented",
        "listed: golang eth7 4096",
        "devices: n/veth-eth7 eth7",
        "taken back: true",
        "registered in the first form: true",
        "refused in the first form: false, with a message: true",
        "listed: first eth7 4Ki",
        "taken back: true",
    ]
