"""Options of commands: `option` declares one, `group` passes several as one argument; shared ones are declared here."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import click

from netdra.model.errors import InvalidInputError

if TYPE_CHECKING:
    from netdra.kube.client import Client
    from netdra.kube.kubeconfig import Config
    from netdra.neutron.physnets import PhysnetDefault
    from netdra.neutron.tenancy import AllowedIds

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


class Decorator(Protocol):
    """Adds options to a command."""

    def __call__(self, command: Command, /) -> Command:
        """Add them, and return the command."""


PATH = click.Path(path_type=Path)
PORT = click.IntRange(1, 65535)
_DURATION = re.compile(r"(\d+)([smhd]?)\Z")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop; only here is asyncio imported, which takes as long as the help of a command."""
    import asyncio

    return asyncio.run(work)


def option(flag: str, metavar: str | None, text: str, name: str | None = None, **rest: Any) -> Decorator:
    """A command's option with a value.

    Args:
        flag: `--name`.
        metavar: the value's name in help.
        text: the help.
        name: of the command's argument, where it is not the flag's.
        rest: as of `click.option`; a default that is not empty is shown in help.
    """
    names = (flag,) if name is None else (flag, name)
    shown = rest.get("default") not in (None, "")
    decorator: Decorator = click.option(*names, metavar=metavar, help=text, show_default=shown, **rest)
    return decorator


def output(*forms: str, text: str | None = None) -> Decorator:
    """The option --output; the first form is the default, unless the help `text` states otherwise."""
    default = forms[0] if text is None else None
    choices = click.Choice(forms)
    return click.option("--output", "-o", type=choices, default=default, show_default=text is None, help=text)


def group(argument: str, kind: Callable[..., Any], *options: Decorator) -> Decorator:
    """Options whose values a command gets as one argument.

    Args:
        argument: its name.
        kind: the type that takes the values, by the options' names.
        options: in the order of the help; one may be a group itself.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def grouped(*args: Any, **given: Any) -> Any:
            own = {name: given.pop(name) for name in names}
            return command(*args, **{argument: kind(**own)}, **given)

        names: list[str] = []
        finished: Any = grouped
        for add in reversed(options):
            finished = add(finished)
            names.append(getattr(add, "argument", finished.__click_params__[-1].name))
        wrapped: Command = finished
        return wrapped

    decorate.argument = argument  # type: ignore[attr-defined]
    return decorate


def seconds(flag: str, text: str, least: float, most: float | None, default: float, **rest: str) -> Decorator:
    """The option of a time in seconds; `rest` is the argument's `name`, or another `metavar` than SECONDS."""
    metavar, kind = rest.pop("metavar", "SECONDS"), click.FloatRange(least, most)
    return option(flag, metavar, text, type=kind, callback=_not_nan, default=default, **rest)


def _not_nan(_context: click.Context, _option: click.Parameter, given: float) -> float:
    """The value as it is, unless it is NaN, which no range of numbers refuses."""
    if math.isnan(given):
        raise click.BadParameter(f"{given} is not a number of seconds.")
    return given


def duration(flag: str, text: str) -> int:
    """The seconds of an option's value such as 90s, 10m, 12h or 7d.

    Raises:
        InvalidInputError: it has another form, or is too long.
    """
    parts = _DURATION.match(text)
    seconds = int(parts[1]) * _SECONDS[parts[2]] if parts else -1
    if not 0 <= seconds < 2**32:
        raise InvalidInputError(f'{flag} "{text}" is not valid', hint="write 90s, 10m, 12h or 7d", code="ND4050")
    return seconds


class ClusterAccess(NamedTuple):
    """The options that name an API server: a kubeconfig file, and one of its contexts."""

    kubeconfig: Path | None
    context: str | None

    @property
    def is_given(self) -> bool:
        """Whether either option is given."""
        return self != (None, None)

    def config(self) -> Config:
        """The configuration that the options lead to.

        Raises:
            InvalidInputError: none exists, it cannot be read, or it contradicts itself.
        """
        from netdra.kube.kubeconfig import find_config

        return find_config(*self)

    def client(self) -> Client:
        """A client of the API server, to be entered.

        Raises:
            InvalidInputError: as `config`.
        """
        from netdra.kube.client import Client
        from netdra.kube.connection import connect

        return Client(connect(self.config()))


def cluster(
    kubeconfig: str = "The kubeconfig file; by default kubectl's.", context: str = "The context of the kubeconfig."
) -> Decorator:
    """The options --kubeconfig and --context with these helps, as the command's argument `cluster`."""
    return group(
        "cluster",
        ClusterAccess,
        option("--kubeconfig", "PATH", kubeconfig, type=PATH),
        option("--context", "NAME", context),
    )


namespace = option("--namespace", "NAME", "netdra's namespace.", envvar="NETDRA_NAMESPACE", default="netdra")
name = option(
    "--name",
    "NAME",
    "The base name of netdra's objects: the name of the Helm release.",
    envvar="NETDRA_NAME",
    default="netdra",
)
kubelet_root = option(
    "--kubelet-root",
    "DIR",
    "The directory of the kubelet.",
    type=PATH,
    envvar="NETDRA_KUBELET_ROOT",
    default="/var/lib/kubelet",
)
nri_socket = option(
    "--nri-socket",
    "PATH",
    "The NRI socket of the runtime.",
    type=PATH,
    envvar="NETDRA_NRI_SOCKET",
    default="/var/run/nri/nri.sock",
)
cdi_dir = option("--cdi-dir", "DIR", "The directory for CDI files.", type=PATH, default="/var/run/cdi")
cni_path = option(
    "--cni-path",
    "DIR",
    "The directories of CNI plugins.",
    type=PATH,
    multiple=True,
    envvar="NETDRA_CNI_PATH",
    default=["/opt/cni/bin"],
)
state_dir = option(
    "--state-dir",
    "DIR",
    "The directory of the driver's state, which survives its restarts.",
    type=PATH,
    envvar="NETDRA_STATE_DIR",
    default="/var/lib/netdra",
)


def places(kind: Callable[..., Any], host_root: str) -> Decorator:
    """The options of the node's directories with this help of --host-root, as the command's argument `places`."""
    root = option("--host-root", "DIR", host_root, "root", type=PATH, default="/")
    return group("places", kind, root, kubelet_root, nri_socket, cdi_dir, cni_path, state_dir)


sysfs = option("--sysfs", "ROOT", "A recorded tree that replaces /sys of this machine.", "root")
nodes = option("--node", "NAME", "Only this node; may be given several times.", "nodes", multiple=True)
physnet = option(
    "--physnet",
    "PHYSNET=NIC,...",
    "NICs that are connected to a physical network, by name or PCI address; repeatable.",
    "physnets",
    multiple=True,
)
registry_socket = option(
    "--socket",
    "PATH",
    "The socket of the node's device registry.",
    type=PATH,
    envvar="NETDRA_REGISTRY_SOCKET",
    default="/run/netdra/registry.sock",
)
registry_token = option("--token-file", "PATH", "A pod's token, projected for the audience dra.networking.", type=PATH)


def token(path: Path | None) -> str:
    """A token from its file, "" without one.

    Raises:
        InvalidInputError: the file cannot be read.
    """
    try:
        return path.read_text().strip() if path is not None else ""
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise InvalidInputError(
            f"--token-file {path}: {reason}", hint="use the file of a projected token", code="ND4051"
        ) from None


def _plugins(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    from netdra.topology.step_check import is_plugin_name

    for name in given:
        if name != "*" and not is_plugin_name(name):
            raise click.BadParameter(
                f"{name!r} is not a valid CNI plugin name; use the name of its executable, default, or *"
            )
    return given


allow_plugin = option(
    "--allow-plugin",
    "TYPE",
    "A CNI plugin that topologies may use; * for all, `default` for the default list, which also "
    "applies without this option. Repeatable.",
    "allow_plugins",
    multiple=True,
    callback=_plugins,
)


def _device_files(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    if not given:
        return given
    from netdra.kernel.device_files import glob_error

    for glob in given:
        if wrong := glob_error(glob):
            raise click.BadParameter(f"{glob!r} {wrong}; an example is /dev/fpga*")
    return given


allow_device_file = option(
    "--allow-device-file",
    "GLOB",
    "Device files that providers may register and that pods may use, e.g. /dev/fpga*; by default none.",
    "allow_device_files",
    multiple=True,
    callback=_device_files,
)
unknown_differences = option(
    "--unknown-differences",
    None,
    "The action for a device that a pod returns with a difference that netdra does not know.",
    type=click.Choice(["Report", "Hold"]),
    default="Report",
)


def _ids(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    for text in given:
        if not _ID.fullmatch(text):
            raise click.BadParameter(f"{text!r} is not an ID; openstack project list and network list print the IDs")
    return given


_ID = re.compile("[0-9a-fA-F-]{32,36}")
"""Keystone writes ids of projects without hyphens, Neutron those of networks with them."""


class CloudAccess(NamedTuple):
    """The options of a cloud whose Neutron has ports for VFs."""

    neutron_clouds: Path | None
    neutron_cloud: str
    neutron_physnets: Path | None
    allow_projects: tuple[str, ...] = ()
    allow_networks: tuple[str, ...] = ()
    shared_names: bool = False

    @property
    def allowed(self) -> AllowedIds:
        """The allowed projects and networks beside the cloud's own project."""
        from netdra.neutron.tenancy import AllowedIds

        return AllowedIds(
            projects=frozenset(self.allow_projects),
            networks=frozenset(self.allow_networks),
            shared_names=self.shared_names,
        )

    def defaults(self) -> Mapping[str, PhysnetDefault]:
        """Check the options as far as that is possible now: clouds.yaml is read again at each login.

        Returns:
            By physical network, the network of ports whose step names none.

        Raises:
            click.UsageError: an option makes no sense without another one.
            CloudsError: a file cannot be used.
        """
        clouds, cloud, physnets, *allowed = self
        if clouds is None:
            if cloud or physnets is not None or any(allowed):
                raise click.UsageError(
                    "--neutron-cloud, --neutron-physnets, --neutron-allow-project, --neutron-allow-network and "
                    "--neutron-shared-names require --neutron-clouds with a clouds.yaml"
                )
            return {}
        from netdra.neutron import clouds as files
        from netdra.neutron import physnets as defaults

        files.read(clouds, cloud)
        return defaults.read(physnets) if physnets is not None else {}


cloud = group(
    "cloud",
    CloudAccess,
    option(
        "--neutron-clouds",
        "FILE",
        "A clouds.yaml with the credentials for the cloud whose Neutron has the ports of VFs; without "
        "it, Neutron is not used.",
        type=PATH,
    ),
    option("--neutron-cloud", "NAME", "The cloud in the file; required if the file contains several.", default=""),
    option(
        "--neutron-physnets",
        "FILE",
        "The networks for ports of VFs whose topology does not set a network: 'physnet2: {network: blue}'.",
        type=PATH,
    ),
    option(
        "--neutron-allow-project",
        "ID",
        "An additional project whose networks and ports may be used; by default only the cloud's own project.",
        "allow_projects",
        multiple=True,
        callback=_ids,
    ),
    option(
        "--neutron-allow-network",
        "ID",
        "A network that may be used although it belongs to another project and is not shared with the "
        "cloud's own project.",
        "allow_networks",
        multiple=True,
        callback=_ids,
    ),
    click.option(
        "--neutron-shared-names",
        "shared_names",
        is_flag=True,
        help="Also search names and physical networks among the networks that other projects share with the cloud's "
        "own project; by default, only an id leads to these.",
    ),
)
"""The options of a cloud, as the command's argument `cloud`."""
