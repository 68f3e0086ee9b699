"""The inputs and duties of a built-in step. Implemented by each step's module, used by `builtin`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from netdra.cni.plugins import PluginPath
from netdra.kernel.device_files import DeviceFiles
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.kernel.sysfs import Sysfs
from netdra.model import texts
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError
from netdra.model.kept import Keep
from netdra.model.plan import PlannedDevice, PlannedPort, called
from netdra.model.result import CNIInterface, StepResult
from netdra.model.texts import MAC_PATTERN

MacText = Annotated[str, msgspec.Meta(pattern=MAC_PATTERN)]
Mtu = Annotated[int, msgspec.Meta(ge=68, le=65535)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]

P = TypeVar("P", bound="Params")
R = TypeVar("R", bound="Record")


class Params(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The parameters of every step's config; a step has its own parameters as well, and others are rejected.

    `name` is the interface's and was settled when the plan was made. Runtimes give `runtimeConfig`, `deviceID`, `args`
    and `cniVersion` to plugins; here they have a meaning only where a step documents it.
    """

    name: str = ""
    ipam: Mapping[str, Any] = {}
    dns: Mapping[str, Any] = {}
    runtime_config: Mapping[str, Any] = {}
    args: Mapping[str, Any] = {}
    device_id: str = msgspec.field(default="", name="deviceID")
    cni_version: str = ""


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The data for undoing a step, recorded before it acts."""

    @property
    def holds(self) -> tuple[str, ...]:
        """The keys of the devices that the pod has for itself through this step (`DeviceIdentity.key`)."""
        return ()


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One step to carry out, its config without references.

    Attributes:
        topology: the topology that has the step, for messages.
        if_name: the interface that it makes or changes.
        network: the network's name, for IPAM plugins.
        device: the device that was allocated for it, if it is a root step.
        below: the allocated devices that a derived step stands on, in the order of the plan.
        port: the device's port in Neutron, if the step has one.
        keep: what of its configuration on the node the device keeps.
        default_route: whether the step may give the pod a default route that comes before that of `eth0`.
        previous: the merged result of the steps that it depends on.
        later: the records of later steps of its type on the same interface; given for `check` alone.
        noted: the step's notes from when it was done; given for `check` alone.
    """

    topology: str
    step: str
    type: str
    if_name: str
    network: str
    config: Mapping[str, Any]
    device: PlannedDevice | None = None
    below: tuple[PlannedDevice, ...] = ()
    port: PlannedPort | None = None
    keep: tuple[Keep, ...] = ()
    default_route: bool = False
    previous: StepResult = StepResult()
    later: tuple[Mapping[str, Any], ...] = ()
    noted: tuple[str, ...] = ()

    @property
    def called(self) -> str:
        """The step as messages call it."""
        return f"{called(self.topology, self.step)} ({self.type})"


class NoTimeError(TemporaryError):
    """A step was not undone because the time was up."""


class PodSpace(msgspec.Struct, frozen=True):
    """The pod's network namespace, open.

    Attributes:
        sock: a netlink socket in it.
        path: what results name it by.
        cookie: the number that no other namespace has until the next boot.
    """

    namespace: Namespace
    sock: Socket
    path: str
    cookie: int


class Site(msgspec.Struct, frozen=True):
    """Where a chain acts. The calling thread's network namespace is the host's.

    Attributes:
        host: a netlink socket in the host's namespace.
        pod: the pod's namespace, or None where it is gone: then only devices that came back to the host can be undone.
        container_id: CNI_CONTAINERID for IPAM plugins, with `arguments` as CNI_ARGS.
        plugins: where IPAM plugins are.
        sysfs: the host's.
        deadline: when acts must be over, on the monotonic clock.
        lock: a descriptor that programs which act for the step inherit, or -1.
        holder: which other sandbox has a device, by the device's key; "" for none.
        port_holder: which other sandbox has a port of a PCI function, by the function's address; "" for none.
        vfs_before: the settings that a PF had for its VFs before a sandbox got the PF, by the PF's address, as a step's
            record has them (`netdra.steps.functions`); None if no sandbox has it.
        device_files: which device files pods may be given.
        hold_unknown: whether a device is held if it comes back with a difference that netdra does not know, such as an
            attribute of a newer kernel; else the difference is a note.
        notes: what the acting step has to state though it succeeds; the caller takes them.
        restored: how undoing a step has made a device what it was, beyond what the step changed; likewise.
    """

    host: Socket
    host_namespace: Namespace
    pod: PodSpace | None
    container_id: str
    arguments: Mapping[str, str]
    plugins: PluginPath
    sysfs: Sysfs
    deadline: float
    lock: int
    holder: Callable[[str], str]
    port_holder: Callable[[str], str] = msgspec.field(default=lambda _: "")
    vfs_before: Callable[[str], Mapping[str, Any] | None] = msgspec.field(default=lambda _: None)
    device_files: DeviceFiles = msgspec.field(default_factory=DeviceFiles)
    hold_unknown: bool = False
    notes: list[str] = []
    restored: list[str] = []

    @property
    def inside(self) -> PodSpace:
        """The pod's namespace, for acts that cannot do without.

        Raises:
            PermanentError: it is gone.
        """
        if self.pod is None:
            raise PermanentError(f"sandbox {self.container_id}: its network namespace is gone", code="ND2019")
        return self.pod

    def remaining(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())


class Attempts:
    """Acts of undoing, which are all tried: one that fails does not keep the others from being done."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._problems: list[NetdraError] = []

    def run(self, act: Callable[[], Iterable[str] | None]) -> None:
        """Try an act, and keep its notes or its error."""
        try:
            self.notes += act() or ()
        except NetdraError as problem:
            self._problems.append(problem)

    @property
    def problems(self) -> tuple[str, ...]:
        """The errors as texts, each once."""
        return tuple(dict.fromkeys(problem.what for problem in self._problems))

    def result(self) -> tuple[str, ...]:
        """The notes of all acts, if none failed.

        Raises:
            NetdraError: the error of the act that failed; of several a PermanentError with all their texts.
        """
        if len(self.problems) > 1:
            raise PermanentError("; ".join(self.problems), code="ND2020")
        if self._problems:
            raise self._problems[0]
        return tuple(self.notes)


@dataclass(frozen=True)
class Builtin(Generic[P, R]):
    """A step type.

    Attributes:
        record: what it writes down before it acts.
        prepare: check the parameters beyond their types, against the order alone.
        observe: find what is to be changed, refuse what cannot be changed, and record how it is now. Changes nothing.
        apply: act, and return the result: the previous result with the step's changes.
        undo: restore the state of `observe`, also if `apply` was cut off or never ran, also twice; return what could
            not be returned and does not matter for the device's next user. Works without the pod's namespace.
        check: the step's drift, in words. It is given the result of all steps that build on this one: what those
            changed is not a drift, nor what the order's `later` steps changed.
    """

    params: type[P]
    record: type[R]
    prepare: Callable[[Order, P], None]
    observe: Callable[[Order, P, Site], R]
    apply: Callable[[Order, P, R, Site], StepResult]
    undo: Callable[[R, Site], tuple[str, ...]]
    check: Callable[[Order, P, StepResult, Site], tuple[str, ...]]


def check_mac(mac: str, where: str) -> None:
    """Refuse a MAC that cannot be an interface's.

    Raises:
        InvalidInputError: it is zero or a group's.
    """
    if not texts.fits(mac, "mac"):
        raise InvalidInputError(f"{where}: MAC address {mac} is not one of a single interface", code="ND2021")


def appended(order: Order, interface: CNIInterface) -> StepResult:
    """The previous result with one more interface."""
    return msgspec.structs.replace(order.previous, interfaces=(*order.previous.interfaces, interface))
