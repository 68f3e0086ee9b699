"""The test bed's errors when it cannot build, and which components are built for each purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from netdra.model.scheduler_version import NEWEST_SCHEDULER, OLDEST_SCHEDULER, SchedulerVersion
from testbed import build
from testbed.build import BuildError, component, component_of, ensure, file, named_runtime, program, programs_of
from testbed.components import (
    COMPONENTS,
    CONTAINERD_VERSIONS,
    KUBERNETES_VERSION,
    KUBERNETES_VERSIONS,
    OLDEST_RUNTIME,
    RUNTIME,
    Component,
    dra_library,
    minor,
)
from testbed.openstack import environment

ANY = component("cnitool")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NETDRA_TESTBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "GO_FOLDER", str(tmp_path))
    build.go_program.cache_clear()
    yield
    build.go_program.cache_clear()


def go(folder: Path, version: str, toolchain: str) -> str:
    """A PATH whose Go reports some version."""
    program = folder / "go"
    program.write_text(f"#!/bin/sh\necho {version}\necho {toolchain}\n")
    program.chmod(0o755)
    return str(folder)


def test_the_error_without_go_names_the_version_and_the_searched_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=rf"Go 1\.26 or newer .* 'go' is neither on PATH nor in {tmp_path}"):
        ensure(ANY)


@pytest.mark.parametrize(("version", "toolchain"), [("go1.19.8", ""), ("go1.25.3", "local")])
def test_a_go_that_is_too_old_and_cannot_fetch_a_newer_one_is_refused_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, toolchain: str
) -> None:
    monkeypatch.setenv("PATH", go(tmp_path, version, toolchain))
    with pytest.raises(BuildError, match=rf"Go 1\.26 or newer .* is {version}"):
        ensure(ANY)


@pytest.mark.parametrize(("version", "toolchain"), [("go1.21.1", "auto"), ("go1.26.0", "local"), ("go2.0", "local")])
def test_a_go_that_is_new_enough_or_fetches_a_newer_one_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, toolchain: str
) -> None:
    monkeypatch.setenv("PATH", go(tmp_path, version, toolchain))
    assert build.go_program() == str(tmp_path / "go")


def test_a_failed_build_leaves_no_programs_and_clears_remains_of_a_killed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{go(tmp_path, 'go1.26.0', 'local')}:/usr/bin:/bin")
    (tmp_path / "go").write_text(
        '#!/bin/sh\n[ "$1" = env ] && echo go1.26.0 && exit 0\necho "no network" >&2\nexit 1\n'
    )
    left = tmp_path / "cache" / f".{programs_of(ANY).name}-abandoned"
    left.mkdir(parents=True)
    with pytest.raises(BuildError, match=r"cnitool v1\.3\.1: 'go mod tidy' failed:\nno network"):
        ensure(ANY)
    assert not programs_of(ANY).exists()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f".{programs_of(ANY).name}.lock"]


def test_a_program_that_is_not_built_names_the_command_that_builds_it() -> None:
    with pytest.raises(BuildError, match="ctr is not built: run 'python3 -m testbed build containerd'"):
        program("ctr")


OTHER = Component(
    name="other",
    version="v1.2.0",
    programs={"other": "example.com/other"},
    requires=("example.com/other v1.2.0",),
    staging_of=("example.com/other", "v1.2.0"),
    has_replaces=True,
    files={"kinds.yaml": ("example.com/kinds", "v3.0.0", "config/kinds.yaml")},
)
FAKE_GO = """#!/bin/sh
case "$*" in
  env*) echo go1.26.0 ;;
  *"mod download"*kinds*) echo '{"Dir": "MODULE"}' ;;
  *"mod download"*) echo '{"GoMod": "go.mod"}' ;;
  *"mod edit"*) echo '{"Replace": [
    {"Old": {"Path": "example.com/other/api"}, "New": {"Path": "./api"}},
    {"Old": {"Path": "example.com/yaml"}, "New": {"Path": "example.com/fork", "Version": "v9.9.9"}}]}' ;;
  "mod tidy") cat go.mod >FOLDER/go.mod ;;
  build*) : ;;
esac
"""


@pytest.mark.parametrize(
    ("wanted", "replaces"),
    [
        (
            OTHER,
            ["example.com/other/api => example.com/other/api v1.2.0", "example.com/yaml => example.com/fork v9.9.9"],
        ),
        (replace(OTHER, staging_of=None), ["example.com/yaml => example.com/fork v9.9.9"]),
        (replace(OTHER, has_replaces=False), ["example.com/other/api => example.com/other/api v1.2.0"]),
        (replace(OTHER, staging_of=None, has_replaces=False), []),
    ],
)
def test_replaces_of_a_module_and_files_of_another_are_those_of_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Component, replaces: list[str]
) -> None:
    monkeypatch.setenv("PATH", f"{go(tmp_path, 'go1.26.0', 'local')}:/usr/bin:/bin")
    module = tmp_path / "module"
    (module / "config").mkdir(parents=True)
    (module / "config" / "kinds.yaml").write_text("kind: Other\n")
    (tmp_path / "go").write_text(FAKE_GO.replace("MODULE", str(module)).replace("FOLDER", str(tmp_path)))
    assert (ensure(wanted) / "kinds.yaml").read_text() == "kind: Other\n"
    written = (tmp_path / "go.mod").read_text().splitlines()
    assert [line.removeprefix("replace ") for line in written if line.startswith("replace ")] == replaces


def test_a_file_of_a_component_that_is_not_built_names_the_command_that_builds_it() -> None:
    with pytest.raises(BuildError, match=r"helmcharts\.yaml is not there: run 'python3 -m testbed build flux'"):
        file("flux", "helmcharts.yaml")


def test_names_of_components_and_of_their_programs_are_unique() -> None:
    first = {each.variable or each.name: each for each in reversed(COMPONENTS)}.values()
    names = Counter(known.name for known in COMPONENTS)
    programs = Counter(name for known in first for name in known.programs)
    assert set((names | programs).values()) == {1}


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("", "containerd"),
        ("containerd", "containerd"),
        (f"containerd-{minor(CONTAINERD_VERSIONS[0])}", "containerd"),
        ("containerd-2.1", "containerd-2.1"),
        (OLDEST_RUNTIME, OLDEST_RUNTIME),
    ],
)
def test_the_environment_names_the_runtime_that_is_started(
    monkeypatch: pytest.MonkeyPatch, named: str, expected: str
) -> None:
    monkeypatch.setenv(RUNTIME, named)
    assert named_runtime().name == expected
    assert {component_of(name).name for name in ("containerd", "ctr", "containerd-shim-runc-v2")} == {expected}
    assert component_of("kubelet").name == "kubernetes"


def test_another_kind_of_runtime_has_programs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUNTIME, "cri-o")
    assert named_runtime().name == component_of("crio").name == component_of("pinns").name == "cri-o"
    with pytest.raises(BuildError, match=f"{RUNTIME}=cri-o has no program 'ctr'"):
        component_of("ctr")


def test_an_unknown_runtime_is_reported_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUNTIME, "containerd-1.6")
    with pytest.raises(BuildError, match=r"there are containerd, containerd-2\.3, .*cri-o"):
        named_runtime()


def test_newest_version_of_the_scheduler_is_that_of_the_newest_release() -> None:
    assert SchedulerVersion.parse(KUBERNETES_VERSION) == NEWEST_SCHEDULER
    assert min(map(SchedulerVersion.parse, KUBERNETES_VERSIONS)) == OLDEST_SCHEDULER


def test_exactly_the_expected_components_are_needed_by_tests() -> None:
    needed = {known.name for known in COMPONENTS if known.needed_by == "tests"}
    assert needed == {
        *("kubernetes", "etcd", "cni-plugins", "cnitool", "containerd", "crictl", "cdi-cache", "helm"),
        *("protoc-gen-go", "protoc-gen-go-grpc", "distribution", "coredns", "actionlint", "vale", "kube-proxy"),
        *(OLDEST_RUNTIME, dra_library(KUBERNETES_VERSION)),
    }


@pytest.mark.parametrize("lock", environment.LOCKS, ids=lambda lock: lock.name)
def test_neutron_comes_by_hashes_alone_and_from_nowhere_in_particular(lock: Path) -> None:
    lines = lock.read_text().splitlines()
    pinned = [line for line in lines if "==" in line and not line.startswith((" ", "#"))]
    assert pinned
    assert all(line.endswith("\\") for line in pinned), "a hash follows each"
    assert not [line for line in lines if "://" in line or line.startswith("-")]
    assert lock.name == "build.lock" or f"neutron=={environment.VERSION} \\" in pinned
