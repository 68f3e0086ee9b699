"""`python -m testbed build [COMPONENT ...]` and `python -m testbed system`: get what the tests need. Called by make."""

from __future__ import annotations

import argparse
import sys

from testbed import prometheus
from testbed.build import BuildError, component, ensure
from testbed.components import COMPONENTS, NEEDS
from testbed.openstack import environment as openstack
from testbed.system import MissingPackagesError, ensure_packages, ensure_watches

OPENSTACK = "openstack"
"""Neutron and Keystone, which no Go tool builds."""


def main() -> int:
    """Parse the arguments, build, and return the exit code."""
    parser = argparse.ArgumentParser(prog="testbed")
    verbs = parser.add_subparsers(dest="verb", required=True)
    build = verbs.add_parser("build", help="build components that are not in the cache yet")
    build.add_argument("names", nargs="*", metavar="COMPONENT", help="which ones (if none is named: those for --for)")
    needs = "; ".join(f"{need}: {meaning}" for need, meaning in NEEDS.items())
    build.add_argument("--for", dest="need", choices=NEEDS, default="tests", help=f"what they are for ({needs})")
    system = verbs.add_parser("system", help="install the Debian packages that are missing, and make room for watches")
    kinds = ["tests", "runtimes", "browser"]
    system.add_argument("--for", dest="need", choices=kinds, default="tests", help="what they are for")
    arguments = parser.parse_args()
    try:
        if arguments.verb == "system":
            ensure_packages(runtimes=arguments.need == "runtimes", browser=arguments.need == "browser")
            ensure_watches()
            return 0
        named = [component(name) for name in arguments.names if name not in (OPENSTACK, prometheus.PACKAGE)]
        every = not arguments.names
        for wanted in [known for known in COMPONENTS if known.needed_by == arguments.need] if every else named:
            print(ensure(wanted))
        if OPENSTACK in arguments.names or (every and arguments.need == "tests"):
            print(*openstack.ensure(), sep="\n")
        if prometheus.PACKAGE in arguments.names or (every and arguments.need == "tests"):
            print(prometheus.ensure())
    except (BuildError, MissingPackagesError) as problem:
        print(f"testbed: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
