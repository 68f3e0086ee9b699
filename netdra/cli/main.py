"""The `netdra` command: finds the module of the command that was asked for, and turns errors into exit codes.

Commands are imported one at a time, so `netdra --help` costs no import of any of them.
Exit codes: 0 done, 1 the answer is no (a claim does not fit, a check found drift), 2 bad usage or bad input,
3 the machine cannot do it, 4 it may work when tried again, 130 Ctrl-C, 141 the reader of stdout has gone away.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
from typing import Any

import click

from netdra import __version__
from netdra.cli import terminal
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError, with_code

UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

# command -> (module, one-line help); the module's command is called `command`.
COMMANDS: dict[str, tuple[str, str]] = {
    "discover": ("netdra.cli.discover", "Print the network interfaces of this machine with all attributes."),
    "capture": ("netdra.cli.capture", "Write the interfaces of this machine to a file for other commands."),
    "plan": ("netdra.cli.plan", "Print the ResourceSlices that policies create for a node's interfaces."),
    "explain": ("netdra.cli.explain", "Explain why an interface is offered as devices or not."),
    "simulate": (
        "netdra.cli.simulate",
        "Allocate claims from ResourceSlices like the scheduler, and explain failures.",
    ),
    "validate": ("netdra.cli.validate", "Validate topologies, policies, plugin schemas and claims in files."),
    "graph": ("netdra.cli.graph", "Draw a topology on the terminal, as Mermaid or as SVG."),
    "render": ("netdra.cli.render", "Show the configuration for each plugin of a topology."),
    "attach": ("netdra.cli.attach", "Attach the networks of plans to a network namespace: all or none."),
    "detach": ("netdra.cli.detach", "Detach the networks of a sandbox; only its checkpoint is required."),
    "check": ("netdra.cli.check", "Check whether the network of a sandbox has changed since it was attached."),
    "cni-plugin": ("netdra.cli.cni_plugin", "Install, maintain or remove a CNI plugin on this node."),
    "gc": ("netdra.cli.gc", "Call GC of CNI plugins to release resources of sandboxes that no longer exist."),
    "node": ("netdra.cli.node", "Run the driver of this node: publish its devices and attach networks to pods."),
    "controller": ("netdra.cli.controller", "Maintain DeviceClasses and the status of netdra's objects."),
    "webhook": ("netdra.cli.webhook", "Run the admission webhook: reject invalid objects."),
    "why": ("netdra.cli.why", "Show why a pod, claim, device, topology or network of the cluster does not work."),
    "get": ("netdra.cli.get", "List the devices of nodes, and which claim and pod uses each."),
    "top": ("netdra.cli.top", "Show how many devices are allocated and free, by node, class and PF."),
    "wire": ("netdra.cli.wire", "Measure the wire between two pods: loss, rate and path MTU, by interface."),
    "console": ("netdra.cli.console", "Serve a read-only web page of the cluster's devices and networks."),
    "doctor": (
        "netdra.cli.doctor",
        "Check the requirements of this cluster and this node, and show how to fix problems.",
    ),
    "support-bundle": (
        "netdra.cli.support_bundle",
        "Write netdra's view of a cluster or a node to one file, anonymous if you want.",
    ),
    "networks": ("netdra.cli.networks", "Import addresses of whereabouts and host-local into PodNetworks."),
    "uninstall": (
        "netdra.cli.uninstall",
        "Show the users of netdra's devices, and remove the objects that its processes created.",
    ),
    "lab": ("netdra.cli.lab", "Create a node and a pod on this machine, and show each step of a pod's network."),
    "explain-code": ("netdra.cli.explain_code", "Explain the code at the end of an error, an event or a condition."),
    "preset": ("netdra.cli.preset", "Print a policy to start with."),
    "register": ("netdra.cli.register", "Register a device of this node, or attributes of a device, for publication."),
    "registrations": (
        "netdra.cli.registrations",
        "Print the registrations of this node's devices and their providers.",
    ),
    "schemas": ("netdra.cli.schemas", "Print the built-in plugin schemas."),
    "crds": ("netdra.cli.crds", "Print the CustomResourceDefinitions of netdra."),
}


class NoSuchCommandError(click.UsageError):
    """No command has the name."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, and only listed from their names before."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`version` and `help COMMAND` are the options of other programs' commands."""
        if args[:1] == ["version"]:
            args = ["--version", *args[1:]]
        elif args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order in which a user meets them."""
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        subcommand: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return subcommand

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the arguments; the error of an unknown name has the likeliest commands."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib  # costs `netdra --help` some milliseconds

            close = difflib.get_close_matches(args[0], COMMANDS, n=3)
            listed = f" The commands are {', '.join(COMMANDS)}."
            meant = f" Did you mean {' or '.join(map(repr, close))}?" if close else listed
            raise NoSuchCommandError(f"No such command {args[0]!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader that has gone away (`| head -1`) ends it as SIGPIPE ends other programs."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(128 + signal.SIGPIPE)
        except ModuleNotFoundError as problem:
            if (problem.name or "").partition(".")[0] == "netdra":
                raise
            from netdra.model.extras import how_to_install

            raise PermanentError(
                f"netdra {ctx.invoked_subcommand} requires {problem.name}, which is not installed",
                hint=f"install the packages of the daemons {how_to_install('cluster')}",
                code="ND4032",
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help page's list, made from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="netdra")
def cli() -> None:
    """Network devices for the Kubernetes scheduler, and a pod's whole network from one graph."""


def exit_code(problem: NetdraError) -> int:
    """The exit code of a kind of error."""
    if isinstance(problem, InvalidInputError):
        return 2
    return 4 if isinstance(problem, TemporaryError) else 3


def main() -> None:
    """Run the command line; every error of netdra becomes a message and an exit code."""
    terminal.replace_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        sys.exit(cli.main(standalone_mode=False))
    except click.ClickException as problem:
        from netdra.cli import usage_errors

        click.echo(usage_errors.text(problem), err=True, nl=False)
        sys.exit(problem.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(128 + signal.SIGINT)
    except NetdraError as problem:
        terminal.tell(str(problem))
        sys.exit(exit_code(problem))
    except OSError as problem:
        if problem.errno not in UNWRITABLE:
            raise
        what = f"the output cannot be written: {problem.strerror or os.strerror(problem.errno or 0)}"
        terminal.tell(with_code(what, f"ND9{problem.errno:03}"))
        sys.exit(3)


if __name__ == "__main__":
    main()
