"""The components of the test bed: each one's version and how its Go programs are built.

Read by `testbed.build`. A component is built once per machine and kept under its version, so that raising a version
here is all that is needed to get the new one. Of container runtimes and of Kubernetes there are several: the first is
started unless the environment names another (`NETDRA_RUNTIME=containerd-1.7`, `NETDRA_KUBERNETES=kubernetes-1.36`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Need = Literal["tests", "runtimes", "hardware", "release", "bench"]
NEEDS: dict[Need, str] = {
    "tests": "what `make test` starts",
    "runtimes": "the other container runtimes and versions of Kubernetes that `make test-runtimes` starts",
    "hardware": "CNI plugins for SR-IOV hardware",
    "release": "Argo CD's packages and Flux' helm-controller, with which `make test-release` installs the chart",
    "bench": "hollow nodes by the hundred, and the driver that the benchmarks run beside netdra",
}

KUBERNETES_VERSIONS = ("v1.37.2", "v1.36.3")
"""The newest patch of each minor version that netdra supports, the one that most tests start first."""
KUBERNETES_VERSION = KUBERNETES_VERSIONS[0]
NEXT_KUBERNETES_VERSION = "v1.38.0-beta.0"
"""The newest pre-release. Add it to those above once the module proxy serves all of its modules.

On 2026-11-30 it refused k8s.io/apiextensions-api v0.38.0-beta.0 (kube-apiserver, kube-controller-manager),
sigs.k8s.io/iptables-wrappers v1.0.0 (kubelet, kube-proxy), k8s.io/ktesting v0.38.0-beta.0 (tests) and
sigs.k8s.io/structured-merge-diff/v7 v7.0.1 (v7.0.0 will do): "403 Forbidden: This module version is not available".
"""
CONTAINERD_VERSIONS = ("v2.4.2", "v2.3.7", "v2.2.9", "v2.1.9", "v2.0.14", "v1.7.35")
"""The newest patch of each minor version that netdra supports, the one that most tests start first."""
OLDEST_RUNTIME = "containerd-1.7"
"""The one that `make test` starts too."""
CRIO_VERSION = "v1.36.3"
RUNTIME, KUBERNETES = "NETDRA_RUNTIME", "NETDRA_KUBERNETES"
"""The environment variables that name another one."""


@dataclass(frozen=True)
class Component:
    """One set of Go programs that are built together.

    Attributes:
        name: the component's name on the command line of the test bed.
        version: the version that keys the cache.
        programs: program name -> import path of its main package; "./NAME" for that of `source`.
        requires: `module version` lines of the throw-away module that the programs are built in.
        replaces: `old => new version` lines of that module.
        ldflags: linker flags on top of `-s -w`.
        staging_of: a module whose path replaces in its own go.mod become versioned replaces here
            (Kubernetes publishes its staging modules that way), with the version to give them.
        has_replaces: whether the versioned replaces of the first required module's own go.mod hold here, too.
        files: name -> module, version and path of a file that programs need, such as their CustomResourceDefinitions.
        tags: Go's build tags.
        c_programs: program name -> the folder of its C sources in the module of the first of `requires`.
        variable: the environment variable that names another component in place of this one.
        source: the file or folder beside this one that a program of the test bed's own is, "" where none exists.
        lacks_tests: whether the module proxy lacks modules, but only some that tests of its modules need.
        go: the version of Go that it requires, if it is newer than that of the others; Go's own tool fetches it.
        uses_cgo: whether its Go packages contain C sources, for which a C compiler is required.
        needed_by: what is built when nothing is named are those that the `tests` need.
    """

    name: str
    version: str
    programs: Mapping[str, str]
    requires: tuple[str, ...]
    replaces: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    staging_of: tuple[str, str] | None = None
    has_replaces: bool = False
    files: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    c_programs: Mapping[str, str] = field(default_factory=dict)
    variable: str = ""
    source: str = ""
    lacks_tests: bool = False
    go: str = ""
    uses_cgo: bool = False
    needed_by: Need = "tests"

    @property
    def minor(self) -> str:
        """The minor version: 1.37 of v1.37.1."""
        return minor(self.version)

    def is_called(self, name: str) -> bool:
        """Whether a name refers to it: its own, or with its minor version (`containerd-2.4`)."""
        return name in (self.name, f"{self.name}-{self.minor}")


def minor(version: str) -> str:
    """The minor version of a version: 1.37 of v1.37.1."""
    return ".".join(version.removeprefix("v").split(".")[:2])


_IS_NEXT_RELEASED = minor(NEXT_KUBERNETES_VERSION) in map(minor, KUBERNETES_VERSIONS)
DRA_VERSIONS = (*(() if _IS_NEXT_RELEASED else (NEXT_KUBERNETES_VERSION,)), *KUBERNETES_VERSIONS)
"""The versions whose library for DRA the tests run beside netdra."""


def _go(version: str) -> str:
    """The Go that a version of Kubernetes requires beyond that of all components."""
    return "1.27.3" if int(minor(version).partition(".")[2]) >= 38 else ""


def _kubernetes(version: str) -> Component:
    stamp = "k8s.io/component-base/version"
    first, second = minor(version).split(".")
    is_default = version == KUBERNETES_VERSION
    names = ("kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet", "kubectl")
    return Component(
        name="kubernetes" if is_default else f"kubernetes-{minor(version)}",
        version=version,
        programs={name: f"k8s.io/kubernetes/cmd/{name}" for name in names},
        requires=(f"k8s.io/kubernetes {version}",),
        # Without these the servers report v0.0.0 and clients refuse to negotiate with them.
        ldflags=(
            f"-X {stamp}.gitVersion={version}",
            f"-X {stamp}.gitMajor={first}",
            f"-X {stamp}.gitMinor={second}",
        ),
        staging_of=("k8s.io/kubernetes", version.replace("v1.", "v0.", 1)),
        variable=KUBERNETES,
        go=_go(version),
        needed_by="tests" if is_default else "runtimes",
    )


_DIFFER = "sigs.k8s.io/structured-merge-diff/v7"
_NEXT_REPLACES = (f"{_DIFFER} => {_DIFFER} v7.0.0",)  # the module proxy does not serve v7.0.1


def _kube_proxy() -> Component:
    return replace(
        _kubernetes(KUBERNETES_VERSION),
        name="kube-proxy",
        programs={"kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy"},
        variable="",
    )


NEXT_SCHEDULER = f"kube-scheduler-{minor(NEXT_KUBERNETES_VERSION)}"
"""The program of the next release that can be built: it requires none of the modules that the proxy lacks."""


def _next_scheduler() -> Component:
    return replace(
        _kubernetes(NEXT_KUBERNETES_VERSION),
        name=NEXT_SCHEDULER,
        programs={NEXT_SCHEDULER: "k8s.io/kubernetes/cmd/kube-scheduler"},
        replaces=_NEXT_REPLACES,
        lacks_tests=True,
        variable="",
    )


def dra_library(version: str) -> str:
    """The program that runs the library for DRA of a version of Kubernetes, be it of this or of another patch."""
    return f"dra-library-{minor(version)}"


def _dra_library(version: str) -> Component:
    is_next = version == NEXT_KUBERNETES_VERSION
    module = "k8s.io/dynamic-resource-allocation"
    library = version.replace("v1.", "v0.", 1)
    return Component(
        name=dra_library(version),
        version=library,
        programs={dra_library(version): f"./{dra_library(version)}"},
        requires=(f"{module} {library}",),
        replaces=_NEXT_REPLACES if is_next else (),
        tags=(f"dra{minor(version).replace('.', '')}",),
        source="dra_program",
        lacks_tests=is_next,
        # Seconds beside a Kubernetes that is built as well, minutes without.
        needed_by="tests" if version == KUBERNETES_VERSION else "runtimes",
        go=_go(version),
    )


def _cni_plugins() -> Component:
    module = "github.com/containernetworking/plugins"
    folders = {
        "main": ("bridge", "macvlan", "ipvlan", "vlan", "host-device", "ptp", "loopback", "dummy", "tap"),
        "meta": ("tuning", "sbr", "vrf", "bandwidth", "portmap", "firewall"),
        "ipam": ("static", "host-local", "dhcp"),
    }
    version = "v1.9.1"
    return Component(
        name="cni-plugins",
        version=version,
        programs={name: f"{module}/plugins/{folder}/{name}" for folder, names in folders.items() for name in names},
        requires=(f"{module} {version}",),
    )


def _containerd(version: str) -> Component:
    module = "github.com/containerd/containerd" + ("/v2" if version.startswith("v2.") else "")
    is_default = version == CONTAINERD_VERSIONS[0]
    names = ("containerd", "containerd-shim-runc-v2", "ctr")
    return Component(
        name="containerd" if is_default else f"containerd-{minor(version)}",
        version=version,
        programs={name: f"{module}/cmd/{name}" for name in names},
        requires=(f"{module} {version}",),
        ldflags=(f"-X {module}/version.Version={version}",),
        variable=RUNTIME,
        needed_by="tests" if is_default or f"containerd-{minor(version)}" == OLDEST_RUNTIME else "runtimes",
    )


def _crio() -> Component:
    module = "github.com/cri-o/cri-o"
    return Component(
        name="cri-o",
        version=CRIO_VERSION,
        programs={"crio": f"{module}/cmd/crio"},
        requires=(f"{module} {CRIO_VERSION}",),
        tags=("containers_image_openpgp", "exclude_graphdriver_btrfs"),
        c_programs={"pinns": "pinns/src"},
        variable=RUNTIME,
        needed_by="runtimes",
    )


def _sriov_cni() -> Component:
    # The newest release that the module proxy serves is from before modules, and under its former owner's import path.
    old, version = "github.com/intel/sriov-cni", "v2.1.0"
    return Component(
        name="sriov-cni",
        version=version,
        programs={"sriov": f"{old}/cmd/sriov"},
        requires=(
            f"{old} {version}+incompatible",
            "github.com/containernetworking/cni v0.6.0",
            "github.com/containernetworking/plugins v0.7.5",
        ),
        replaces=(f"{old} => github.com/k8snetworkplumbingwg/sriov-cni {version}+incompatible",),
        needed_by="hardware",
    )


def _argo_cd() -> Component:
    version = "v3.6.1"
    modules = ("github.com/argoproj/argo-cd/v3", "github.com/argoproj/argo-cd/gitops-engine/v3")
    return Component(
        name="argo-cd",
        version=version,
        programs={"argo-cd": "./argo-cd"},
        requires=tuple(f"{module} {version}" for module in modules),
        has_replaces=True,
        source="argo_cd.go",
        needed_by="release",
        go="1.27.3",
    )


def _flux() -> Component:
    # The newest version that the module proxy serves. It does not serve github.com/fluxcd/pkg/artifact, which the
    # source-controller requires ("403 Forbidden: This module version is not available"): of that one only the kinds.
    module, version = "github.com/fluxcd/helm-controller", "v1.6.4"
    sources, kinds = ("github.com/fluxcd/source-controller", "v1.9.5"), "config/crd/bases"
    return Component(
        name="flux",
        version=version,
        programs={"helm-controller": module},
        requires=(f"{module} {version}",),
        staging_of=(module, version),
        has_replaces=True,
        files={
            "helmreleases.yaml": (module, version, f"{kinds}/helm.toolkit.fluxcd.io_helmreleases.yaml"),
            "helmcharts.yaml": (*sources, f"{kinds}/source.toolkit.fluxcd.io_helmcharts.yaml"),
            "ocirepositories.yaml": (*sources, f"{kinds}/source.toolkit.fluxcd.io_ocirepositories.yaml"),
        },
        needed_by="release",
    )


COMPONENTS: tuple[Component, ...] = (
    *map(_kubernetes, KUBERNETES_VERSIONS),
    _kube_proxy(),
    *map(_dra_library, DRA_VERSIONS),
    *(() if _IS_NEXT_RELEASED else (_next_scheduler(),)),
    Component(
        name="etcd",
        version="v3.6.8",
        programs={"etcd": "go.etcd.io/etcd/server/v3"},
        requires=("go.etcd.io/etcd/server/v3 v3.6.8",),
    ),
    _cni_plugins(),
    Component(
        name="cnitool",
        version="v1.3.1",
        programs={"cnitool": "github.com/containernetworking/cni/cnitool"},
        requires=("github.com/containernetworking/cni v1.3.1",),
    ),
    *map(_containerd, CONTAINERD_VERSIONS),
    _crio(),
    Component(
        name="crictl",
        version="v1.36.0",
        programs={"crictl": "sigs.k8s.io/cri-tools/cmd/crictl"},
        requires=("sigs.k8s.io/cri-tools v1.36.0",),
    ),
    # The oldest CDI library that the module proxy serves; CRI-O 1.30 has it.
    Component(
        name="cdi-cache",
        version="v0.7.2",
        programs={"cdi-cache": "./cdi-cache"},
        requires=("tags.cncf.io/container-device-interface v0.7.2",),
        source="cdi_cache.go",
    ),
    # The compiler of protos/registry.proto to Go, for a provider in Go.
    Component(
        name="protoc-gen-go",
        version="v1.36.12",
        programs={"protoc-gen-go": "google.golang.org/protobuf/cmd/protoc-gen-go"},
        requires=("google.golang.org/protobuf v1.36.12",),
    ),
    Component(
        name="protoc-gen-go-grpc",
        version="v1.5.1",
        programs={"protoc-gen-go-grpc": "google.golang.org/grpc/cmd/protoc-gen-go-grpc"},
        requires=("google.golang.org/grpc/cmd/protoc-gen-go-grpc v1.5.1",),
    ),
    Component(
        name="kwok",
        version="v0.8.0",
        programs={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
        requires=("sigs.k8s.io/kwok v0.8.0",),
        needed_by="bench",
    ),
    Component(
        name="helm",
        version="v4.3.1",
        programs={"helm": "helm.sh/helm/v4/cmd/helm"},
        requires=("helm.sh/helm/v4 v4.3.1",),
    ),
    # Where a release's image and chart are pushed to, as users push them.
    Component(
        name="distribution",
        version="v3.1.2",
        programs={"registry": "github.com/distribution/distribution/v3/cmd/registry"},
        requires=("github.com/distribution/distribution/v3 v3.1.2",),
    ),
    # CoreDNS with the plugins that a test needs: the module's own program has those of three clouds as well.
    Component(
        name="coredns",
        version="v1.15.0",
        programs={"coredns": "./coredns"},
        requires=("github.com/coredns/coredns v1.15.0",),
        source="coredns.go",
    ),
    Component(
        name="actionlint",
        version="v1.7.12",
        programs={"actionlint": "github.com/rhysd/actionlint/cmd/actionlint"},
        requires=("github.com/rhysd/actionlint v1.7.12",),
    ),
    # Checks the English of pages, messages and descriptions (`make lint`). The newest version whose requirements the
    # module proxy serves: later ones require an unreleased commit of cascadia.
    Component(
        name="vale",
        version="v3.22.0",
        programs={"vale": "github.com/vale-cli/vale/v3/cmd/vale"},
        requires=("github.com/vale-cli/vale/v3 v3.22.0",),
        uses_cgo=True,
    ),
    _sriov_cni(),
    _argo_cd(),
    _flux(),
    Component(
        name="dranet",
        version="v1.4.0",
        programs={"dranet": "sigs.k8s.io/dranet/cmd/dranet"},
        requires=("sigs.k8s.io/dranet v1.4.0",),
        needed_by="bench",
    ),
)
