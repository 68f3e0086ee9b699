"""The sysctls of a step's interface and of the pod's namespace that are set before the step runs.

Once an interface is up, the kernel takes router advertisements and checks addresses for duplicates: a setting that
comes later comes too late. An interface that is made in a namespace, or moved into it, has the namespace's defaults
(net/ipv6/addrconf.c, ipv6_add_dev; net/ipv4/devinet.c, inetdev_init). So the defaults have the step's values while the
step runs, be it built in or a program. Called by `netdra.chain.execute`, which runs the steps of such a pod
one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from netdra.kernel import unlocked
from netdra.kernel.errors import KernelMissingError
from netdra.model import sysctls
from netdra.model.errors import PermanentError
from netdra.model.texts import OWN_INTERFACE
from netdra.steps import sysctl
from netdra.steps.contract import Site

KEY = "sysctls"
"""The part of a step's record that is this module's."""


class EarlySysctls(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings by path: the step's values, those of its interface with the interface's name, and the former ones.

    `defaults` are the namespace's defaults while the step runs. `former` has the values of all that existed before.
    """

    if_name: str
    values: Mapping[str, str] = {}
    defaults: Mapping[str, str] = {}
    former: Mapping[str, str] = {}

    @property
    def before(self) -> dict[str, str]:
        """The settings that exist before the step runs, with the step's values."""
        return {**self.defaults, **{path: value for path, value in self.values.items() if path in self.former}}


def observe(called: str, if_name: str, wanted: Mapping[str, Any], site: Site) -> EarlySysctls:
    """The settings as they are before a step runs. Changes nothing.

    Raises:
        PermanentError: the namespace has no such setting, or its value could not be restored.
        InvalidInputError: a key is not one of the network's.
        KernelError: one cannot be read.
    """
    pod = site.inside
    exists = bool(unlocked.index_of(pod.sock, if_name))
    values: dict[str, str] = {}
    defaults: dict[str, str] = {}
    for key, value in wanted.items():
        written, text = sysctls.path(key), str(int(value)) if isinstance(value, bool) else str(value)
        values[_of(written, if_name)] = text
        # An interface inherits the defaults when it is made or moved in, and its own file does not exist before.
        if not exists and f"/{OWN_INTERFACE}/" in written:
            defaults[sysctls.default_of(written)] = text
    own = {path for path in values if exists or f"/{if_name}/" not in path}
    try:
        former = sysctl.restorable(pod.namespace, (*defaults, *(path for path in values if path in own)))
    except KernelMissingError as problem:
        raise PermanentError(f"{called}: {problem.what}", hint="remove it from sysctls", code=problem.code) from None
    return EarlySysctls(if_name=if_name, values=values, defaults=defaults, former=former)


def apply(early: EarlySysctls, site: Site) -> None:
    """Set what exists before the step runs.

    Raises:
        KernelError: the kernel refused a value.
    """
    sysctl.write(site.inside.namespace, early.before)


def settle(early: EarlySysctls, site: Site) -> None:
    """After the step: restore the namespace's defaults, and set what the step or its program has changed.

    Raises:
        KernelError: the kernel refused a value.
    """
    space = site.inside.namespace
    sysctl.give_back(space, {path: early.former[path] for path in early.defaults})
    now = sysctl.read(space, tuple(early.values))
    changed = {path: value for path, value in early.values.items() if not _is_same(now[path], value)}
    sysctl.write(space, changed)


def undo(early: EarlySysctls, site: Site) -> None:
    """Restore all settings; those of an interface that is gone are skipped.

    Raises:
        KernelError: the kernel refused a value; all are tried.
    """
    if site.pod is not None:
        sysctl.give_back(site.pod.namespace, early.former)


def check(early: EarlySysctls, changed: Collection[str], site: Site) -> tuple[str, ...]:
    """The settings that are not the step's, in words; those that a later step has `changed` are skipped.

    Raises:
        KernelError: one cannot be read.
    """
    drift = []
    for path, value in early.values.items():
        try:
            now = sysctl.read(site.inside.namespace, (path,))[path]
        except KernelMissingError:
            continue  # its interface is gone, which is a drift of the step
        if path not in changed and not _is_same(now, value):
            drift.append(f'sysctl {path} is "{now}", not "{value}"')
    return tuple(drift)


def _of(written: str, if_name: str) -> str:
    return "/".join(if_name if part == OWN_INTERFACE else part for part in written.split("/"))


def _is_same(now: str, wanted: str) -> bool:
    return sysctl.normal(now) == sysctl.normal(wanted)
