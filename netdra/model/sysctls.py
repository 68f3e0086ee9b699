"""The sysctls that a step states for its interface and its pod's namespace, and which of them it may state.

`Step.sysctls` are set before the step makes or moves its interface, so that the kernel has them when the interface
comes up. Those of the step's own interface in `OWN` do not concern other pods; a policy allows others for pods with its
devices.
Asked by `netdra.rules.sysctls` and `netdra.steps.early_sysctls`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from netdra.model.texts import OWN_INTERFACE, sysctl_path

OWN = frozenset({
    *(
        f"net/ipv6/conf/{OWN_INTERFACE}/{name}"
        for name in (
            "accept_dad", "accept_ra", "accept_ra_defrtr", "accept_ra_pinfo", "accept_ra_rtr_pref", "addr_gen_mode",
            "autoconf", "dad_transmits", "disable_ipv6", "keep_addr_on_down", "use_tempaddr",
        )
    ),
    *(
        f"net/ipv4/conf/{OWN_INTERFACE}/{name}"
        for name in ("arp_announce", "arp_filter", "arp_ignore", "arp_notify", "rp_filter")
    ),
})  # fmt: skip
"""The settings of a step's own interface that every step may state, as `path` gives them."""


def path(key: str) -> str:
    """A setting's path below /proc/sys, with IFNAME for the step's interface.

    Raises:
        InvalidInputError: the key is not one of the network's, or would lead elsewhere.
    """
    return sysctl_path(key, OWN_INTERFACE)


def is_allowed(written: str, patterns: Iterable[str]) -> bool:
    """Whether a step may state a setting.

    Args:
        written: the setting, as `path` gives it.
        patterns: what policies allow: keys; `*` at the end stands for any rest.
    """
    if written in OWN:
        return True
    for pattern in patterns:
        allowed = path(pattern.removesuffix("*") + ("x" if pattern.endswith("*") else ""))
        if written == allowed or (pattern.endswith("*") and written.startswith(allowed[:-1])):
            return True
    return False


def default_of(written: str) -> str:
    """The setting that an interface inherits a setting of its own from when it comes into a namespace."""
    return written.replace(f"/{OWN_INTERFACE}/", "/default/")
