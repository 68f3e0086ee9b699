"""Build the test bed's components, once per machine and version.

A component is built in a throw-away Go module and renamed into the cache only when all its programs exist, so a build
that is cut off leaves nothing that looks finished. Two builds of one component at once are kept apart by a lock file.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from testbed.components import COMPONENTS, KUBERNETES_VERSION, RUNTIME, Component

GO = (1, 26)
GO_TEXT = ".".join(map(str, GO))
GO_FOLDER = "/usr/local/go/bin"
GO_THAT_FETCHES_ITSELF = (1, 21)


class BuildError(Exception):
    """A component could not be built; the text names it, the command and the end of its output."""


def cache_root() -> Path:
    """The folder that keeps built components: `$NETDRA_TESTBED_CACHE`, else `~/.cache/netdra-testbed`."""
    named = os.environ.get("NETDRA_TESTBED_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "netdra-testbed"


def component(name: str) -> Component:
    """The component of that name.

    Raises:
        BuildError: none exists.
    """
    for known in COMPONENTS:
        if known.name == name:
            return known
    raise BuildError(f"no test bed component {name!r}; there are: {', '.join(known.name for known in COMPONENTS)}")


def programs_of(wanted: Component) -> Path:
    """The folder in which a component's programs stand once it is built."""
    return cache_root() / f"{wanted.name}-{wanted.version}"


def program(name: str) -> Path:
    """The path of a built program.

    Raises:
        BuildError: no component has it, or its component is not built yet (the text states how).
    """
    wanted = component_of(name)
    path = programs_of(wanted) / name
    if not path.exists():
        raise BuildError(f"{name} is not built: run 'python3 -m testbed build {wanted.name}'")
    return path


def file(component_name: str, name: str) -> Path:
    """The path of a file of a component that is built.

    Raises:
        BuildError: the component is not built yet (the text states how).
    """
    path = programs_of(component(component_name)) / name
    if not path.exists():
        raise BuildError(f"{name} is not there: run 'python3 -m testbed build {component_name}'")
    return path


def component_of(name: str) -> Component:
    """The component that a program is of; of several, the one that the environment names, else the first.

    Raises:
        BuildError: none exists, or the one that is named has no such program.
    """
    known = [each for each in COMPONENTS if name in each.programs or name in each.c_programs]
    if not known:
        raise BuildError(f"no test bed component has a program {name!r}")
    variable = known[0].variable
    named = os.environ.get(variable, "") if variable else ""
    for each in known:
        if not named or each.is_called(named):
            return each
    raise BuildError(f"{variable}={named} has no program {name!r}; it is in {', '.join(each.name for each in known)}")


def named_runtime() -> Component:
    """The container runtime that is started: the one that the environment names, else the first.

    Raises:
        BuildError: none exists of that name.
    """
    known = [each for each in COMPONENTS if each.variable == RUNTIME]
    named = os.environ.get(RUNTIME, "")
    for each in known:
        if not named or each.is_called(named):
            return each
    raise BuildError(f"{RUNTIME}={named}: there are {', '.join(each.name for each in known)}")


def ensure(wanted: Component) -> Path:
    """Build a component unless it is there, and return the folder of its programs.

    Raises:
        BuildError: the Go tool failed.
    """
    target = programs_of(wanted)
    if target.is_dir():
        return target
    with locked(target.name):
        if target.is_dir():
            return target
        started = time.monotonic()
        print(f"testbed: building {wanted.name} {wanted.version} ...", file=sys.stderr, flush=True)
        for abandoned in cache_root().glob(f".{target.name}-*"):  # by a build that was killed; we hold its lock
            shutil.rmtree(abandoned)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=cache_root()) as folder:
            output = Path(folder) / "bin"
            _build_module(wanted, Path(folder) / "module", output)
            output.rename(target)
        print(f"testbed: {wanted.name} built in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return target


def _build_module(wanted: Component, module: Path, output: Path) -> None:
    module.mkdir()
    output.mkdir()
    requires = "".join(f"require {line}\n" for line in wanted.requires)
    replaces = [*wanted.replaces, *_replaces_of_modules(wanted)]
    # With a Go version that prunes module graphs, only compiled modules have to be fetched and verified.
    head = f"module testbed/{wanted.name}\n\ngo {GO_TEXT}.0\n\n"
    (module / "go.mod").write_text(head + requires + "".join(f"replace {line}\n" for line in replaces))
    # A main package cannot be imported by code that is compiled, only by a file that a build tag leaves out.
    imports = "".join(f'import _ "{path}"\n' for path in wanted.programs.values() if not path.startswith("./"))
    (module / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\n{imports}")
    if wanted.source:
        (name,) = wanted.programs
        source = Path(__file__).with_name(wanted.source)
        if source.is_dir():
            shutil.copytree(source, module / name)
        else:
            (module / name).mkdir()
            shutil.copy(source, module / name / "main.go")
    _go(wanted, module, "mod", "tidy", *(("-e",) if wanted.lacks_tests else ()))
    ldflags = " ".join(("-s", "-w", *wanted.ldflags))
    flags = ("-trimpath", "-ldflags", ldflags, "-tags", ",".join(wanted.tags))
    _copy_files(wanted, module, output)
    for name, folder in wanted.c_programs.items():
        _compile(wanted, module, folder, output / name)
    if all(path.rsplit("/", 1)[1] == name for name, path in wanted.programs.items()):
        _go(wanted, module, "build", *flags, "-o", f"{output}/", *wanted.programs.values())
        return
    for name, path in wanted.programs.items():
        _go(wanted, module, "build", *flags, "-o", str(output / name), path)


def _compile(wanted: Component, module: Path, folder: str, target: Path) -> None:
    """Build a program from C sources of a module, for a machine of any distribution."""
    path = wanted.requires[0].partition(" ")[0]
    sources = Path(_go(wanted, module, "list", "-m", "-f", "{{.Dir}}", path).strip(), folder)
    compile_c(target, sorted(sources.glob("*.c")), ("-std=c99", "-Os", "-static"))


def compile_c(target: Path, sources: Iterable[Path], options: Sequence[str]) -> None:
    """Run the C compiler.

    Raises:
        BuildError: the compiler is missing, or a source does not compile.
    """
    command = ("cc", *options, "-o", str(target), *map(str, sources))
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BuildError(f"{target.name} needs a C compiler: run 'python3 -m testbed system'") from None
    if done.returncode != 0:
        raise BuildError(f"{target.name} does not compile:\n{done.stderr[-4000:]}")


def _replaces_of_modules(wanted: Component) -> Iterator[str]:
    """The replaces of a module's own go.mod that hold here: those by a path inside its repository get a version."""
    path, version = wanted.staging_of or (wanted.requires[0].partition(" ")[0] if wanted.has_replaces else "", "")
    if not path:
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "go.mod").write_text("module testbed/staging\n")
        found = _download(wanted, Path(folder), path, wanted.version)
        upstream = json.loads(_go(wanted, Path(folder), "mod", "edit", "-json", found["GoMod"]))
    for replace in upstream["Replace"]:
        old, new = replace["Old"]["Path"], replace["New"]
        if new["Path"].startswith("./"):
            if version:
                yield f"{old} => {old} {version}"
        elif wanted.has_replaces:
            yield f"{old} => {new['Path']} {new['Version']}"


def _copy_files(wanted: Component, module: Path, output: Path) -> None:
    for name, (path, version, place) in wanted.files.items():
        shutil.copyfile(Path(_download(wanted, module, path, version)["Dir"]) / place, output / name)


def _download(wanted: Component, folder: Path, path: str, version: str) -> dict[str, str]:
    """Download a module, and return the facts that Go prints about it, such as its folder."""
    found: dict[str, str] = json.loads(_go(wanted, folder, "mod", "download", "-json", f"{path}@{version}"))
    return found


def _go(wanted: Component, folder: Path, *arguments: str) -> str:
    cgo = "1" if wanted.uses_cgo else "0"
    environment = os.environ | {"CGO_ENABLED": cgo, "GOFLAGS": "-mod=mod -buildvcs=false", "GOWORK": "off"}
    if wanted.go:
        environment["GOTOOLCHAIN"] = f"go{wanted.go}+auto"
    command = (go_program(), *arguments)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{wanted.name} {wanted.version}: 'go {' '.join(arguments)}' failed:\n{done.stderr[-4000:]}")
    return done.stdout


@cache
def go_program() -> str:
    """The path of a Go that can build all components, be it by fetching a newer one of itself.

    Raises:
        BuildError: none exists, or it is too old; the text has the required version.
    """
    needed = f"the test bed is built with Go {GO_TEXT} or newer (Kubernetes {KUBERNETES_VERSION} needs it)"
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:{GO_FOLDER}")
    if go is None:
        raise BuildError(f"{needed}, and 'go' is neither on PATH nor in {GO_FOLDER}")
    printed = subprocess.run(
        (go, "env", "GOVERSION", "GOTOOLCHAIN"), capture_output=True, text=True, check=False
    ).stdout
    version, toolchain = (*printed.splitlines(), "", "")[:2]
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < GO and (found < GO_THAT_FETCHES_ITSELF or toolchain == "local"):
        raise BuildError(f"{needed}, and {go} is {version or 'of an unknown version'}; put a newer one first on PATH")
    return go


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock of that name in the cache, which other runs on this machine wait for."""
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / f".{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
